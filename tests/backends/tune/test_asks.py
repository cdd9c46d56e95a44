"""What a short race asks."""

from __future__ import annotations

from weft.backends.tune.asks import again, asks
from weft.dsl.catalog import topology
from weft.dsl.collective import make
from weft.dsl.units import SizeRange

SIZES = SizeRange(1 << 14, 1 << 20)


def test_a_short_race_asks_the_engines_that_the_user_names() -> None:
    machine, collective = topology("ring:4"), make("allgather", 4)
    usual = again(asks(machine, collective, SIZES), SIZES)
    assert {q.engine for q in usual if not q.baseline} == {"portfolio"}
    mine = ("packing{trees=1}",)
    named = again(asks(machine, collective, SIZES, engines=mine), SIZES, engines=mine)
    assert {(q.engine, q.size) for q in named if not q.baseline} == {
        ("packing{trees=1}", SIZES.low), ("packing{trees=1}", SIZES.high),
    }  # fmt: skip

"""Parts of ``weft resynth`` that need no race."""

from __future__ import annotations

from weft.backends.cli.verbs.resynth import _forms, _losses
from weft.backends.tune.variants import Variant
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Tuned
from weft.dsl.nouns.program import Protocol


def tuned(grid: tuple[int, ...]) -> Tuned:
    us = tuple(float(n) for n in grid)
    return Tuned(make("allgather", 2), {}, grid, us, us, us, (), ())


def test_losses_are_told_at_powers_of_two_or_at_all_sizes() -> None:
    one = tuned((1000, 1024, 2000))
    assert [row.bytes for row in _losses(one, one)] == [1024]
    one = tuned((1000, 2000))
    assert [row.bytes for row in _losses(one, tuned((1000, 1500, 2000)))] == [1000, 2000]


def test_forms_keep_to_the_protocols_that_race() -> None:
    old = (Variant(4, Protocol.LL128), Variant(2, Protocol.LL))
    assert _forms(old, ("Simple", "LL", "LL128")) == old
    assert _forms(old, ("Simple", "LL")) == (
        Variant(4, Protocol.SIMPLE),
        Variant(4, Protocol.LL),
        Variant(2, Protocol.LL),
    )

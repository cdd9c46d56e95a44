"""Parts of ``weft resynth`` that need no race."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from weft.backends.cli.output.console import Console
from weft.backends.cli.verbs.resynth import _asked, _loss_text, _losses
from weft.backends.compile.variants import Variant
from weft.backends.tune.options import TuneOptions, timing_of
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Tuned, TunedPlan
from weft.dsl.nouns.program import Protocol


def tuned(grid: tuple[int, ...]) -> Tuned:
    us = tuple(float(n) for n in grid)
    return Tuned(make("allgather", 2), {}, grid, us, us, us, (), ())


def test_losses_are_told_at_powers_of_two_or_at_all_sizes() -> None:
    one = tuned((1000, 1024, 2000))
    assert [row.bytes for row in _losses(one, one)] == [1024]
    one = tuned((1000, 2000))
    assert [row.bytes for row in _losses(one, tuned((1000, 1500, 2000)))] == [1000, 2000]


def test_losses_are_told_with_and_without_the_start_of_calls() -> None:
    (row,) = _losses(replace(tuned((8,)), start_us=(6.0,)), replace(tuned((8,)), start_us=(4.0,)))
    assert (row.was_start_us, row.start_us) == (6.0, 4.0)
    head, line = _loss_text("allgather", [row]).splitlines()[1:]
    assert "without starts  bound rose" in head
    assert line.split()[3:6] == ["+0.0%", "+100.0%", "+0.0%"]
    (row,) = _losses(tuned((8,)), tuned((8,)))
    assert "without starts" not in _loss_text("allgather", [row])


def test_forms_keep_to_the_protocols_that_race() -> None:
    plans = [TunedPlan("a", 1, 2, "", "", "LL128", 4), TunedPlan("b", 3, 4, "", "", "LL", 2)]
    one = replace(tuned((8,)), plans=tuple(plans))
    gone: Any = SimpleNamespace(dead_ranks=(1,))

    def forms(*protocols: str) -> tuple[Variant, ...]:
        options = TuneOptions(SizeRange(8, 8), protocols=protocols)
        old: Any = SimpleNamespace(tuned=[one], timing=timing_of(options))
        args: Any = SimpleNamespace(library="")
        ((_, asked),) = _asked(args, old, gone, [one.collective], options, Console())
        return asked.forms

    old = (Variant(4, Protocol.LL128), Variant(2, Protocol.LL))
    assert forms("Simple", "LL", "LL128") == old
    assert forms("Simple", "LL") == (
        Variant(4, Protocol.SIMPLE),
        Variant(4, Protocol.LL),
        Variant(2, Protocol.LL),
    )

"""Parts of ``weft resynth`` that need no race."""

from __future__ import annotations

from dataclasses import replace

from weft.backends.cli.verbs.resynth import _loss_text, _losses
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Tuned


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

"""The grid of a race: fine only where what is best changes."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import patterns
import pytest

from weft.backends.compile.variants import Variant
from weft.backends.tune.effort import EFFORT
from weft.backends.tune.race import refined
from weft.backends.tune.timing import RaceEntry, Runner, Track, spaced
from weft.dsl.base.units import SizeRange
from weft.synth.time.calibrated import DATASHEET

SIZES = SizeRange(1 << 10, 1 << 20)
TRACK = Track("msccl", ("Simple",), (False, True), DATASHEET)
SCHEDULE = patterns.ring_allgather(2, 1)

Us = Callable[[int], float]


def race(*finalists: Us) -> tuple[list[int], list[RaceEntry], list[dict[str, Any]]]:
    """The last of them is the baseline; what all jobs were given."""
    runners = [
        Runner(str(i), SCHEDULE, baseline=i == len(finalists) - 1) for i in range(len(finalists))
    ]
    forms = [(runner, Variant(1 + i)) for i, runner in enumerate(runners)]
    asked: list[dict[str, Any]] = []

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        asked.extend(given)
        answers = []
        for one in given:
            us = finalists[Variant.of(one["variant"]).instances - 1]
            limits = [math.inf if x is None else x for x in one["limits"]]
            times = [us(n) for n in one["sizes"]]
            answers.append([t if t <= x else None for t, x in zip(times, limits, strict=True)])
        return answers

    known = [{n: us(n) for n in spaced(SIZES, 0.5)} for us in finalists]
    grid, entries = refined(forms, known, SIZES, TRACK, jobs)
    return grid, entries, asked


def test_where_nothing_changes_powers_of_two_are_enough() -> None:
    grid, entries, asked = race(lambda n: 1.0 * n, lambda n: 1.5 * n)
    assert grid == [1 << i for i in range(10, 21)]
    assert all(us is not None for e in entries for us in e.us)
    # Files for all placements are looked for once.
    assert [one["in_place"] for one in asked].count([False, True]) == 2


@pytest.mark.parametrize("change", [3 << 10, 100_000, 1_000_000])
def test_the_grid_is_fine_where_one_gives_way_to_another(change: int) -> None:
    base = 2e5
    grid, entries, _ = race(
        lambda n: base + n, lambda n: base + change + 1.1 * (n - change), lambda n: 3 * (base + n)
    )
    below, above = max(n for n in grid if n < change), min(n for n in grid if n >= change)
    assert above / below < 2 ** (1 / EFFORT.fine_per_octave) + 0.01
    assert len(grid) < len(spaced(SIZES, EFFORT.fine_per_octave))
    for at in range(len(grid)):
        assert any(e.us[at] is not None for e in entries if not e.runner.baseline)


def test_what_is_far_behind_is_not_timed_but_the_baseline_is() -> None:
    """Unless it is all that has a file."""
    _, (best, behind, base), asked = race(
        lambda n: 1.0 * n, lambda n: 1.3 * n, lambda n: (EFFORT.beside_ratio + 0.5) * n
    )
    assert set(behind.us) == {None}
    assert None not in (*best.us, *base.us)
    assert all(Variant.of(one["variant"]).instances != 2 for one in asked)


def test_where_the_near_ones_have_no_file_all_are_timed() -> None:
    runners = [Runner("best", SCHEDULE), Runner("other", SCHEDULE)]
    forms = [(runner, Variant(1 + i)) for i, runner in enumerate(runners)]

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        return [
            [None if Variant.of(one["variant"]).instances == 1 else 9.0 for _ in one["sizes"]]
            for one in given
        ]

    known = [dict.fromkeys(spaced(SIZES, 0.5), us) for us in (1.0, 9.0)]
    _, (best, other) = refined(forms, known, SIZES, TRACK, jobs)
    assert set(best.us) == {None}
    assert set(other.us) == {9.0}


@pytest.mark.parametrize("missing", [0, 3, -1])
def test_what_is_best_beside_a_size_is_timed_there_too(missing: int) -> None:
    """Though it was not explored there."""
    runners = [Runner("best", SCHEDULE), Runner("other", SCHEDULE, baseline=True)]
    forms = [(runner, Variant(1 + i)) for i, runner in enumerate(runners)]
    us = [5.0, 9.0]

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        return [[us[Variant.of(o["variant"]).instances - 1] for _ in o["sizes"]] for o in given]

    coarse = spaced(SIZES, 0.5)
    known = [dict.fromkeys(coarse, one) for one in us]
    del known[0][coarse[missing]]
    grid, (best, _) = refined(forms, known, SIZES, TRACK, jobs)
    assert best.us == (5.0,) * len(grid)


@pytest.mark.parametrize("high", [1 << 17, 1 << 18, 1 << 21, 1 << 23])
def test_few_sizes_are_powers_of_two_whatever_the_range(high: int) -> None:
    """What the runtime has by itself is timed at these only."""
    grid = spaced(SizeRange(1 << 16, high), 0.5)
    assert (grid[0], grid[-1]) == (1 << 16, high)
    assert all(n & (n - 1) == 0 for n in grid)
    assert all(one < other <= 4 * one for one, other in pairwise(grid))


def test_a_range_keeps_its_own_ends() -> None:
    assert spaced(SizeRange(1000, 9000), 0.5) == [1000, 4096, 9000]

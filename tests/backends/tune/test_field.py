"""Plans against baselines between the sizes of a grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import patterns
import pytest

from weft.backends.compile.variants import Variant
from weft.backends.tune.field import Finalists, _between, path
from weft.backends.tune.manifest import _shown
from weft.backends.tune.measure import between
from weft.backends.tune.options import TuneOptions
from weft.backends.tune.timing import RaceEntry, Runner, Track
from weft.backends.tune.work import Stand
from weft.dsl.base.units import SizeRange
from weft.synth.time.calibrated import DATASHEET

GRID = [1000, 2000, 4000, 8000]
TRACK = Track("msccl", ("Simple",), (False,), DATASHEET)
PLAN, BASELINE = Variant(1), Variant(2)


def jobs_for(slow: range, lead: float) -> Any:
    """A plan that is ``lead`` times as quick as the baseline, but takes twice as long somewhere.

    No time is asked for twice.
    """
    asked: set[tuple[Variant, int]] = set()

    def us(variant: Variant, size: int) -> float:
        if variant == BASELINE:
            return float(size)
        return 2.0 * size if size in slow else size / lead

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        new = [(Variant.of(one["variant"]), n) for one in given for n in one["sizes"]]
        assert not asked.intersection(new)
        asked.update(new)
        return [[us(Variant.of(one["variant"]), n) for n in one["sizes"]] for one in given]

    return jobs


def taken(slow: range, lead: float, grid: list[int] = GRID) -> list[str]:
    """Who is taken at each size of the grid."""
    schedule = patterns.ring_allgather(2, 1)
    entries = [
        RaceEntry(Runner("plan", schedule), PLAN, tuple(n / lead for n in grid)),
        RaceEntry(
            Runner("baseline", schedule, baseline=True), BASELINE, tuple(float(n) for n in grid)
        ),
    ]
    options = TuneOptions(sizes=SizeRange(grid[0], grid[-1]))
    came = _between(
        Finalists(grid, entries, between(entries, grid)), options, TRACK, jobs_for(slow, lead)
    )
    return [entries[i].runner.name for i in path(came, options)]


def test_a_plan_that_never_loses_is_taken() -> None:
    assert taken(range(0), 1.05) == ["plan"] * 4


@pytest.mark.parametrize(
    ("slow", "wins"),
    [
        (range(2300, 2500), "pbbp"),
        (range(2900, 3100), "pbbp"),
        (range(4100, 7900), "ppbb"),
        (range(1500, 1510), "bbpp"),
        (range(1100, 7900), "bbbb"),
        (range(2010, 2020), "pppp"),
    ],
)
def test_where_a_plan_loses_the_baseline_is_taken_on_both_sides(slow: range, wins: str) -> None:
    names = {"p": "plan", "b": "baseline"}
    assert taken(slow, 1.05) == [names[w] for w in wins]


def test_where_a_plan_leads_by_far_the_middle_is_looked_at() -> None:
    assert taken(range(2300, 2500), 3.0) == ["plan"] * 4
    assert taken(range(2900, 3100), 3.0) == ["plan", "baseline", "baseline", "plan"]


@pytest.mark.parametrize("lead", [1.05, 3.0])
def test_where_a_turn_of_a_few_bytes_begins_is_looked_at(lead: float) -> None:
    """Just beyond a power of two, at which turns end that are whole."""
    turn = Stand(patterns.ring_allgather(2, 1), "msccl", (), DATASHEET).turn_bytes(PLAN)
    grid = [turn // 2, turn, 2 * turn, 4 * turn]
    found = taken(range(2 * turn + 1, 2 * turn + turn // 50), lead, grid)
    assert found == ["plan", "plan", "baseline", "baseline"]


def test_what_is_slower_than_a_baseline_at_a_size_is_out() -> None:
    """Though the baseline has lost more to another of its forms between the sizes."""
    schedule = patterns.ring_allgather(2, 1)
    times = tuple(float(n) for n in GRID)
    entries = [
        RaceEntry(Runner("plan", schedule), PLAN, tuple(1.001 * t for t in times)),
        RaceEntry(Runner("baseline", schedule, baseline=True), BASELINE, times),
    ]
    behind = np.array([[1.002] * len(GRID), [1.01] * len(GRID)])
    came = Finalists(GRID, entries, between(entries, GRID), behind=behind)
    assert path(came, TuneOptions(sizes=SizeRange(GRID[0], GRID[-1]))) == [1] * len(GRID)


def test_what_loses_near_a_size_is_listed_with_what_it_counted_for() -> None:
    schedule = patterns.ring_allgather(2, 1)
    times = tuple(float(n) for n in GRID)
    entries = [
        RaceEntry(Runner("plan", schedule), PLAN, tuple(0.9 * t for t in times)),
        RaceEntry(Runner("baseline", schedule, baseline=True), BASELINE, times),
    ]
    behind = np.ones((2, len(GRID)))
    behind[0, 1] = 1.02
    came = Finalists(GRID, entries, between(entries, GRID), behind=behind)
    plan, baseline = _shown(came, {0, 1})
    assert plan.counted_us == pytest.approx([0.9 * times[0], 1.02 * times[1], *plan.us[2:]])
    assert baseline.counted_us == ()


def test_an_interrupt_between_sizes_keeps_the_race() -> None:
    schedule = patterns.ring_allgather(2, 1)
    times = tuple(float(n) for n in GRID)
    entries = [
        RaceEntry(Runner("plan", schedule), PLAN, times),
        RaceEntry(Runner("baseline", schedule, baseline=True), BASELINE, times),
    ]
    came = Finalists(GRID, entries, between(entries, GRID))
    options = TuneOptions(sizes=SizeRange(GRID[0], GRID[-1]))
    looked = _between(came, options, TRACK, lambda *given: [None] * len(given[2]))
    assert path(looked, options) == path(came, options)


@pytest.mark.parametrize(("lead", "wins"), [(1.02, {1}), (1.04, {0})])
def test_what_gains_nothing_over_the_baselines_is_not_taken(lead: float, wins: set[int]) -> None:
    schedule = patterns.ring_allgather(2, 1)
    times = tuple(float(n) for n in GRID)
    entries = [
        RaceEntry(Runner("plan", schedule), PLAN, tuple(t / lead for t in times)),
        RaceEntry(Runner("baseline", schedule, baseline=True), BASELINE, times),
    ]
    came = Finalists(GRID, entries, between(entries, GRID))
    assert set(path(came, TuneOptions(sizes=SizeRange(GRID[0], GRID[-1])))) == wins


def test_of_baselines_that_are_ragged_the_one_that_loses_least_is_taken() -> None:
    """A form of NCCL's rings led at two sizes, and took 10 % longer than another one between."""
    schedule = patterns.ring_allgather(2, 1)

    def us(variant: Variant, size: int) -> float:
        if variant == BASELINE:
            return 1.02 * size
        return 1.1 * size if 2100 < size < 3900 else size

    entries = [
        RaceEntry(Runner("rings", schedule, baseline=True), form, tuple(us(form, n) for n in GRID))
        for form in (PLAN, BASELINE)
    ]

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        return [[us(Variant.of(one["variant"]), n) for n in one["sizes"]] for one in given]

    options = TuneOptions(sizes=SizeRange(GRID[0], GRID[-1]))
    came = _between(Finalists(GRID, entries, between(entries, GRID)), options, TRACK, jobs)
    assert path(came, options) == [0, 1, 1, 0]

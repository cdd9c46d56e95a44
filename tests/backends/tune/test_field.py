"""Plans against baselines between the sizes of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import patterns
import pytest

from weft.backends.tune.field import _between, path
from weft.backends.tune.options import TuneOptions
from weft.backends.tune.race import Entry, Runner, Track
from weft.backends.tune.variants import Variant
from weft.dsl.units import SizeRange

GRID = [1000, 2000, 4000, 8000]
TRACK = Track("msccl", ("Simple",), (False,))
PLAN, BASELINE = Variant(1), Variant(2)


def jobs_for(slow: range, lead: float) -> Any:
    """A plan that is ``lead`` times as quick as the baseline, but takes twice as long somewhere."""

    def us(variant: Variant, size: int) -> float:
        if variant == BASELINE:
            return float(size)
        return 2.0 * size if size in slow else size / lead

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        return [[us(Variant.of(one["variant"]), n) for n in one["sizes"]] for one in given]

    return jobs


def finer(slow: range, lead: float) -> tuple[list[int], list[str]]:
    """The grid in the end, and who is taken."""
    schedule = patterns.ring_allgather(2, 1)
    entries = [Entry(Runner("plan", schedule), PLAN, tuple(n / lead for n in GRID)),
               Entry(Runner("baseline", schedule, baseline=True), BASELINE,
                     tuple(float(n) for n in GRID))]  # fmt: skip
    options = TuneOptions(sizes=SizeRange(GRID[0], GRID[-1]))
    grid, entries = _between(entries, GRID, options, TRACK, jobs_for(slow, lead))
    return grid, [entries[i].runner.name for i in path(entries, grid, options)]


def test_a_plan_that_never_loses_needs_no_finer_grid() -> None:
    assert finer(range(0), 1.05) == (GRID, ["plan"] * 4)


@pytest.mark.parametrize("slow", [range(2300, 2500), range(2900, 3100), range(4100, 7900)])
def test_where_a_plan_loses_the_baseline_is_taken(slow: range) -> None:
    grid, taken = finer(slow, 1.05)
    assert len(grid) > len(GRID)
    assert grid == sorted(set(grid))
    for size, name in zip(grid, taken, strict=True):
        assert name == ("baseline" if size in slow else "plan")
    # So close to where it begins and ends that a look between finds nothing any more.
    inside = [n for n in grid if n in slow]
    assert inside


def test_where_a_plan_leads_by_far_the_middle_is_looked_at() -> None:
    grid, _ = finer(range(2300, 2500), 3.0)
    assert grid == GRID
    grid, _ = finer(range(2900, 3100), 3.0)
    assert 3000 in grid

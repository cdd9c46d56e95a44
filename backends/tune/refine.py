"""The last round of a race: finalists on a grid of sizes that is fine where the best one changes.

Between two sizes at which the same program is best, by the same lead over the baseline, there is
nothing to find out. So intervals are halved only where that differs, and at a new size only those
are timed that are near the best beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange

from .effort import EFFORT
from .timing import MapJobs, RaceEntry, Runner, Track, spaced, times_of
from .variants import Variant

NONE: Mapping[int, Sequence[int]] = {}


def refined(
    forms: Sequence[tuple[Runner, Variant]],
    known: Sequence[Mapping[int, float]],
    sizes: SizeRange,
    track: Track,
    jobs: MapJobs,
) -> tuple[list[int], list[RaceEntry]]:
    """Return the grid, and the times of finalists on it: None where they are far from the best.

    ``known``: µs of each at the sizes of the first rounds, as explored: the finalist itself is
    compiled for its own protocol.

    Raises:
        Interrupted: before one of them was known.
    """
    explored = _Table(forms, [dict(row) for row in known])
    grid = spaced(sizes, EFFORT.coarse_per_octave)
    table = _Table(forms, [{} for _ in forms])
    table.time({n: (n,) for n in grid}, explored, track, jobs, explored.leaders_beside(grid))
    # That there are files for all placements is known from now on.
    track = replace(track, in_place=(False,))
    per_octave = EFFORT.coarse_per_octave
    while per_octave < EFFORT.fine_per_octave:
        everywhere = per_octave < EFFORT.grid_per_octave
        middle = {
            round(math.sqrt(low * high)): (low, high)
            for low, high in pairwise(grid)
            if high > low + 1 and (everywhere or table.differ(low, high))
        }
        table.time(middle, table, track, jobs)
        grid = sorted({*grid, *middle})
        per_octave *= 2
    return grid, [
        RaceEntry(runner, variant, tuple(row.get(n) for n in grid))
        for (runner, variant), row in zip(forms, table.us, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Table:
    """Known µs of each finalist by size."""

    forms: Sequence[tuple[Runner, Variant]]
    us: list[dict[int, float]]

    def time(
        self,
        sizes: Mapping[int, Sequence[int]],
        before: _Table,
        track: Track,
        jobs: MapJobs,
        more: Mapping[int, Sequence[int]] = NONE,
    ) -> None:
        """Time finalists at new sizes, if ``before`` says that they are near the best beside.

        ``sizes``: for each the sizes beside it; ``more``: finalists that are timed as well.
        Interruptions leave out what was not timed.

        Raises:
            Interrupted: before any of them was known.
        """
        wanted: list[dict[int, float]] = [{} for _ in self.forms]
        limit: dict[int, float] = {}
        for size, beside in sizes.items():
            limit[size] = EFFORT.beside_ratio * max(before.best(n) for n in beside)
            for place in sorted(
                {*more.get(size, ()), *(p for n in beside for p in before.near(n))}
            ):
                baseline = self.forms[place][0].baseline
                wanted[place][size] = math.inf if baseline else limit[size]
        self._ask(wanted, track, jobs)
        # Where all of these take longer than beside it, or lack a file, others may be better.
        if ragged := [n for n in sizes if self.best(n) > limit[n]]:
            self._ask([dict.fromkeys(ragged, math.inf) for _ in self.forms], track, jobs)

    def _ask(self, wanted: Sequence[Mapping[int, float]], track: Track, jobs: MapJobs) -> None:
        some = [place for place, limits in enumerate(wanted) if limits]
        forms, limits = [self.forms[p] for p in some], [wanted[p] for p in some]
        for place, found in zip(some, times_of(forms, limits, track, jobs), strict=True):
            self.us[place] |= found or {}

    def best(self, size: int) -> float:
        """Return the least time at a size."""
        return min((row[size] for row in self.us if size in row), default=math.inf)

    def leader(self, size: int, *, baseline: bool = False) -> int | None:
        """Return the quickest at a size, of all or of the baselines; None if none was timed."""
        found = [
            (row[size], place)
            for place, row in enumerate(self.us)
            if size in row and (self.forms[place][0].baseline or not baseline)
        ]
        return min(found)[1] if found else None

    def leaders_beside(self, grid: Sequence[int]) -> dict[int, list[int]]:
        """Return the quickest at the neighbours of each size that lack a time at the size itself:
        they may be the best there too."""
        found: dict[int, list[int]] = {}
        for low, high in pairwise(grid):
            for size, other in ((low, high), (high, low)):
                leader = self.leader(other)
                if leader is not None and size not in self.us[leader]:
                    found.setdefault(size, []).append(leader)
        return found

    def near(self, size: int) -> list[int]:
        """Return those that are near the best at a size, and the quickest baseline."""
        most = EFFORT.beside_ratio * self.best(size)
        found = [place for place, row in enumerate(self.us) if row.get(size, math.inf) <= most]
        baseline = self.leader(size, baseline=True)
        return found if baseline is None or baseline in found else [*found, baseline]

    def differ(self, low: int, high: int) -> bool:
        """Return True if the best differs at two sizes, or its lead over the baseline."""
        if self.leader(low) != self.leader(high):
            return True
        one, other = self._lead(low), self._lead(high)
        return max(one, other) > EFFORT.lead_ratio * min(one, other)

    def _lead(self, size: int) -> float:
        place = self.leader(size, baseline=True)
        best = self.best(size)
        return self.us[place][size] / best if place is not None and best > 0 else 1.0

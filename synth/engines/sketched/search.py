"""The search on one field: initial plans in several orders, then rounds of improvement."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.schedule import Schedule

from ...base.meter import Meter
from .effort import SKETCHED_EFFORT, SketchedEffort
from .field import SearchInstance
from .place_kernel import NEVER
from .search_kernel import (
    Board,
    Placements,
    construct,
    cost,
    grow_together,
    improve,
    nothing_placed,
)
from .timeline_kernel import BusyIntervals, all_free

STEPS_PER_JOB = 2
"""Steps of work to place a chunk, without its hops, each about 1 µs."""

HOPS_PER_STEP = 8
"""Hops that a chunk may take, for a step of work."""

SUM_HOPS_PER_STEP = 2
"""The same for a sum: it tries several moments at which its root begins to pass it on."""

FAR = 1 << 20
"""Between the seeds of two starts."""


@dataclass(slots=True)
class PlacementSearch:
    """One field, and the best that was placed on it."""

    field: SearchInstance
    seed: int
    best: Placements
    busy: BusyIntervals
    effort: SketchedEffort = SKETCHED_EFFORT
    told: int = NEVER

    @staticmethod
    def of(
        field: SearchInstance, seed: int, effort: SketchedEffort = SKETCHED_EFFORT
    ) -> PlacementSearch:
        """The search, with nothing placed yet."""
        jobs, ranks = len(field.jobs.root), field.machine.ranks
        # A job takes each hop at most once on the way up and once on the way down.
        holders = int(np.bincount(field.hops.resource).max(initial=0))
        busy = all_free(field.resources, 2 * jobs * min(ranks, holders) + 1)
        return PlacementSearch(field, seed, nothing_placed(jobs, ranks), busy, effort)

    def run(
        self,
        meter: Meter,
        patience: int,
        goal_us: float,
        improved: Callable[[Placements], None] | None = None,
    ) -> None:
        """Search from several first answers, from each until nothing is gained in ``patience``
        turns; until the goal is met, or the work is done. ``improved`` gets first answers,
        those clearly better than the last one it got, and what each of them becomes.

        Raises:
            UserError: a chunk cannot reach all ranks that want it.
        """
        if not len(self.field.jobs.root):
            return
        goal = goal_us * self.field.machine.unit * (1 + 1e-9)

        def over(placed: Placements) -> bool:
            self._tell(placed, improved, self.effort.worth)
            return meter.over() or int(placed.end.max()) <= goal

        found: list[Placements] = []
        for start in range(self.effort.starts):
            placed, self.told = self._first(start, meter), NEVER
            self._improve_placements(placed, patience, start, over, meter)
            self._tell(placed, improved, 1)
            found.append(placed)
            if over(placed):
                break
        self.best = min(found, key=cost)

    def schedule(self) -> Schedule:
        """The schedule of the best."""
        return self.field.schedule(self.best)

    def _tell(
        self, placed: Placements, improved: Callable[[Placements], None] | None, share: float
    ) -> None:
        """Report placements that take less than a share of the time of the last report."""
        end = int(placed.end.max())
        if end < share * self.told:
            self.told = end
            if improved is not None:
                improved(placed)

    def _improve_placements(
        self,
        placed: Placements,
        patience: int,
        start: int,
        over: Callable[[Placements], bool],
        meter: Meter,
    ) -> None:
        """Turns, until none of the last ``patience`` gained anything."""
        turns, gained, least = 0, 0, cost(placed)
        self._turns(placed, 0, 0)  # resources as they were left
        while turns < gained + patience and not over(placed):
            self._turns(placed, self.effort.batch, start * FAR + turns)
            turns += self.effort.batch
            meter.spend(
                self.effort.batch
                * self._steps_to_place(min(len(self.field.jobs.root), self.effort.most_out))
            )
            if cost(placed) < least * (1 - 1e-6):
                least, gained = cost(placed), turns

    def _turns(self, placed: Placements, turns: int, seed: int) -> None:
        effort, seed = self.effort, (self.seed + seed) % (1 << 32)
        improve(self._board(placed), turns, effort.most_out, effort.heat, seed)

    def _board(self, placed: Placements) -> Board:
        return Board(self.busy, self.field.hops, self.field.jobs, placed)

    def _steps_to_place(self, jobs: int) -> int:
        """Return the work of putting ``jobs`` chunks into the gaps: each looks at all hops."""
        sums = bool((self.field.jobs.root >= 0).any())
        at_once = SUM_HOPS_PER_STEP if sums else HOPS_PER_STEP
        return jobs * (STEPS_PER_JOB + self.field.machine.hops // at_once)

    def _first(self, start: int, meter: Meter) -> Placements:
        """The best of several orders of putting everything into free resources."""
        jobs = self.field.jobs
        count = len(jobs.root)
        rng = np.random.default_rng((self.seed, start))
        best, least = nothing_placed(count, self.field.machine.ranks), np.inf
        together = start == 0 and bool(jobs.everywhere.all() and (jobs.root < 0).all())
        for attempt in range(self.effort.orders):
            placed = nothing_placed(count, self.field.machine.ranks)
            if together and attempt == 0:
                done = grow_together(self._board(placed), 0, 0)
            else:
                usual = start == 0 and attempt < 2
                order = np.arange(count) if usual else rng.permutation(count)
                done = construct(self._board(placed), order, 0, 0)
            meter.spend(self._steps_to_place(count))
            if done and cost(placed) < least:
                best, least = placed, cost(placed)
            if least < np.inf and meter.over():
                break
        if least == np.inf:
            raise UserError(
                "no way was found for a chunk to a rank that wants it by the hops that the sketch "
                "leaves",
                hint="weft explain -t TOPO -c COLL -s SKETCH says whether rules exclude each other",
            )
        return best

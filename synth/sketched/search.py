"""The search on one field: first answers in several orders, then turns until none is better."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.dsl.errors import UserError
from weft.dsl.schedule import Schedule

from .field import Field
from .search_kernel import Placed, construct, cost, grow_together, improve, nothing_placed
from .timeline_kernel import Rows, empty_rows

ORDERS = 6
"""First answers that are made."""

MOST_OUT = 6
"""Chunks that are taken out at once."""

HEAT = 0.002
"""How much worse, in parts, a turn may be that is kept."""

BATCH = 0.1
"""Seconds between two looks at the clock, about."""

WIDEST = 4096
"""Intervals of a row that there is room for."""


@dataclass(slots=True)
class Search:
    """One field, and the best that was placed on it."""

    field: Field
    seed: int
    best: Placed
    rows: Rows
    turns: int = 0

    @staticmethod
    def of(field: Field, seed: int) -> Search:
        """The search, with nothing placed yet."""
        jobs, ranks = len(field.jobs.root), field.machine.ranks
        rows = empty_rows(field.rows, min(2 * ranks * jobs + 8, WIDEST))
        return Search(field, seed, nothing_placed(jobs, ranks), rows)

    def run(
        self, seconds: float, patience: float, goal_us: float, cancelled: Callable[[], bool]
    ) -> None:
        """Search until the goal is met, the time is over, or nothing was gained for ``patience``
        seconds.

        Raises:
            UserError: a chunk cannot reach everybody who wants it.
        """
        deadline = time.monotonic() + seconds
        self._first(deadline)
        size, gained = 8, time.monotonic()
        least = cost(self.best)
        goal = goal_us * self.field.machine.unit * (1 + 1e-9)
        while (now := time.monotonic()) < min(deadline, gained + patience) and not cancelled():
            if self.best.end.max(initial=0) <= goal:
                return
            improve(
                self.rows, self.field.hops, self.field.jobs, self.best, size, MOST_OUT, HEAT,
                self.seed + self.turns,
            )  # fmt: skip
            self.turns += size
            if cost(self.best) < least * (1 - 1e-6):
                least, gained = cost(self.best), time.monotonic()
            spent = time.monotonic() - now
            size = max(1, min(4 * size, int(size * BATCH / max(spent, 1e-6))))

    def schedule(self) -> Schedule:
        """The schedule of the best."""
        return self.field.schedule(self.best)

    def _first(self, deadline: float) -> None:
        """Put everything into empty rows, in several orders, and keep the best."""
        jobs, hops = self.field.jobs, self.field.hops
        count = len(jobs.root)
        rng = np.random.default_rng(self.seed)
        least = np.inf
        together = bool(jobs.everywhere.all() and (jobs.root < 0).all())
        for attempt in range(ORDERS):
            placed = nothing_placed(count, self.field.machine.ranks)
            if together and attempt == 0:
                done = grow_together(self.rows, hops, jobs, placed, 0, self.seed)
            else:
                order = np.arange(count) if attempt < 2 else rng.permutation(count)
                done = construct(self.rows, hops, jobs, placed, order, 0, self.seed)
            if done and cost(placed) < least:
                least, self.best = cost(placed), placed
            if least < np.inf and time.monotonic() > deadline:
                break
        if not count:
            return
        if least == np.inf:
            raise UserError(
                "a chunk cannot reach a rank that wants it by the hops that the sketch leaves",
                hint="weft check SKETCH says which rules are in the way",
            )
        self._occupy()

    def _occupy(self) -> None:
        """Rows as the best leaves them."""
        improve(
            self.rows, self.field.hops, self.field.jobs, self.best, 0, MOST_OUT, HEAT, self.seed
        )

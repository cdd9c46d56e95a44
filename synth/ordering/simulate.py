"""Fluid simulation of tasks in time: strict priorities, fair sharing, one queue, no overlap.

A communication progresses at a rate of at most 1; all that run share the resources. It may be
preempted at any time, as slices do at their borders. A computation has its GPUs for itself from
its start to its end. Times are float64 µs.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Sequence
from enum import StrEnum

from weft.dsl.base.lazy_dataclass import dataclass

from .effort import ORDER_EFFORT
from .tasks import TaskGraph


class Sharing(StrEnum):
    """Rule by which communications share resources.

    ``priority``: strictly by priority. ``fair``: all are slowed alike until a resource is full
    (several communicators). ``queue``: each rank sends one at a time, in the order in which they
    became ready (one communicator); groups without a common rank do not wait for each other, loads
    of named resources wait for all. ``apart``: one class at a time in that order, and nothing
    computes meanwhile.
    """

    PRIORITY = "priority"
    FAIR = "fair"
    QUEUE = "queue"
    APART = "apart"


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a task: from start to end (µs) at one rate."""

    task: int
    start: float
    end: float
    rate: float


@dataclass(frozen=True, slots=True)
class TaskTimeline:
    """Start and end of each task, in µs, and its pieces in order of their starts."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]
    pieces: tuple[Piece, ...]

    @property
    def us(self) -> float:
        """End of the last task."""
        return max(self.ends, default=0.0)


Rates = list[tuple[int, float]]


class Simulator:
    """Simulation of one graph; all that does not depend on priorities is prepared once."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph, tasks = graph, graph.tasks
        self.us = [one.ticks / graph.scale for one in tasks]
        self.use = [
            [] if one.computes else [(r, x / one.ticks) for r, x in one.loads] for one in tasks
        ]
        self.gpus = [[r for r, _ in one.loads] if one.computes else [] for one in tasks]

    def run(self, rank: Sequence[int], sharing: Sharing = Sharing.PRIORITY) -> TaskTimeline:
        """Simulate; ``rank``: place of each task in the order of priorities, the first is 0."""
        return _Run(self, rank, sharing).go()


class _Run:
    def __init__(self, of: Simulator, rank: Sequence[int], sharing: Sharing) -> None:
        self.graph, self.us, self.use, self.gpus = of.graph, of.us, of.use, of.gpus
        self.rank, self.sharing = rank, sharing
        self.left = list(self.us)
        self.missing = [len(one.before) for one in self.graph.tasks]
        self.starts = [0.0] * len(self.us)
        self.ends = [0.0] * len(self.us)
        self.pieces: list[Piece] = []
        self.sending: list[tuple[int, int]] = []  # ready communications, by priority
        self.waiting: list[tuple[int, int]] = []  # ready computations, by priority
        self.computing: list[tuple[float, int]] = []  # heap of ends
        self.busy = [False] * len(self.graph.occupied)
        self.now = 0.0
        self.clock = 0  # counts what became ready
        self.open: dict[int, tuple[float, float]] = {}  # start and rate of the current piece

    def go(self) -> TaskTimeline:
        for at in [i for i, missing in enumerate(self.missing) if not missing]:
            self._ready(at)
        while self.sending or self.waiting or self.computing:
            rates = self._step()
            self._note(rates)
            self._advance(rates)
        self._note([])
        pieces = sorted(self.pieces, key=lambda one: (one.start, one.task))
        return TaskTimeline(tuple(self.starts), tuple(self.ends), tuple(pieces))

    def _ready(self, first: int) -> None:
        """Note that a task may start; those that take no time are over at once."""
        found = [first]
        for at in found:
            self.starts[at] = self.now
            if self.us[at] > 0:
                self.clock += 1
                by = self.sharing is Sharing.PRIORITY
                place = self.rank[at] if by else self.clock
                insort(self.waiting if self.gpus[at] else self.sending, (place, at))
                continue
            self.ends[at] = self.now
            found += self._released(at)

    def _released(self, at: int) -> list[int]:
        for other in self.graph.after[at]:
            self.missing[other] -= 1
        return [other for other in self.graph.after[at] if not self.missing[other]]

    def _step(self) -> Rates:
        if self.sharing is Sharing.APART:
            return self._apart()
        self._compute()
        if not self.sending:
            return []
        match self.sharing:
            case Sharing.PRIORITY:
                return self._by_priority()
            case Sharing.FAIR:
                return self._fair([at for _, at in self.sending])
            case _:
                return self._fair(self._queued())

    def _compute(self) -> None:
        kept = []
        for place, at in self.waiting:
            if any(self.busy[r] for r in self.gpus[at]):
                kept.append((place, at))
                continue
            for r in self.gpus[at]:
                self.busy[r] = True
            end = self.now + self.us[at]
            self.starts[at] = self.now
            self.pieces.append(Piece(at, self.now, end, 1.0))
            heapq.heappush(self.computing, (end, at))
        self.waiting = kept

    def _by_priority(self) -> Rates:
        free: dict[int, float] = {}
        rates = []
        for _, at in self.sending:
            rate = 1.0
            for r, share in self.use[at]:
                room = free.get(r, 1.0)
                if rate * share > room:
                    rate = room / share
            if rate <= ORDER_EFFORT.met:
                continue
            for r, share in self.use[at]:
                room = free.get(r, 1.0) - rate * share
                free[r] = room if room > ORDER_EFFORT.met else 0.0
            rates.append((at, rate))
        return rates

    def _fair(self, ready: list[int]) -> Rates:
        """Max–min fair: raise the rates of all alike until a resource is full, then the others."""
        room: dict[int, float] = {}
        rates: dict[int, float] = {}
        level, rising = 0.0, list(ready)
        while rising:
            demand: dict[int, float] = {}
            for at in rising:
                for r, share in self.use[at]:
                    demand[r] = demand.get(r, 0.0) + share
            step = min([1.0 - level, *(room.get(r, 1.0) / d for r, d in demand.items())])
            level += step
            for r, d in demand.items():
                room[r] = room.get(r, 1.0) - step * d
            full = {r for r in demand if room[r] <= ORDER_EFFORT.met}
            held = [at for at in rising if level >= 1.0 or any(r in full for r, _ in self.use[at])]
            rates |= dict.fromkeys(held, level)
            rising = [at for at in rising if at not in rates]
        return [(at, rates[at]) for at in ready]

    def _queued(self) -> list[int]:
        """Return the communications for which no rank has an earlier one to send."""
        heads: list[int] = []
        taken: set[int] = set()
        for _, at in self.sending:
            ranks = self.graph.tasks[at].ranks
            if not ranks:
                return heads or [at]
            if taken.isdisjoint(ranks):
                heads.append(at)
            taken.update(ranks)
        return heads

    def _apart(self) -> Rates:
        """Nothing but computations, or the communications of one class."""
        if not self.computing and self.sending:
            first = self.sending[0]
            if not self.waiting or first[0] < self.waiting[0][0] or first[1] in self.open:
                name = self.graph.tasks[first[1]].class_name
                same = [at for _, at in self.sending if self.graph.tasks[at].class_name == name]
                return self._fair(same)
        self._compute()
        return []

    def _note(self, rates: Rates) -> None:
        """Close the pieces whose rate changes, and open new ones."""
        now = dict(rates)
        for at, (start, rate) in list(self.open.items()):
            if now.get(at) != rate:
                del self.open[at]
                if self.now > start:
                    self.pieces.append(Piece(at, start, self.now, rate))
        for at, rate in rates:
            if at not in self.open:
                self.open[at] = (self.now, rate)
                if self.left[at] == self.us[at]:
                    self.starts[at] = self.now

    def _advance(self, rates: Rates) -> None:
        times = [self.now + self.left[at] / rate for at, rate in rates]
        if self.computing:
            times.append(self.computing[0][0])
        then = min(times)
        over = []
        for (at, rate), end in zip(rates, times, strict=False):
            self.left[at] -= rate * (then - self.now)
            if end <= then or self.left[at] <= ORDER_EFFORT.met * self.us[at]:
                self.left[at] = 0.0
                over.append(at)
        self.now = then
        if over:
            gone = set(over)
            self.sending = [one for one in self.sending if one[1] not in gone]
        while self.computing and self.computing[0][0] <= then:
            at = heapq.heappop(self.computing)[1]
            for r in self.gpus[at]:
                self.busy[r] = False
            over.append(at)
        for at in sorted(over):
            self.ends[at] = then
            for other in self._released(at):
                self._ready(other)

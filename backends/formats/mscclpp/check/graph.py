"""Happens-before relation of a plan: moments, and the order between them.

Every operation has moments: it starts, it has what it waits for, it ends. The threads of a block
run apart, so that within a block only a ``nop`` (a moment that follows everything before it and
precedes everything after it) or a single thread's own sequence orders operations. A signal
precedes the wait that cannot do without it; a release the acquire; packets the operation that
reads them. **Weak** edges are those of relaxed signals: they say that something happened, and
nothing of what was written before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import TypeVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.layers import EdgeLevels
from weft.dsl.base.lazy_dataclass import dataclass

from ....check.findings import Finding, Severity
from ..plan.events import Counter, Does, MemoryPlace, PlanEvent, PlanStep, events
from ..plan.model import LIMITS, ExecutionPlan

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Access:
    """An operation touches a place between two moments; ``late``: the network does it.

    ``name``: the buffer and the chunk where the place begins.
    """

    place: MemoryPlace
    name: str
    writes: bool
    start: int
    end: int
    by: PlanStep
    late: bool = False


@dataclass(slots=True, eq=False)
class CounterUse:
    """A signal, wait, release or acquire: its moment, when its block last met, and its thread.

    ``phase`` counts how often the threads of the block had met; uses in one block are listed in
    its order, but those of two threads in one phase may happen in any. ``before``: moments that
    what is given brings along.
    """

    moment: int
    met: int
    block: tuple[int, int]
    phase: int
    thread: int
    by: PlanStep
    relaxed: bool = False
    before: list[int] = field(default_factory=list)


@dataclass(eq=False)
class PlanGraph:
    """Moments of a plan and their order.

    Attributes:
        units: units of a chunk; with groups of blocks a chunk has several.
        strong, weak: for every moment those before it.
        step: the operation of each moment, where it has one.
        begin, finish: per rank, the first and last moments of its blocks.
        gives, takes: signals and waits by receiving channel, releases and acquires by semaphore.
    """

    units: int = 1
    strong: list[list[int]] = field(default_factory=list)
    weak: list[list[int]] = field(default_factory=list)
    step: list[PlanStep | None] = field(default_factory=list)
    begin: list[list[int]] = field(default_factory=list)
    finish: list[list[int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    gives: dict[Counter, list[CounterUse]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[Counter, list[CounterUse]] = field(default_factory=lambda: defaultdict(list))
    barriers: dict[tuple[int, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def moment(self, *before: int, step: PlanStep | None = None) -> int:
        """Return a new moment after some others."""
        self.strong.append(list(before))
        self.weak.append([])
        self.step.append(step)
        return len(self.strong) - 1

    def __len__(self) -> int:
        return len(self.strong)


def at(check: str, message: str, step: PlanStep, severity: Severity = Severity.ERROR) -> Finding:
    """Return a finding at an operation."""
    return Finding(check, severity, message, step.rank, step.block, step.index)


def build(plan: ExecutionPlan, units: int = 1) -> PlanGraph:
    """Return the graph of a plan of sound form; ``units``: alignment units in a chunk."""
    graph = PlanGraph(units)
    for rank, blocks in enumerate(events(plan, units)):
        graph.begin.append([])
        graph.finish.append([])
        for number, own in enumerate(blocks):
            _BlockWalk(graph, rank, number).run(own)
    # The k-th barrier of all blocks that use an id is one moment: they wait for each other.
    for blocks_at in graph.barriers.values():
        for together in zip(*blocks_at.values(), strict=False):
            before = [b for m in together for b in graph.strong[m]]
            joint = graph.moment(*before, step=graph.step[together[0]])
            for m in together:
                graph.strong[m] = [joint]
    return graph


class _BlockWalk:
    """Goes through one block."""

    def __init__(self, graph: PlanGraph, rank: int, number: int) -> None:
        self.graph, self.rank, self.number = graph, rank, number
        self.met = graph.moment()  # where all threads last met
        self.phase = 0
        self.apart: list[int] = []  # what has ended since
        self.thread: dict[int, int] = {}  # the last moment of single threads since
        self.posted: dict[Counter, list[int]] = defaultdict(list)  # ends of puts, by port
        self.stored: list[int] = []  # ends of own copies of what was stored through switches
        self.settled: list[int] = []  # those before the last meeting: a release waits for them
        self.told = False  # whether there was a release since
        graph.begin[rank].append(self.met)

    def run(self, own: list[PlanEvent]) -> None:
        """Add everything the block does."""
        for event in own:
            match event.does:
                case Does.MEET | Does.BARRIER:
                    self._meet(event)
                case Does.GIVE | Does.TAKE:
                    self._count(event)
                case Does.POST:
                    self._post(event)
                case Does.FORWARD:
                    self._forward(event)
                case Does.MOVE | Does.SUM | Does.SWITCH:
                    self._together(event)
        ends = (*self.apart, *self.stored, *self.settled)
        self.graph.finish[self.rank].append(self.graph.moment(self.met, *ends))

    def _meet(self, e: PlanEvent) -> None:
        moment = self.graph.moment(self.met, *self.apart, step=e.step)
        self.phase += 1
        self.met, self.apart, self.thread = moment, [], {}
        self.settled = [*([] if self.told else self.settled), *self.stored]
        self.stored, self.told = [], False
        if e.does is Does.BARRIER:
            self.graph.barriers[self.rank, e.barrier[0]][self.number].append(moment)

    def _alone(self, j: int, e: PlanEvent) -> CounterUse:
        """Return a moment of thread j, after the earlier ones of that thread alone."""
        moment = self.graph.moment(self.met, step=e.step)
        if j in self.thread:
            self.graph.strong[moment].append(self.thread[j])
        self._did(j, moment)
        block = self.rank, self.number
        return CounterUse(moment, self.met, block, self.phase, j, e.step, e.relaxed)

    def _did(self, j: int, moment: int) -> None:
        self.thread[j] = moment
        self.apart.append(moment)

    def _count(self, e: PlanEvent) -> None:
        for j, counter in enumerate(e.counters):
            use = self._alone(j, e)
            if e.does is Does.TAKE:
                self.graph.takes[counter].append(use)
                continue
            if e.ports:
                use.before = list(self.posted[e.ports[j]])
            elif not e.relaxed:  # stores through switches before a release have come back after it
                self.graph.strong[use.moment] += self.settled
                self.told = True
            self.graph.gives[counter].append(use)

    # --- data -----------------------------------------------------------------------------------

    def _access(
        self,
        place: MemoryPlace,
        e: PlanEvent,
        start: int,
        end: int,
        *,
        writes: bool,
        late: bool = False,
    ) -> None:
        name = f"{place.buffer}[{place.start // self.graph.units}]"
        self.graph.accesses.append(Access(place, name, writes, start, end, e.step, late))

    def _together(self, e: PlanEvent) -> None:
        """All threads do it: it starts, has the packets it reads, and ends.

        What is stored through a switch comes back to the issuer, some time: its own threads see it
        once a release has waited for it. Packets that come back to where they were read are there
        already, value and flag.
        """
        start = self.graph.moment(self.met, step=e.step)
        got = self.graph.moment(start, step=e.step)
        end = self.graph.moment(got, step=e.step)
        self.apart.append(end)
        for place in e.reads:
            self._access(place, e, got if place.packets else start, end, writes=False)
        for place in e.writes:
            done = end
            if e.does is Does.SWITCH and place.rank == self.rank:
                if place == e.reads[0] and place.packets:
                    continue
                done = self.graph.moment(end, step=e.step)
                self.stored.append(done)
            self._access(place, e, got, done, writes=True)

    def _forward(self, e: PlanEvent) -> None:
        """Wait for packets, then post them: the network takes them some time later."""
        start = self.graph.moment(self.met, step=e.step)
        got = self.graph.moment(start, step=e.step)
        self.apart.append(got)
        self._access(e.reads[0], e, got, got, writes=False)
        for place in e.writes:
            done = self.graph.moment(got, step=e.step)
            self._access(e.reads[0], e, got, done, writes=False, late=True)
            self._access(place, e, got, done, writes=True, late=True)

    def _post(self, e: PlanEvent) -> None:
        """Thread j posts the j-th put; the network reads and writes some time later."""
        for j, port in enumerate(e.ports):
            use = self._alone(j, e)
            done = self.graph.moment(use.moment, step=e.step)
            self._access(e.reads[j], e, use.moment, done, writes=False, late=True)
            self._access(e.writes[j], e, use.moment, done, writes=True, late=True)
            self.posted[port].append(done)
            if e.counters:
                use.before = list(self.posted[port])
                self.graph.gives[e.counters[j]].append(use)
            if e.flushes:
                self._did(j, self.graph.moment(use.moment, *self.posted[port], step=e.step))


# --- what has always happened before what ---------------------------------------------------------
#
# The edges are sorted by level once; marks of many accesses travel together, 64 to a word, level by
# level in array operations: O(edges · marks / 64). Where the table of all moments would be large,
# it is filled some words at a time.


@dataclass(frozen=True, eq=False)
class Past:
    """The moments of a plan, and their edges sorted by level."""

    levels: EdgeLevels
    size: int

    @staticmethod
    def of(size: int, *sides: Sequence[Sequence[int]]) -> Past:
        """Return that of moments, each side with those before every moment."""
        counts = [np.fromiter(map(len, side), np.int64, size) for side in sides]
        target = np.concatenate([np.repeat(np.arange(size), n) for n in counts])
        flat = [m for side in sides for before in side for m in before]
        return Past(EdgeLevels.of(size, np.array(flat, np.int64), target), size)

    @property
    def edges(self) -> int:
        """Return how many edges there are."""
        return len(self.levels.source)

    @property
    def words(self) -> int:
        """Return how many words fit in a table."""
        return max(1, LIMITS.table_words // max(1, self.size))

    def bits(self, marks: Sequence[tuple[int, int]], wanted: Iterable[int]) -> dict[int, int]:
        """Return the marks at or before each of some moments.

        ``marks``: (moment, number of the bit) in any order.
        """
        moments = np.array(sorted(set(wanted)), np.int64)
        found = dict.fromkeys(moments.tolist(), 0)
        at, bit = np.array(marks, np.int64).reshape(-1, 2).T
        whole = int(bit.max(initial=-1)) // 64 + 1
        for low in range(0, whole, self.words):
            high = min(whole, low + self.words)
            here = (bit >= 64 * low) & (bit < 64 * high)
            rows = self._table(at[here], bit[here] - 64 * low, high - low)[moments]
            for m, row in zip(moments.tolist(), rows, strict=True):
                found[m] |= int.from_bytes(row.astype("<u8").tobytes(), "little") << (64 * low)
        return found

    def _table(
        self, at: Ints, bit: Ints, words: int
    ) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        table = np.zeros((self.size, words), np.uint64)
        np.bitwise_or.at(table, (at, bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
        for source, heads, target in self.levels.steps():
            table[target] |= np.bitwise_or.reduceat(table[source], heads, axis=0)
        return table


def batches(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield neighbouring items whose sizes sum up to at most ``most``, or one that is larger."""
    batch: list[T] = []
    used = 0
    for item in items:
        need = size(item)
        if batch and used + need > most:
            yield batch
            batch, used = [], 0
        batch.append(item)
        used += need
    if batch:
        yield batch

"""Micro-operations: the operations of a plan as sequences of steps of a block's threads.

Every micro-operation is run by every thread of the block for itself; it returns None when done, or
what the thread waits for. Which elements a thread handles is drawn anew for every operation and
run (small messages keep few threads busy), so that a missing ``nop`` shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Protocol

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.lazy_dataclass import dataclass

from .memory import MemoryPlace, PlanMemory, Write

Key = tuple[str, int, int]
"""Event that a thread waits for: a kind, a rank, a number."""

LATER: Key = ("later", 0, 0)
"""No event: the thread has read, and writes when it is scheduled again."""

SHARES = (
    (slice(0, None, 2), slice(1, None, 2)),
    (slice(1, None, 2), slice(0, None, 2)),
    (slice(None), slice(0, 0)),
    (slice(0, 0), slice(None)),
)
"""The elements of thread 0 and thread 1, in the ways that a run may choose from."""

Posted = tuple[tuple[MemoryPlace, MemoryPlace, int] | None, int | None]
"""A put (source, sink, launch), or a signal (channel at the other end)."""

Carried = tuple[Write, ...]


class Running(Protocol):
    """The running machine as micro-operations see it: memory, channels and semaphores."""

    memory: PlanMemory
    threads: int
    tokens: list[deque[Carried]]
    posted: list[deque[Posted]]

    def share(self, operation: int, t: Thread) -> slice:
        """Return the elements of an operation that a thread handles."""
        ...

    def pauses(self) -> bool:
        """Test whether a thread stops between reading and writing."""
        ...

    def write(self, t: Thread, sink: MemoryPlace, share: slice, values: Any) -> None:
        """Write into own memory at once; into a peer's, some time."""

    def multicast(self, t: Thread, sinks: Sequence[MemoryPlace], share: slice, values: Any) -> None:
        """Write through a switch into the memory of all members, the own too, some time."""

    def written_by(self, t: Thread) -> Carried:
        """Return what a release by a thread covers: its own writes, others' up to the last nop."""
        ...

    def arrive(self, writes: Iterable[Write]) -> None:
        """Apply pending writes to memory."""

    def signal(self, target: int, carried: Carried) -> None:
        """Add a signal at the other end of a channel."""

    def post(
        self, port: int, put: tuple[MemoryPlace, MemoryPlace, int] | None, signal: int | None
    ) -> None:
        """Hand a put or a signal to the proxy of a port channel."""

    def take(self, rank: int, semaphore: int) -> bool:
        """Take one from a semaphore, if there is one."""
        ...

    def give(self, rank: int, semaphore: int) -> None:
        """Give one to a semaphore."""


class Micro:
    """One thing that all threads of a block do."""

    def run(self, m: Running, t: Thread) -> Key | None:
        """Do it for one thread, or say what it waits for."""
        raise NotImplementedError("meetings of threads are the machine's")


@dataclass(slots=True, eq=False)
class Thread:
    """A thread: where it is, how far within one operation, what it wrote since the last nop."""

    block: BlockRun
    number: int
    pc: int = 0
    progress: int = 0
    launch: int = 0
    saved: AnyArray | None = None
    writes: list[Write] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class BlockRun:
    """A thread block: its code, its threads, what all of them had written at the last nop."""

    rank: int
    number: int
    code: list[Micro]
    origin: list[int]
    threads: list[Thread] = field(default_factory=list)
    arrived: list[Thread] = field(default_factory=list)
    written: list[Write] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Meet(Micro):
    """``nop``: the threads of the block wait for each other. Handled by the machine."""


@dataclass(slots=True, eq=False)
class Barrier(Micro):
    """All threads of several blocks wait for each other. Handled by the machine."""

    id: int
    blocks: int


@dataclass(slots=True, eq=False)
class Signal(Micro):
    """Thread k signals on the k-th channel: through memory at once, else after what was posted."""

    targets: tuple[int, ...]
    ports: tuple[int, ...]
    relaxed: bool

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        for k in range(t.number, len(self.targets), m.threads):
            if self.ports:
                m.post(self.ports[k], None, self.targets[k])
            else:
                carried = () if self.relaxed else m.written_by(t)
                m.signal(self.targets[k], carried)
        return None


@dataclass(slots=True, eq=False)
class Wait(Micro):
    """Thread k takes a signal from the k-th channel."""

    channels: tuple[int, ...]
    relaxed: bool

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        while (k := t.number + t.progress * m.threads) < len(self.channels):
            tokens = m.tokens[self.channels[k]]
            if not tokens:
                return ("signal", 0, self.channels[k])
            carried = tokens.popleft()
            if not self.relaxed:
                m.arrive(carried)
            t.progress += 1
        return None


@dataclass(slots=True, eq=False)
class Acquire(Micro):
    """Thread k takes one from the k-th semaphore."""

    ids: tuple[int, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        rank = t.block.rank
        while (k := t.number + t.progress * m.threads) < len(self.ids):
            if not m.take(rank, self.ids[k]):
                return ("semaphore", rank, self.ids[k])
            t.progress += 1
        return None


@dataclass(slots=True, eq=False)
class Release(Micro):
    """Thread k gives one to the k-th semaphore."""

    ids: tuple[int, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        for k in range(t.number, len(self.ids), m.threads):
            m.arrive(m.written_by(t))
            m.give(t.block.rank, self.ids[k])
        return None


@dataclass(slots=True, eq=False)
class Move(Micro):
    """Copy each source to its target; ``sinks`` may be remote, then the writes travel."""

    number: int
    sources: tuple[MemoryPlace, ...]
    sinks: tuple[MemoryPlace, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        share = m.share(self.number, t)
        for source, sink in zip(self.sources, self.sinks, strict=True):
            values = m.memory.views(source, t.launch)[0][share]
            m.write(t, sink, share, values)
        return None


@dataclass(slots=True, eq=False)
class Combine(Micro):
    """Sum up plain values and packets; write the result to all sinks.

    The plain operands are read when the thread comes here, before it waits for packets.
    """

    number: int
    plain: tuple[MemoryPlace, ...]
    packets: tuple[MemoryPlace, ...]
    sinks: tuple[MemoryPlace, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        share = m.share(self.number, t)
        if t.saved is None:
            views = [m.memory.views(p, t.launch)[0][share] for p in self.plain]
            t.saved = _sum(views)
            if self.plain and m.pauses():
                return LATER
        arrived = [m.memory.views(p, t.launch) for p in self.packets]
        for _, marks in arrived:
            assert marks is not None
            if (marks[share] != t.launch).any():
                return ("packets", t.block.rank, 0)
        views = [values[share] for values, _ in arrived]
        total = _sum(views if t.saved is None else [t.saved, *views])
        for sink in self.sinks:
            m.write(t, sink, share, total)
        return None


def _sum(views: list[AnyArray]) -> AnyArray | None:
    total = None
    for view in views:
        total = view.copy() if total is None else total + view
    return total


@dataclass(slots=True, eq=False)
class SwitchStore(Micro):
    """Load the sum of all sources (or the one local source, packets once they are there) and store
    it on all members."""

    number: int
    sources: tuple[MemoryPlace, ...]
    sinks: tuple[MemoryPlace, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        share = m.share(self.number, t)
        if t.saved is None:
            found = [m.memory.views(p, t.launch) for p in self.sources]
            packets = [
                marks[share]
                for p, (_, marks) in zip(self.sources, found, strict=True)
                if p.packets and marks is not None
            ]
            if any((marks != t.launch).any() for marks in packets):
                return ("packets", t.block.rank, 0)
            t.saved = _sum([values[share] for values, _ in found])
            if m.pauses():
                return LATER
        m.multicast(t, self.sinks, share, t.saved)
        return None


@dataclass(slots=True, eq=False)
class Arrived(Micro):
    """Wait until packets are there."""

    number: int
    packets: MemoryPlace

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        marks = m.memory.views(self.packets, t.launch)[1]
        assert marks is not None
        here = (marks[m.share(self.number, t)] == t.launch).all()
        return None if here else ("packets", t.block.rank, 0)


@dataclass(slots=True, eq=False)
class Post(Micro):
    """Thread k posts the k-th put and then its signal, if any; the source is read later."""

    ports: tuple[int, ...]
    sources: tuple[MemoryPlace, ...]
    sinks: tuple[MemoryPlace, ...]
    targets: tuple[int, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        for k in range(t.number, len(self.sources), m.threads):
            m.post(self.ports[k], (self.sources[k], self.sinks[k], t.launch), None)
            if self.targets:
                m.post(self.ports[k], None, self.targets[k])
        return None


@dataclass(slots=True, eq=False)
class Flush(Micro):
    """Thread k waits until everything posted on the k-th channel is done."""

    ports: tuple[int, ...]

    def run(self, m: Running, t: Thread) -> Key | None:
        """See above."""
        for k in range(t.number, len(self.ports), m.threads):
            if m.posted[self.ports[k]]:
                return ("flush", 0, self.ports[k])
        return None

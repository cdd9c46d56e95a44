"""Events of a plan: actions of the threads of every block, with every number resolved.

Checker and executor read the same events. An event is one operation (of a pipeline: of one turn);
the k-th counter or port of an event is the k-th thread's, places are all threads' together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from enum import StrEnum

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from .model import (
    Channel,
    ExecutionPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanOp,
    RemoteChunks,
    part,
)


class Unfit(Exception):
    """The plan names missing things, or has operations that are not executed here."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Operation by rank, block, position, and its name."""

    rank: int
    block: int
    index: int
    name: str

    def __str__(self) -> str:
        return f"rank {self.rank} block {self.block} operation {self.index} ({self.name})"


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Units ``start … stop`` of a buffer of a GPU.

    ``packets``: of packets in scratch, twice as far apart. ``first``: in the first half of scratch,
    whatever the launch (how plain accesses to a peer's scratch are executed).
    """

    rank: int
    buffer: Buffer
    start: int
    stop: int
    packets: bool = False
    first: bool = False


Counter = tuple[str, int, int]
"""A channel's receiving end or a semaphore: kind, rank (-1: no other end), number."""


class Does(StrEnum):
    """Kinds of events."""

    MEET = "meet"  #: the threads of the block wait for each other
    BARRIER = "barrier"  #: all threads of several blocks do
    GIVE = "give"  #: counters are raised: signals, releases
    TAKE = "take"  #: and taken from: waits, acquires
    MOVE = "move"  #: each read goes to its write
    SUM = "sum"  #: all writes get the sum of the reads
    SWITCH = "switch"  #: likewise, through a switch: own writes come back some time, too
    POST = "post"  #: each read goes to its write through a port, some time later
    FORWARD = "forward"  #: packets that have arrived are posted to all writes
    FLUSH = "flush"  #: what was posted is done


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One event.

    Attributes:
        counters: given or taken; those that a post gives after its puts.
        ports: the own ports through which it goes, or that are flushed.
        relaxed: the signals bring nothing along.
        barrier: (id, thread blocks that meet there).
        flushes: a post that waits until it is done.
    """

    does: Does
    step: PlanStep
    counters: tuple[Counter, ...] = ()
    ports: tuple[Counter, ...] = ()
    reads: tuple[MemoryPlace, ...] = ()
    writes: tuple[MemoryPlace, ...] = ()
    relaxed: bool = False
    barrier: tuple[int, int] = (0, 0)
    flushes: bool = False


_Ends = dict[tuple[int, Channel, int], tuple[int, int]]


def events(plan: ExecutionPlan, units: int) -> list[list[list[PlanEvent]]]:
    """Return the events of every block of every GPU; ``units``: in a chunk.

    Raises:
        Unfit: the form of the plan is not sound.
    """
    lists: dict[tuple[int, int, Channel], list[int]] = defaultdict(list)
    for rank, gpu in enumerate(plan.gpus):
        for kind in (Channel.MEMORY, Channel.PORT):
            for k, peer in enumerate(gpu.peers(kind)):
                lists[rank, peer, kind].append(k)
    # The k-th channel from a to b meets the k-th from b to a.
    ends = {
        (rank, kind, k): (peer, other)
        for (rank, peer, kind), mine in lists.items()
        for k, other in zip(mine, lists.get((peer, rank, kind), []), strict=False)
    }
    return [
        [
            list(_PlanBlock(plan, units, ends, rank, number).events())
            for number in range(len(gpu.blocks))
        ]
        for rank, gpu in enumerate(plan.gpus)
    ]


class _PlanBlock:
    """Goes through one block."""

    def __init__(
        self, plan: ExecutionPlan, units: int, ends: _Ends, rank: int, number: int
    ) -> None:
        self.plan, self.units, self.ends, self.rank, self.number = plan, units, ends, rank, number
        self.gpu = plan.gpus[rank]
        self.block = self.gpu.blocks[number]
        self.turn: int | None = None  # of the pipeline that the operation is in

    def events(self) -> Iterator[PlanEvent]:
        """Yield the events in order."""
        for index, whole in enumerate(self.block.ops):
            for op, self.turn in whole.turns():
                yield self._event(op, PlanStep(self.rank, self.number, index, str(op.op)))

    def _event(self, op: Operation, step: PlanStep) -> PlanEvent:
        does, port = _DOES.get(op.op, Does.SUM), op.channel is Channel.PORT
        if does is Does.MEET:
            return PlanEvent(does, step)
        if does is Does.BARRIER:
            assert op.barrier
            return PlanEvent(does, step, barrier=op.barrier)
        if op.op in (PlanOp.ACQUIRE, PlanOp.RELEASE):
            if not all(0 <= k < len(self.gpu.semaphores) for k in op.ids):
                raise self._unfit(op, f": no semaphore {max(op.ids)}")
            return PlanEvent(does, step, tuple(("semaphore", self.rank, k) for k in op.ids))
        if does in (Does.GIVE, Does.TAKE):
            own, other = self._channels(op)
            relaxed = not port and op.op in (PlanOp.RELAXED_SIGNAL, PlanOp.RELAXED_WAIT)
            if does is Does.TAKE:
                return PlanEvent(does, step, own, relaxed=relaxed)
            return PlanEvent(does, step, other, own if port else (), relaxed=relaxed)
        if does is Does.FLUSH:
            # The kernel counts the operands, not the channels: without operands it does nothing.
            return PlanEvent(does, step, ports=self._channels(op)[0][: len(op.dst)])
        return self._data(op, step, does, port)

    def _data(self, op: Operation, step: PlanStep, does: Does, port: bool) -> PlanEvent:
        sides = [
            tuple(
                place
                for x, packed in zip(side, packets, strict=True)
                for place in self._places(op, x, packed)
            )
            for side, packets in zip((op.src, op.dst), packet_sides(op), strict=True)
        ]
        reads, writes = sides
        if not reads or not writes:
            raise self._unfit(op, " lacks an operand")
        sizes = [x.stop - x.start for x in reads], [x.stop - x.start for x in writes]
        if op.op is PlanOp.GET:  # the kernel swaps the two offsets
            pairs = list(zip(reads, writes, strict=False))
            reads = tuple(_at(x, y) for x, y in pairs)
            writes = tuple(_at(y, x) for x, y in pairs)
        elif does is Does.MOVE and sizes[0] != sizes[1]:
            raise self._unfit(op, ": sources and destinations differ in size")
        elif does is not Does.MOVE and len({*sizes[0], *sizes[1]}) > 1:
            raise self._unfit(op, ": operands differ in size")
        if does is Does.MOVE and port and op.op in _POSTED:
            own, other = self._channels(op, len(reads))
            gives = other if op.op in (PlanOp.PUT_SIGNAL, PlanOp.PUT_SIGNAL_FLUSH) else ()
            flushes = op.op is PlanOp.PUT_SIGNAL_FLUSH
            return PlanEvent(Does.POST, step, gives, own, reads, writes, flushes=flushes)
        if op.op is PlanOp.READ_PUT_PACKETS and port:
            own, _ = self._channels(op, len(writes))
            return PlanEvent(Does.FORWARD, step, (), own, reads, writes)
        return PlanEvent(does, step, reads=reads, writes=writes)

    # --- numbers to things ----------------------------------------------------------------------

    def _unfit(self, op: Operation, what: str) -> Unfit:
        return Unfit(f"`{op.op}` on rank {self.rank}{what}")

    def _channels(
        self, op: Operation, count: int | None = None
    ) -> tuple[tuple[Counter, ...], tuple[Counter, ...]]:
        """Return the own and the other ends of channels; ``count`` transfers have one each."""
        ids = op.ids if count is None else op.ids[:count]
        if op.channel is None or (count is not None and len(ids) < count):
            raise self._unfit(op, " lacks a channel")
        known, there = self.block.channel_ids(op.channel), len(self.gpu.peers(op.channel))
        own, other = [], []
        for k in ids:
            number = known[k] if 0 <= k < len(known) else -1
            if number < 0 or (number >= there and op.channel is not Channel.SWITCH):
                raise self._unfit(op, f": no {op.channel} channel {k}")
            own.append((str(op.channel), self.rank, number))
            end = self.ends.get((self.rank, op.channel, number), (-1, number))
            other.append((str(op.channel), *end))
        return tuple(own), tuple(other)

    def _places(self, op: Operation, x: Operand, packets: bool) -> Iterator[MemoryPlace]:
        """Yield the places of an operand: one, or behind a switch one of each member."""
        if isinstance(x, Multicast):
            yield from (self._range(op, x, where, packets) for where in self._members(op, x))
            return
        if isinstance(x, LocalChunks):
            buffer = x.buffer
            if op.op is PlanOp.PUT and op.channel is Channel.MEMORY:
                if isinstance(op.src[0], LocalChunks):
                    buffer = op.src[0].buffer  # the kernel uses the first letter for all
            where = self.rank, Buffer.SCRATCH if packets else buffer
        else:
            where = self._remote(op, x)
        yield self._range(op, x, where, packets)

    def _members(self, op: Operation, x: Multicast) -> Iterator[tuple[int, Buffer]]:
        """Yield the buffers behind a switch channel, of which the issuer's must be one."""
        known, groups = self.block.channel_ids(Channel.SWITCH), self.gpu.groups()
        number = known[x.channel_id] if 0 <= x.channel_id < len(known) else -1
        if not 0 <= number < len(groups) or self.rank not in groups[number].ranks:
            raise self._unfit(op, f": no switch channel {x.channel_id}")
        group = groups[number]
        if any(group not in self.plan.gpus[r].groups() for r in group.ranks):
            raise self._unfit(op, ": not all members make its group")
        return ((r, group.buffer) for r in group.ranks)

    def _remote(self, op: Operation, x: RemoteChunks) -> tuple[int, Buffer]:
        known, declared = self.block.buffer_ids(op.channel or Channel.MEMORY), self.gpu.remote
        number = known[x.buffer_id] if 0 <= x.buffer_id < len(known) else -1
        if not 0 <= number < len(declared) or not 0 <= declared[number].rank < len(self.plan.gpus):
            raise self._unfit(op, f": no remote buffer {x.buffer_id}")
        return declared[number].rank, declared[number].buffer

    def _range(
        self, op: Operation, x: Operand, where: tuple[int, Buffer], packets: bool
    ) -> MemoryPlace:
        """Return the units of an operand in a buffer of a GPU."""
        owner, buffer = where
        low, high = part(x, op, self.units, self.turn)
        have = self.plan.gpus[owner].size_of(buffer)
        if self.plan.packets and buffer is Buffer.SCRATCH and not packets:
            have *= 2  # plain data has the room that packets would take
        if x.index < 0 or x.size < 1 or low < high > have * self.units:
            chunks = f"{buffer}[{x.index} … {x.index + x.size - 1}]"
            raise self._unfit(op, f" addresses {chunks} of rank {owner}, which has {have} chunks")
        first = not isinstance(x, LocalChunks) and not packets
        return MemoryPlace(owner, buffer, low, high, packets, first)


def _at(where: MemoryPlace, other: MemoryPlace) -> MemoryPlace:
    return MemoryPlace(where.rank, where.buffer, other.start, other.stop, False, where.first)


def packet_sides(op: Operation) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Mark the sources, and the destinations, that are packets in scratch (own or a peer's)."""
    src, dst = _PACKET_SIDES.get(op.op, (None, None))
    if op.op is PlanOp.PUT_PACKETS and op.channel is Channel.PORT:
        src = 0  # they are packed already
    return (
        tuple(src is not None and k >= src for k in range(len(op.src))),
        tuple(dst is not None and k >= dst for k in range(len(op.dst))),
    )


# The first source and destination that is packets: all after it are, too.
_PACKET_SIDES: dict[PlanOp, tuple[int | None, int | None]] = {
    PlanOp.READ_PUT_PACKETS: (0, 0),
    PlanOp.PUT_PACKETS: (None, 0),
    PlanOp.UNPACK: (0, None),
    PlanOp.COPY_PACKETS: (None, 0),
    PlanOp.REDUCE_PACKETS: (1, None),
    PlanOp.REDUCE_SEND_PACKETS: (1, 1),
    PlanOp.REDUCE_COPY_PACKETS: (1, 1),
    PlanOp.REDUCE_COPY_SEND_PACKETS: (1, 1),
    PlanOp.MULTICAST_STORE_PACKETS: (0, 0),
}

_POSTED = frozenset({PlanOp.PUT, PlanOp.PUT_SIGNAL, PlanOp.PUT_SIGNAL_FLUSH, PlanOp.PUT_PACKETS})
_DOES: dict[PlanOp, Does] = {
    PlanOp.NOP: Does.MEET,
    PlanOp.BARRIER: Does.BARRIER,
    PlanOp.SIGNAL: Does.GIVE,
    PlanOp.RELAXED_SIGNAL: Does.GIVE,
    PlanOp.RELEASE: Does.GIVE,
    PlanOp.WAIT: Does.TAKE,
    PlanOp.RELAXED_WAIT: Does.TAKE,
    PlanOp.ACQUIRE: Does.TAKE,
    PlanOp.FLUSH: Does.FLUSH,
    **dict.fromkeys((*_POSTED, PlanOp.COPY, PlanOp.GET, PlanOp.COPY_PACKETS), Does.MOVE),
    PlanOp.MULTICAST_REDUCE_STORE: Does.SWITCH,
    PlanOp.MULTICAST_STORE: Does.SWITCH,
    PlanOp.MULTICAST_STORE_PACKETS: Does.SWITCH,
}
"""All others are sums."""

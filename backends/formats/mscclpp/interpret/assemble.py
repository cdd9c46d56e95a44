"""A plan's operations as micro-operations, with every number resolved to what it names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from weft.dsl.nouns.program import Buffer

from ..plan.model import (
    Channel,
    ExecutionPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanOp,
    RemoteChunks,
    ThreadBlock,
    part,
)
from .memory import MemoryPlace
from .micro import (
    Acquire,
    Arrived,
    Barrier,
    Combine,
    Flush,
    Meet,
    Micro,
    Move,
    Post,
    Release,
    Signal,
    SwitchStore,
    Wait,
)


class Unfit(Exception):
    """The plan names what is not there, or does what is not executed here."""


class Wiring:
    """All channels of all GPUs, numbered, each with the number of its other end (or -1)."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self.number: dict[tuple[int, Channel, int], int] = {}
        ends: dict[tuple[int, int, Channel], list[int]] = defaultdict(list)
        for rank, gpu in enumerate(plan.gpus):
            for kind in (Channel.MEMORY, Channel.PORT):
                for k, peer in enumerate(gpu.peers(kind)):
                    ends[rank, peer, kind].append(len(self.number))
                    self.number[rank, kind, k] = len(self.number)
        self.other = [-1] * len(self.number)
        for (rank, peer, kind), mine in ends.items():
            for here, there in zip(mine, ends.get((peer, rank, kind), []), strict=False):
                self.other[here] = there


class Assembler:
    """Takes the blocks of a plan apart; ``operations`` counts what has been numbered."""

    def __init__(self, plan: ExecutionPlan, elements: int) -> None:
        self.plan, self.elements = plan, elements
        self.wiring = Wiring(plan)
        self.operations = 0
        self.turn: int | None = None  # of the pipeline that the operation is in

    def block(self, rank: int, block: ThreadBlock) -> tuple[list[Micro], list[int]]:
        """Return the micro-operations of a block, and for each the operation it belongs to."""
        code: list[Micro] = []
        origin: list[int] = []
        for k, op in enumerate(block.ops):
            for one, self.turn in op.turns():
                made = list(self._operation(rank, block, one))
                code += made
                origin += [k] * len(made)
        return code, origin

    def _operation(self, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
        if op.op in _SYNC:
            yield from _SYNC[op.op](self, rank, block, op)
            return
        self.operations += 1
        places = [self._places(rank, block, op, side) for side in (op.src, op.dst)]
        if not places[0] or (op.op is not PlanOp.FLUSH and not places[1]):
            raise Unfit(f"`{op.op}` on rank {rank} lacks an operand")
        yield from _DATA[op.op](self, rank, block, op, *places)

    # --- numbers to things ----------------------------------------------------------------------

    def channels(
        self, rank: int, block: ThreadBlock, op: Operation, count: int | None = None
    ) -> tuple[int, ...]:
        """Return the channels that an operation names; of ``count`` transfers each has its own."""
        ids = op.ids if count is None else op.ids[:count]
        if op.channel is None or (count is not None and len(ids) < count):
            raise Unfit(f"`{op.op}` on rank {rank} lacks a channel")
        known = block.channel_ids(op.channel)
        found = []
        for k in ids:
            number = known[k] if 0 <= k < len(known) else -1
            if (rank, op.channel, number) not in self.wiring.number:
                raise Unfit(f"`{op.op}` on rank {rank}: no {op.channel} channel {k}")
            found.append(self.wiring.number[rank, op.channel, number])
        return tuple(found)

    def targets(self, channels: Sequence[int]) -> tuple[int, ...]:
        """Return the other ends of channels."""
        return tuple(self.wiring.other[c] for c in channels)

    def _places(
        self, rank: int, block: ThreadBlock, op: Operation, side: Sequence[Operand]
    ) -> list[MemoryPlace]:
        source = side is op.src
        places: list[MemoryPlace] = []
        for k, x in enumerate(side):
            if isinstance(x, Multicast):
                members = self._members(rank, block, op, x)
                packets = op.op is PlanOp.MULTICAST_STORE_PACKETS
                places += [self._range(rank, op, x, where, packets) for where in members]
            else:
                places.append(self._place(rank, block, op, x, source, k))
        return places

    def _members(
        self, rank: int, block: ThreadBlock, op: Operation, x: Multicast
    ) -> list[tuple[int, Buffer]]:
        """Return the buffers behind a switch channel, of which the issuer's must be one."""
        known, groups = block.channel_ids(Channel.SWITCH), self.plan.gpus[rank].groups()
        number = known[x.channel_id] if 0 <= x.channel_id < len(known) else -1
        if not 0 <= number < len(groups) or rank not in groups[number].ranks:
            raise Unfit(f"`{op.op}` on rank {rank}: no switch channel {x.channel_id}")
        group = groups[number]
        if any(group not in self.plan.gpus[r].groups() for r in group.ranks):
            raise Unfit(f"`{op.op}` on rank {rank}: not all members make its group")
        return [(r, group.buffer) for r in group.ranks]

    def _place(
        self,
        rank: int,
        block: ThreadBlock,
        op: Operation,
        x: LocalChunks | RemoteChunks,
        source: bool,
        k: int,
    ) -> MemoryPlace:
        packets = _is_packet(op, x, source, k)
        if isinstance(x, LocalChunks):
            owner, buffer = rank, Buffer.SCRATCH if packets else x.buffer
            if (
                op.op is PlanOp.PUT
                and op.channel is Channel.MEMORY
                and isinstance(op.src[0], LocalChunks)
            ):
                buffer = op.src[0].buffer  # the kernel uses the first letter for all
        else:
            owner, buffer = self._remote(rank, block, op, x)
        return self._range(rank, op, x, (owner, buffer), packets)

    def _range(
        self, rank: int, op: Operation, x: Operand, where: tuple[int, Buffer], packets: bool
    ) -> MemoryPlace:
        """Return the elements of an operand in a buffer of a GPU."""
        owner, buffer = where
        low, high = part(x, op, self.elements, self.turn)
        have = self.plan.gpus[owner].size_of(buffer)
        if self.plan.packets and buffer is Buffer.SCRATCH and not packets:
            have *= 2  # plain data has the room that packets would take
        if x.index < 0 or x.size < 1 or low < high > have * self.elements:
            raise Unfit(
                f"`{op.op}` on rank {rank} addresses {buffer}[{x.index} … "
                f"{x.index + x.size - 1}] of rank {owner}, which has "
                f"{have} chunks"
            )
        first = not isinstance(x, LocalChunks) and not packets
        return MemoryPlace(owner, buffer, low, high, packets, first)

    def _remote(
        self, rank: int, block: ThreadBlock, op: Operation, x: RemoteChunks
    ) -> tuple[int, Buffer]:
        known = block.buffer_ids(op.channel or Channel.MEMORY)
        number = known[x.buffer_id] if 0 <= x.buffer_id < len(known) else -1
        declared = self.plan.gpus[rank].remote
        if not 0 <= number < len(declared) or not 0 <= declared[number].rank < len(self.plan.gpus):
            raise Unfit(f"`{op.op}` on rank {rank}: no remote buffer {x.buffer_id}")
        return declared[number].rank, declared[number].buffer


def _is_packet(op: Operation, x: Operand, source: bool, k: int) -> bool:
    """Test whether an operand is packets in scratch."""
    name = op.op
    if name in (PlanOp.READ_PUT_PACKETS, PlanOp.MULTICAST_STORE_PACKETS):
        return True
    if name is PlanOp.PUT_PACKETS:
        return not source or op.channel is Channel.PORT
    if name in (PlanOp.UNPACK, PlanOp.COPY_PACKETS):
        return source is (name is PlanOp.UNPACK)
    if name in (
        PlanOp.REDUCE_PACKETS,
        PlanOp.REDUCE_SEND_PACKETS,
        PlanOp.REDUCE_COPY_PACKETS,
        PlanOp.REDUCE_COPY_SEND_PACKETS,
    ):
        return k > 0
    return False


# --- operations ---------------------------------------------------------------------------------

_Sync = Callable[[Assembler, int, ThreadBlock, Operation], Iterator[Micro]]
_Data = Callable[
    [Assembler, int, ThreadBlock, Operation, list[MemoryPlace], list[MemoryPlace]], Iterator[Micro]
]


def _signal(a: Assembler, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
    channels = a.channels(rank, block, op)
    port = op.channel is Channel.PORT
    yield Signal(a.targets(channels), channels if port else (), op.op is PlanOp.RELAXED_SIGNAL)


def _wait(a: Assembler, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
    yield Wait(a.channels(rank, block, op), op.op is PlanOp.RELAXED_WAIT)


def _semaphore(a: Assembler, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
    if not all(0 <= k < len(a.plan.gpus[rank].semaphores) for k in op.ids):
        raise Unfit(f"`{op.op}` on rank {rank}: no semaphore {max(op.ids)}")
    yield Acquire(op.ids) if op.op is PlanOp.ACQUIRE else Release(op.ids)


def _barrier(a: Assembler, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
    assert op.barrier
    yield Barrier(*op.barrier)


def _flush(a: Assembler, rank: int, block: ThreadBlock, op: Operation) -> Iterator[Micro]:
    # The kernel counts the operands, not the channels: without operands it does nothing.
    yield Flush(a.channels(rank, block, op)[: len(op.dst)])


def _move(
    a: Assembler,
    rank: int,
    block: ThreadBlock,
    op: Operation,
    src: list[MemoryPlace],
    dst: list[MemoryPlace],
) -> Iterator[Micro]:
    if len(src) != len(dst) or any(
        x.stop - x.start != y.stop - y.start for x, y in zip(src, dst, strict=False)
    ):
        raise Unfit(f"`{op.op}` on rank {rank}: sources and destinations differ in size")
    if op.channel is not Channel.PORT:
        yield Move(a.operations - 1, tuple(src), tuple(dst))
        return
    ports = a.channels(rank, block, op, len(src))
    signals = op.op in (PlanOp.PUT_SIGNAL, PlanOp.PUT_SIGNAL_FLUSH)
    yield Post(ports, tuple(src), tuple(dst), a.targets(ports) if signals else ())
    if op.op is PlanOp.PUT_SIGNAL_FLUSH:
        yield Flush(ports)


def _get(
    a: Assembler,
    rank: int,
    block: ThreadBlock,
    op: Operation,
    src: list[MemoryPlace],
    dst: list[MemoryPlace],
) -> Iterator[Micro]:
    # The kernel swaps the two offsets.
    def at(where: MemoryPlace, other: MemoryPlace) -> MemoryPlace:
        return MemoryPlace(where.rank, where.buffer, other.start, other.stop, False, where.first)

    pairs = list(zip(src, dst, strict=False))
    yield Move(
        a.operations - 1, tuple(at(x, y) for x, y in pairs), tuple(at(y, x) for x, y in pairs)
    )


def _combine(
    a: Assembler,
    rank: int,
    block: ThreadBlock,
    op: Operation,
    src: list[MemoryPlace],
    dst: list[MemoryPlace],
) -> Iterator[Micro]:
    if len({x.stop - x.start for x in (*src, *dst)}) > 1:
        raise Unfit(f"`{op.op}` on rank {rank}: operands differ in size")
    plain = tuple(x for x in src if not x.packets)
    packets = tuple(x for x in src if x.packets)
    yield Combine(a.operations - 1, plain, packets, tuple(dst))


def _forward(
    a: Assembler,
    rank: int,
    block: ThreadBlock,
    op: Operation,
    src: list[MemoryPlace],
    dst: list[MemoryPlace],
) -> Iterator[Micro]:
    if op.channel is not Channel.PORT:
        yield from _combine(a, rank, block, op, src, dst)
        return
    ports = a.channels(rank, block, op, len(dst))
    yield Arrived(a.operations - 1, src[0])
    yield Meet()
    yield Post(ports, tuple(src[:1] * len(dst)), tuple(dst), ())


def _switch(
    a: Assembler,
    rank: int,
    block: ThreadBlock,
    op: Operation,
    src: list[MemoryPlace],
    dst: list[MemoryPlace],
) -> Iterator[Micro]:
    if len({x.stop - x.start for x in (*src, *dst)}) > 1:
        raise Unfit(f"`{op.op}` on rank {rank}: operands differ in size")
    yield SwitchStore(a.operations - 1, tuple(src), tuple(dst))


_SYNC: dict[PlanOp, _Sync] = {
    PlanOp.NOP: lambda *_: iter((Meet(),)),
    PlanOp.BARRIER: _barrier,
    PlanOp.SIGNAL: _signal,
    PlanOp.RELAXED_SIGNAL: _signal,
    PlanOp.WAIT: _wait,
    PlanOp.RELAXED_WAIT: _wait,
    PlanOp.ACQUIRE: _semaphore,
    PlanOp.RELEASE: _semaphore,
    PlanOp.FLUSH: _flush,
}
_DATA: dict[PlanOp, _Data] = {
    PlanOp.PUT: _move,
    PlanOp.PUT_SIGNAL: _move,
    PlanOp.PUT_SIGNAL_FLUSH: _move,
    PlanOp.COPY: _move,
    PlanOp.GET: _get,
    PlanOp.PUT_PACKETS: _move,
    PlanOp.COPY_PACKETS: _move,
    PlanOp.UNPACK: _combine,
    PlanOp.READ_PUT_PACKETS: _forward,
    PlanOp.MULTICAST_REDUCE_STORE: _switch,
    PlanOp.MULTICAST_STORE: _switch,
    PlanOp.MULTICAST_STORE_PACKETS: _switch,
    **dict.fromkeys(
        (
            PlanOp.REDUCE,
            PlanOp.REDUCE_SEND,
            PlanOp.READ_REDUCE,
            PlanOp.READ_REDUCE_SEND,
            PlanOp.REDUCE_PACKETS,
            PlanOp.REDUCE_SEND_PACKETS,
            PlanOp.REDUCE_COPY_PACKETS,
            PlanOp.REDUCE_COPY_SEND_PACKETS,
        ),
        _combine,
    ),
}

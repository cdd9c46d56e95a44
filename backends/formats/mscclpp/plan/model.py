"""The MSCCL++ execution plan as values (the schema of August 2025 and later).

A plan is what every GPU's thread blocks do: **one-sided** operations (a block writes into a peer's
buffer) and counters (a signal on a channel is consumed by one wait on its other end), without
FIFOs: a writer must have a guarantee that the old contents are no longer needed.

Indices and sizes are in chunks, all of one size. An operation's channel and buffer numbers are
positions in its thread block's lists, which in turn hold positions in the GPU's lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer


class Channel(StrEnum):
    """Kind of channel by which a signal, and the data before it, travels."""

    MEMORY = "memory"  #: loads and stores: the peer is in the same node
    PORT = "port"  #: posted to a proxy, which uses the network
    SWITCH = "switch"  #: multicast in the switch (NVLS)


class PlanOp(StrEnum):
    """Operations that the loader accepts, by its names."""

    NOP = "nop"  #: the threads of the block meet
    BARRIER = "barrier"  #: several blocks of the GPU meet
    PUT = "put"
    PUT_SIGNAL = "pws"
    PUT_SIGNAL_FLUSH = "pwsf"
    GET = "get"
    COPY = "copy"
    SIGNAL = "signal"
    WAIT = "wait"
    FLUSH = "flush"
    REDUCE = "re"
    REDUCE_SEND = "res"
    READ_REDUCE = "rre"
    READ_REDUCE_SEND = "rres"
    PUT_PACKETS = "ppkt"
    READ_PUT_PACKETS = "rppkt"
    REDUCE_SEND_PACKETS = "respkt"
    COPY_PACKETS = "cpkt"
    UNPACK = "upkt"
    REDUCE_PACKETS = "repkt"
    REDUCE_COPY_PACKETS = "recpkt"
    REDUCE_COPY_SEND_PACKETS = "recspkt"
    MULTICAST_REDUCE_STORE = "glres"
    MULTICAST_STORE = "gstore"
    MULTICAST_STORE_PACKETS = "gstorepkt"
    RELAXED_SIGNAL = "rlxsignal"
    RELAXED_WAIT = "rlxwait"
    PIPELINE = "pipeline"
    ACQUIRE = "sem_acquire"
    RELEASE = "sem_release"


@dataclass(frozen=True, slots=True)
class LocalChunks:
    """``size`` chunks from ``index`` of an own buffer."""

    buffer: Buffer
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class RemoteChunks:
    """``size`` chunks from ``index`` of a peer's buffer, by its position in the block's list."""

    buffer_id: int
    index: int
    size: int


@dataclass(frozen=True, slots=True)
class Multicast:
    """``size`` chunks from ``index`` of the buffer behind a switch channel."""

    channel_id: int
    index: int
    size: int


Operand = LocalChunks | RemoteChunks | Multicast


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a thread block.

    Attributes:
        ids: channels, or semaphores, by position in the block's list; the thread with the number
            of its position handles each.
        barrier: (id, thread blocks that meet there).
        share: (k, n): this block does the k-th of n parts of the operands' bytes; see :func:`part`.
        unit, chunks, body: a pipeline: the body on unit bytes at a time of that number of chunks.
    """

    op: PlanOp
    channel: Channel | None = None
    ids: tuple[int, ...] = ()
    src: tuple[Operand, ...] = ()
    dst: tuple[Operand, ...] = ()
    barrier: tuple[int, int] | None = None
    share: tuple[int, int] | None = None
    unit: int = 0
    chunks: int = 0
    body: tuple[Operation, ...] = ()
    reduce_op: str | None = None

    def turns(self) -> Iterator[tuple[Operation, int | None]]:
        """Yield a pipeline's body chunk by chunk, with its turn, or any other operation itself."""
        if self.op is PlanOp.PIPELINE:
            yield from ((one, turn) for turn in range(self.chunks) for one in self.body)
        else:
            yield self, None


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Operations in order; the channels and remote buffers (of the GPU) that they refer to."""

    ops: tuple[Operation, ...]
    channels: tuple[tuple[Channel, tuple[int, ...]], ...] = ()
    remote: tuple[tuple[Channel, tuple[int, ...]], ...] = ()

    def channel_ids(self, kind: Channel) -> tuple[int, ...]:
        """Return the GPU's channels of a type that this block uses, in its order."""
        return tuple(i for k, ids in self.channels if k is kind for i in ids)

    def buffer_ids(self, kind: Channel) -> tuple[int, ...]:
        """Return the GPU's remote buffers that this block accesses through channels of a type."""
        return tuple(i for k, ids in self.remote if k is kind for i in ids)


@dataclass(frozen=True, slots=True)
class PlanChannels:
    """Channels of one type to peers; a switch channel has groups of ranks and a buffer instead."""

    kind: Channel
    peers: tuple[int, ...] = ()
    buffer: Buffer | None = None
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchGroup:
    """Ranks whose buffers are one multicast object: a store there is a store on all of them,
    and what is loaded from there is the sum of theirs. Its issuers are members."""

    buffer: Buffer
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemoteBuffer:
    """A peer's buffer that this GPU accesses."""

    rank: int
    buffer: Buffer
    access: tuple[Channel, ...]


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """One GPU's part of the plan. ``semaphores`` are initial values."""

    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    blocks: tuple[ThreadBlock, ...]
    channels: tuple[PlanChannels, ...] = ()
    remote: tuple[RemoteBuffer, ...] = ()
    semaphores: tuple[int, ...] = ()

    def peers(self, kind: Channel) -> tuple[int, ...]:
        """Return the peer of every channel of a type, by channel number."""
        return tuple(p for c in self.channels if c.kind is kind for p in c.peers)

    def size_of(self, buffer: Buffer) -> int:
        """Return the declared chunks of a buffer."""
        if buffer is Buffer.INPUT:
            return self.input_chunks
        return self.output_chunks if buffer is Buffer.OUTPUT else self.scratch_chunks

    def groups(self) -> tuple[SwitchGroup, ...]:
        """Return the group behind every switch channel, by channel number."""
        return tuple(
            SwitchGroup(c.buffer, ranks)
            for c in self.channels
            if c.buffer is not None
            for ranks in c.groups
        )


@dataclass(frozen=True, slots=True)
class MscclppFacts:
    """Facts of the executor of MSCCL++ 0.9, and of the GPUs that it runs on."""

    operations: int = 64  # of one thread block, those in pipelines included
    channels: int = 16  # of one kind, of a thread block
    remotes: int = 16  # of a thread block
    channel_ids: int = 8  # that one operation names, and its remote operands
    operands: int = 10  # on one side of an operation
    semaphores: int = 16  # that one operation names
    barriers: int = 16  # of a GPU
    block_threads: int = 1024  # of CUDA
    vector_bytes: int = 16  # of one load, of which every chunk is a multiple
    address_bytes: int = 1 << 32  # offsets and sizes have 32 bits on the device
    largest_minimum_bytes: int = (1 << 31) - 1  # ``min_message_size`` is read as an int
    largest_message_bytes: int = (1 << 64) - 1  # of ``max_message_size``
    least_group: int = 2  # ranks: ``cuMulticastCreate`` refuses one device
    multicasts: int = 1024  # of all jobs of a rack of GB200
    switch_sm: int = 90  # least ``sm_`` on which operations on switches compile to something
    switch_blocks: int = 16  # of all members, that fill NVLink (NCCL 2.30: 16, on Blackwell 32)


FACTS = MscclppFacts()


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of a plan that is written, checked or executed."""

    message_bytes: int = 1 << 30  # largest message of a plan for which no size is given
    packet_message_bytes: int = 1 << 20  # the same of packets, which are for small messages
    reused_places: int = 4  # of scratch that are looked at for reuse, oldest first
    clock_ranks: int = 8  # whose clocks are kept; callers go through the ranks one by one
    chunks: int = 1 << 20  # at 4 GiB, the largest that offsets reach, one has 4 KiB
    share_cuts: int = 1_000_000  # at all sizes of a chunk together, of which each order is followed
    chunk_sizes: int = 8  # least number that is followed, however many accesses a plan has
    accesses: int = 200_000  # at all sizes of a chunk together: some ten seconds
    counter_rounds: int = 20  # each orders a further pair of blocks that share a counter
    proof_words: int = 10_000_000_000  # edges x words of accesses of a race proof: a minute or so
    table_words: int = 1 << 23  # of all moments at once: 64 MiB
    orders: int = 6  # of an execution in a check, one of each policy
    thread_steps: int = 2_000_000  # beyond which fewer orders are executed: some ten seconds
    launches: int = 3  # in a row: double scratch comes round to its first half again
    threads: int = 2  # of a block: two show all that more would
    launch_share: float = 0.05  # probability that a GPU between two launches begins the next one


LIMITS = PlanLimits()


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A plan; sizes in bytes. ``remarks`` list oddities that the loader ignores."""

    name: str
    collective: str
    protocol: str
    in_place: bool
    gpus: tuple[GpuPlan, ...]
    reuse_resources: bool = False
    double_scratch: bool = False
    alignment: int = 16
    threads: int = 1024
    min_bytes: int = 0
    max_bytes: int = FACTS.largest_message_bytes
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def packets(self) -> bool:
        """Test if scratch is doubled for packets: the only effect of the protocol."""
        return self.protocol == "LL"

    @property
    def moving(self) -> Buffer | None:
        """Return the buffer that in place lies at each rank's own block of the other one."""
        if not self.in_place:
            return None
        if self.collective in ("allgather", "gather"):
            return Buffer.INPUT
        scattered = self.collective in ("reducescatter", "reduce_scatter", "scatter")
        return Buffer.OUTPUT if scattered else None

    def operations(self) -> Iterator[Operation]:
        """Yield the operations of all blocks, and those in their pipelines."""
        for block in (block for gpu in self.gpus for block in gpu.blocks):
            yield from (one for op in block.ops for one in (op, *op.body))


def part(x: Operand, op: Operation, units: int, turn: int | None = None) -> tuple[int, int]:
    """Return the range of an operand that an operation of one block touches.

    Args:
        units: ``buffer_alignment`` units of a chunk. The loader splits the *bytes* of an operand in
            these units between the blocks of a group, the first ones get what is left over
            (``calcOffset``), so that half a chunk is a share, and so is nothing.
        turn: of a pipeline, which handles a chunk of the block's share at a time.
    """
    size, (k, n) = x.size * units, op.share or (0, 1)
    each, over = divmod(size, n)
    low, high = (x.index * units + j * each + min(j, over) for j in (k, k + 1))
    return (low, high) if turn is None else (low + turn * units, low + (turn + 1) * units)


def chunk_units(plan: ExecutionPlan) -> tuple[list[int], bool]:
    """Return sizes of a chunk, in alignment units, for all orders of the cuts of groups of blocks,
    and whether these are all orders.

    Which of two cuts comes first depends on the message: of one unit the first of two blocks gets
    all. A cut lies k·(s·c // n) + min(k, s·c mod n) units into an operand of s chunks of c units,
    at most n/4 above a line of slope k·s/n in c. So the order of all repeats with the least common
    multiple of their n once c is large, and one size of each order up to there is returned.
    """
    cuts = {
        (x.size, j, op.share[1])
        for op in plan.operations()
        if op.share and 0 <= op.share[0] < op.share[1]
        for x in (*op.src, *op.dst)
        for j in (op.share[0], op.share[0] + 1)
        if x.size % op.share[1]
    }
    if not cuts:
        return [1], True
    period = math.lcm(*(n for _, _, n in cuts))
    stable = period * max(n for _, _, n in cuts) // 4 + 1
    gpu = plan.gpus[0]
    counted = gpu.output_chunks if plan.collective == "allgather" else gpu.input_chunks
    step = max(1, plan.alignment) * max(1, counted)
    low, high = max(1, -(-plan.min_bytes // step)), plan.max_bytes // step
    if low > stable:  # the same order at a smaller size
        low, high = stable + (low - stable) % period, stable + (low - stable) % period + high - low
    last = min(high, max(low, stable) + period)
    most = low + LIMITS.share_cuts // len(cuts)
    orders: dict[tuple[tuple[int, int], ...], int] = {}
    for units in range(low, min(last, most) + 1):
        places = [divmod(j * (s * units // n) + min(j, s * units % n), units) for s, j, n in cuts]
        order = {within: k for k, within in enumerate(sorted({0, *(w for _, w in places)}))}
        orders.setdefault(tuple((chunk, order[within]) for chunk, within in places), units)
    return list(orders.values()) or [low], last <= most

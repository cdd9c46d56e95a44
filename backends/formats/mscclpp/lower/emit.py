"""A program as an MSCCL++ execution plan.

Two-sided steps become ``put`` / ``signal`` / ``wait``: see :mod:`.lower` for
the table, :mod:`~weft.backends.formats.mscclpp.lower.landing` for where messages land, and
:func:`.arrange` for nops and the cut at 64 operations. What the program orders,
the plan orders, by the same messages and by one semaphore per pair of blocks that wait.

A connection of the program is a channel of its own. Forward go data signals; backward the
receiver's *ready* (its launch has begun, so its buffers are free), and for port channels one *all
arrived* at the end, before which the sender does not finish: a port put is read some time later,
and the plan must not end while the caller's buffer is still being read.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.program import BUFFER_NUMBER, Block, Buffer, Program, Protocol

from ..plan.model import (
    FACTS,
    LIMITS,
    Channel,
    ExecutionPlan,
    GpuPlan,
    Operation,
    PlanChannels,
    RemoteBuffer,
    ThreadBlock,
)
from ..plan.order import HappensBefore
from ..plan.write import write_plan
from .landing import Landing, land
from .lower import End, Incoming, Lowering, OperationGroup, Outgoing, arrange, chained

NAMES = {Kind.REDUCE_SCATTER: "reducescatter"}
"""Names of collectives that MSCCL++ spells differently."""


def emit(
    program: Program, nodes: Sequence[int] | None = None, sizes: SizeRange | None = None
) -> str:
    """Return the plan of a program as JSON text; see :func:`plan_of`."""
    return write_plan(plan_of(program, nodes, sizes))


def plan_of(
    program: Program,
    nodes: Sequence[int] | None = None,
    sizes: SizeRange | None = None,
    longest: int = FACTS.operations,
) -> ExecutionPlan:
    """Return the plan of a program.

    ``nodes``: the node of each rank (None: all in one); blocks on one node talk through memory
    channels, others through port channels. ``sizes``: of the message, in bytes. ``longest``: the
    most operations of a thread block; longer ones become several, one after another.

    Raises:
        UserError: LL128, sizes beyond what 32 bits address, or an empty range.
        CheckFailed: the ends of a connection do not match, or the program deadlocks.
    """
    if program.protocol is Protocol.LL128:
        raise UserError(
            "MSCCL++ plans have no LL128",
            where=program.name,
            hint="--protocol LL for small messages, Simple for large ones",
        )
    if nodes is not None and len(nodes) != program.rank_count:
        raise UserError(
            f"{len(nodes)} nodes are named for {program.rank_count} ranks",
            where=program.name,
            hint="nodes=0+0+1+1 has the node of each rank",
        )
    packets = program.protocol is Protocol.LL
    gpus = _PlanEmitter(_one_name_per_place(program), nodes, longest, packets=packets).gpus()
    chunks, where = program.message_chunks, program.name
    low, high = message_sizes(program.collective, chunks, gpus, sizes, where, packets=packets)
    plan = ExecutionPlan(
        program.name,
        NAMES.get(program.collective.kind, str(program.collective.kind)),
        "LL" if packets else "Simple",
        program.in_place,
        gpus,
        double_scratch=packets,
        alignment=FACTS.vector_bytes,
        min_bytes=low,
        max_bytes=high,
    )
    return named_apart(plan)


def named_apart(plan: ExecutionPlan) -> ExecutionPlan:
    """Return a plan with a digest in its name: the executor keeps its buffers by the name, and two
    plans of one name would share them."""
    digest = hashlib.sha256(write_plan(plan).encode()).hexdigest()[:8]
    return replace(plan, name=f"{plan.name}_{digest}")


def _one_name_per_place(program: Program) -> Program:
    """In place every chunk has two names; keep the one whose buffer all ranks place alike.

    A remote address is formed with the caller's own offset of the buffer in its allocation: the
    input of an in-place allgather and the output of an in-place reduce_scatter lie elsewhere on
    every rank.
    """
    if not program.in_place:
        return program
    kept = kept_buffer(program.collective)
    pieces = program.message_chunks // program.collective.message_chunks
    collective = program.collective.split(pieces)
    shift = np.array([collective.in_place_shift(r) for r in range(program.rank_count)], np.int64)
    shift = (shift if kept is Buffer.OUTPUT else -shift)[program.rank]
    columns: dict[str, Any] = {}
    for side in ("src", "dst"):
        buffer, offset = (getattr(program, f"{side}_{part}") for part in ("buffer", "offset"))
        other = buffer == BUFFER_NUMBER[_OTHER[kept]]
        columns[f"{side}_buffer"] = np.where(other, BUFFER_NUMBER[kept], buffer)
        columns[f"{side}_offset"] = np.where(other, offset + shift, offset)
    return replace(program, **columns)


_OTHER = {Buffer.INPUT: Buffer.OUTPUT, Buffer.OUTPUT: Buffer.INPUT}


def kept_buffer(collective: Collective) -> Buffer:
    """Return the buffer whose name an in-place plan uses: the larger one, which holds the other."""
    larger = collective.input_chunks > collective.output_chunks
    return Buffer.INPUT if larger else Buffer.OUTPUT


def largest_message(chunks: int, gpus: Sequence[GpuPlan], *, packets: bool) -> tuple[int, int]:
    """Return the chunks of the largest buffer, and the bytes of the largest message whose offsets
    there have 32 bits."""
    scratch = max(g.scratch_chunks for g in gpus) * (4 if packets else 1)
    largest = max(scratch, chunks)
    return largest, (FACTS.address_bytes - 1) // (
        largest * FACTS.vector_bytes
    ) * FACTS.vector_bytes * chunks


def message_sizes(
    c: Collective,
    chunks: int,
    gpus: Sequence[GpuPlan],
    sizes: SizeRange | None,
    where: str,
    *,
    packets: bool,
) -> tuple[int, int]:
    """Return the smallest and largest size as the loader counts it (input bytes; output for
    allgather) of a plan whose message is cut into ``chunks`` chunks.

    Raises:
        UserError: sizes beyond what 32 bits address.
    """
    largest, limit = largest_message(chunks, gpus, packets=packets)
    if not limit:
        raise UserError(
            f"{largest} chunks of {FACTS.vector_bytes} bytes exceed what 32 bits address",
            where=where,
            hint="fewer chunks or instances",
        )
    default = LIMITS.packet_message_bytes if packets else LIMITS.message_bytes
    low, high = (sizes.low, sizes.high) if sizes else (0, min(limit, default))
    if high > limit or low > FACTS.largest_minimum_bytes:
        raise UserError(
            f"messages of {high} bytes are too large for this plan: it takes up to {limit}",
            where=where,
            hint="offsets have 32 bits; scratch counts too",
        )
    share = 1 if c.kind is Kind.ALLGATHER else c.message_chunks // max(1, c.input_chunks)
    return low // share, high // share


@dataclass(eq=False)
class _Rank:
    """Shared state of the blocks of one GPU while they are made."""

    channels: dict[Channel, list[int]] = field(default_factory=lambda: defaultdict(list))
    peers: dict[Channel, list[int]] = field(default_factory=lambda: defaultdict(list))
    remote: dict[tuple[int, Buffer], set[Channel]] = field(default_factory=lambda: defaultdict(set))
    semaphores: int = 0

    def semaphore(self) -> int:
        """Return a new semaphore."""
        self.semaphores += 1
        return self.semaphores - 1


@dataclass(eq=False)
class _EmittedBlock:
    """A block's operations, its channels, and the remote buffers it names by position."""

    parts: list[tuple[Operation, ...]]
    channels: tuple[tuple[Channel, tuple[int, ...]], ...]
    access: Channel
    remote: tuple[tuple[int, Buffer], ...]


class _PlanEmitter:
    """Makes the GPUs of a plan."""

    def __init__(
        self, program: Program, nodes: Sequence[int] | None, longest: int, *, packets: bool
    ) -> None:
        self.program, self.longest, self.packets = program, longest, packets
        self.order = HappensBefore.of(program)
        node = nodes or [0] * program.rank_count
        self.kinds = [
            Channel.MEMORY if node[a] == node[b] else Channel.PORT
            for a, b, _ in self.order.connections
        ]
        ports = [kind is Channel.PORT for kind in self.kinds]
        self.landing: Landing = land(program, self.order, ports, packets=packets)
        self.last = {m.connection: m.recv for m in self.order.messages}
        self.state = [_Rank() for _ in program.ranks]
        self._declare()

    def _declare(self) -> None:
        """Channels in an order that both ends agree on: by peer, then by connection."""
        for rank, state in enumerate(self.state):
            mine = [
                (b if a == rank else a, k)
                for k, (a, b, _) in enumerate(self.order.connections)
                if rank in (a, b)
            ]
            for peer, k in sorted(mine):
                state.channels[self.kinds[k]].append(k)
                state.peers[self.kinds[k]].append(peer)

    def gpus(self) -> tuple[GpuPlan, ...]:
        """Return the GPUs of the plan."""
        return tuple(self._gpu(rank) for rank in range(len(self.program.ranks)))

    def _gpu(self, rank: int) -> GpuPlan:
        state, c = self.state[rank], self.program.collective
        pieces = self.program.message_chunks // c.message_chunks
        made = self._blocks(rank)
        remote = sorted(state.remote)
        blocks = tuple(
            ThreadBlock(
                part,
                m.channels,
                ((m.access, tuple(map(remote.index, m.remote))),) if m.remote else (),
            )
            for m in made
            for part in m.parts
        )
        return GpuPlan(
            max(1, c.input_chunks * pieces),
            max(1, c.output_chunks * pieces),
            self.landing.scratch[rank],
            blocks,
            tuple(
                PlanChannels(kind, tuple(state.peers[kind]))
                for kind in (Channel.MEMORY, Channel.PORT)
                if state.peers[kind]
            ),
            tuple(RemoteBuffer(*key, tuple(sorted(state.remote[key]))) for key in remote),
            (0,) * state.semaphores,
        )

    def _blocks(self, rank: int) -> list[_EmittedBlock]:
        acquires, releases = self._semaphores(rank)
        made = [
            self._block(rank, b, acquires, releases)
            for b in range(len(self.program.ranks[rank].blocks))
        ]
        return [m for m in made if m.parts]

    def _semaphores(self, rank: int) -> tuple[dict[tuple[int, int], list[int]], ...]:
        """Per (block, instruction) the semaphores to acquire before, and to release after.

        One per pair of blocks: what is waited for comes in the order of its block, so the k-th
        acquire needs the k-th release. A wait for something earlier than the last says nothing.
        """
        acquires: dict[tuple[int, int], list[int]] = defaultdict(list)
        releases: dict[tuple[int, int], list[int]] = defaultdict(list)
        for b, block in enumerate(self.program.ranks[rank].blocks):
            last: dict[int, tuple[int, int]] = {}
            for i, instr in enumerate(block.code):
                newest: dict[int, int] = {}
                for other, k in instr.waits:
                    newest[other] = max(k, newest.get(other, -1))
                for other, k in sorted(newest.items()):
                    if other == b or k <= last.get(other, (-1, 0))[0]:
                        continue
                    number = last[other][1] if other in last else self.state[rank].semaphore()
                    last[other] = (k, number)
                    acquires[b, i].append(number)
                    releases[other, k].append(number)
        return acquires, releases

    def _block(
        self,
        rank: int,
        b: int,
        acquires: dict[tuple[int, int], list[int]],
        releases: dict[tuple[int, int], list[int]],
    ) -> _EmittedBlock:
        block, state = self.program.ranks[rank].blocks[b], self.state[rank]
        first = int(self.program.block_start[self.program.first_block[rank] + b])
        maker = _BlockState(self, rank, block, self._ends(rank, block, first))
        groups: list[OperationGroup] = list(maker.opening())
        for i in range(len(block.code)):
            ops = tuple(maker.lower(first + i, (rank, b)))
            group = OperationGroup(ops, tuple(acquires[b, i]), tuple(releases[b, i]))
            fused = _fused(groups[-1], group) if groups else None
            if fused:
                groups[-1] = fused
            elif group != OperationGroup(()):
                groups.append(group)
            groups += maker.after(first + i)
        groups += maker.closing()
        remote = tuple(maker.remote)
        access = maker.ends[0].channel if maker.ends[0] else Channel.MEMORY
        for key in remote:
            state.remote[key].add(access)
        parts = arrange(groups, state.semaphore, self.longest)
        return _EmittedBlock(parts, maker.channels, access, remote)

    def _ends(self, rank: int, block: Block, first: int) -> tuple[int, int]:
        """Return the connections that a block sends to and takes from, or -1."""
        numbers = [-1, -1]
        for i in range(first, first + len(block.code)):
            for side, k in enumerate((self.order.sent[i], self.order.received[i])):
                if k >= 0:
                    numbers[side] = self.order.messages[k].connection
        return numbers[0], numbers[1]

    def position(self, rank: int, connection: int) -> int:
        """Return the number of a connection's channel among those of its type on a rank."""
        return self.state[rank].channels[self.kinds[connection]].index(connection)


def _fused(before: OperationGroup, group: OperationGroup) -> OperationGroup | None:
    """Consecutive sums into one place, if nothing is waited for between them."""
    if group.acquires or len(before.ops) != 1 or len(group.ops) != 1:
        return None
    op = chained(before.ops[0], group.ops[0])
    return OperationGroup((op,), before.acquires, before.releases + group.releases) if op else None


class _BlockState:
    """Lowers the instructions of one block."""

    def __init__(
        self, emitter: _PlanEmitter, rank: int, block: Block, connections: tuple[int, int]
    ) -> None:
        self.emitter, self.block, self.connections = emitter, block, connections
        lists: dict[Channel, list[int]] = defaultdict(list)
        ends: list[End | None] = []
        for k in connections:
            if k < 0:
                ends.append(None)
                continue
            kind = emitter.kinds[k]
            lists[kind].append(emitter.position(rank, k))
            ends.append(End(kind, len(lists[kind]) - 1))
        self.ends = tuple(ends)
        self.channels = tuple((kind, tuple(ids)) for kind, ids in lists.items())
        self.remote: list[tuple[int, Buffer]] = []
        self._asked = False
        self._last = emitter.last.get(connections[1], -1)

    def _buffer(self, buffer: Buffer) -> int:
        """Return the number of a buffer of the peer that the block sends to."""
        assert self.block.send is not None
        key = (self.block.send, buffer)
        if key not in self.remote:
            self.remote.append(key)
        return self.remote.index(key)

    def _ready(self, side: int) -> bool:
        k = self.connections[side]
        return k >= 0 and self.emitter.landing.ready[k]

    def opening(self) -> Sequence[OperationGroup]:
        """Signal to the sender that this launch has begun."""
        end = self.ends[1]
        return [OperationGroup((end.tell_ready(),))] if end and self._ready(1) else []

    def lower(self, i: int, key: tuple[int, int]) -> list[Operation]:
        """The operations of an instruction; before the first send, wait until its peer is there."""
        order, landing = self.emitter.order, self.emitter.landing
        into = out = None
        if (k := order.received[i]) >= 0 and (end := self.ends[1]):
            into = Incoming(end, landing.target[k], landing.direct[k])
        ops: list[Operation] = []
        if (k := order.sent[i]) >= 0 and (end := self.ends[0]):
            out = Outgoing(end, landing.target[k], landing.stage.get(k), self._buffer)
            if not self._asked and self._ready(0):
                ops.append(end.wait_ready())
            self._asked = True
        one = Lowering(order.instrs[i], into, out, landing.temp.get(key), i in landing.guarded)
        ops += one.packets() if self.emitter.packets else one.plain()
        return ops

    def _acknowledged(self, side: int) -> End | None:
        """Return the end of a connection whose sender needs *all arrived*, else None."""
        end = self.ends[side]
        wanted = end is not None and end.channel is Channel.PORT and not self.emitter.packets
        return end if wanted else None

    def after(self, i: int) -> Sequence[OperationGroup]:
        """Return the signal to the sender that follows the last message of a port channel."""
        end = self._acknowledged(1)
        return [OperationGroup((end.signal(),))] if end and i == self._last else []

    def closing(self) -> Sequence[OperationGroup]:
        """Do not end before the network has read all messages."""
        end = self._acknowledged(0)
        return [OperationGroup((end.wait(),))] if end else []

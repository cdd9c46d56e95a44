"""Form of a plan, operation by operation: numbers in range, limits, and known traps.

The loader checks almost none of this: an index beyond a list reads another structure's memory, the
ninth channel of an operation overwrites the next field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ....check.findings import Finding, Severity
from ..plan.events import packet_sides
from ..plan.model import (
    FACTS,
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanOp,
    RemoteChunks,
    SwitchGroup,
    ThreadBlock,
    part,
)

PACKET_OPS = frozenset(
    {
        PlanOp.PUT_PACKETS,
        PlanOp.READ_PUT_PACKETS,
        PlanOp.REDUCE_SEND_PACKETS,
        PlanOp.COPY_PACKETS,
        PlanOp.UNPACK,
        PlanOp.REDUCE_PACKETS,
        PlanOp.REDUCE_COPY_PACKETS,
        PlanOp.REDUCE_COPY_SEND_PACKETS,
        PlanOp.MULTICAST_STORE_PACKETS,
    }
)
SWITCH_OPS = frozenset(
    {PlanOp.MULTICAST_REDUCE_STORE, PlanOp.MULTICAST_STORE, PlanOp.MULTICAST_STORE_PACKETS}
)
SIGNALS = frozenset(
    {PlanOp.SIGNAL, PlanOp.RELAXED_SIGNAL, PlanOp.WAIT, PlanOp.RELAXED_WAIT, PlanOp.FLUSH}
)
PUTS = frozenset({PlanOp.PUT, PlanOp.PUT_SIGNAL, PlanOp.PUT_SIGNAL_FLUSH})

_L, _R, _S = LocalChunks, RemoteChunks, Multicast
_SHAPES: dict[PlanOp, tuple[Sequence[type], Sequence[type]]] = {
    # (kinds of the sources, of the destinations); the last kind may repeat
    PlanOp.PUT: ((_L,), (_R,)),
    PlanOp.PUT_SIGNAL: ((_L,), (_R,)),
    PlanOp.PUT_SIGNAL_FLUSH: ((_L,), (_R,)),
    PlanOp.GET: ((_R,), (_L,)),
    PlanOp.COPY: ((_L,), (_L,)),
    PlanOp.REDUCE: ((_L, _L), (_L,)),
    PlanOp.REDUCE_SEND: ((_L, _L), (_L, _R)),
    PlanOp.READ_REDUCE: ((_L, _R), (_L,)),
    PlanOp.READ_REDUCE_SEND: ((_L, _R), (_L, _R)),
    PlanOp.PUT_PACKETS: ((_L,), (_R,)),
    PlanOp.READ_PUT_PACKETS: ((_L,), (_R,)),
    PlanOp.COPY_PACKETS: ((_L,), (_L,)),
    PlanOp.UNPACK: ((_L,), (_L,)),
    PlanOp.REDUCE_PACKETS: ((_L, _L), (_L,)),
    PlanOp.REDUCE_SEND_PACKETS: ((_L, _L), (_L, _R)),
    PlanOp.REDUCE_COPY_PACKETS: ((_L, _L), (_L, _L)),
    PlanOp.REDUCE_COPY_SEND_PACKETS: ((_L, _L), (_L, _L, _R)),
    PlanOp.MULTICAST_REDUCE_STORE: ((_S,), (_S,)),
    PlanOp.MULTICAST_STORE: ((_L,), (_S,)),
    PlanOp.MULTICAST_STORE_PACKETS: ((_L,), (_S,)),
}
_ONE_EACH = frozenset({PlanOp.COPY, PlanOp.COPY_PACKETS, PlanOp.UNPACK}) | SWITCH_OPS
_PAIRED = PUTS | {PlanOp.GET, PlanOp.PUT_PACKETS}


@dataclass(frozen=True, slots=True)
class PlanPlace:
    """Place of an operation in a plan; ``units``: the sizes of a chunk that are followed."""

    plan: ExecutionPlan
    rank: int
    block: int
    step: int
    units: tuple[int, ...]

    @property
    def gpu(self) -> GpuPlan:
        """Its GPU."""
        return self.plan.gpus[self.rank]

    @property
    def thread_block(self) -> ThreadBlock:
        """Its thread block."""
        return self.gpu.blocks[self.block]

    def finding(self, check: str, message: str, severity: Severity = Severity.ERROR) -> Finding:
        """Something found here."""
        return Finding(check, severity, message, self.rank, self.block, self.step)


OLD_GPUS = "operations on switches do nothing before sm_90: a wrong result, and no error"
"""Warning on plans with switch channels: the executor of MSCCL++ runs them on any GPU."""


def form(
    plan: ExecutionPlan, units: Sequence[int], longest: int = FACTS.operations
) -> Iterator[Finding]:
    """Everything that can be found without following the plan; see :func:`.check_plan`."""
    yield from _head(plan)
    yield from switch_groups(plan)
    for rank, gpu in enumerate(plan.gpus):
        yield from _gpu(plan, rank, gpu)
        for b, block in enumerate(gpu.blocks):
            yield from _block(plan, rank, b, block, longest)
            for k, op in enumerate(block.ops):
                place = PlanPlace(plan, rank, b, k, tuple(units))
                yield from _operation(place, op)
                for inner in op.body:
                    yield from _inner(place, op, inner)


def _head(plan: ExecutionPlan) -> Iterator[Finding]:
    def wrong(message: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding("form", severity, message)

    for remark in plan.remarks:
        yield wrong(remark, Severity.WARNING)
    if not plan.gpus:
        yield wrong("expected at least one GPU, got none")
    if plan.protocol not in ("Simple", "LL"):
        yield wrong(f"protocol: expected Simple or LL, got {plan.protocol!r} (read as Simple)")
    if plan.min_bytes > plan.max_bytes:
        yield wrong(f"min_message_size: expected at most {plan.max_bytes}, got {plan.min_bytes}")
    if plan.min_bytes > FACTS.largest_minimum_bytes:
        yield wrong("min_message_size is read as a 32-bit integer: keep it below 2 GiB")
    if plan.alignment < 1 or plan.alignment % FACTS.vector_bytes:
        yield wrong(
            f"buffer_alignment {plan.alignment}: sums of chunks that are not multiples of "
            f"{FACTS.vector_bytes} bytes go wrong"
        )
    if not 1 <= plan.threads <= FACTS.block_threads:
        yield wrong(f"threads per block: expected 1 … {FACTS.block_threads}, got {plan.threads}")
    if any(op.op in SWITCH_OPS for op in plan.operations()):
        yield wrong(OLD_GPUS, Severity.WARNING)
    far = _furthest(plan)
    if far >= FACTS.address_bytes:
        yield wrong(
            "messages of max_message_size need offsets beyond 4 GiB, which wrap around",
            Severity.WARNING,
        )


def _furthest(plan: ExecutionPlan) -> int:
    """Return the largest byte offset at ``max_message_size``."""
    each = (2 if plan.packets else 1) * (2 if plan.double_scratch else 1)
    most = 0
    for gpu in plan.gpus:
        counted = gpu.output_chunks if plan.collective == "allgather" else gpu.input_chunks
        chunks = max(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks * each)
        most = max(most, plan.max_bytes * chunks // max(1, counted))
    return most


def _gpu(plan: ExecutionPlan, rank: int, gpu: GpuPlan) -> Iterator[Finding]:
    def wrong(check: str, message: str) -> Finding:
        return Finding(check, Severity.ERROR, message, rank)

    for value, name in ((gpu.input_chunks, "input"), (gpu.output_chunks, "output")):
        if value < 1:
            yield wrong("form", f"{name}_chunks: expected 1 or more, got {value}")
    for kind in (Channel.MEMORY, Channel.PORT):
        for k, peer in enumerate(gpu.peers(kind)):
            if not 0 <= peer < len(plan.gpus) or peer == rank:
                yield wrong("ids", f"{kind} channel {k}: expected another rank, got {peer}")
    for k, b in enumerate(gpu.remote):
        if not 0 <= b.rank < len(plan.gpus) or b.rank == rank:
            yield wrong("ids", f"remote buffer {k}: expected another rank, got {b.rank}")
        elif b.buffer is plan.moving:
            yield wrong(
                "placement",
                f"remote buffer {k}: in place, `{b.buffer}` of an "
                f"{plan.collective} lies at another offset on every rank, and addresses "
                "are formed with the caller's own",
            )


def _block(
    plan: ExecutionPlan, rank: int, number: int, block: ThreadBlock, longest: int
) -> Iterator[Finding]:
    def wrong(check: str, message: str) -> Finding:
        return Finding(check, Severity.ERROR, message, rank, number)

    gpu = plan.gpus[rank]
    size = sum(1 + len(op.body) if op.op is PlanOp.PIPELINE else 1 for op in block.ops)
    if size > longest:
        yield wrong("limits", f"operations: expected at most {longest}, got {size}")
    for kind in Channel:
        ids, buffers = block.channel_ids(kind), block.buffer_ids(kind)
        if len(ids) > FACTS.channels:
            yield wrong(
                "limits", f"{kind} channels: expected at most {FACTS.channels}, got {len(ids)}"
            )
        if len(buffers) > FACTS.remotes:
            yield wrong(
                "limits", f"remote buffers: expected at most {FACTS.remotes}, got {len(buffers)}"
            )
        have = len(gpu.peers(kind)) if kind is not Channel.SWITCH else len(gpu.groups())
        for k in ids:
            if not 0 <= k < have:
                yield wrong("ids", f"{kind} channel: expected one of the GPU's {have}, got {k}")
        for k in buffers:
            if not 0 <= k < len(gpu.remote):
                yield wrong("ids", f"remote buffer: expected below {len(gpu.remote)}, got {k}")
            elif kind not in gpu.remote[k].access:
                yield wrong("ids", f"remote buffer {k} is not declared for {kind} channels")


def _inner(place: PlanPlace, pipeline: Operation, op: Operation) -> Iterator[Finding]:
    if op.op is PlanOp.PIPELINE:
        yield place.finding("form", "a pipeline inside a pipeline")
        return
    if pipeline.unit < 1 or pipeline.unit % FACTS.vector_bytes:
        yield place.finding(
            "form", f"unit_size: expected a multiple of {FACTS.vector_bytes}, got {pipeline.unit}"
        )
    parts = op.share[1] if op.share else 1
    for x in (*op.src, *op.dst):
        if x.size < pipeline.chunks * parts:
            size = f"{x.size} chunks" + (f" for {parts} blocks" if op.share else "")
            yield place.finding(
                "bounds",
                f"`{op.op}` of {size} in a pipeline over "
                f"{pipeline.chunks}: late turns run past its end",
            )
    yield from _operation(place, op)


def _operation(place: PlanPlace, op: Operation) -> Iterator[Finding]:
    for check in (_ids, _operands, _bounds, _traps):
        found = list(check(place, op))
        yield from found
        if any(f.severity is Severity.ERROR for f in found):
            return


def _ids(place: PlanPlace, op: Operation) -> Iterator[Finding]:
    if op.op in (PlanOp.ACQUIRE, PlanOp.RELEASE):
        have, most, noun = len(place.gpu.semaphores), FACTS.semaphores, "semaphore"
    else:
        kind = op.channel or Channel.MEMORY
        have, most, noun = (
            len(place.thread_block.channel_ids(kind)),
            FACTS.channel_ids,
            f"{kind} channel",
        )
    if len(op.ids) > most:
        yield place.finding(
            "limits", f"`{op.op}`: expected at most {most} {noun}s, got {len(op.ids)}"
        )
    for k in op.ids:
        if not 0 <= k < have:
            yield place.finding("ids", f"`{op.op}`: expected a {noun} below {have}, got {k}")
    needs = op.op in SIGNALS or op.op in (PlanOp.ACQUIRE, PlanOp.RELEASE)
    if needs and not op.ids:
        yield place.finding("form", f"`{op.op}`: expected a {noun}, got none")
    if (op.op in SIGNALS or op.op in PUTS) and op.channel is None:
        yield place.finding("form", f"`{op.op}`: expected a channel type, got none")
    if op.barrier:
        number, blocks = op.barrier
        if not 0 <= number < FACTS.barriers:
            yield place.finding("limits", f"barrier: expected below {FACTS.barriers}, got {number}")
        if not 1 <= blocks <= len(place.gpu.blocks):
            yield place.finding(
                "ids", f"barrier: expected at most {len(place.gpu.blocks)} blocks, got {blocks}"
            )
    if op.share and not 0 <= op.share[0] < op.share[1]:
        yield place.finding("ids", f"share: expected a part below {op.share[1]}, got {op.share[0]}")


def _operands(place: PlanPlace, op: Operation) -> Iterator[Finding]:
    for side in (op.src, op.dst):
        remote = sum(isinstance(x, RemoteChunks) for x in side)
        if len(side) > FACTS.operands or remote > FACTS.channel_ids:
            yield place.finding(
                "limits",
                f"`{op.op}` has {len(side)} operands on one side, "
                f"{remote} of them remote; at most {FACTS.operands} and "
                f"{FACTS.channel_ids}",
            )
    if op.op not in _SHAPES:
        return
    for side, kinds, word in zip((op.src, op.dst), _SHAPES[op.op], ("src", "dst"), strict=True):
        wanted = [kinds[min(k, len(kinds) - 1)] for k in range(len(side))]
        if len(side) < len(kinds) or any(
            not isinstance(x, w) for x, w in zip(side, wanted, strict=True)
        ):
            shape = ", ".join(k.__name__.lower() for k in kinds)
            yield place.finding("form", f"`{op.op}`: expected {word}_buff of the form {shape} …")
            return
    if op.op in _PAIRED or op.op in _ONE_EACH:
        pairs = [(x.size, y.size) for x, y in zip(op.src, op.dst, strict=False)]
        if len(op.src) != len(op.dst) or any(a != b for a, b in pairs):
            yield place.finding("form", f"`{op.op}`: expected destinations of the sources' sizes")
        if op.op in _ONE_EACH and len(op.src) > 1:
            yield place.finding("form", f"`{op.op}`: expected one range, got {len(op.src)}")
    elif len({x.size for x in (*op.src, *op.dst)}) > 1:
        yield place.finding("form", f"`{op.op}`: expected operands of one size")
    posts = op.channel is Channel.PORT and (op.op in PUTS or op.op is PlanOp.READ_PUT_PACKETS)
    if posts and len(op.ids) != len(op.dst):
        yield place.finding(
            "form",
            f"`{op.op}` through ports: expected a channel for each of "
            f"{len(op.dst)} transfers, got {len(op.ids)}",
        )


def _beyond(place: PlanPlace, op: Operation, x: Operand, chunks: int) -> bool:
    """Test if a block's bytes of an operand are not all in a buffer."""
    if x.index < 0 or x.size < 1 or x.index + x.size <= chunks:
        return x.index < 0 or x.size < 1
    spans = [(part(x, op, units), chunks * units) for units in place.units]
    return any(low < high > end for (low, high), end in spans)


def _bounds(place: PlanPlace, op: Operation) -> Iterator[Finding]:
    sides = packet_sides(op)
    for x, packet in zip((*op.src, *op.dst), (*sides[0], *sides[1]), strict=True):
        if isinstance(x, Multicast):
            yield from _switch_bounds(place, op, x)
            continue
        gpu, name = place.gpu, ""
        if isinstance(x, RemoteChunks):
            known = place.thread_block.buffer_ids(op.channel or Channel.MEMORY)
            if not 0 <= x.buffer_id < len(known):
                yield place.finding(
                    "ids",
                    f"`{op.op}` names remote buffer {x.buffer_id}; the block has {len(known)}",
                )
                continue
            number = known[x.buffer_id]
            if not 0 <= number < len(gpu.remote) or not (
                0 <= gpu.remote[number].rank < len(place.plan.gpus)
            ):
                continue  # reported where it is declared
            remote = gpu.remote[number]
            gpu, name, buffer = place.plan.gpus[remote.rank], f"rank {remote.rank} ", remote.buffer
            problem = _channel_leads_elsewhere(place, op, x, remote.rank)
            if problem:
                yield place.finding("ids", problem)
        else:
            buffer = x.buffer
        size = gpu.size_of(buffer)
        if place.plan.packets and buffer is Buffer.SCRATCH and not packet:
            size *= 2  # plain data has the room that packets would take
        if _beyond(place, op, x, size):
            text = f"{name}{buffer}[{x.index} … {x.index + x.size - 1}]"
            yield place.finding(
                "bounds", f"`{op.op}` addresses {text}; the buffer has {size} chunks"
            )


def _switch_bounds(place: PlanPlace, op: Operation, x: Multicast) -> Iterator[Finding]:
    """Yield the faults of an operand behind a switch: it is the same range of all members."""
    known, groups = place.thread_block.channel_ids(Channel.SWITCH), place.gpu.groups()
    if not 0 <= x.channel_id < len(known):
        yield place.finding(
            "ids", f"`{op.op}` names switch channel {x.channel_id}; the block has {len(known)}"
        )
        return
    if not 0 <= known[x.channel_id] < len(groups):
        return  # reported where it is declared
    group = groups[known[x.channel_id]]
    if op.op is PlanOp.MULTICAST_STORE_PACKETS and group.buffer is not Buffer.SCRATCH:
        yield place.finding("traps", f"`{op.op}` to `{group.buffer}`: packets live in scratch")
    members = [r for r in group.ranks if 0 <= r < len(place.plan.gpus)]
    for r in members:
        size = place.plan.gpus[r].size_of(group.buffer)
        if _beyond(place, op, x, size):
            text = f"{group.buffer}[{x.index} … {x.index + x.size - 1}] of all its group"
            yield place.finding(
                "bounds", f"`{op.op}` addresses {text}; that of rank {r} has {size} chunks"
            )
            return


def _channel_leads_elsewhere(
    place: PlanPlace, op: Operation, x: RemoteChunks, rank: int
) -> str | None:
    """Return a text if the channel and the buffer of a port transfer have different peers."""
    if op.channel is not Channel.PORT or x not in op.dst or not op.ids:
        return None
    k = op.ids[op.dst.index(x)]
    peers = place.gpu.peers(Channel.PORT)
    number = place.thread_block.channel_ids(Channel.PORT)[k]
    if 0 <= number < len(peers) and peers[number] != rank:
        return f"`{op.op}` writes to rank {rank} through a channel to rank {peers[number]}"
    return None


def _traps(place: PlanPlace, op: Operation) -> Iterator[Finding]:
    plan, warning = place.plan, Severity.WARNING
    if op.reduce_op not in (None, "sum"):
        yield place.finding("traps", f"reduce_op {op.reduce_op!r}: the executor always adds")
    if op.op in PACKET_OPS and not plan.packets:
        yield place.finding(
            "traps",
            f"`{op.op}` under protocol Simple: scratch lacks room for the flags of packets",
        )
    for x in op.src[:1] if op.op is PlanOp.MULTICAST_STORE_PACKETS else _packed(op):
        if isinstance(x, LocalChunks) and x.buffer is not Buffer.SCRATCH:
            word = "to" if x in op.dst else "from"
            yield place.finding("traps", f"`{op.op}` {word} `{x.buffer}`: packets live in scratch")
    if op.op is PlanOp.FLUSH and not op.dst:
        yield place.finding("traps", "`flush` without operands does nothing; use `pwsf`", warning)
    if op.op is PlanOp.GET and any(x.index != y.index for x, y in zip(op.src, op.dst, strict=True)):
        yield place.finding("traps", "`get` swaps the offsets of source and destination")
    if op.op is PlanOp.PUT_PACKETS and op.channel is Channel.PORT:
        yield place.finding(
            "traps",
            "`ppkt` through a port is right only for the first context of a process; use `rppkt`",
        )
    letters = {x.buffer for x in op.src if isinstance(x, LocalChunks)}
    if op.op is PlanOp.PUT and op.channel is Channel.MEMORY and len(letters) > 1:
        yield place.finding("traps", "`put` takes all its sources from the buffer of the first")
    if plan.double_scratch and op.op not in PACKET_OPS:
        for x in (*op.src, *op.dst):
            if not isinstance(x, LocalChunks) and _is_scratch(place, op, x):
                yield place.finding(
                    "traps",
                    f"`{op.op}` to a peer's scratch always means its "
                    "first half, with use_double_scratch_buffer",
                )


def _packed(op: Operation) -> tuple[Operand, ...]:
    """Return the operands that an operation packs; the kernel ignores the letter of others."""
    return tuple(x for x, packets in zip(op.dst, packet_sides(op)[1], strict=True) if packets)


def _is_scratch(place: PlanPlace, op: Operation, x: RemoteChunks | Multicast) -> bool:
    if isinstance(x, Multicast):
        known = place.thread_block.channel_ids(Channel.SWITCH)
        return place.gpu.groups()[known[x.channel_id]].buffer is Buffer.SCRATCH
    number = place.thread_block.buffer_ids(op.channel or Channel.MEMORY)[x.buffer_id]
    return place.gpu.remote[number].buffer is Buffer.SCRATCH


# Form of a plan's switch channels: groups, what their members must agree on, and their set-up.
#
# Each entry of a ``rank_groups`` is one multicast object over the whole buffer of all its members.
# Making one is a call of all of them together that blocks and carries no tag: every rank makes
# those of its list in their order, so that the lists of all must fit one global order.


def switch_groups(plan: ExecutionPlan) -> Iterator[Finding]:
    """Yield the faults of the groups of a plan, first each by itself, then their set-up."""
    wrong = False
    for rank, gpu in enumerate(plan.gpus):
        for number, group in enumerate(gpu.groups()):
            for check, text in _one(plan, rank, group):
                wrong = True
                yield Finding(check, Severity.ERROR, f"switch channel {number}: {text}", rank)
    if not wrong:
        yield from _set_up(plan)


def _one(plan: ExecutionPlan, rank: int, group: SwitchGroup) -> Iterator[tuple[str, str]]:
    ranks = group.ranks
    if len(ranks) < FACTS.least_group:
        yield "form", f"a group of {len(ranks)}; CUDA makes none of fewer than {FACTS.least_group}"
    if len(set(ranks)) < len(ranks):
        yield "ids", "its group lists a rank twice"
    for r in ranks:
        if not 0 <= r < len(plan.gpus):
            yield "ids", f"its group has rank {r}, of {len(plan.gpus)}"
    if rank not in ranks:
        yield "ids", f"rank {rank} is not a member of its group, and the set-up fails"
    if group.buffer is plan.moving:
        text = f"in place, `{group.buffer}` of an {plan.collective} lies at another offset"
        yield "placement", f"{text} on every rank, and a group has one"


def _set_up(plan: ExecutionPlan) -> Iterator[Finding]:
    """Make the objects as the ranks do: each the next of its list, once all members are there."""
    lists = [gpu.groups() for gpu in plan.gpus]
    at = [0] * len(lists)
    made, moved = 0, True

    def head(rank: int) -> SwitchGroup | None:
        return lists[rank][at[rank]] if at[rank] < len(lists[rank]) else None

    while moved:
        moved = False
        for rank in range(len(lists)):
            group = head(rank)
            if group is None or any(head(r) != group for r in group.ranks):
                continue
            for r in group.ranks:
                at[r] += 1
            made, moved = made + 1, True
    for rank in range(len(lists)):
        if (group := head(rank)) is not None:
            other = next(r for r in group.ranks if head(r) != group)
            yield Finding(
                "set-up",
                Severity.ERROR,
                f"switch channel {at[rank]} of rank {rank} ({_named(group)}) is never made: "
                f"rank {other} has {_named(head(other))} in its turn",
                rank,
            )
            return
    if made > FACTS.multicasts:
        text = f"{made} multicast objects; there are {FACTS.multicasts} for all jobs of a rack"
        yield Finding("limits", Severity.ERROR, text)


def _named(group: SwitchGroup | None) -> str:
    if group is None:
        return "nothing more"
    return f"`{group.buffer}` of ranks {', '.join(map(str, group.ranks))}"

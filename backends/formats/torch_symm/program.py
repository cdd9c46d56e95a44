"""A plan with names instead of positions, as in the lines of an emitted file, and back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ..mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    RemoteChunks,
    SwitchGroup,
    ThreadBlock,
)
from .text import CASTS, KNOWN, SEMAPHORES, SIGNALS, BlockStep, Part


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """Layout of a file, and limits of the execution of its kernel."""

    line_width: int = 118  # of the file
    blocks_width: int = 110  # of the blocks on one line of its program
    gpu_blocks: int = 132  # of an H100 or H200 at once; those of a launch wait for each other
    plan_steps: int = 100_000  # of all orders under weak memory, each some 30 accesses


KERNEL_LIMITS = KernelLimits()


End = tuple[int, int]
"""A channel of a rank: its peer, and its number among the channels to that peer."""


def steps_of(plan: ExecutionPlan) -> list[list[list[BlockStep]]]:
    """Return the operations of every block of every rank.

    Raises:
        UserError: the plan has channels or operations that the kernel has not.
    """
    _require_memory(plan)
    every = tuple(range(len(plan.gpus)))
    return [
        [[_step(gpu, block, op, every) for op in block.ops] for block in gpu.blocks]
        for gpu in plan.gpus
    ]


def _require_memory(plan: ExecutionPlan) -> None:
    """Require memory channels only, operations that push, and sums of all ranks in the switch."""
    hint = "--to mscclpp-json makes a plan for several nodes"
    for rank, gpu in enumerate(plan.gpus):
        if gpu.peers(Channel.PORT):
            peer = gpu.peers(Channel.PORT)[0]
            raise UserError(
                f"ranks {rank} and {peer} are on different nodes: symmetric memory is reached by "
                "loads and stores only, and the plan has port channels",
                where=plan.name,
                hint=hint,
            )
        for op in (op for block in gpu.blocks for op in block.ops):
            if op.op not in KNOWN or op.share is not None:
                raise UserError(
                    f"torch-symm cannot do `{op.op}`{' shared by blocks' if op.share else ''}",
                    where=plan.name,
                    hint="--to mscclpp-json takes the plan as it is",
                )
        for block in gpu.blocks:
            for op in (op for op in block.ops if op.op is PlanOp.MULTICAST_REDUCE_STORE):
                _require_all(plan, rank, block, op)


def _require_all(plan: ExecutionPlan, rank: int, block: ThreadBlock, op: Operation) -> None:
    """Require that a load-reduce is of all ranks: torch has one multicast address, theirs."""
    for x in (x for x in op.src if isinstance(x, Multicast)):
        ranks = plan.gpus[rank].groups()[block.channel_ids(Channel.SWITCH)[x.channel_id]].ranks
        if len(ranks) < len(plan.gpus):
            raise UserError(
                f"rank {rank} has ranks {', '.join(map(str, ranks))} summed in the switch; the "
                "multicast address of torch's symmetric memory is of all ranks",
                where=plan.name,
                hint="--to mscclpp-json takes groups of some; nvls=off gives a schedule without",
            )


def ends_of(gpu: GpuPlan) -> tuple[End, ...]:
    """Return the memory channels of a GPU, by their number in the plan."""
    seen: dict[int, int] = defaultdict(int)
    found = []
    for peer in gpu.peers(Channel.MEMORY):
        found.append((peer, seen[peer]))
        seen[peer] += 1
    return tuple(found)


def _step(gpu: GpuPlan, block: ThreadBlock, op: Operation, every: tuple[int, ...]) -> BlockStep:
    if op.op in SIGNALS:
        ends, own = ends_of(gpu), block.channel_ids(Channel.MEMORY)
        return BlockStep(op.op, tuple(ends[own[k]] for k in op.ids))
    if op.op in SEMAPHORES:
        return BlockStep(op.op, tuple((0, k) for k in op.ids))
    if op.barrier:
        return BlockStep(op.op, ((0, op.barrier[0]),), op.barrier[1])
    parts = tuple(_part(gpu, block, x, every) for x in (*op.src, *op.dst))
    return BlockStep(op.op, parts=parts, sources=len(op.src))


def _part(gpu: GpuPlan, block: ThreadBlock, x: Operand, every: tuple[int, ...]) -> Part:
    if isinstance(x, LocalChunks):
        return Part(None, x.buffer, x.index, x.size)
    if isinstance(x, Multicast):
        group = gpu.groups()[block.channel_ids(Channel.SWITCH)[x.channel_id]]
        some = () if set(group.ranks) == set(every) else group.ranks
        return Part(None, group.buffer, x.index, x.size, some)
    remote = gpu.remote[block.buffer_ids(Channel.MEMORY)[x.buffer_id]]
    return Part(remote.rank, remote.buffer, x.index, x.size)


# --- and back -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists that the indices in a GPU's plan point into."""

    ends: tuple[End, ...]
    remote: tuple[tuple[int, Buffer], ...]
    semaphores: int
    groups: tuple[SwitchGroup, ...]
    every: tuple[int, ...]

    def group(self, part: Part) -> SwitchGroup:
        """Return the group of some ranks, or of all."""
        return SwitchGroup(part.buffer, part.group or self.every)


def plan_from(
    head: ExecutionPlan, sizes: Sequence[tuple[int, int, int]], steps: list[list[list[BlockStep]]]
) -> ExecutionPlan:
    """Return the plan of some operations; ``head`` has its name, collective and flags.

    ``sizes``: chunks of input, output and scratch of each rank.
    """
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for rank, blocks in enumerate(steps):
        for peer, number in _named(blocks, SIGNALS):
            pair = min(rank, peer), max(rank, peer)
            counts[pair] = max(counts[pair], number + 1)
    gpus, every = [], tuple(range(len(steps)))
    groups = _groups(steps, every)
    for rank, blocks in enumerate(steps):
        peers = sorted((b if a == rank else a, n) for (a, b), n in counts.items() if rank in (a, b))
        lists = Lists(
            tuple((peer, k) for peer, n in peers for k in range(n)),
            tuple(sorted({key for block in blocks for key in _remote(block)})),
            max((number + 1 for _, number in _named(blocks, SEMAPHORES)), default=0),
            tuple(group for group in groups if rank in group.ranks),
            every,
        )
        gpus.append(_gpu(lists, sizes[rank], blocks))
    return replace(head, gpus=tuple(gpus))


def _groups(steps: list[list[list[BlockStep]]], every: tuple[int, ...]) -> list[SwitchGroup]:
    """Return the groups that any rank names, in one order for all."""
    parts = (x for blocks in steps for block in blocks for step in block for x in step.parts)
    named = {(str(x.buffer), x.group or every) for x in parts if x.group is not None}
    return [SwitchGroup(Buffer(letter), ranks) for letter, ranks in sorted(named)]


def _named(blocks: Iterable[list[BlockStep]], ops: frozenset[PlanOp]) -> set[End]:
    return {end for block in blocks for step in block if step.op in ops for end in step.ends}


def _remote(block: Iterable[BlockStep]) -> dict[tuple[int, Buffer], None]:
    """Return the buffers of peers that a block names, in that order."""
    parts = (part for step in block for part in step.parts)
    return dict.fromkeys((p.peer, p.buffer) for p in parts if p.peer is not None)


def _gpu(lists: Lists, sizes: tuple[int, int, int], blocks: list[list[BlockStep]]) -> GpuPlan:
    peers = tuple(peer for peer, _ in lists.ends)
    channels = [PlanChannels(Channel.MEMORY, peers)] if peers else []
    channels += [PlanChannels(Channel.SWITCH, (), g.buffer, (g.ranks,)) for g in lists.groups]
    return GpuPlan(
        *sizes,
        tuple(_block(lists, block) for block in blocks),
        tuple(channels),
        tuple(RemoteBuffer(rank, buffer, (Channel.MEMORY,)) for rank, buffer in lists.remote),
        (0,) * lists.semaphores,
    )


def _block(lists: Lists, steps: list[BlockStep]) -> ThreadBlock:
    ends = tuple(dict.fromkeys(e for step in steps if step.op in SIGNALS for e in step.ends))
    remote = tuple(_remote(steps))
    parts = (part for step in steps for part in step.parts)
    groups = tuple(dict.fromkeys(lists.group(part) for part in parts if part.group is not None))

    def operand(part: Part) -> Operand:
        if part.group is not None:
            return Multicast(groups.index(lists.group(part)), part.index, part.size)
        if part.peer is None:
            return LocalChunks(part.buffer, part.index, part.size)
        return RemoteChunks(remote.index((part.peer, part.buffer)), part.index, part.size)

    def operation(step: BlockStep) -> Operation:
        if step.op is PlanOp.NOP:
            return Operation(step.op)
        if step.op in SIGNALS:
            return Operation(step.op, Channel.MEMORY, tuple(map(ends.index, step.ends)))
        if step.op in SEMAPHORES:
            return Operation(step.op, ids=tuple(number for _, number in step.ends))
        if step.op is PlanOp.BARRIER:
            return Operation(step.op, barrier=(step.ends[0][1], step.together))
        src, dst = step.parts[: step.sources], step.parts[step.sources :]
        kind = Channel.MEMORY if any(p.peer is not None for p in step.parts) else None
        kind = Channel.SWITCH if step.op in CASTS else kind
        return Operation(step.op, kind, (), tuple(map(operand, src)), tuple(map(operand, dst)))

    channels = [(Channel.MEMORY, tuple(map(lists.ends.index, ends)))] if ends else []
    if groups:
        channels.append((Channel.SWITCH, tuple(map(lists.groups.index, groups))))
    buffers = ((Channel.MEMORY, tuple(map(lists.remote.index, remote))),) if remote else ()
    return ThreadBlock(tuple(map(operation, steps)), tuple(channels), buffers)

"""Spoiled copies of a plan on switches, each wrong in one place."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from plans import Where, operations, put_in, with_gpu

from weft.backends.formats.mscclpp.plan.model import (
    Channel,
    ExecutionPlan,
    GpuPlan,
    Multicast,
    Operation,
    PlanChannels,
    PlanOp,
    SwitchGroup,
)

SUMS = (PlanOp.MULTICAST_REDUCE_STORE, PlanOp.MULTICAST_STORE)
SENDS = {PlanOp.SIGNAL: True, PlanOp.RELAXED_SIGNAL: False}
TAKES = {PlanOp.WAIT: True, PlanOp.RELAXED_WAIT: False}
Mutant = tuple[str, ExecutionPlan]
Edge = tuple[tuple[Where, int], tuple[Where, int]]


def mutants(plan: ExecutionPlan) -> Iterator[Mutant]:
    """All kinds; each must be rejected, by the checker or by execution."""
    yield from without_signals(plan)
    yield from relaxed(plan)
    yield from without_nops(plan)
    yield from moved(plan)
    yield from groups(plan)
    yield from dropped(plan)


def edges(plan: ExecutionPlan) -> list[Edge]:
    """The signals of memory and port channels with the waits that take them."""
    ends: dict[tuple[object, ...], list[tuple[Where, int]]] = defaultdict(list)
    sent: list[tuple[tuple[object, ...], tuple[Where, int]]] = []
    for rank, gpu in enumerate(plan.gpus):
        for (r, b, k), op in operations(plan, *SENDS, *TAKES):
            if r != rank or op.channel is None:
                continue
            numbers = gpu.blocks[b].channel_ids(op.channel)
            for j, i in enumerate(op.ids):
                peer, nth = _pair(gpu, op.channel, numbers[i])
                if op.op in TAKES:
                    ends[rank, peer, op.channel, nth].append(((r, b, k), j))
                else:
                    sent.append(((peer, rank, op.channel, nth), ((r, b, k), j)))
    counted: dict[tuple[object, ...], int] = defaultdict(int)
    found = []
    for key, where in sent:
        found.append((where, ends[key][counted[key]]))
        counted[key] += 1
    return found


def _pair(gpu: GpuPlan, kind: Channel, number: int) -> tuple[int, int]:
    """The peer of a channel, and which of those to it it is."""
    peers = gpu.peers(kind)
    return peers[number], peers[:number].count(peers[number])


def _less(plan: ExecutionPlan, where: Where, j: int) -> ExecutionPlan:
    r, b, k = where
    op = plan.gpus[r].blocks[b].ops[k]
    ids = (*op.ids[:j], *op.ids[j + 1 :])
    return put_in(plan, where, *([replace(op, ids=ids)] if ids else [Operation(PlanOp.NOP)]))


def without_signals(plan: ExecutionPlan) -> Iterator[Mutant]:
    for (a, i), (b, j) in edges(plan):
        yield f"no signal from {a} to {b}", _less(_less(plan, a, i), b, j)


def relaxed(plan: ExecutionPlan) -> Iterator[Mutant]:
    for where, op in operations(plan, PlanOp.SIGNAL):
        if op.channel is Channel.MEMORY:
            yield f"relaxed {where}", put_in(plan, where, replace(op, op=PlanOp.RELAXED_SIGNAL))


def without_nops(plan: ExecutionPlan) -> Iterator[Mutant]:
    """Between a wait and what it is for, or what was stored and the signal that tells of it."""
    for (r, b, k), _ in operations(plan, *SUMS):
        ops = plan.gpus[r].blocks[b].ops
        for near, other, kinds in ((k - 1, k - 2, TAKES), (k + 1, k + 2, SENDS)):
            there = 0 <= other < len(ops) and ops[near].op is PlanOp.NOP
            if there and ops[other].op in kinds:
                yield f"no nop at {(r, b, near)}", put_in(plan, (r, b, near))


def moved(plan: ExecutionPlan) -> Iterator[Mutant]:
    """Another chunk is stored, or summed; two chunks where one is asked for; both ends swapped."""
    for where, op in operations(plan, *SUMS):
        (src,), (dst,) = op.src, op.dst
        size = plan.gpus[where[0]].output_chunks
        there = replace(dst, index=(dst.index + dst.size) % size)
        here = replace(src, index=(src.index + src.size) % size)
        yield f"target of {where} moved", put_in(plan, where, replace(op, dst=(there,)))
        yield f"source of {where} moved", put_in(plan, where, replace(op, src=(here,)))
        wide = replace(op, src=(replace(src, size=2),), dst=(replace(dst, size=2),))
        yield f"{where} twice as wide", put_in(plan, where, wide)
        if src != dst and isinstance(src, Multicast):
            yield f"{where} the wrong way", put_in(plan, where, replace(op, src=(dst,), dst=(src,)))


def groups(plan: ExecutionPlan) -> Iterator[Mutant]:
    """A member is left out by all, or by itself; a rank lists its groups in another order."""
    listed = sorted({g for gpu in plan.gpus for g in gpu.groups()}, key=str)
    for group in listed:
        for gone in group.ranks:
            less = tuple(r for r in group.ranks if r != gone)

            change = partial(_other, old=group, new=less)
            spoiled = plan
            for r in group.ranks:
                spoiled = with_gpu(spoiled, r, change)
            yield f"rank {gone} is left out of {group}", spoiled
            yield f"rank {gone} has another {group}", with_gpu(plan, gone, change)
    for r, gpu in enumerate(plan.gpus):
        if len(set(gpu.groups())) > 1:
            yield f"rank {r} has another order", with_gpu(plan, r, _turned)


def _turned(gpu: GpuPlan) -> GpuPlan:
    """A GPU whose last two channels have changed places."""
    return replace(gpu, channels=(*gpu.channels[:-2], *gpu.channels[:-3:-1]))


def _other(gpu: GpuPlan, old: SwitchGroup, new: tuple[int, ...]) -> GpuPlan:
    """A GPU with other ranks in one of its groups."""

    def of(c: PlanChannels) -> PlanChannels:
        changed = tuple(new if g == old.ranks else g for g in c.groups)
        return replace(c, groups=changed) if c.buffer is old.buffer else c

    return replace(gpu, channels=tuple(map(of, gpu.channels)))


def dropped(plan: ExecutionPlan) -> Iterator[Mutant]:
    for where, op in operations(plan, *SUMS):
        yield f"no {op.op} at {where}", put_in(plan, where, Operation(PlanOp.NOP))
        if op.op is PlanOp.MULTICAST_REDUCE_STORE:
            yield f"{where} twice", put_in(plan, where, op, Operation(PlanOp.NOP), op)

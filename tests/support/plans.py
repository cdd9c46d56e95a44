"""Programs to make execution plans of, and ways to spoil a plan."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import patterns

from weft import Objective, Problem, synthesize
from weft.backends.compile.compile import CompileOptions, lower_algorithm, lower_schedule
from weft.backends.formats.mscclpp.plan.model import (
    ExecutionPlan,
    GpuPlan,
    Operation,
    PlanOp,
    ThreadBlock,
)
from weft.dsl.author.builder import Builder
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.synth.engines.classic.grid import plain_grid, write_allreduce

DGX1 = patterns.both(patterns.DGX1)


@cache
def synthesized(machine: str, kind: str) -> Schedule:
    found = topology(machine)
    return (
        synthesize(Problem(found, make(kind, found.ranks), objective=Objective.LATENCY))
        .points[0]
        .schedule
    )


def hierarchical(in_place: bool, protocol: Protocol) -> Program:
    """Two-level allreduce on 2 boxes of 3: reduce_scatter inside, ring across, allgather inside."""
    b = Builder(make("allreduce", 6, chunks=6), in_place=in_place)
    write_allreduce(b, plain_grid((3, 2)), ["direct", "ring"])
    return lower_algorithm(b.algorithm(), CompileOptions(in_place=in_place, protocol=protocol))


SCHEDULES: dict[str, tuple[Callable[[], Schedule], tuple[int, ...] | None]] = {
    "ring": (lambda: patterns.ring_allreduce(4, 1), None),
    "one shot": (lambda: patterns.one_shot(4, 1), None),
    "two shot": (lambda: patterns.trees_allreduce(4, patterns.full(4), 1), None),
    "ring, two boxes": (lambda: patterns.ring_allreduce(4, 1), (0, 0, 1, 1)),
    "two shot, two boxes": (lambda: patterns.trees_allreduce(4, patterns.full(4), 1), (0, 1, 0, 1)),
    "dgx1 allgather": (lambda: synthesized("dgx1", "allgather"), None),
    "dgx1 allreduce": (lambda: synthesized("dgx1", "allreduce"), None),
    "alltoall, two boxes": (lambda: synthesized("ring:4", "alltoall"), (0, 0, 1, 1)),
    "broadcast": (lambda: patterns.tree_broadcast(5, patterns.hub(5), 3, root=2), None),
    "reduce": (lambda: patterns.tree_reduce(5, patterns.hub(5), 2, root=1), (0, 0, 1, 1, 1)),
    "reduce_scatter": (lambda: patterns.ring_reduce_scatter(3, 2), None),
    "random": (lambda: patterns.random_allreduce(4, 5, 1), (0, 0, 1, 1)),
}
"""Schedules by name, and the node of each rank (None: one node)."""


def program(name: str, protocol: Protocol = Protocol.SIMPLE, in_place: bool = False) -> Program:
    """A program of one of :data:`SCHEDULES`, or the hierarchical one."""
    if name == "hierarchical":
        return hierarchical(in_place, protocol)
    return lower_schedule(
        SCHEDULES[name][0](), CompileOptions(protocol=protocol, in_place=in_place)
    )


def nodes(name: str) -> tuple[int, ...] | None:
    """The node of each rank."""
    return (0, 0, 0, 1, 1, 1) if name == "hierarchical" else SCHEDULES[name][1]


Where = tuple[int, int, int]


def operations(plan: ExecutionPlan, *wanted: PlanOp) -> Iterator[tuple[Where, Operation]]:
    """All operations, or those of some kinds, and where they are."""
    for r, gpu in enumerate(plan.gpus):
        for b, block in enumerate(gpu.blocks):
            for k, op in enumerate(block.ops):
                if not wanted or op.op in wanted:
                    yield (r, b, k), op


def with_gpu(plan: ExecutionPlan, rank: int, change: Callable[[GpuPlan], GpuPlan]) -> ExecutionPlan:
    gpus = list(plan.gpus)
    gpus[rank] = change(gpus[rank])
    return replace(plan, gpus=tuple(gpus))


def with_block(
    plan: ExecutionPlan, rank: int, block: int, change: Callable[[ThreadBlock], ThreadBlock]
) -> ExecutionPlan:
    def gpu(old: GpuPlan) -> GpuPlan:
        blocks = list(old.blocks)
        blocks[block] = change(blocks[block])
        return replace(old, blocks=tuple(blocks))

    return with_gpu(plan, rank, gpu)


def put_in(plan: ExecutionPlan, where: Where, *ops: Operation) -> ExecutionPlan:
    """The plan with other operations in the place of one."""
    r, b, k = where
    return with_block(plan, r, b, lambda t: replace(t, ops=(*t.ops[:k], *ops, *t.ops[k + 1 :])))

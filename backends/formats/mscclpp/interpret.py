"""Execute a plan for all GPUs in many orders, and compare with the collective's result."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from weft.dsl.base.errors import UserError
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.collective import Collective, Kind, make

from ...execute.execute import Execution
from ...execute.layout import BufferLayout, Data, data, layout, number_type
from .machine import LATENESS, POLICIES, PlanMachine, PlanMemory
from .plan.events import Unfit
from .plan.model import (
    LIMITS,
    Channel,
    ExecutionPlan,
    GpuPlan,
    Multicast,
    Operand,
    Operation,
    RemoteChunks,
    ThreadBlock,
    chunk_units,
)
from .plan.read import read_plan

_NAMES = {
    "allreduce": Kind.ALLREDUCE,
    "allgather": Kind.ALLGATHER,
    "alltoall": Kind.ALLTOALL,
    "reducescatter": Kind.REDUCE_SCATTER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "gather": Kind.GATHER,
    "scatter": Kind.SCATTER,
    "alltonext": Kind.ALLTONEXT,
}


_ROOTED = frozenset({Kind.BROADCAST, Kind.SCATTER, Kind.REDUCE, Kind.GATHER})


def collective_of(plan: ExecutionPlan, roots: Sequence[int] = ()) -> Collective:
    """Return the collective that a plan names, in its chunks.

    The file does not say the root of a broadcast or scatter: it is the only rank that gets nothing
    from others. That of a reduce or gather is the only one that gives nothing.

    Raises:
        UserError: a name with no fixed meaning, an ambiguous root, or a number of chunks
            that does not fit.
    """
    kind = _NAMES.get(plan.collective.lower())
    if kind is None:
        raise UserError(
            f"collective {plan.collective!r} does not say what the plan must achieve",
            where=plan.name,
            hint="name the collective",
        )
    if kind in _ROOTED and not roots:
        roots = _root(plan, kind)
    return fit(make(kind, len(plan.gpus), roots=roots), plan)


def _root(plan: ExecutionPlan, kind: Kind) -> tuple[int, ...]:
    side = 1 if kind in (Kind.BROADCAST, Kind.SCATTER) else 0
    idle = set(range(len(plan.gpus))) - {one[side] for one in _flow(plan)}
    if len(idle) != 1:
        raise UserError(
            f"the root of the {plan.collective} cannot be told from the plan",
            where=plan.name,
            hint="name the collective with its root",
        )
    return tuple(idle)


def _flow(plan: ExecutionPlan) -> Iterator[tuple[int, int]]:
    """Return the ranks that give data to each other: by writing, or by being read."""
    for rank, gpu in enumerate(plan.gpus):
        for block in gpu.blocks:
            for op in (one for outer in block.ops for one in (outer, *outer.body)):
                known = block.buffer_ids(op.channel or Channel.MEMORY)
                peers = [gpu.remote[k].rank if 0 <= k < len(gpu.remote) else rank for k in known]
                yield from _through_switches(gpu, block, op, rank)
                for x in (x for x in op.dst if isinstance(x, RemoteChunks)):
                    yield from ((rank, peer) for peer in peers[x.buffer_id : x.buffer_id + 1])
                for x in (x for x in op.src if isinstance(x, RemoteChunks)):
                    yield from ((peer, rank) for peer in peers[x.buffer_id : x.buffer_id + 1])


def _through_switches(
    gpu: GpuPlan, block: ThreadBlock, op: Operation, rank: int
) -> Iterator[tuple[int, int]]:
    """Yield (source, target) ranks of an operation's data through switches, itself left out."""
    known, groups = block.channel_ids(Channel.SWITCH), gpu.groups()

    def members(side: Sequence[Operand]) -> Iterator[int]:
        for x in side:
            if isinstance(x, Multicast):
                for k in known[x.channel_id : x.channel_id + 1]:
                    yield from (r for group in groups[k : k + 1] for r in group.ranks if r != rank)

    yield from ((rank, peer) for peer in members(op.dst))
    yield from ((peer, rank) for peer in members(op.src))


def fit(collective: Collective, plan: ExecutionPlan) -> Collective:
    """Return the collective cut into as many pieces as the plan has chunks.

    Raises:
        UserError: other ranks, or a number of chunks that is not a multiple, or too large.
    """
    if collective.ranks != len(plan.gpus):
        raise UserError(
            f"the collective has {collective.ranks} ranks, the plan {len(plan.gpus)}",
            where=plan.name,
        )
    most = max(max(g.input_chunks, g.output_chunks, g.scratch_chunks) for g in plan.gpus)
    if most > LIMITS.chunks:
        raise UserError(
            f"{most} chunks are more than the {LIMITS.chunks} that are followed",
            where=plan.name,
        )
    have = max(max(g.input_chunks, g.output_chunks) for g in plan.gpus)
    pieces, rest = divmod(have, collective.message_chunks)
    if rest or not pieces:
        raise UserError(
            f"expected a multiple of the collective's {collective.message_chunks} chunks, "
            f"got {have}",
            where=plan.name,
        )
    return collective.split(pieces)


def run_plan(
    plan: str | ExecutionPlan,
    collective: Collective | None = None,
    *,
    elements: int = 4,
    dtypes: Sequence[str] = ("float32", "int32"),
    orders: int = 200,
    launches: int = LIMITS.launches,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a plan in many orders, several launches each, and compare every result.

    Each order takes the next data type and size; inputs differ from launch to launch.
    ``collective`` says what the plan must achieve; without it its own name does.

    Raises:
        BadFile, UnknownName: the text is not a plan. UserError: the collective does not fit it.
    """
    if isinstance(plan, str):
        plan = read_plan(plan)
    if elements < 2 or orders < 1 or launches < 1:
        raise UserError("at least two elements per chunk, one order and one launch are needed")
    c = fit(collective, plan) if collective else collective_of(plan)
    place = layout(c, [0] * c.ranks, in_place=plan.in_place)
    problem = _too_large(plan, place)
    if problem:
        return Execution(False, problem)
    try:
        runs = [
            _Experiment(plan, place, size, number_type(name), launches, seed)
            for name in dtypes
            for size in _sizes(plan, elements)
        ]
    except Unfit as error:
        return Execution(False, str(error))
    steps = 0
    for number in range(orders):
        tell(f"execute {number + 1} of {orders}")
        policy = POLICIES[number % len(POLICIES)]
        lateness = LATENESS[number // len(POLICIES) % len(LATENESS)]
        one = runs[number % len(runs)]
        problem = one.run(random.Random((seed << 20) + number), policy, lateness)
        steps += one.machine.steps
        if problem:
            where = f"order {number}, {policy}, {lateness} of the writes early"
            return Execution(False, f"{problem} ({where})", number + 1, steps)
    how = "in place" if plan.in_place else "out of place"
    return Execution(
        True,
        f"{how}, {orders} orders of {launches} launches, {', '.join(dtypes)}: all results right",
        orders,
        steps,
    )


def _sizes(plan: ExecutionPlan, elements: int) -> list[int]:
    """Return the elements of a chunk in experiments: where groups of blocks share chunks, one
    element is a unit of what they share, and some orders of their cuts are tried."""
    units, _ = chunk_units(plan)
    if units == [1]:
        return [elements]
    most = max(max(g.input_chunks, g.output_chunks, g.scratch_chunks) for g in plan.gpus)
    tried = (units[-1], units[0], units[len(units) // 2])
    return list(dict.fromkeys(min(one, LIMITS.chunks // most) for one in tried))


def _too_large(plan: ExecutionPlan, place: BufferLayout) -> str | None:
    def sizes(g: GpuPlan) -> tuple[int, int]:
        return g.input_chunks, g.output_chunks

    for rank, gpu in enumerate(plan.gpus):
        for k, (have, name) in enumerate(zip(sizes(gpu), "io", strict=True)):
            if have > max(1, int(place.size[rank, k])):
                return (
                    f"rank {rank} declares {have} chunks of {name}, the collective has "
                    f"{place.size[rank, k]}"
                )
    return None


class _Experiment:
    """A machine with data of one type."""

    def __init__(
        self,
        plan: ExecutionPlan,
        place: BufferLayout,
        elements: int,
        dtype: np.dtype[np.generic],
        launches: int,
        seed: int,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.place, self.launches, self.elements = place, launches, elements
        self.memory = PlanMemory(plan, place, elements, dtype)
        self.machine = PlanMachine(plan, self.memory)
        self.values = [data(place, dtype, elements, rng) for _ in range(launches)]
        self.rows = [self._rows_of(rank) for rank in range(len(plan.gpus))]
        first = self.values[0]
        owner = np.searchsorted([low for low, _ in self.rows], first.rows, side="right") - 1
        self.wanted = [np.flatnonzero(owner == r) for r in range(len(plan.gpus))]
        kept = np.searchsorted([low for low, _ in self.rows], first.kept, side="right") - 1
        self.kept = [first.kept[kept == r] for r in range(len(plan.gpus))]

    def _rows_of(self, rank: int) -> tuple[int, int]:
        begin = int(self.place.base[rank, :2].min())
        ends = self.place.base[rank, :2] + self.place.size[rank, :2]
        return begin, int(ends.max())

    def run(self, rng: random.Random, policy: str, lateness: float) -> str | None:
        """One order of everything."""
        table = self.memory.user.reshape(-1, self.elements)

        def begin(rank: int, launch: int) -> None:
            low, high = self.rows[rank]
            table[low:high] = self.values[launch - 1].before[low:high]

        def finish(rank: int, launch: int) -> str | None:
            return self._wrong(table, rank, launch, self.values[launch - 1])

        return self.machine.run(rng, policy, lateness, self.launches, begin, finish)

    def _wrong(
        self, table: npt.NDArray[np.generic], rank: int, launch: int, value: Data
    ) -> str | None:
        wanted = self.wanted[rank]
        same = table[value.rows[wanted]] == value.expected[wanted]
        if not same.all():
            row = int(value.rows[wanted[int(np.argmin(same.all(axis=1)))]])
            k = row - int(self.place.base[rank, 1])
            return f"rank {rank} o[{k}] is wrong after launch {launch}"
        kept = self.kept[rank]
        bits = f"u{value.before.dtype.itemsize}"
        unchanged = table[kept].view(bits) == value.before[kept].view(bits)
        if not unchanged.all():
            return f"rank {rank}: the input was overwritten in launch {launch}"
        return None

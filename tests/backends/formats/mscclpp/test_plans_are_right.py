"""Emitted plans: within the schema, proved by the checker, executed right in adversarial orders."""

import random
from functools import cache

import patterns
import plans
import pytest
from random_moves import random_algorithm

from weft import Objective, Problem, synthesize
from weft.backends.check.findings import errors
from weft.backends.compile.compile import CompileOptions, lower_algorithm, lower_schedule
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.interpret import run_plan
from weft.backends.formats.mscclpp.lower.emit import plan_of
from weft.backends.formats.mscclpp.machine import LATENESS, POLICIES
from weft.backends.formats.mscclpp.plan.model import Channel, PlanOp, RemoteChunks
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.backends.formats.mscclpp.plan.write import write_plan
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.schedule import Schedule

ORDERS = len(POLICIES) * len(LATENESS)
"""Each policy with each lateness. Types of data alternate with the policies: each policy meets both
types, one under Simple and the other under LL."""

TYPES = {Protocol.SIMPLE: ("float32", "int32"), Protocol.LL: ("int32", "float32")}

NAMES = [*plans.SCHEDULES, "hierarchical"]
BOTH = pytest.mark.parametrize("protocol", [Protocol.SIMPLE, Protocol.LL], ids=str)


def fewer_of_large(name: str, orders: int) -> int:
    """The orders of a plan: half as many for those of a DGX-1, which take longer than the rest."""
    return orders // 2 if name.startswith("dgx1") else orders


def judge(program: Program, nodes: tuple[int, ...] | None, orders: int, seed: int = 0) -> None:
    plan = plan_of(program, nodes)
    assert read_plan(write_plan(plan)) == plan
    assert not errors(check_plan(plan))
    types = TYPES[program.protocol]
    done = run_plan(plan, program.collective, dtypes=types, orders=orders, seed=seed)
    assert done.ok, done.detail


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_right_in_any_order(name: str, protocol: Protocol) -> None:
    orders = fewer_of_large(name, ORDERS)
    judge(plans.program(name, protocol), plans.nodes(name), orders=orders)


LONG = [pytest.param(n, marks=pytest.mark.slow) if n.startswith("dgx1") else n for n in NAMES]


@BOTH
@pytest.mark.parametrize("name", LONG)
def test_a_plan_is_right_in_place_too(name: str, protocol: Protocol) -> None:
    orders = fewer_of_large(name, ORDERS)
    judge(plans.program(name, protocol, in_place=True), plans.nodes(name), orders=orders)


@BOTH
@pytest.mark.parametrize(
    ("kind", "roots"),
    [
        ("scatter", (0,)),
        ("scatter", (2,)),
        ("gather", (1,)),
        ("multiroot_scatter", (0, 2)),
        ("multiroot_gather", (1, 3)),
        ("alltoall", ()),
    ],
    ids=str,
)
def test_every_rooted_collective_has_a_plan_in_place(
    kind: str, roots: tuple[int, ...], protocol: Protocol
) -> None:
    """The larger buffer names every address: a scatter's output is shorter than its input."""
    options = CompileOptions(protocol=protocol, in_place=True)
    judge(lower_schedule(quickest(kind, roots), options), (0, 0, 1, 1), orders=ORDERS)


@cache
def quickest(kind: str, roots: tuple[int, ...]) -> Schedule:
    problem = Problem(topology("ring:4"), make(kind, 4, roots=roots), objective=Objective.LATENCY)
    return synthesize(problem).points[0].schedule


@pytest.mark.parametrize("seed", range(30))
def test_plans_of_random_algorithms_are_right(seed: int) -> None:
    rng = random.Random(seed)
    ranks, in_place = rng.choice((2, 3, 4)), rng.random() < 0.5
    written = random_algorithm(
        seed,
        ranks=ranks,
        chunks=rng.choice((1, 2, 3)),
        moves=rng.choice((5, 15, 40)),
        in_place=in_place,
    )
    options = CompileOptions(
        in_place=in_place,
        protocol=rng.choice((Protocol.SIMPLE, Protocol.LL)),
        instances=rng.choice((1, 2)),
    )
    nodes = rng.choice((None, tuple(rng.randrange(2) for _ in range(ranks)), tuple(range(ranks))))
    judge(lower_algorithm(written, options), nodes, orders=12, seed=seed)


def test_long_blocks_are_cut_and_stay_right() -> None:
    program = lower_schedule(patterns.ring_allreduce(9, 1))
    plan = plan_of(program)
    assert max(len(r.blocks) for r in program.ranks) < max(len(g.blocks) for g in plan.gpus)
    assert max(len(b.ops) for g in plan.gpus for b in g.blocks) <= 64
    judge(program, None, orders=24)


def test_channels_follow_the_nodes() -> None:
    plan = plan_of(plans.program("ring"), (0, 0, 1, 1))
    across = {(a, g) for a, gpu in enumerate(plan.gpus) for g in gpu.peers(Channel.PORT)}
    within = {(a, g) for a, gpu in enumerate(plan.gpus) for g in gpu.peers(Channel.MEMORY)}
    assert across == {(0, 3), (3, 0), (1, 2), (2, 1)}
    assert within == {(0, 1), (1, 0), (2, 3), (3, 2)}
    puts = [
        op for _, op in plans.operations(plan, PlanOp.PUT, PlanOp.REDUCE_SEND, PlanOp.PUT_SIGNAL)
    ]
    assert {op.channel for op in puts if op.op is PlanOp.PUT_SIGNAL} == {Channel.PORT}
    assert {op.channel for op in puts if op.op is not PlanOp.PUT_SIGNAL} == {Channel.MEMORY}


def test_what_is_received_once_lands_where_it_is_wanted() -> None:
    """An allgather writes no place twice: everything goes straight into the output."""
    plan = plan_of(plans.program("dgx1 allgather"))
    assert all(g.scratch_chunks == 0 for g in plan.gpus)
    sources = {op.src[0].buffer for _, op in plans.operations(plan, PlanOp.COPY)}
    assert sources == {"i"}  # a rank's own block
    targets = [
        plan.gpus[r].remote[plan.gpus[r].blocks[b].buffer_ids(Channel.MEMORY)[x.buffer_id]]
        for (r, b, _), op in plans.operations(plan, PlanOp.PUT)
        for x in op.dst
        if isinstance(x, RemoteChunks)
    ]
    assert {t.buffer for t in targets} == {"o"}


def test_packets_need_no_handshake_where_all_ranks_hear_of_all() -> None:
    all_to_all = plan_of(plans.program("two shot", Protocol.LL))
    assert not list(plans.operations(all_to_all, PlanOp.RELAXED_SIGNAL, PlanOp.SIGNAL))
    assert all_to_all.double_scratch
    one_way = plan_of(plans.program("broadcast", Protocol.LL))
    assert list(plans.operations(one_way, PlanOp.RELAXED_SIGNAL))


def test_sums_into_one_place_are_one_operation() -> None:
    plan = plan_of(plans.program("one shot"))
    sums = [op for _, op in plans.operations(plan, PlanOp.REDUCE)]
    assert sums
    assert max(len(op.src) for op in sums) <= 10

"""Merged programs on real processes: several collectives and demands in one, every result right."""

import random
from dataclasses import replace

import pytest
from jobs import RUNTIMES, all_right, on_processes, piece
from joint_cases import collective, hangs

from weft.backends.ranks.job import Case
from weft.dsl.catalogue import topology
from weft.dsl.nouns.workload import Forwarders, Shard, Workload, WorkloadOperation
from weft.synth.base.engine import Budget
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of
from weft.synth.judge.merged import launch_problems
from weft.synth.judge.verify import verify
from weft.synth.planning.joint_plan import JointPlanner

EACH = tuple(tuple((i + 2 * j) % 3 * 1000 for j in range(4)) for i in range(4))
WORK = (
    collective("sum", "allreduce", (0, 2), 0.006, relays="all"),
    collective("all", "alltoall", (1, 2, 3), 0.003, relays="all"),
    WorkloadOperation("each", "alltoallv", group=(0, 1, 2, 3), matrix=EACH),
    WorkloadOperation("one", "transfer", group=(3, 1), bytes=2000, relays=Forwarders.ALL),
    WorkloadOperation("some", "multicast", shards=(Shard((0, 1), (2, 3), 3000),)),
)


@pytest.fixture(scope="module")
def schedule():
    chip = topology("ring:4")
    bound = joint_bound(chip, demands_of(Workload("w", WORK), chip.ranks))
    plan = JointPlanner(chip, bound, Budget(effort=0.5)).plan()
    assert verify(plan.schedule).ok
    return replace(plan.schedule, segments=1)


@pytest.mark.parametrize("on", RUNTIMES[-1:])  # MPI and more ranks: tests/grade/merged_sweep.py
def test_every_result_of_a_merged_program_is_right(on, schedule):
    all_right(on_processes(on, [piece(on, schedule)], [Case(0, 1, "int32")]))


def test_launch_orders_are_refused_exactly_where_ranks_would_wait_forever(schedule):
    rng = random.Random(0)
    groups = [part.group for part in schedule.parts]
    seen = set()
    for _ in range(60):
        common = rng.sample(range(len(groups)), len(groups))
        launch = [sorted(order, key=common.index) for order in schedule.launch]
        for rank in rng.sample(range(4), rng.randrange(3)):
            rng.shuffle(launch[rank])
        refused = bool([*launch_problems(schedule.parts, launch, 4)])
        assert refused == hangs(groups, launch)
        seen.add(refused)
    assert seen == {True, False}

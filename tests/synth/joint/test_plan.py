"""Plans of several collectives: merged, verified, near the bound; wrong parts and launches."""

from dataclasses import replace
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.joint_cases import boxes, collective, machines, rails, workloads
from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.merged import launch_cycle
from weft.dsl.nouns.schedule import dump, load
from weft.dsl.nouns.topology import Link, Topology, gpu
from weft.dsl.nouns.workload import Forwarders, Shard, Workload, WorkloadOperation
from weft.synth.base.engine import Budget
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of
from weft.synth.joint.merge import part_schedule
from weft.synth.judge.verify import verify
from weft.synth.planning.joint_plan import JointPlanner, alone_us
from weft.synth.time.schedule_time import simulate


def planner(machine, operations, effort=1.0):
    chip = topology(machine) if isinstance(machine, str) else machine
    work = operations if isinstance(operations, Workload) else Workload("w", tuple(operations))
    return JointPlanner(
        chip, joint_bound(chip, demands_of(work, chip.ranks)), Budget(effort=effort)
    )


QUADS = [
    collective("a", "allreduce", range(4), 100, relays="all"),
    collective("b", "allreduce", range(4, 8), 100, relays="all"),
]


@pytest.fixture(scope="module")
def quads():
    return planner("dgx1", QUADS).plan()


def test_two_quads_share_the_machine(quads):
    assert 4000 / 3 < quads.us < 1390
    assert quads.way == "trees"
    assert [one.name for one in quads.schedule.parts] == ["a", "b"]


@pytest.mark.parametrize("relays", ["none", "all"])
@pytest.mark.parametrize("kind", ["reduce", "gather", "broadcast", "scatter"])
def test_a_rooted_collective_needs_links_in_one_direction_only(kind, relays):
    """Rank 2 receives from 0 and sends to 1, the root; or all of it turned round."""
    into = kind in ("reduce", "gather")
    ends = [(0, 2), (2, 1), (1, 3)] if into else [(2, 0), (1, 2), (3, 1)]
    links = tuple(Link(a, b, Fraction(25), Fraction(1)) for a, b in ends)
    chip = Topology("one way", tuple(gpu(i) for i in range(4)), links)
    one = planner(chip, [collective("x", kind, range(3), 3, root=1, relays=relays)])
    assert one.bound.us == (120 if kind in ("reduce", "broadcast") else 80)
    plan = one.plan()
    assert verify(plan.schedule).ok
    assert one.bound.us <= plan.us < 1.1 * one.bound.us
    with pytest.raises(UserError, match="not all of its ranks are joined"):
        planner(chip, [collective("x", kind, range(3), 3, root=0, relays=relays)])


def sized(name, kind, ranks, size, **more):
    return replace(collective(name, kind, ranks, 1, **more), bytes=size)


def test_of_a_small_collective_all_engines_are_asked():
    """Packing thinks of rates: what it finds for 3 KiB takes twice as long as need be."""
    one = planner("ring:3", [sized("a", "allreduce", range(3), 3072)], effort=0.02)
    found = one.plan()
    assert found.way == "best routes"
    assert found.us == pytest.approx(float(one.alone.us), rel=1e-6)  # that of bounds with latency
    assert alone_us(one.own[0]) > 1.5 * found.us
    assert verify(found.schedule).ok


def test_a_plan_is_no_slower_than_its_collectives_one_after_another(monkeypatch):
    some = [sized("a", "alltoall", range(3), 3000), sized("b", "allgather", range(3), 3000)]
    one = planner("line:3", some, effort=0.02)
    pieces = one.own
    slow = replace(one.quickest(pieces, "own routes"), us=1000.0)
    monkeypatch.setattr(JointPlanner, "quickest", lambda *_: slow)
    found = one.plan()
    assert found.us <= sum(map(alone_us, pieces))
    assert found.way == "best routes in turn"
    assert verify(found.schedule).ok


@pytest.mark.parametrize("relays", ["none", "idle", "all"])
def test_the_bound_of_one_alone_counts_latency_and_forwarders(relays):
    """Ranks 0 and 2 of a ring of four: two hops of 0.7 µs over either neighbour, if they forward;
    on a line of four 1 and 2 are next to each other."""
    small = [sized("a", "allreduce", (0, 2), 8, relays=relays)]
    if relays == "none":
        with pytest.raises(UserError):
            planner("ring:4", small)
        small = [sized("a", "allreduce", (1, 2), 8)]
    one = planner("line:4" if relays == "none" else "ring:4", small, effort=0.02)
    assert one.alone.name == "a"
    assert float(one.alone.us) == pytest.approx(0.7 if relays == "none" else 1.4, rel=1e-3)
    assert one.alone.us <= Fraction(one.plan().us)


def test_the_bound_of_demands_counts_their_latency():
    both = Shard((0, 1), (3,), 8)
    for asked, us in (
        (WorkloadOperation("t", "transfer", group=(0, 3), bytes=50_000), 2.1 + 2.0),
        (WorkloadOperation("m", "multicast", shards=(both, Shard((0,), (2,), 8))), 1.4),
    ):
        one = planner("line:4", [replace(asked, relays=Forwarders.ALL)])
        assert float(one.alone.us) == pytest.approx(us)
        assert one.bound.us < one.alone.us <= Fraction(one.plan().us)


def test_the_bound_of_large_messages_is_that_of_rates():
    for size, none in ((1_000_000, False), (30_000_000, True)):
        one = planner("line:3", [sized("a", "allgather", range(3), size)])
        assert (one.alone is None) is none
        assert one.alone is None or one.alone.us > one.bound.us


def test_a_root_may_be_rank_0_anywhere_in_the_group():
    found = planner("dgx1", [collective("b", "broadcast", [3, 0, 1], 1, root=0)]).plan()
    assert verify(found.schedule).ok
    assert found.schedule.collective.pre.ranks.tolist()[0] == 0


def test_sizes_without_a_common_grain_are_rounded_up():
    """Shares of the machine are ragged, and so are sizes: merged, they had no common grain."""
    odd = [
        replace(collective("a", "allreduce", range(4), 1), bytes=100_000_007),
        replace(collective("b", "alltoall", range(8), 1), bytes=99_999_989),
        replace(collective("c", "allgather", (4, 5, 6), 1, relays="all"), bytes=50_000_017),
    ]
    one = planner("dgx1", odd)
    found = one.quickest(one.partition(), "partition")
    assert verify(found.schedule).ok
    assert one.bound.us < found.us < 1.02 * float(one.bound.us)
    for part, asked in zip(found.schedule.parts, odd, strict=True):
        assert asked.bytes <= part.bytes < 1.002 * asked.bytes


@pytest.mark.parametrize("machine", ["ring:4", "dgx-a100:nodes=2"])
def test_odd_bytes_of_a_matrix_are_rounded_up(machine):
    ranks = topology(machine).ranks
    rows = [[(7 * i + 11 * j + 1) * 99_999_989 * (i != j) for j in range(ranks)] for i in range(4)]
    matrix = tuple(map(tuple, [*rows, *[[1] * ranks] * (ranks - 4)]))
    odd = WorkloadOperation("a", "alltoallv", group=tuple(range(ranks)), matrix=matrix)
    small = WorkloadOperation("b", "transfer", group=(0, 1), bytes=7)
    one = planner(machine, [odd, small])
    found = one.plan()
    assert verify(found.schedule).ok
    assert one.bound.us < found.us < 1.1 * float(one.bound.us)
    asked = sum(x for i, row in enumerate(matrix) for j, x in enumerate(row))
    given = sum(shard.bytes for shard in found.schedule.parts[0].shards)
    assert asked <= given < 1.001 * asked


def test_an_idle_box_forwards():
    found = planner(
        "dgx-a100:nodes=4", [collective("dp", "allreduce", range(0, 32, 8), 1000, relays="idle")]
    ).plan()
    assert 7500 < found.us < 7900


def test_own_routes_where_nothing_is_gained():
    found = planner("dgx-a100:nodes=2", [*boxes(2, 8, 200), *rails(2, 8, 20)]).plan()
    assert found.way == "own routes"
    assert verify(found.schedule).ok


def test_priority_ends_a_class_early():
    late = [collective("a", "alltoall", range(8), 50), collective("b", "alltoall", range(8), 50)]
    early = [late[0], replace(late[1], priority=0)]
    ends = planner("dgx1", early).plan().ends
    assert ends[1] < 0.7 * ends[0]


def test_files_of_a_plan_keep_its_parts(quads):
    again = load(dump(quads.schedule))
    assert (again.parts, again.launch) == (quads.schedule.parts, quads.schedule.launch)
    assert verify(again).ok
    alone = part_schedule(quads.schedule, quads.schedule.parts[0])
    assert verify(alone).ok
    assert alone.bytes == 100_000_000
    assert simulate(alone, alone.bytes).time_us <= quads.us


def test_a_part_that_is_not_what_it_says_is_rejected(quads):
    schedule = quads.schedule
    a, b = schedule.parts
    wrong = [
        replace(a, kind="allgather"),
        replace(a, group=(0, 1, 2, 4)),
        replace(a, bytes=a.bytes + 1),
        replace(a, last=a.last - 1),
    ]
    for part in wrong:
        verdict = verify(replace(schedule, parts=(part, b)))
        assert not verdict.ok, part


SHARDS = (Shard((0, 1), (2, 3), 5000), Shard((0,), (1, 2), 3000))


@pytest.fixture(scope="module")
def delivered():
    one = WorkloadOperation("m", "multicast", shards=SHARDS)
    return planner("dgx1", [one]).plan().schedule


def test_a_demand_that_is_not_delivered_as_stated_is_rejected(delivered):
    (part,) = delivered.parts
    assert part.shards == SHARDS
    assert verify(delivered).ok
    one, other = SHARDS
    wrong = [
        (other, one),
        (one,),
        (replace(one, bytes=5001), other),
        (replace(one, holders=(0,)), other),
        (replace(one, receivers=(2, 3, 0)), other),
        (one, replace(other, receivers=(1, 3))),
        (one, replace(other, receivers=(1, 7))),
    ]
    for shards in wrong:
        verdict = verify(replace(delivered, parts=(replace(part, shards=shards),)))
        assert not verdict.ok, shards
    for kind in ("multicast", "allgather"):
        shards = () if kind == "multicast" else SHARDS
        other_part = replace(part, kind=kind, shards=shards)
        assert not verify(replace(delivered, parts=(other_part,))).ok


def test_paths_take_each_pair_where_the_solution_sends_it():
    pairs = [
        WorkloadOperation(
            f"t{i}", "transfer", group=(i, i + 4), bytes=10**7, relays=Forwarders.ALL, of_class="t"
        )
        for i in range(4)
    ]
    found = planner("dgx1", pairs)
    plan = found.plan()
    assert verify(plan.schedule).ok
    assert float(found.bound.us) <= plan.us < 1.1 * float(found.bound.us)
    assert plan.way in ("own routes", "paths")


def test_a_launch_order_that_could_deadlock_is_rejected():
    crossing = [
        collective("a", "allreduce", [0, 1], 1),
        collective("b", "allreduce", [1, 2], 1),
        collective("c", "allreduce", [2, 0], 1),
    ]
    schedule = planner("dgx1", crossing).plan().schedule
    assert verify(schedule).ok
    launch = list(schedule.launch)
    launch[2] = launch[2][::-1]
    other = replace(schedule, launch=tuple(launch))
    assert verify(other).ok, "a, c, b is an order that all have"
    launch = list(schedule.launch)
    launch[0] = launch[0][::-1]  # 0 starts c first, 1 a first, 2 b first: each waits for the next
    bad = verify(replace(schedule, launch=tuple(launch)))
    assert "deadlock" in bad.problems[0]
    missing = replace(schedule, launch=((0,), *schedule.launch[1:]))
    assert "rank 0 must launch" in verify(missing).problems[0]


@given(st.lists(st.permutations(range(4)), min_size=1, max_size=4))
def test_orders_are_refused_exactly_where_no_common_one_exists(orders):
    edges = {(o[i], o[i + 1]) for o in orders for i in range(3)}
    left = set(range(4))
    while left:
        free = [x for x in left if not any(b == x and a in left for a, b in edges)]
        if not free:
            break
        left -= set(free)
    assert (launch_cycle(orders, 4) is None) == (not left)


@settings(max_examples=examples(5, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_workloads_are_planned_right_and_never_below_the_bound(data):
    chip = data.draw(machines(most=6))
    work = data.draw(workloads(chip.ranks, most_classes=3))
    try:
        found = planner(chip, work)
    except UserError:
        return
    try:
        plan = found.plan()
    except NothingFound:  # a group that is joined only through others
        return
    assert verify(plan.schedule).ok
    assert plan.us >= float(found.bound.us) * (1 - 1e-9)

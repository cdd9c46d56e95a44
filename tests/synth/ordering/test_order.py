"""Order in time: known steps, certificates, random workloads against a plain judge."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from training_steps import KNOWN, KnownStep, compute, file, fsdp, load, micro_batches, moe

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.workload import Workload
from weft.dsl.nouns.workload_file import load as workload_of
from weft.dsl.nouns.workload_plan import PlanPiece
from weft.dsl.nouns.workload_plan import load as plan_of
from weft.synth.base.meter import Meter
from weft.synth.ordering.bound import OrderBound, order_bound, stronger_bound
from weft.synth.ordering.check import bound_faults, timeline_faults
from weft.synth.ordering.judge import judged
from weft.synth.ordering.plan import SHARED, order_tasks, plan_faults, plan_in_time
from weft.synth.ordering.simulate import Sharing, Simulator
from weft.synth.ordering.tasks import TaskCost, TaskGraph, tasks_of

WORK = 400_000


def workload(operations: list[dict[str, Any]]) -> Workload:
    return workload_of(file(operations), "test")


def graph(operations: list[dict[str, Any]]) -> TaskGraph:
    return tasks_of(workload(operations))


@pytest.mark.parametrize("step", KNOWN, ids=lambda step: step.name)
def test_known_steps(step: KnownStep) -> None:
    tasks = graph(step.operations)
    found = order_tasks(tasks, Meter(WORK))
    assert found.bound.us == step.bound
    assert found.line.us == pytest.approx(step.best, rel=1e-9)
    assert found.fair.us == pytest.approx(step.fair, rel=1e-9)
    assert found.queue.us == pytest.approx(step.queue, rel=1e-9)
    if step.apart is not None:
        assert found.apart.us == pytest.approx(step.apart, rel=1e-9)
    assert bound_faults(tasks, found.bound) == []
    for line in (found.line, found.fair, found.queue, found.apart):
        assert timeline_faults(tasks, line) == []


def test_one_hundred_and_sixty_operations_take_little_work() -> None:
    meter = Meter(WORK)
    assert order_tasks(graph(moe(32, 1000, 1000, 960, 2000)), meter).optimal
    assert meter.done < 20_000


def test_what_runs_before_a_task_makes_the_bound_stronger() -> None:
    tasks = graph(fsdp(6, 500, 1000, 800, 800))
    plain, strong = order_bound(tasks), stronger_bound(tasks)
    assert (plain.us, strong.us) == (14400, 14600)
    assert len(strong.steps) > 1
    assert bound_faults(tasks, plain) == bound_faults(tasks, strong) == []


def test_a_certificate_that_claims_more_is_refused() -> None:
    for operations in (fsdp(6, 500, 1000, 800, 800), moe(4, 1500, 1500, 240, 4000)):
        tasks = graph(operations)
        bound = stronger_bound(tasks)
        for at, step in enumerate(bound.steps):
            steps = list(bound.steps)
            steps[at] = replace(step, ticks=step.ticks + 1)
            us = bound.us + (Fraction(1, tasks.scale) if at + 1 == len(steps) else 0)
            assert bound_faults(tasks, OrderBound(us, tuple(steps)))
            if step.tasks:
                steps[at] = replace(step, ticks=step.ticks + 1, head=step.head + 1)
                assert bound_faults(tasks, OrderBound(us, tuple(steps)))
        assert bound_faults(tasks, OrderBound(bound.us, ()))
        assert bound_faults(tasks, OrderBound(bound.us + 1, bound.steps))


def test_two_resources_need_more_than_the_longest_tail_first() -> None:
    """A task of two resources that waits for either: the judge agrees with the repaired order."""
    operations = micro_batches(2, 700, 300, 500, 900)
    for one in operations[::3]:
        if one["kind"] == "load":
            one["us"] = {"nic": 500, "nvlink": 400}
    tasks = graph(operations)
    found = order_tasks(tasks, Meter(WORK))
    verdict = judged(tasks, 5, steps=6_000_000)
    assert verdict is not None
    assert verdict.us is not None
    assert found.line.us <= float(verdict.us) * 1.002


@st.composite
def steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Random operations with random order, on up to three resources and three ranks."""
    found: list[dict[str, Any]] = []
    for at in range(draw(st.integers(1, 7))):
        before = [f"o{x}" for x in range(at) if draw(st.booleans()) and draw(st.booleans())]
        us = draw(st.integers(0, 9)) * 10
        if draw(st.booleans()):
            one = compute(f"o{at}", us, *before)
            one["ranks"] = sorted(draw(st.sets(st.integers(0, 2), min_size=1)))
        else:
            one = load(f"o{at}", us, *before)
            names = draw(st.sets(st.sampled_from("xyz"), min_size=1))
            one["us"] = {name: draw(st.integers(0, 9)) * 10 for name in sorted(names)}
        found.append(one)
    return found


@settings(max_examples=examples(52, 200), deadline=None)
@given(steps())
def test_no_plan_is_below_a_bound_and_all_are_sound(operations: list[dict[str, Any]]) -> None:
    tasks = graph(operations)
    plain, strong = order_bound(tasks), stronger_bound(tasks)
    assert strong.us >= plain.us
    assert bound_faults(tasks, plain) == bound_faults(tasks, strong) == []
    simulator = Simulator(tasks)
    for way in Sharing:
        line = simulator.run(range(len(tasks.tasks)), way)
        assert timeline_faults(tasks, line) == []
        assert line.us >= float(strong.us) - 1e-6


@settings(max_examples=examples(12, 25), deadline=None)
@given(steps())
def test_no_list_of_priorities_is_better(operations: list[dict[str, Any]]) -> None:
    tasks = graph(operations[:5])
    simulator = Simulator(tasks)
    places = range(len(tasks.tasks))
    best = min(simulator.run(rank).us for rank in permutations(places))
    found = order_tasks(tasks, Meter(WORK))
    assert found.line.us <= best + 1e-6  # a line may wait on purpose, which no list does


# --- plans and their files ------------------------------------------------------------------------


def test_a_plan_comes_back_from_its_file() -> None:
    plan = plan_in_time(workload(fsdp(6, 500, 1000, 800, 800)), Meter(WORK))
    again = plan_of(plan.to_json(), "plan.json")
    assert again == plan
    assert plan_faults(again) == []


def test_a_changed_plan_is_refused() -> None:
    plan = plan_in_time(workload(moe(4, 1000, 1000, 960, 2000)), Meter(WORK))
    data = plan.to_json()
    pieces = data["pieces"]
    late = [[*pieces[0][:2], pieces[0][2] - 5, 1.0], *pieces[1:]]
    early = [*pieces[:1], [pieces[1][0], pieces[1][1] - 100, pieces[1][2] - 100, 1.0], *pieces[2:]]
    for changed in (late, early, pieces[1:]):
        launches = replace(plan, pieces=tuple(PlanPiece(*x) for x in changed)).launches()
        broken = {**data, "pieces": changed, "launches": [list(x) for x in launches]}
        assert plan_faults(plan_of(broken, "plan.json"))
    with pytest.raises(BadFile, match="launches"):
        plan_of({**data, "launches": data["launches"][1:]}, "plan.json")
    bound = {**data["bound"], "us": 17_681}
    assert plan_faults(plan_of({**data, "bound": bound}, "plan.json"))


def test_launches_are_slices_in_an_order_that_cannot_wait_for_itself() -> None:
    plan = plan_in_time(workload(moe(4, 1000, 1000, 960, 2000)), Meter(WORK))
    launches = plan.launches()
    total: dict[str, float] = {}
    for name, begin, end in launches:
        assert begin == pytest.approx(total.get(name, 0.0))
        total[name] = end
    assert set(total) == {x.name for x in plan.workload.operations if x.communicates}
    assert all(end == pytest.approx(1) for end in total.values())
    assert len(launches) > len(total)  # gradients are cut where an alltoall goes first
    place = {name: at for at, (name, _, _) in enumerate(launches)}
    for one in plan.workload.operations:
        for before in one.after:
            if one.name in place and before in place:
                assert place[before] < place[one.name]


def test_priorities_of_the_file_are_kept() -> None:
    operations = moe(2, 100, 100, 50, 400)
    for one in operations:
        if one["name"].startswith("g"):
            one["priority"] = 0
    plan = plan_in_time(workload(operations), Meter(WORK))
    assert plan.order[:2] in {("g0", "g1"), ("g1", "g0")}
    free = plan_in_time(workload(moe(2, 100, 100, 50, 400)), Meter(WORK))
    assert free.us <= plan.us


def test_a_due_time_goes_before_the_end_of_all() -> None:
    operations = [load("long", 100), load("soon", 10)]
    operations[1]["due_us"] = 20
    plan = plan_in_time(workload(operations), Meter(WORK))
    assert plan.order[0] == "soon"
    assert plan.late_us == 0
    operations[1]["due_us"] = 5
    assert plan_in_time(workload(operations), Meter(WORK)).late_us == 5


def test_a_collective_needs_a_machine() -> None:
    one = {"name": "a", "kind": "allreduce", "group": [0, 1], "bytes": 8}
    with pytest.raises(UserError, match="only on a machine"):
        plan_in_time(workload([one]), Meter(WORK))


def test_a_queue_is_one_of_each_rank() -> None:
    """Groups without a common rank do not wait for each other; with one they do, in order."""
    sums = [
        {"name": name, "class": "sum", "kind": "allreduce", "group": group, "bytes": 1}
        for name, group in (("a", [0, 1]), ("b", [2, 3]), ("c", [1, 2]), ("d", [0, 3]))
    ]
    tasks = tasks_of(
        workload(sums), lambda one: TaskCost(Fraction(6), {f"nic {one.name}": Fraction(6)})
    )
    ends = order_tasks(tasks, Meter(WORK)).queue.ends
    assert ends == (6.0, 6.0, 12.0, 12.0)
    shared = tasks_of(workload(sums), lambda one: TaskCost(Fraction(6), {"nic": Fraction(6)}))
    assert order_tasks(shared, Meter(WORK)).queue.us == pytest.approx(24.0)


def test_fair_sharing_that_ends_sooner_is_the_plan_unless_priorities_are_stated() -> None:
    """Two resources: half rates fill both, an order leaves one idle."""
    loads = {"o0": {"a": 4, "b": 3}, "o1": {"a": 4, "b": 5}}
    rows = [{"name": name, "kind": "load", "us": us} for name, us in loads.items()]
    plan = plan_in_time(workload(rows), Meter(WORK))
    assert (plan.us, plan.times.fair) == (pytest.approx(8.2), pytest.approx(8.2))
    assert plan.remarks == (SHARED,)
    asked = workload([{**row, "priority": at} for at, row in enumerate(rows)])
    plan = plan_in_time(asked, Meter(WORK))
    assert (plan.us, plan.times.fair) == (pytest.approx(9), pytest.approx(8.2))
    assert plan.remarks == ("fair sharing ends sooner, after 8.2 µs: no order found does as well",)

"""Orders: a run on orbits takes as long as the simulator says, and rules keep their promises."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import COMBINING, COPYING, MACHINES, mixed, named, quick
from strategies import topologies

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.base.meter import Meter
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.packing.order.order import (
    FIRST,
    OTHERS,
    Mirrored,
    Rule,
    Urgency,
    as_listed,
    shaken,
    sums_first,
)
from weft.synth.engines.packing.order.order_search import OrderEffort, OrderLimits, quickest
from weft.synth.engines.packing.order.plan import PackingPlan, PlanQuotient, unfolded
from weft.synth.engines.packing.trees.trees import pack
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import simulate

RULES = (*FIRST, *OTHERS, as_listed, sums_first)


@pytest.mark.parametrize("kind", COPYING + COMBINING)
@pytest.mark.parametrize("name", MACHINES)
def test_a_run_on_orbits_takes_as_long_as_the_schedule(name: str, kind: str) -> None:
    plan = PackingPlan.of(named(name, kind))
    quotient = PlanQuotient.of(plan)
    assert quotient.exact
    for size, segments in ((1000, 1), (1 << 20, 4)):
        urgency = Urgency.of(quotient, size, segments)
        for rule in RULES:
            order = rule(urgency)
            promised = quotient.time_us(size, segments, order.priority, order.stride)
            schedule = plan.schedule(order.priority, order.stride, segments)
            assert promised == pytest.approx(simulate(schedule, size).time_us, rel=1e-9)


@settings(max_examples=examples(4, 15))
@given(data=st.data())
def test_without_symmetry_a_run_is_the_schedule_itself(data: st.DataObject) -> None:
    machine = data.draw(topologies())
    kind = data.draw(st.sampled_from(("allgather", "reduce_scatter", "allreduce", "broadcast")))
    one = quick(machine, make(kind, machine.ranks))
    packing = mixed([one, one], data.draw(st.integers(0, 99)))
    plan, segments = PackingPlan.of(packing), data.draw(st.integers(1, 4))
    quotient, size = PlanQuotient.of(plan), data.draw(st.sampled_from([1, 1000, 10**6]))
    order = data.draw(st.sampled_from(RULES))(Urgency.of(quotient, size, segments))
    schedule = plan.schedule(order.priority, order.stride, segments)
    time = simulate(schedule, size).time_us
    assert quotient.time_us(size, segments, order.priority, order.stride) == pytest.approx(time)
    assert time >= float(packing.us_per_byte * size) * (1 - 1e-9)


def test_unfolded_it_is_the_same_schedule() -> None:
    packing = named("torus:4x4", "allgather")
    open_ = unfolded(packing)
    assert len(open_.trees) == 16
    whole, again = PackingPlan.of(packing), PackingPlan.of(open_)
    quotient = PlanQuotient.of(again)
    assert quotient.exact
    assert verify(again.schedule()).ok
    assert sorted(t.route for t in again.schedule()) == sorted(t.route for t in whole.schedule())


@pytest.mark.parametrize("rule", RULES)
def test_priorities_tell_hops_apart_and_fit_the_column(rule: object) -> None:
    quotient = PlanQuotient.of(PackingPlan.of(named("dgx-a100:nodes=2", "allreduce")))
    order = rule(Urgency.of(quotient, 1 << 30, 128))  # type: ignore[operator]
    assert len(np.unique(order.priority)) == len(order.priority)
    assert order.priority.min() >= 0
    assert order.priority.max() < 1 << 31


def test_a_shaken_rule_is_the_rule_with_wrong_tails() -> None:
    quotient = PlanQuotient.of(PackingPlan.of(named("torus:4x4", "allgather", symmetric=False)))
    urgency = Urgency.of(quotient, 1 << 20, 4)
    rng = np.random.default_rng(1)
    noisy = shaken(FIRST[1], urgency, rng, 0.3)
    assert sorted(noisy.priority.tolist()) == list(range(len(noisy.priority)))
    assert not np.array_equal(noisy.priority, FIRST[1](urgency).priority)


def test_sums_go_in_the_mirrored_order_of_copies() -> None:
    machine, size = topology("mi250:nodes=2"), 1 << 26
    packing = pack(machine, make("reduce_scatter", machine.ranks))[0]
    quotient = PlanQuotient.of(PackingPlan.of(packing))
    urgency = Urgency.of(quotient, size, 1)

    def over(rule: Rule) -> float:
        order = rule(urgency)
        assert len(set(order.priority.tolist())) == len(order.priority)
        took = quotient.time_us(size, 1, order.priority, order.stride)
        return took / float(packing.us_per_byte * size)

    assert over(Mirrored(quotient, size)) < 1.35
    assert min(map(over, RULES)) > 1.6


@pytest.mark.parametrize("kind", COMBINING)
def test_a_run_in_mirrored_order_is_the_schedule(kind: str) -> None:
    quotient = PlanQuotient.of(PackingPlan.of(named("torus:4x4", kind)))
    order = Mirrored(quotient, 1 << 20)(Urgency.of(quotient, 1 << 20, 4))
    promised = quotient.time_us(1 << 20, 4, order.priority, order.stride)
    schedule = quotient.plan.schedule(order.priority, order.stride, 4)
    assert promised == pytest.approx(simulate(schedule, 1 << 20).time_us, rel=1e-9)
    assert verify(schedule).ok


def test_of_two_packings_the_quicker_wins_and_effort_is_kept() -> None:
    fair = named("torus:4x4", "alltoall")
    crowded = named("torus:4x4", "alltoall", symmetric=False)
    quotients = [PlanQuotient.of(PackingPlan.of(p)) for p in (crowded, fair)]
    best = quickest(quotients, 10**9, OrderLimits())
    assert best.quotient is quotients[fair.us_per_byte <= crowded.us_per_byte]
    assert quickest(quotients, 10**9, OrderLimits(segments=4)).segments == 4
    small = OrderLimits(
        effort=OrderEffort(jobs=fair.images.shape[0] * sum(map(len, fair.trees)) * 2)
    )
    assert quickest([quotients[1]], 10**6, small).segments <= 2
    hurried = quickest(quotients, 10**9, OrderLimits(meter=Meter(0)))
    assert verify(hurried.schedule()).ok


def test_long_chains_are_cut_into_many_slices_while_that_makes_few_jobs() -> None:
    """One tree per root on two boards of GPUs: 3750 µs is the bound with as few."""
    machine = topology("mi250")
    (packing, *_) = pack(machine, make("allgather", machine.ranks), trees=1)
    quotient = PlanQuotient.of(PackingPlan.of(packing))
    free = OrderEffort(slices=replace(OrderEffort().slices, message_us=Fraction(0)))
    best = quickest([quotient], 10**9, OrderLimits(effort=free))
    assert best.segments > 128
    schedule = best.schedule()
    assert verify(schedule).ok
    assert simulate(schedule, 10**9).time_us <= 3760
    few = OrderLimits(effort=replace(free, jobs=128 * quotient.plan.transfers))
    assert quickest([quotient], 10**9, few).segments <= 128
    costly = quickest([quotient], 10**9, OrderLimits())
    assert costly.segments <= best.segments
    assert costly.time_us <= OrderEffort().slices.kept(costly.finer_us)


def test_the_same_seed_finds_the_same() -> None:
    quotient = PlanQuotient.of(PackingPlan.of(named("dgx1", "allreduce")))
    one, two = (quickest([quotient], 10**6, OrderLimits(seed=3)) for _ in range(2))
    assert one.time_us == two.time_us
    assert np.array_equal(one.order.priority, two.order.priority)


def test_a_small_message_takes_the_low_tree_at_the_least_effort() -> None:
    """Of packings that differ in height the one of the shortest chain of α is looked at first."""
    machine = topology("mi250")
    problem = Problem(machine, make("broadcast", 16), None, Objective.TIME, 1 << 14)
    found = synthesize(problem, budget=Budget(1)).points[0].schedule
    least = float(lower_bound_us(bounds(machine, problem.collective), 1 << 14))
    assert simulate(found, 1 << 14).time_us <= 1.2 * least


def test_the_longest_chain_counts_every_hop_that_waits() -> None:
    machine = topology("line:4")
    packing = pack(machine, make("broadcast", 4), meter=Meter(1_000_000))[0]
    chain = PlanQuotient.of(PackingPlan.of(packing)).chain_us
    assert chain == pytest.approx(3 * float(machine.links[0].latency))


def test_every_packing_is_run_before_one_takes_all_the_work() -> None:
    """How well trees order is not told by their load: high ones may, flat ones may not."""
    machine = topology("dragonfly:p=2,a=4,h=2")
    packings = pack(machine, make("allgather", machine.ranks), meter=Meter(3_000_000))
    quotients = [PlanQuotient.of(PackingPlan.of(packing)) for packing in packings]
    high = max(quotients, key=lambda one: one.chain_us)
    # As many hops as two rules on the packings that may win, without slices and in four each.
    work = sum(2 * len(one.plan.hops) for one in quotients) * 5
    found = quickest(quotients, 64_000_000, OrderLimits(Meter(work)))
    assert found.quotient is high
    assert high.plan.packing.us_per_byte == min(q.plan.packing.us_per_byte for q in quotients)


def test_waiting_at_ports_is_work() -> None:
    """A slice of a hop that needs two ports is looked at again whenever one of them is free."""
    spent = {}
    for name in ("ring:16", "dgx2"):
        packing = unfolded(named(name, "allgather"))
        quotient = PlanQuotient.of(PackingPlan.of(packing))
        urgency = Urgency.of(quotient, 1 << 26, 8)
        order, jobs = shaken(FIRST[1], urgency, np.random.default_rng(0), 0.3), 8 * 16 * 15
        took, looks = quotient.run(1 << 26, 8, order.priority, order.stride, float("inf"))
        assert took == quotient.time_us(1 << 26, 8, order.priority, order.stride)
        spent[name] = looks / jobs
    assert 1 <= spent["ring:16"] < spent["dgx2"] / 2


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_the_cost_of_messages_is_that_of_the_simulator(kind: str) -> None:
    quotient = PlanQuotient.of(PackingPlan.of(named("dgx1", kind)))
    order, cost = FIRST[1](Urgency.of(quotient, 1 << 20, 4)), OrderEffort().slices.message_us
    limits = float("inf"), float(cost)
    took, _ = quotient.run(1 << 20, 4, order.priority, order.stride, *limits)
    schedule = quotient.plan.schedule(order.priority, order.stride, 4)
    costly = simulate(schedule, 1 << 20, CostModel(overhead_us=cost)).time_us
    assert took == pytest.approx(costly, rel=1e-9)
    assert quotient.floor_us(1 << 20, 4, float(cost)) <= took


def test_the_sums_of_all_slices_come_first() -> None:
    """Through a switch two slices of sums and copies take as long as the bound; other rules need
    eight."""
    machine = topology("dgx-h100")
    problem = Problem(machine, make("allreduce", 8), None, Objective.TIME, 1 << 20)
    schedule = synthesize(problem, "packing", Budget(2)).points[0].schedule
    least = float(lower_bound_us(bounds(machine, problem.collective), 1 << 20))
    assert schedule.segments == 2
    assert simulate(schedule, 1 << 20).time_us == pytest.approx(least)

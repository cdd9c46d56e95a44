"""The order inside a step changes who waits, and nothing else."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import (
    hub,
    least_rounds,
    planned_schedules,
    ring,
    schedules,
    topologies,
    tree_schedule,
)

from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology
from weft.synth.judge.verify import verify
from weft.synth.reductions.reverse import reverse
from weft.synth.time import order
from weft.synth.time.order import (
    arranged,
    by_urgency,
    counted_us,
    hops_to_go,
    in_start_order,
    mirrored,
)
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import simulate

sizes = st.sampled_from([1, 4096, 1 << 20])


def check_same(schedule: Schedule, other: Schedule) -> None:
    """The same transfers in the same steps, still valid, and the same with a barrier."""
    assert Counter(other) == Counter(schedule)
    assert (other.rounds, other.provenance) == (schedule.rounds, schedule.provenance)
    assert (np.diff(other.step) >= 0).all()
    assert verify(other).ok


# --- urgency --------------------------------------------------------------------------------------


def longest_way(schedule: Schedule, i: int) -> int:
    """Hops that the chunk of a transfer still makes from where it brings it, by plain recursion."""
    t = schedule[i]
    later = [
        j
        for j, u in enumerate(schedule)
        if u.chunk == t.chunk and u.src == t.dst and u.step > t.step
    ]
    return max((1 + longest_way(schedule, j) for j in later), default=0)


@given(schedules(max_ranks=4))
def test_hops_to_go_is_the_longest_branch(schedule: Schedule) -> None:
    assert hops_to_go(schedule).tolist() == [longest_way(schedule, i) for i in range(len(schedule))]


@given(schedules())
def test_the_longest_way_goes_first(schedule: Schedule) -> None:
    other = by_urgency(schedule)
    check_same(schedule, other)
    togo = hops_to_go(other)
    same_step = np.diff(other.step) == 0
    assert (np.diff(togo)[same_step] <= 0).all()


def test_urgency_of_a_chain() -> None:
    line = [Transfer(0, v, v + 1, (v,), v) for v in range(3)]
    schedule = Schedule.of(ring(4), make("broadcast", 4), line)
    assert hops_to_go(schedule).tolist() == [2, 1, 0]


# --- arranged -------------------------------------------------------------------------------------


@settings(max_examples=examples(30))
@given(schedules(max_ranks=4), sizes, st.integers(0, 3))
def test_an_arranged_schedule_is_the_same_and_no_slower(
    schedule: Schedule, size: int, seed: int
) -> None:
    other = arranged(schedule, size, seed)
    check_same(schedule, other)
    assert simulate(other, size).time_us <= simulate(schedule, size).time_us
    again = arranged(schedule, size, seed)
    assert list(again) == list(other)


def test_a_bad_order_is_mended() -> None:
    # Rank 0 sends chunk 1, which stays, before chunk 0, which goes on to rank 2: 3 µs, not 2 µs.
    machine = ring(3, "1", "0")
    moves = [Transfer(1, 0, 1, (0,)), Transfer(0, 0, 1, (0,)), Transfer(0, 1, 2, (1,), 1)]
    collective = make("broadcast", 3, chunks=2)
    schedule = Schedule.of(machine, collective, moves, rounds=(2, 1))
    message = 2000  # 1 µs a chunk
    assert simulate(schedule, message).time_us == pytest.approx(3)
    assert simulate(by_urgency(schedule), message).time_us == pytest.approx(2)
    # As quick as counted is good enough: no order is tried.
    assert list(arranged(schedule, message, 0)) == list(schedule)
    without = replace(schedule, rounds=(1, 1))
    assert simulate(arranged(without, message, 0), message).time_us == pytest.approx(2)


def test_a_long_schedule_is_ordered_by_urgency_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = tree_schedule(hub(4), make("allgather", 4))
    few = order.StepOrderEffort(most_transfers=len(schedule) - 1)
    monkeypatch.setattr(order, "ORDER_EFFORT", few)
    monkeypatch.setattr(order, "simulate", None)
    assert list(arranged(schedule, 1 << 20, 0)) == list(by_urgency(schedule))


# --- start order ----------------------------------------------------------------------------------


@settings(max_examples=examples(40, 80), deadline=None)
@given(st.one_of(schedules(max_ranks=5), planned_schedules()), sizes)
def test_start_order_is_the_same_schedule_and_no_slower(schedule: Schedule, size: int) -> None:
    other = in_start_order(schedule, size)
    check_same(schedule, other)
    assert (other.segments, other.stride) == (schedule.segments, schedule.stride)
    run = simulate(other, size)
    assert run.time_us <= simulate(schedule, size).time_us
    assert verify(other).ok
    if schedule.segments == 1:
        # Exactly the same run: each step's transfers start in the order in which they stand.
        assert run.time_us == simulate(schedule, size).time_us
        assert (np.diff(run.start_us)[np.diff(other.step) == 0] >= 0).all()
        assert list(in_start_order(other, size)) == list(other)


def test_an_alltoall_is_staggered() -> None:
    """As it is made, all ranks begin with rank 0; in start order no two have the same receiver."""
    machine = hub(6)
    hops = {(hop.src, hop.dst): hop.route for hop in find_hops(machine).hops}
    c = make("alltoall", 6)
    ends = {int(chunk): int(dst) for dst, chunk in zip(c.post.ranks, c.post.chunks, strict=True)}
    rows = zip(c.pre.chunks.tolist(), c.pre.ranks.tolist(), strict=True)
    moves = [(chunk, src, ends[chunk]) for chunk, src in rows if src != ends[chunk]]
    moves.sort(key=lambda move: (move[1], move[2]))
    schedule = Schedule.of(
        machine, c, [Transfer(k, src, dst, hops[src, dst]) for k, src, dst in moves]
    )
    other = in_start_order(schedule, 1 << 20)
    first = [next(t for t in other if t.src == rank).dst for rank in range(6)]
    assert sorted(first) == list(range(6))
    assert [t.dst for t in schedule][0:30:5] == [1, 0, 0, 0, 0, 0]


def test_times_of_a_schedule_stay_with_their_transfers() -> None:
    schedule = tree_schedule(hub(4), make("alltoall", 4))
    run = simulate(schedule, 1 << 20)
    timed = replace(schedule, start_us=run.start_us, end_us=run.end_us)
    other = in_start_order(timed, 1 << 20)
    assert other.start_us is not None

    def ends(s: Schedule) -> set[tuple[Transfer, float, float]]:
        assert s.start_us is not None
        assert s.end_us is not None
        return set(zip(s, s.start_us.tolist(), s.end_us.tolist(), strict=True))

    assert ends(other) == ends(timed)
    assert verify(other).ok


def test_a_huge_schedule_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = tree_schedule(hub(4), make("allgather", 4))
    monkeypatch.setattr(order, "simulate", None)
    few = order.StepOrderEffort(most_started=len(schedule) - 1)
    monkeypatch.setattr(order, "ORDER_EFFORT", few)
    assert in_start_order(schedule, 1 << 20) is schedule


# --- counted --------------------------------------------------------------------------------------


@st.composite
def uniform(draw: st.DrawFn) -> Schedule:
    """Schedules on machines without switches whose links are alike, with no idle step."""
    machine: Topology = draw(topologies(max_ranks=4, switches=False, resources=False))
    bandwidth = draw(st.sampled_from([Fraction(25), Fraction(7, 3)]))
    latency = draw(st.sampled_from([Fraction(0), Fraction(7, 10)]))
    links = tuple(replace(x, bandwidth=bandwidth, latency=latency) for x in machine.links)
    machine = replace(machine, links=links)
    kind = draw(st.sampled_from([Kind.ALLGATHER, Kind.ALLTOALL, Kind.ALLREDUCE, Kind.BROADCAST]))
    collective = make(kind, machine.ranks, chunks=draw(st.integers(1, 2)))
    moves = list(tree_schedule(machine, collective, draw(st.integers(0, 2**16))))
    used = sorted({t.step for t in moves})
    moves = [replace(t, step=used.index(t.step)) for t in moves]
    return Schedule.of(machine, collective, moves, rounds=least_rounds(machine, moves))


@given(uniform(), sizes)
def test_counted_is_the_time_with_barriers_without_switches(schedule: Schedule, size: int) -> None:
    barrier = simulate(schedule, size, CostModel(barrier=True)).time_us
    assert counted_us(schedule, size) == pytest.approx(barrier, rel=1e-9)
    assert counted_us(replace(schedule, rounds=()), size) == barrier


@given(uniform(), sizes)
def test_more_rounds_than_needed_count(schedule: Schedule, size: int) -> None:
    generous = replace(schedule, rounds=tuple(r + 1 for r in schedule.rounds))
    unit = float(schedule.topology.round_bandwidth()) * 1000
    idle = schedule.steps * size / schedule.collective.message_chunks / unit
    assert counted_us(generous, size) == pytest.approx(counted_us(schedule, size) + idle)


# --- mirrored -------------------------------------------------------------------------------------


@st.composite
def duals(draw: st.DrawFn) -> tuple[Schedule, Schedule]:
    """A schedule of a dual problem, and what it is turned round."""
    machine = draw(topologies(max_ranks=4))
    kind = draw(st.sampled_from([Kind.REDUCE, Kind.REDUCE_SCATTER, Kind.GATHER]))
    problem = Problem(machine, make(kind, machine.ranks, chunks=draw(st.integers(1, 2))))
    dual, undo = reverse(problem)
    forth = tree_schedule(dual.topology, dual.collective, draw(st.integers(0, 2**16)))
    return forth, undo(forth)


@settings(max_examples=examples(25, 50))
@given(duals(), sizes)
def test_a_mirror_keeps_everything_and_turns_the_arrivals_round(
    pair: tuple[Schedule, Schedule], size: int
) -> None:
    forth, back = pair
    other = mirrored(forth, back, size)
    check_same(back, other)
    arrival = {
        (t.chunk, t.dst, t.src): end
        for t, end in zip(forth, simulate(forth, size).end_us.tolist(), strict=True)
    }
    times = np.array([arrival[t.chunk, t.src, t.dst] for t in other])
    assert (np.diff(times)[np.diff(other.step) == 0] <= 0).all()


def test_a_long_mirror_is_ordered_by_urgency(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(hub(4), make("reduce_scatter", 4))
    dual, undo = reverse(problem)
    forth = tree_schedule(dual.topology, dual.collective)
    monkeypatch.setattr(order, "simulate", None)
    back = undo(forth)
    few = order.StepOrderEffort(most_transfers=1)
    assert list(mirrored(forth, back, 1 << 20, few)) == list(by_urgency(back))

"""The simulator against sums done by hand, a slow one that reads like the rule, and bounds."""

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import hub, planned_schedules, ring, schedules, tree_schedule
from work import calls_of

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind, custom, make, one_shot_allreduce
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import BANDWIDTHS, Resource, Topology, both_ways, gpu, link, switch
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.judge.verify import verify
from weft.synth.time import folded as module
from weft.synth.time import schedule_tables
from weft.synth.time.folded import folded
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_tables import CostModel, data_waits, distinct_routes, prepare
from weft.synth.time.schedule_time import simulate

SPEED = 1000  # bytes per µs of 1 GB/s


def ring_allgather(n: int, segments: int = 1) -> Schedule:
    sends = [Transfer((r - s) % n, r, (r + 1) % n, (r,), s) for s in range(n - 1) for r in range(n)]
    s = Schedule.of(ring(n), make("allgather", n), sends, rounds=(1,) * (n - 1))
    return replace(s, segments=segments)


def direct(n: int, *, rotated: bool = True) -> Schedule:
    """One-step allgather on a hub; rotated: everybody begins with another peer."""
    sends = [Transfer(u, u, v, (2 * u, 2 * v + 1)) for u in range(n) for v in range(n) if u != v]
    if rotated:
        sends.sort(key=lambda t: ((t.dst - t.src) % n, t.src))
    return Schedule.of(hub(n), make("allgather", n), sends, rounds=(n - 1,))


def line(*links: tuple[str, str]) -> Topology:
    """Rank 0, switches in between, rank 1; (GB/s, µs) of each link."""
    inner = [switch(f"s{i}") for i in range(len(links) - 1)]
    stops = [0, *range(2, 2 + len(inner)), 1]
    return Topology(
        "line",
        (gpu(0), gpu(1), *inner),
        tuple(link(stops[i], stops[i + 1], *x) for i, x in enumerate(links)),
    )


def one_way(topology: Topology, chunks: int = 1) -> Schedule:
    """All chunks of rank 0 to rank 1 in one step over all links."""
    c = make("broadcast", 2, chunks=chunks)
    route = tuple(range(len(topology.links)))
    return Schedule.of(topology, c, [Transfer(j, 0, 1, route) for j in range(chunks)])


# --- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 8])
def test_ring_allgather(n: int) -> None:
    run = simulate(ring_allgather(n), 1_000_000 * n)
    step = 0.7 + 1_000_000 / 25 / SPEED
    assert run.time_us == pytest.approx((n - 1) * step, rel=1e-12)
    assert run.busy_us == pytest.approx([(n - 1) * 40.0] * n)
    assert run.start_us == pytest.approx(np.repeat(np.arange(n - 1), n) * step)
    assert run.algbw_GBps == pytest.approx(n * 1000 / run.time_us)


@pytest.mark.parametrize("rotated", [True, False])
def test_hub_allgather_waits_for_ports_only(rotated: bool) -> None:
    """Grade case G12: each port carries 7 chunks: 0.7 + 7·M/8/300e3 µs."""
    size = 8 << 20
    run = simulate(direct(8, rotated=rotated), size)
    assert run.time_us == pytest.approx(0.7 + 7 * size / 8 / 300e3, rel=1e-12)


def test_allreduce_of_eight_in_one_and_in_two_shots() -> None:
    """G12: one-shot 0.7 + 7·M/300e3, two-shot 1.4 + 1.75·M/300e3."""
    size = 1 << 20
    gather = direct(8)
    one = replace(gather, collective=one_shot_allreduce(8))
    assert simulate(one, size).time_us == pytest.approx(0.7 + 7 * size / 300e3, rel=1e-12)
    scatter = [Transfer(t.dst, t.src, t.dst, t.route, 0, True) for t in gather]
    both = [*scatter, *(replace(t, step=1) for t in gather)]
    two = Schedule.of(hub(8), make("allreduce", 8, chunks=8), both)
    run = simulate(two, size)
    assert run.time_us == pytest.approx(1.4 + 1.75 * size / 300e3, rel=1e-12)
    assert run.busbw_GBps == pytest.approx(run.algbw_GBps * 14 / 8)


def test_latency_occupies_nothing_and_adds_up_along_a_route() -> None:
    """Cut-through: the slow link counts once; the next chunk need not wait for the α."""
    s = one_way(line(("25", "0.5"), ("10", "0.25"), ("50", "1")), chunks=3)
    run = simulate(s, 30_000)  # a chunk takes 0.4, 1.0, 0.2 µs
    assert run.start_us == pytest.approx([0, 1, 2])
    assert run.end_us == pytest.approx([2.75, 3.75, 4.75])
    assert run.busy_us == pytest.approx([1.2, 3, 0.6])


def test_latency_that_occupies() -> None:
    s = one_way(line(("25", "0.5"), ("10", "0.25")), chunks=3)
    run = simulate(s, 30_000, CostModel(alpha_occupies=True))
    assert run.end_us == pytest.approx([1.75, 3.5, 5.25])
    assert run.busy_us == pytest.approx([3 * 1.15, 3 * 1.75])


def test_store_and_forward() -> None:
    s = one_way(line(("25", "0.5"), ("10", "0.25")), chunks=3)
    run = simulate(s, 30_000, CostModel(store_and_forward=True))
    # Chunk j is at the switch at 0.4 (j + 1) + 0.5, and then waits for the slow link.
    assert run.start_us == pytest.approx([0, 0.4, 0.8])
    assert run.end_us == pytest.approx([0.9 + 1.25, 0.9 + 2.25, 0.9 + 3.25])


def test_overhead_per_message() -> None:
    s = one_way(line(("10", "0.25")), chunks=3)
    run = simulate(s, 30_000, CostModel(overhead_us=Fraction(1, 2)))
    assert run.end_us == pytest.approx([1.75, 3.25, 4.75])


def test_barrier_is_the_cost_of_synchronous_steps() -> None:
    """Rank 0 sends to 1, then 2 to 3 in the next step: independent, but for the barrier."""
    c = custom("two", 4, [(0, 0, [0], 0), (2, 1, [2], 0)], [(1, 0, [0], 0), (3, 1, [2], 0)])
    s = Schedule.of(ring(4), c, [Transfer(0, 0, 1, (0,), 0), Transfer(1, 2, 3, (2,), 1)])
    assert simulate(s, 25_000).time_us == pytest.approx(1.7)
    assert simulate(s, 25_000, CostModel(barrier=True)).time_us == pytest.approx(3.4)


def test_a_shared_resource_is_occupied_at_its_own_speed() -> None:
    links = (*both_ways(0, 1, 50), *both_ways(0, 1, 25))
    pair = Topology("pair", (gpu(0), gpu(1)), links, (Resource("nic", (0, 2), Fraction(20)),))
    sends = [Transfer(0, 0, 1, (0,)), Transfer(1, 0, 1, (2,))]
    run = simulate(Schedule.of(pair, make("broadcast", 2, chunks=2), sends), 200_000)
    assert run.end_us == pytest.approx([5, 10])
    assert run.busy_us == pytest.approx([2, 0, 4, 0, 10])


def test_those_behind_a_blocked_transfer_may_pass() -> None:
    """0 -> 2 and 1 -> 2 want the port of 2; 1 -> 3, behind, starts meanwhile, and then goes on."""
    c = custom(
        "three",
        4,
        [(0, 0, [0], 0), (1, 1, [1], 0), (1, 2, [1], 1)],
        [(2, 0, [0], 0), (2, 1, [1], 1), (3, 2, [1], 0)],
    )
    sends = [Transfer(0, 0, 2, (0, 5)), Transfer(1, 1, 2, (2, 5)), Transfer(2, 1, 3, (2, 7))]
    run = simulate(Schedule.of(hub(4, "1", "0"), c, sends), 2_000)
    assert run.start_us.tolist() == [0, 1, 0]


def queue() -> Schedule:
    """Transfers of which the second gets ready later than the last, which is behind it."""
    c = custom(
        "queue",
        3,
        [(0, 0, [0], 0), (1, 1, [1], 0), (1, 2, [1], 1)],
        [(2, 0, [0], 0), (2, 1, [1], 1), (2, 2, [1], 2)],
    )
    sends = [
        Transfer(0, 0, 1, (0,), 0),
        Transfer(0, 1, 2, (1,), 1),
        Transfer(1, 1, 2, (1,), 2),
        Transfer(2, 1, 2, (1,), 2),
    ]
    return Schedule.of(ring(3, "1", "0"), c, sends)


def test_earlier_readiness_beats_the_order_in_the_schedule() -> None:
    """What waits since 0 goes before what gets ready later, though that has the lower index."""
    assert simulate(queue(), 3_000).start_us.tolist() == [0, 2, 0, 1]


def test_a_sum_waits_for_all_its_parts() -> None:
    star = Topology(
        "star", tuple(map(gpu, range(4))), (link(0, 2, 10), link(1, 2, 1), link(2, 3, 10))
    )
    sends = [
        Transfer(0, 0, 2, (0,), 0, True),
        Transfer(0, 1, 2, (1,), 0, True),
        Transfer(0, 2, 3, (2,), 1, True),
    ]
    run = simulate(Schedule.of(star, make("reduce", 4, roots=[3]), sends), 10_000)
    assert run.start_us.tolist() == [0, 0, 10]
    assert run.time_us == 11


def test_slices_are_pipelined() -> None:
    """A chain of h hops in n slices: (h + n - 1) (α + β M/n) where α is small: h α + …"""
    chain = [Transfer(0, r, r + 1, (r,), r) for r in range(4)]
    s = replace(Schedule.of(ring(5), make("broadcast", 5), chain), segments=10)
    run = simulate(s, 250_000)  # a slice takes 1 µs on a link
    assert run.time_us == pytest.approx(4 * 0.7 + 4 + 9)
    assert run.start_us == pytest.approx([0, 1.7, 3.4, 5.1])


def test_a_slice_does_not_overtake_the_one_before() -> None:
    """Two transfers share a link: their slices alternate, first come, first served."""
    s = replace(one_way(line(("1", "0")), chunks=2), segments=2)
    run = simulate(s, 4_000)  # slices of 1 µs: 0a 1a 0b 1b
    assert run.start_us.tolist() == [0, 1]
    assert run.end_us.tolist() == [3, 4]


def test_redundant_arrivals_delay_no_transfer() -> None:
    """Rank 1 gets the chunk again over a slow link before it sends on; it does not wait for it."""
    links = (link(0, 1, 10), link(0, 1, 1), link(1, 2, 10))
    t = Topology("pair", tuple(map(gpu, range(3))), links)
    sends = [Transfer(0, 0, 1, (0,), 0), Transfer(0, 0, 1, (1,), 1), Transfer(0, 1, 2, (2,), 2)]
    run = simulate(Schedule.of(t, make("broadcast", 3), sends), 10_000)
    assert run.end_us.tolist() == [1, 10, 2]


def test_nothing_to_do_takes_no_time() -> None:
    run = simulate(Schedule.of(ring(2), make("allgather", 2), []), 1, bound_us=0.0)
    assert (run.time_us, run.of_bound) == (0, 1)


def test_share_of_the_bound() -> None:
    run = simulate(ring_allgather(4), 100_000, bound_us=2.55)
    assert run.of_bound == pytest.approx(2.55 / 5.1)
    assert simulate(ring_allgather(4), 100_000).of_bound is None


@pytest.mark.parametrize(("size", "overhead"), [(0, 0), (-5, 0), (1, -1), (1, float("nan"))])
def test_bad_questions(size: int, overhead: float) -> None:
    with pytest.raises(UserError):
        simulate(ring_allgather(2), size, CostModel(overhead_us=overhead))


def test_equal_times_are_equal() -> None:
    """Ten times 0.1 is 1.0: a port that is free after ten chunks is free when the other one is."""
    n = 12
    run = simulate(direct(n), n * 1000 * 30)
    assert run.time_us == pytest.approx(0.7 + (n - 1) / 10, rel=1e-12)


def dgx1_in_two_steps() -> Schedule:
    """SCCL's (1, 2, 2) on a DGX-1: everybody to its neighbours, then on to the other three."""
    machine = topology("dgx1")
    link_of = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    lanes = {pair: int(machine.links[i].bandwidth / 25) for pair, i in link_of.items()}
    rng = random.Random(1)
    while True:
        sends = [Transfer(u, u, v, (i,), 0) for (u, v), i in link_of.items()]
        left = dict(lanes)
        for u, v in [(u, v) for u in range(8) for v in range(8) if u != v and (u, v) not in lanes]:
            relays = [w for w in range(8) if (u, w) in lanes and left.get((w, v), 0) > 0]
            if not relays:
                break
            w = rng.choice(relays)
            left[w, v] -= 1
            sends.append(Transfer(u, w, v, (link_of[w, v],), 1))
        else:
            return Schedule.of(machine, make("allgather", 8), sends, rounds=(1, 1))


@pytest.mark.parametrize("size", [8_000, 8_000_000])
def test_dgx1_costs_two_latencies_and_two_rounds(size: int) -> None:
    """Rounds are of 25 GB/s: α·S + β·R·M/(8 C), and not more when steps may overlap."""
    s = dgx1_in_two_steps()
    assert verify(s).ok
    sccl = 2 * 0.7 + 2 * size / 8 / 25e3
    assert simulate(s, size, CostModel(barrier=True)).time_us == pytest.approx(sccl, rel=1e-12)
    assert simulate(s, size).time_us <= sccl * (1 + 1e-12)


# --- against the rule, read slowly --------------------------------------------------------------


def slow(s: Schedule, size: int) -> tuple[list[Fraction], list[Fraction]]:
    """The rule as written: at every event look at all that wait, in order, and start what can."""
    part = Fraction(size, s.collective.message_chunks * s.segments)
    reads = links_of_data(s)
    n, jobs = len(s), len(s) * s.segments
    start: dict[int, Fraction] = {}
    end: dict[int, Fraction] = {}
    free: defaultdict[int, Fraction] = defaultdict(Fraction)
    left: dict[int, Fraction] = {}
    now = Fraction(0)
    while len(end) < jobs:
        ready = []
        for job in set(range(jobs)) - set(start):
            turn, i = divmod(job, n)
            since = [end.get(turn * n + j, INFINITE) for j in reads[i]]
            since += [left.get(job - n, INFINITE)] if turn else [Fraction(0)]
            if max(since) <= now:
                planned = s.priority is not None
                key = s.priority[i] + turn * s.stride if planned else max(since)
                ready.append((key, job))
        for _, job in sorted(ready):
            t = s[job % n]
            grains = s.collective.sizes[t.chunk] if s.collective.sizes else 1
            held: defaultdict[int, Fraction] = defaultdict(Fraction)
            for x in t.route:
                held[x] += grains * part / s.topology.links[x].bandwidth / SPEED
                for row, resource in enumerate(s.topology.resources, len(s.topology.links)):
                    if x in resource.links:
                        held[row] += grains * part / resource.bandwidth / SPEED
            if all(free[row] <= now for row in held):
                start[job], left[job] = now, now + max(held.values())
                free.update({row: now + time_held for row, time_held in held.items()})
                latency = sum((s.topology.links[x].latency for x in t.route), Fraction(0))
                end[job] = left[job] + latency
        later = [x for x in (*free.values(), *end.values(), *left.values()) if x > now]
        assert later, "stuck"
        now = min(later)
    first = [start[i] for i in range(n)]
    return first, [max(end[i + k * n] for k in range(s.segments)) for i in range(n)]


INFINITE = Fraction(10**12)


def links_of_data(s: Schedule) -> list[list[int]]:
    """For each transfer the earlier ones that bring something to its source."""
    before_all = s.collective.pre.rows().tolist()
    state = {(c, r): s.collective.contributions[k] for r, c, k, _ in before_all}
    reads: list[list[int]] = []
    arrivals: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    before = dict(state)
    for i, t in enumerate(s):
        if i and s[i - 1].step != t.step:
            before = dict(state)
        reads.append([j for j in arrivals[t.chunk, t.src] if s[j].step < t.step])
        there, brought = state.get((t.chunk, t.dst), frozenset()), before[t.chunk, t.src]
        state[t.chunk, t.dst] = there | brought
        if t.reduce or brought != there:
            arrivals[t.chunk, t.dst].append(i)
    return reads


@given(planned_schedules(), st.sampled_from([1, 1000, 123_457]))
@settings(max_examples=examples(20, 150))
def test_the_event_loop_does_what_the_rule_says(s: Schedule, size: int) -> None:
    run = simulate(s, size)
    start, end = slow(s, size)
    assert run.start_us.tolist() == pytest.approx(list(map(float, start)), rel=1e-12)
    assert run.end_us.tolist() == pytest.approx(list(map(float, end)), rel=1e-12)


def test_the_planned_order_beats_longer_waits() -> None:
    """As above, with an order of its own: what got ready later is served first."""
    s = replace(queue(), priority=np.array([0, 1, 2, 3], np.int32))
    assert simulate(s, 3_000).start_us.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(("stride", "starts"), [(0, [0, 4]), (1, [0, 1])])
def test_the_stride_says_how_slices_take_turns(stride: int, starts: list[int]) -> None:
    """Two chunks of four slices on one link: all of the first one first, or in turns."""
    s = replace(one_way(line(("1", "0")), chunks=2), segments=4, stride=stride)
    s = replace(s, priority=np.array([0, 1], np.int32))
    assert simulate(s, 8_000).start_us.tolist() == starts


def test_larger_chunks_take_longer() -> None:
    """Shares of 1 and 3 of 4 grains: 1 µs and 3 µs."""
    pair = line(("1", "0"))
    uneven = make("broadcast", 2).cut([[1, 3]])
    s = Schedule.of(pair, uneven, [Transfer(j, 0, 1, (0,)) for j in range(2)])
    run = simulate(s, 4_000)
    assert run.end_us.tolist() == [1, 4]
    assert run.busy_us.tolist() == [4]


# --- properties -------------------------------------------------------------------------------

MODELS = st.builds(
    CostModel,
    alpha_occupies=st.booleans(),
    store_and_forward=st.booleans(),
    overhead_us=st.sampled_from([0, Fraction(1, 4)]),
    barrier=st.booleans(),
)


def row_times(s: Schedule, size: int) -> list[Fraction]:
    """The whole load of each link and shared resource, in µs."""
    part = Fraction(size, s.collective.message_chunks)
    rows = [((i,), x.bandwidth) for i, x in enumerate(s.topology.links)]
    rows += [(r.links, r.bandwidth) for r in s.topology.resources]
    return [sum(i in members for t in s for i in t.route) * part / b / SPEED for members, b in rows]


@given(schedules(), st.integers(1, 10**7), st.integers(1, 3), MODELS)
@settings(max_examples=examples(30, 150))
def test_never_quicker_than_any_load_or_path(
    s: Schedule, size: int, segments: int, model: CostModel
) -> None:
    assume(len(s))
    run = simulate(replace(s, segments=segments), size, model)
    assert run.time_us >= float(max(row_times(s, size))) * (1 - 1e-12)
    longest: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    before: dict[tuple[int, int], Fraction] = {}
    for i, t in enumerate(s):
        if i == 0 or s[i - 1].step != t.step:
            before = dict(longest)
        latency = sum((s.topology.links[x].latency for x in t.route), Fraction(0))
        arrives = before.get((t.chunk, t.src), Fraction(0)) + latency
        longest[t.chunk, t.dst] = max(longest[t.chunk, t.dst], arrives)
    assert run.time_us >= float(max(longest.values())) * (1 - 1e-12)
    assert (run.end_us > run.start_us).all()


@given(schedules(), st.integers(1, 10**7), MODELS)
@settings(max_examples=examples(50))
def test_rows_are_busy_for_their_load(s: Schedule, size: int, model: CostModel) -> None:
    plain = replace(model, alpha_occupies=False, overhead_us=0)
    run = simulate(s, size, plain)
    assert run.busy_us.tolist() == pytest.approx(list(map(float, row_times(s, size))), rel=1e-9)
    assert (run.busy_us <= run.time_us * (1 + 1e-12)).all()


@given(schedules(switches=False, resources=False), st.integers(1, 10**7))
@settings(max_examples=examples(50))
def test_synchronous_steps_cost_what_sccl_says(s: Schedule, size: int) -> None:
    """Single-link hops: a step costs its slowest link's load and α; with rounds, at most R·β."""
    part = Fraction(size, s.collective.message_chunks)
    total = Fraction(0)
    for step in range(s.steps):
        load: defaultdict[int, int] = defaultdict(int)
        for t in s:
            if t.step == step:
                load[t.route[0]] += 1
        links = s.topology.links
        total += max(
            (k * part / links[i].bandwidth / SPEED + links[i].latency for i, k in load.items()),
            default=Fraction(0),
        )
    run = simulate(s, size, CostModel(barrier=True))
    assert run.time_us == pytest.approx(float(total), rel=1e-12)
    alpha = max(x.latency for x in s.topology.links)
    unit = s.topology.round_bandwidth()
    sccl = s.steps * alpha + sum(s.rounds) * part / unit / SPEED
    assert run.time_us <= float(sccl) * (1 + 1e-12)


@given(schedules(), st.integers(0, 2**16), st.integers(1, 10**6))
@settings(max_examples=examples(50))
def test_order_matters_only_inside_a_step(s: Schedule, seed: int, size: int) -> None:
    """Steps in any order give the same schedule, and that the same times."""
    groups = defaultdict(list)
    for t in s:
        groups[t.step].append(t)
    steps = list(groups)
    random.Random(seed).shuffle(steps)
    again = Schedule.of(s.topology, s.collective, [t for x in steps for t in groups[x]])
    one, two = simulate(s, size), simulate(again, size)
    assert one.time_us == two.time_us
    assert np.array_equal(one.start_us, two.start_us)


@given(schedules(), st.integers(1, 10**6))
@settings(max_examples=examples(30))
def test_a_coarse_unit_changes_next_to_nothing(s: Schedule, size: int) -> None:
    exact = simulate(s, size, CostModel(barrier=True)).time_us
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_tables, "_UNIT_BITS", 0)
        coarse = prepare(s, CostModel(barrier=True)).exact(size).in_us()
        assert coarse.time_us == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("allreduce", 1.5),
        ("allgather", 0.75),
        ("reduce_scatter", 0.75),
        ("alltoall", 0.75),
        ("gather", 0.75),
        ("scatter", 0.75),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bus_bandwidth_as_nccl_tests_define_it(kind: str, factor: float) -> None:
    run = simulate(tree_schedule(ring(4), make(Kind(kind), 4)), 4096)
    assert run.busbw_GBps == pytest.approx(run.algbw_GBps * factor)


def test_fifty_thousand_transfers_in_seconds() -> None:
    n = 224
    s = direct(n)
    run, calls = calls_of(lambda: simulate(s, n * 3000))
    assert run.time_us == pytest.approx(0.7 + (n - 1) / 100, rel=1e-12)
    assert calls < 20 * len(s)  # before its loops are compiled


# --- latency alone --------------------------------------------------------------------------------


def simulated(schedule: Schedule) -> float:
    """One byte on the fastest links there can be takes a trillionth of a µs: rounded away."""
    links = tuple(replace(x, bandwidth=BANDWIDTHS[1]) for x in schedule.topology.links)
    machine = replace(schedule.topology, links=links, resources=())
    return round(simulate(replace(schedule, topology=machine), 1).time_us, 6)


@settings(max_examples=examples(30))
@given(schedules())
def test_it_is_the_simulation_without_transmission(schedule: Schedule) -> None:
    assert latency_us(schedule) == simulated(schedule)


@settings(max_examples=examples(22))
@given(planned_schedules())
def test_a_planned_order_changes_nothing(schedule: Schedule) -> None:
    assert latency_us(schedule) == simulated(schedule)


# --- folded ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _fold_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 1)


def packed(machine: str, kind: str, engine: str = "packing") -> Schedule:
    whole = topology(machine)
    problem = Problem(whole, make(kind, whole.ranks), None, Objective.TIME, 1 << 24)
    return synthesize(problem, engine, Budget(2)).points[0].schedule


@pytest.mark.parametrize(
    ("machine", "kind"),
    [
        ("torus:4x4", "alltoall"),
        ("torus:3x3x2", "alltoall"),
        ("torus:4x4", "allgather"),
        ("torus:4x4", "allreduce"),
        ("dgx-a100:nodes=2", "alltoall"),
        ("hypercube:4", "alltoall"),
    ],
)
@pytest.mark.parametrize("slices", [1, 3])
def test_the_part_has_the_times_of_the_whole(machine: str, kind: str, slices: int) -> None:
    found = replace(packed(machine, kind), segments=slices)
    part = folded(found)
    assert part is not None
    assert part.copies * len(part.part) == len(found)
    for model in (CostModel(), CostModel(barrier=True), CostModel(store_and_forward=True)):
        run, whole = simulate(found, 1 << 24, model), prepare(found, model).run(1 << 24)
        assert run.time_us == whole.time_us
        np.testing.assert_array_equal(run.start_us, whole.start_us)
        np.testing.assert_array_equal(run.end_us, whole.end_us)
        np.testing.assert_array_equal(run.busy_us, whole.busy_us)


def test_the_part_has_the_latency_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = packed("torus:4x4", "alltoall")
    part = folded(found)
    assert part is not None
    few = latency_us(found)
    monkeypatch.setattr(module, "MANY", 1 << 40)
    assert few == latency_us(replace(found, stride=found.stride + 1))


def test_what_is_not_symmetric_is_not_folded() -> None:
    found = packed("torus:4x4", "alltoall")
    assert folded(found) is not None
    for i in (0, 17, len(found) - 1):
        for column in ("src", "dst", "chunk", "step", "priority", "reduce", "route_links"):
            values = getattr(found, column).copy()
            values[i] = not values[i] if column == "reduce" else values[i] ^ 1
            values.setflags(write=False)
            assert folded(replace(found, **{column: values})) is None, (column, i)


def test_images_that_meet_are_not_folded() -> None:
    # Eight GPUs share a switch's port to each other host: images of a transfer compete for it.
    found = packed("dgx2", "alltoall", "classic")
    part = folded(found)
    run = prepare(found).run(1 << 24)
    assert part is None or simulate(found, 1 << 24).time_us == run.time_us


# --- compiled and prepared ------------------------------------------------------------------------


@given(planned_schedules(), st.sampled_from([1, 1000, 123_457]), MODELS)
@settings(max_examples=examples(37, 300))
def test_the_compiled_loop_does_what_the_plain_one_does(
    s: Schedule, size: int, model: CostModel
) -> None:
    plain, run = simulate(s, size, model), prepare(s, model).run(size)
    assert run.time_us == pytest.approx(plain.time_us, rel=1e-15)
    assert run.start_us.tolist() == pytest.approx(plain.start_us.tolist(), rel=1e-15)
    assert run.end_us.tolist() == pytest.approx(plain.end_us.tolist(), rel=1e-15)
    assert run.busy_us.tolist() == pytest.approx(plain.busy_us.tolist(), rel=1e-15)


@given(planned_schedules(), st.integers(1, 10**6), st.integers(0, 2**16))
@settings(max_examples=examples(15, 50))
def test_prepared_once_timed_with_other_slices_and_orders(
    s: Schedule, size: int, seed: int
) -> None:
    ready = prepare(s)
    rng = np.random.default_rng(seed)
    for segments in (1, 2, 5):
        order = rng.integers(0, 9, len(s)).astype(np.int32)
        other = replace(s, segments=segments, priority=order, stride=3)
        found = ready.time(size, segments=segments, priority=order, stride=3)
        assert found == pytest.approx(simulate(other, size).time_us, rel=1e-15)


@given(planned_schedules())
@settings(max_examples=examples(30))
def test_listing_the_places_that_occur_numbers_them_alike(s: Schedule) -> None:
    some = data_waits(s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_tables, "SPARSE", 0)
        other = data_waits.__wrapped__(s)  # not the one that is kept
    for name in ("source", "target", "needs", "slot", "slot_start", "reader_start", "readers"):
        assert np.array_equal(getattr(some, name), getattr(other, name))


def unlike(s: Schedule) -> Schedule:
    """The schedule on links no two of which take the same time: ties do not fall by rounding."""
    parts = [Fraction(n * n, 1 << 14) for n in range(1, len(s.topology.links) + 1)]
    links = tuple(
        replace(link, bandwidth=link.bandwidth / (1 + part), latency=link.latency + part)
        for link, part in zip(s.topology.links, parts, strict=True)
    )
    return replace(s, topology=replace(s.topology, links=links))


@given(planned_schedules().map(unlike), st.integers(1, 10**6))
@settings(max_examples=examples(15, 30))
def test_a_coarse_compiled_unit_changes_next_to_nothing(s: Schedule, size: int) -> None:
    exact = simulate(s, size, CostModel(barrier=True)).time_us
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_tables._Costs, "coarse", lambda *_: 1 << 40)
        patch.setattr(schedule_tables.QueueTables, "fits", lambda _, __, unit, ___: unit == 1 << 40)
        found = prepare(s, CostModel(barrier=True)).time(size)
    # Where sums of unlike times tie all the same, which is rare, the order changes.
    assert found == pytest.approx(exact, rel=1e-5)


def test_units_too_fine_for_64_bits() -> None:
    """Ten bandwidths whose common denominator has some hundred digits, in a thousand slices."""
    primes = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149)
    links = tuple(link(i, i + 1, Fraction(p, 99991), Fraction(1, p)) for i, p in enumerate(primes))
    chain = Topology("chain", tuple(map(gpu, range(11))), links)
    sends = [Transfer(0, i, i + 1, (i,), i) for i in range(10)]
    s = replace(Schedule.of(chain, make("broadcast", 11), sends), segments=40)
    assert prepare(s).time(12_345) == pytest.approx(simulate(s, 12_345).time_us, rel=1e-12)


def test_routes_are_told_apart() -> None:
    start = np.array([0, 2, 3, 5, 7, 9, 9])
    links = np.array([4, 5, 4, 5, 4, 4, 5, 4, 5])
    grains = np.array([1, 1, 1, 1, 2, 1])
    first, which = distinct_routes(start, links, grains)
    assert which[0] == which[3]
    assert len(set(which.tolist())) == len(first) == 5
    assert (which[first] == np.arange(5)).all()


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=30))
def test_places_are_numbered_the_same_by_bits_and_by_a_table(moves: list[tuple[int, int]]) -> None:
    source, target = np.array(moves).T
    _, which = np.unique(np.concatenate([source, target]), return_inverse=True)
    found = schedule_tables._dense_by_bits(source, target, 1000)
    assert np.concatenate(found[:2]).tolist() == which.tolist()
    assert found[2] == which.max() + 1

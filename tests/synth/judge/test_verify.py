"""The verifier against an oracle written with Python sets, and against mutations."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import (
    STANDARD,
    collectives,
    hub,
    planned_schedules,
    ring,
    schedules,
    topologies,
    tree_schedule,
)
from work import calls_of

from weft.dsl.base import unique_rows
from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.collective import custom, make, one_shot_allreduce
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Resource, Topology, both_ways, gpu, link, switch
from weft.synth.judge import replay as replay_module
from weft.synth.judge.verify import require_valid, verify
from weft.synth.time.schedule_time import simulate


def rebuilt(s: Schedule, transfers: list[Transfer], **changes: object) -> Schedule:
    return Schedule.of(s.topology, s.collective, transfers, **changes)  # type: ignore[arg-type]


def holds(s: Schedule) -> bool:
    """The oracle: contents only, one Python set per place."""
    state: dict[tuple[int, int], frozenset[int]] = {}
    for rank, chunk, k, _ in s.collective.pre.rows().tolist():
        state[chunk, rank] = s.collective.contributions[k]
    by_step: defaultdict[int, list[Transfer]] = defaultdict(list)
    for t in s:
        by_step[t.step].append(t)
    for step in sorted(by_step):
        before = dict(state)
        arrivals = Counter((t.chunk, t.dst) for t in by_step[step])
        for t in by_step[step]:
            brought = before.get((t.chunk, t.src), frozenset())
            there = state.get((t.chunk, t.dst), frozenset())
            if not brought or (arrivals[t.chunk, t.dst] > 1 and not t.reduce):
                return False
            if brought & there if t.reduce else there - brought:
                return False
            state[t.chunk, t.dst] = brought | there
    post = s.collective.post.rows().tolist()
    return all(state.get((c, r)) == s.collective.contributions[k] for r, c, k, _ in post)


@given(schedules() | planned_schedules())
@settings(max_examples=examples(32, 150))
def test_trees_are_valid(s: Schedule) -> None:
    verdict = verify(s)
    assert verdict.ok, verdict.problems
    assert (verdict.transfers, verdict.steps, verdict.redundant) == (len(s), s.steps, 0)
    assert holds(s)


@pytest.mark.parametrize("kind", STANDARD)
@given(data=st.data())
@settings(max_examples=examples(4, 10))
def test_every_standard_collective(kind: str, data: st.DataObject) -> None:
    topology = data.draw(topologies())
    collective = data.draw(collectives(topology.ranks, (kind,)))
    assert verify(tree_schedule(topology, collective)).ok


@given(schedules(), st.data())
@settings(max_examples=examples(37, 150))
def test_no_transfer_of_a_tree_can_be_left_out(s: Schedule, data: st.DataObject) -> None:
    assume(len(s))
    lost = data.draw(st.integers(0, len(s) - 1))
    verdict = verify(rebuilt(s, [t for i, t in enumerate(s) if i != lost]))
    assert not verdict.ok
    assert any(f"chunk {s[lost].chunk}" in p for p in verdict.problems)


@given(schedules(), st.integers(0, 2**16))
@settings(max_examples=examples(37, 300))
def test_mutants_are_judged_as_the_oracle_judges(s: Schedule, seed: int) -> None:
    """Contents only: whatever happens to chunks, steps, flags and order, both say the same."""
    assume(len(s))
    rng = random.Random(seed)
    transfers = list(s)
    for _ in range(rng.randint(1, 3)):
        i = rng.randrange(len(transfers))
        t = transfers[i]
        match rng.randrange(6):
            case 0:
                transfers[i] = replace(t, step=max(0, t.step + rng.choice((-2, -1, 1, 2))))
            case 1:
                transfers[i] = replace(t, reduce=not t.reduce)
            case 2:
                transfers[i] = replace(t, chunk=rng.randrange(s.collective.chunks))
            case 3:
                transfers.append(replace(t, step=t.step + rng.randrange(2)))
            case 4:
                j = rng.randrange(len(transfers))
                steps = t.step, transfers[j].step
                transfers[j] = replace(transfers[j], step=steps[0])
                transfers[i] = replace(transfers[i], step=steps[1])
            case 5 if len(transfers) > 1:
                transfers.pop(i)
    mutant = rebuilt(s, transfers)
    assert verify(mutant).ok == holds(mutant), verify(mutant).problems


@given(schedules(max_ranks=4), st.integers(1, 30))
@settings(max_examples=examples(30))
def test_blocks_of_chunks_change_nothing(s: Schedule, size: int) -> None:
    broken = rebuilt(s, list(s)[1:]) if len(s) else s
    expected = verify(s), verify(broken).ok
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "_BLOCK_BYTES", size)
        assert (verify(s), verify(broken).ok) == expected


@given(schedules(), st.integers(0, 2**16), st.integers(1, 5))
@settings(max_examples=examples(30, 60))
def test_blocks_of_transfers_change_nothing(s: Schedule, seed: int, block: int) -> None:
    """Routes that are cut, turned, of another transfer or doubled are told in the same words."""
    rng, links = random.Random(seed), len(s.topology.links)
    changes: list[Callable[[tuple[int, ...]], tuple[int, ...]]] = [
        lambda route: route[:-1],
        lambda route: route[::-1],
        lambda route: (rng.randrange(links),),
        lambda route: route + route,
        lambda route: route,
    ]
    damaged = rebuilt(s, [replace(t, route=rng.choice(changes)(t.route)) for t in s])
    expected = verify(damaged).problems
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unique_rows, "_BLOCK", block)
        assert verify(damaged).problems == expected


# --- each mistake, by name --------------------------------------------------------------------


def ring_allgather(n: int = 4) -> Schedule:
    sends = [Transfer((r - s) % n, r, (r + 1) % n, (r,), s) for s in range(n - 1) for r in range(n)]
    return Schedule.of(ring(n), make("allgather", n), sends, rounds=(1,) * (n - 1))


def ring_reduce_scatter(n: int = 4) -> Schedule:
    sends = [
        Transfer((r - s - 1) % n, r, (r + 1) % n, (r,), s, True)
        for s in range(n - 1)
        for r in range(n)
    ]
    return Schedule.of(ring(n), make("reduce_scatter", n), sends, rounds=(1,) * (n - 1))


def exchange(n: int = 4) -> Schedule:
    """Recursive doubling on a full mesh: both partners add what the other held before."""
    pairs = [(u, v) for u in range(n) for v in range(n) if u != v]
    mesh = Topology("mesh", tuple(map(gpu, range(n))), tuple(link(u, v, 25) for u, v in pairs))
    sends = [
        Transfer(0, r, r ^ (1 << s), (pairs.index((r, r ^ (1 << s))),), s, True)
        for s in range(n.bit_length() - 1)
        for r in range(n)
    ]
    return Schedule.of(mesh, make("allreduce", n), sends)


def problems(s: Schedule, changes: dict[int, Transfer | None], **more: object) -> tuple[str, ...]:
    kept = [changes.get(i, t) for i, t in enumerate(s)]
    verdict = verify(rebuilt(s, [t for t in kept if t is not None], **more))
    assert verdict.ok is (not verdict.problems)
    return verdict.problems


def test_classics_are_valid() -> None:
    assert verify(ring_allgather()).ok
    assert verify(ring_reduce_scatter()).ok
    assert verify(exchange(8)).ok


def test_dropped_transfer() -> None:
    first, *_ = problems(ring_allgather(), {0: None})
    assert first == (
        "transfer 4 (chunk 0, rank 1 -> 2, step 1): rank 1 holds nothing of chunk 0 yet"
    )


def test_dropped_reduction_names_the_missing_ranks() -> None:
    s = ring_reduce_scatter()
    (only,) = problems(s, {0: None})  # chunk 3 of rank 0 starts the chain
    assert only == "chunk 3 on rank 3 at the end: lacks the contributions of 0"


def test_too_early() -> None:
    s = ring_allgather()
    assert any("holds nothing of chunk 3" in p for p in problems(s, {4: replace(s[4], step=0)}))


def test_swapped_source() -> None:
    s = ring_allgather()
    told = problems(s, {0: replace(s[0], src=1, dst=0)})
    assert told[:2] == (
        "transfer 0 (chunk 0, rank 1 -> 0, step 0): its route starts at gpu0",
        "transfer 0 (chunk 0, rank 1 -> 0, step 0): its route ends at gpu1",
    )


def test_doubled_reduction() -> None:
    s = ring_reduce_scatter()
    verdict = verify(rebuilt(s, [*s, s[0]]))
    assert any(
        p.startswith("transfer 4 (chunk 3, rank 0 -> 1, step 0)")
        and "adds to chunk 3 a contribution that it already holds" in p
        for p in verdict.problems
    )


def test_two_plain_arrivals_in_one_step() -> None:
    s = ring_allgather()
    (only,) = verify(rebuilt(s, [*s, s[0]])).problems
    assert "rank 1 also gets chunk 0 from rank 0 in that step, and not both" in only


def test_forgotten_reduction_flag() -> None:
    s = ring_reduce_scatter()
    assert any(
        "rank 1 loses contributions of chunk 3" in p
        for p in problems(s, {0: replace(s[0], reduce=False)})
    )


def test_a_sum_may_replace_its_parts() -> None:
    """The allgather half of an allreduce overwrites partial sums: nothing is lost."""
    t = ring(2)
    sends = [Transfer(0, 0, 1, (0,), 0, True), Transfer(0, 1, 0, (1,), 1)]
    assert verify(Schedule.of(t, make("allreduce", 2), sends)).ok


def test_redundant_is_counted_not_refused() -> None:
    s = ring_allgather()
    again = replace(s[0], step=2)
    verdict = verify(rebuilt(s, [*s, again]))
    assert verdict.ok
    assert verdict.redundant == 1


def test_adding_to_nothing_stores() -> None:
    """Rank 1 contributes nothing and relays the sum of 0 and 2, which come in one step."""
    c = custom("pair", 4, [(0, 0, [0], 0), (2, 0, [2], 0)], [(3, 0, [0, 2], 0)])
    t = Topology("star", tuple(map(gpu, range(4))), (link(0, 1, 1), link(2, 1, 1), link(1, 3, 1)))
    sends = [Transfer(0, 0, 1, (0,), 0, True), Transfer(0, 2, 1, (1,), 0, True)]
    assert verify(Schedule.of(t, c, [*sends, Transfer(0, 1, 3, (2,), 1)])).ok


def test_too_much_in_a_sum() -> None:
    c = custom("two of three", 3, [(r, 0, [r], 0) for r in range(3)], [(2, 0, [1, 2], 0)])
    sends = [Transfer(0, 0, 1, (0,), 0, True), Transfer(0, 1, 2, (1,), 1, True)]
    (only,) = verify(Schedule.of(ring(3), c, sends)).problems
    assert only == "chunk 0 on rank 2 at the end: has those of 0 in its sum"


def test_local_sum_needs_the_whole_group() -> None:
    whole = one_shot_allreduce(3)
    gather = [Transfer((r - s) % 3, r, (r + 1) % 3, (r,), s) for s in range(2) for r in range(3)]
    assert verify(Schedule.of(ring(3), whole, gather)).ok
    # Rank 0 is not asked for chunk 1, and does not get it: then it cannot sum the group.
    rows = [tuple(row) for row in whole.post.rows().tolist() if row[:2] != [0, 1]]
    partial = replace(whole, post=Placement.of(rows))
    fewer = [t for t in gather if (t.chunk, t.dst) != (1, 0)]
    (only,) = verify(Schedule.of(ring(3), partial, fewer)).problems
    assert only == "rank 0 sums a group locally and does not hold its chunk 1 at the end"


# --- routes -----------------------------------------------------------------------------------


def bridge() -> Topology:
    """gpu0 -> a -> b -> gpu1, b -> a back, and gpu2 between: 0 -> 2 -> 1."""
    nodes = (gpu(0), gpu(1), gpu(2), switch("a"), switch("b"))
    ends = [(0, 3), (3, 4), (4, 1), (4, 3), (0, 2), (2, 1)]
    return Topology("bridge", nodes, tuple(link(u, v, 25) for u, v in ends))


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ((0, 1, 2), None),
        ((), "its route is empty"),
        ((0, 2), "its route breaks: link 0 (gpu0 -> a), then link 2 (b -> gpu1)"),
        ((1, 2), "its route starts at a"),
        ((0, 1), "its route ends at b"),
        ((4, 5), "its route passes through gpu2, which stores"),
        ((0, 1, 3, 1, 2), "its route enters b twice"),
    ],
)
def test_routes(route: tuple[int, ...], told: str | None) -> None:
    c = custom("one", 3, [(0, 0, [0], 0)], [(1, 0, [0], 0)])
    found = verify(Schedule.of(bridge(), c, [Transfer(0, 0, 1, route)])).problems
    assert bool(found) == (told is not None)
    assert told is None or any(told in p for p in found)


# --- shape ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transfer", "told"),
    [
        (Transfer(9, 0, 1, (0,)), "transfer 0: chunk 9 is outside 0 … 3"),
        (Transfer(0, 0, 7, (0,)), "transfer 0: dst 7 is outside 0 … 3"),
        (Transfer(0, -1, 1, (0,)), "transfer 0: src -1 is outside 0 … 3"),
        (Transfer(0, 0, 1, (0,), -1), "transfer 0: step -1 is outside"),
        (Transfer(0, 0, 1, (44,)), "its route names link 44 of 4"),
        (Transfer(0, 2, 2, (2,)), "a rank sends to itself"),
    ],
)
def test_out_of_range(transfer: Transfer, told: str) -> None:
    (only,) = verify(Schedule.of(ring(4), make("allgather", 4), [transfer])).problems
    assert told in only


def test_unsorted_columns_and_wrong_lengths() -> None:
    s = ring_allgather()
    assert "not sorted by step" in verify(replace(s, step=s.step[::-1])).problems[0]
    assert "different lengths" in verify(replace(s, src=s.src[1:])).problems[0]
    assert "do not fit" in verify(replace(s, route_start=s.route_start + 1)).problems[0]
    (only,) = verify(replace(s, topology=ring(5))).problems
    assert only == "the collective has 4 ranks, the topology 5"


# --- rounds -----------------------------------------------------------------------------------


def test_rounds_of_links() -> None:
    s = hub_exchange(8)
    assert verify(replace(s, rounds=(7,))).ok
    found = verify(replace(s, rounds=(6,))).problems
    assert len(found) == 16
    assert found[0] == "step 0: link 0 (gpu0 -> hub) carries 7 chunks, 6 fit into 6 rounds"


def hub_exchange(n: int) -> Schedule:
    sends = [Transfer(u, u, v, (2 * u, 2 * v + 1)) for u in range(n) for v in range(n) if u != v]
    return Schedule.of(hub(n), make("allgather", n), sends)


def test_rounds_of_shared_resources_and_fat_links() -> None:
    links = (*both_ways(0, 1, 50), *both_ways(0, 1, 25))
    nic = Resource("nic", (0, 2), Fraction(50))
    pair = Topology("pair", (gpu(0), gpu(1)), links, (nic,))
    c = make("broadcast", 2, chunks=3)
    sends = [Transfer(j, 0, 1, (0 if j < 2 else 2,)) for j in range(3)]
    # The links could take 2 + 1 chunks in a round of 25 GB/s; the NIC they share takes 2.
    assert verify(Schedule.of(replace(pair, resources=()), c, sends, rounds=(1,))).ok
    assert verify(Schedule.of(pair, c, sends, rounds=(2,))).ok
    (only,) = verify(Schedule.of(pair, c, sends, rounds=(1,))).problems
    assert only == "step 0: resource nic carries 3 chunks, 2 fit into 1 round"


@settings(max_examples=examples(12))
@given(schedules(), st.data())
def test_no_round_can_be_taken_away(s: Schedule, data: st.DataObject) -> None:
    """The trees come with the least rounds of their steps."""
    assume(any(r > 1 for r in s.rounds))
    step = data.draw(st.sampled_from([i for i, r in enumerate(s.rounds) if r > 1]))
    fewer = tuple(r - (i == step) for i, r in enumerate(s.rounds))
    assert all(p.startswith(f"step {step}: ") for p in verify(replace(s, rounds=fewer)).problems)
    assert not verify(replace(s, rounds=fewer)).ok


def test_rounds_of_unequal_chunks() -> None:
    uneven = make("broadcast", 2).cut([[1, 3]])
    s = Schedule.of(ring(2), uneven, [Transfer(j, 0, 1, (0,)) for j in range(2)], rounds=(4,))
    assert verify(s).ok
    (only,) = verify(replace(s, rounds=(3,))).problems
    assert only == "step 0: link 0 (gpu0 -> gpu1) carries 4 grains, 3 fit into 3 rounds"


def test_rounds_of_the_wrong_length_or_zero() -> None:
    s = ring_allgather()
    assert (
        "rounds are given for 2 steps, the schedule has 3"
        in verify(replace(s, rounds=(1, 1))).problems
    )
    assert "step 1 has 0 rounds" in verify(replace(s, rounds=(1, 0, 1))).problems


# --- times ------------------------------------------------------------------------------------


@given(schedules(), st.integers(1, 10**6), st.integers(1, 2))
@settings(max_examples=examples(20, 40))
def test_simulated_times_are_possible(s: Schedule, size: int, segments: int) -> None:
    s = replace(s, segments=segments)
    run = simulate(s, size)
    timed = replace(s, start_us=run.start_us, end_us=run.end_us)
    assert verify(timed).ok, verify(timed).problems


def test_impossible_times() -> None:
    s = ring_allgather(3)
    end = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
    good = replace(s, start_us=end - 1, end_us=end)
    assert verify(good).ok
    early = end - 1
    early[3] = 0.5
    (only,) = verify(replace(good, start_us=early)).problems
    assert only == (
        "transfer 3 (chunk 2, rank 0 -> 1, step 1) starts at 0.5 µs, "
        "what it sends has arrived at 1 µs"
    )
    assert "lasts from 0 to -0.5 µs" in verify(replace(good, end_us=end - 1.5)).problems[0]
    assert "lasts from nan" in verify(replace(good, start_us=end * np.nan)).problems[0]
    assert "some transfers only" in verify(replace(good, end_us=None)).problems[0]


# --- the rest ---------------------------------------------------------------------------------


def test_require_valid_raises_with_the_first_problems() -> None:
    s = ring_allgather()
    assert require_valid(s).ok
    with pytest.raises(CheckFailed, match="holds nothing of chunk 0") as caught:
        require_valid(rebuilt(s, list(s)[1:]))
    assert caught.value.where == "allgather on 4 ranks, 4 chunks on ring4"


def test_many_problems_are_cut_short() -> None:
    verdict = verify(rebuilt(ring_allgather(40), []))
    assert len(verdict.problems) == 51
    assert verdict.problems[-1] == "… and more"


@pytest.mark.parametrize("reduce", [False, True])
def test_a_quarter_million_transfers_in_seconds(reduce: bool) -> None:
    n = 512
    r, s = np.arange(n), np.arange(n - 1)
    chunk = ((r - s[:, None] - reduce) % n).ravel()
    src = np.tile(r, n - 1)
    big = Schedule.from_columns(
        ring(n),
        make("reduce_scatter" if reduce else "allgather", n),
        chunk,
        src,
        (src + 1) % n,
        np.repeat(s, n),
        np.full(len(src), reduce),
        np.ones(len(src)),
        src,
        rounds=(1,) * (n - 1),
    )
    verdict, calls = calls_of(lambda: verify(big))
    assert verdict.ok
    assert calls < len(src)  # a transfer in Python would be several
    wrong = big.chunk.copy()
    wrong[1000] = (wrong[1000] + 1) % n
    assert not verify(replace(big, chunk=wrong)).ok

"""Reductions and pruning: what comes back is a valid schedule of the original problem."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shares import in_pieces
from strategies import collectives, custom_collectives, ring, schedules, topologies, tree_schedule

from weft.dsl.base.errors import UserError
from weft.dsl.base.spans import Source, Span
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, Kind, custom, make, one_shot_allreduce
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.sketch import (
    Chunks,
    FixedSend,
    Forbid,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Only,
    Phase,
    Phases,
    Relay,
    Rule,
    Sketch,
    SwitchPolicy,
    Symmetry,
)
from weft.dsl.nouns.topology import Topology, both_ways, gpu, link
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.prune import prune
from weft.synth.judge.verify import verify
from weft.synth.reductions.allreduce import compose_allreduce, one_shot_allreduce_from, refine
from weft.synth.reductions.reverse import reverse

REVERSIBLE = (
    Kind.REDUCE,
    Kind.REDUCE_SCATTER,
    Kind.GATHER,
    Kind.SCATTER,
    Kind.ALLTOALL,
    Kind.ALLTONEXT,
    Kind.MULTIROOT_GATHER,
    Kind.MULTIROOT_SCATTER,
)


# --- prune ------------------------------------------------------------------------------------


@given(schedules())
@settings(max_examples=examples(30, 60))
def test_trees_have_nothing_to_prune(s: Schedule) -> None:
    assert prune(s) is s


@given(schedules(), st.data())
@settings(max_examples=examples(25))
def test_needless_copies_are_pruned(s: Schedule, data: st.DataObject) -> None:
    """Whatever is added after the tree is done, in plain copies, goes again."""
    assume(len(s))
    extra = []
    for _ in range(data.draw(st.integers(1, 4))):
        t = data.draw(st.sampled_from(list(s)))
        extra.append(replace(t, step=s.steps + len(extra), reduce=False))
    wanted = set(map(tuple, s.collective.post.rows()[:, :2].tolist()))
    assume(all((t.dst, t.chunk) in wanted for t in extra))
    more = Schedule.of(s.topology, s.collective, [*s, *extra], rounds=s.rounds + (1,) * len(extra))
    verdict = verify(more)
    assume(verdict.ok)  # a partial sum cannot be copied over the whole
    assert verdict.redundant == len(extra)
    assert prune(more) == s


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_sends_nothing_to_a_rank_that_the_whole_sum_passed(seed: int) -> None:
    """Ring 1 → 2 → 0 → 3 → 4 → 1, summed from 0 and 2: the sum for 1 is whole on 0 already."""
    links = tuple(link(u, v, 1) for u, v in ((1, 2), (2, 0), (0, 3), (3, 4), (4, 1)))
    t = Topology("ring", tuple(map(gpu, range(5))), links)
    both = [0, 2]
    c = custom("sum", 5, [(r, 0, [r], 0) for r in both], [(r, 0, both, 0) for r in (0, 1)])
    s = tree_schedule(t, c, seed)
    verdict = verify(s)
    assert verdict.ok
    assert verdict.redundant == 0
    assert prune(s) is s


def test_chunks_without_a_receiver_are_pruned_transitively() -> None:
    c = make("broadcast", 4)
    needed = [Transfer(0, r, r + 1, (r,), r) for r in range(3)]
    c = replace(c, post=type(c.post).of([(1, 0, 0, 0)]))
    s = Schedule.of(ring(4), c, needed, rounds=(1, 2, 3))
    pruned = prune(s)
    assert list(pruned) == needed[:1]
    assert pruned.rounds == (1,)


def test_pruning_keeps_columns_that_belong_together() -> None:
    s = tree_schedule(ring(5), make("allgather", 5))
    again = replace(s[0], step=s.steps)
    more = Schedule.of(s.topology, s.collective, [*s, again])
    timed = replace(more, start_us=np.arange(len(more)) * 1.0, end_us=np.arange(len(more)) + 1.0)
    timed = replace(timed, bytes=640, segments=3)
    pruned = prune(timed)
    assert (len(pruned), pruned.bytes, pruned.segments) == (len(s), 640, 3)
    assert pruned.start_us is not None
    assert pruned.start_us.tolist() == list(range(len(s)))


def test_what_a_sum_replaces_was_not_needed() -> None:
    """A partial sum sent to a rank that gets the whole later, and reads nothing in between."""
    c = custom("to one", 3, [(0, 0, [0], 0), (1, 0, [1], 0)], [(2, 0, [0, 1], 0)])
    t = Topology("three", tuple(map(gpu, range(3))), (link(0, 2, 1), link(1, 0, 1)))
    useless = Transfer(0, 0, 2, (0,), 0)
    rest = [Transfer(0, 1, 0, (1,), 0, True), Transfer(0, 0, 2, (0,), 1)]
    s = Schedule.of(t, c, [useless, *rest])
    assert verify(s).ok
    assert list(prune(s)) == rest


# --- reverse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dual"),
    [
        ("reduce", "broadcast"),
        ("reduce_scatter", "allgather"),
        ("gather", "scatter"),
        ("scatter", "gather"),
        ("multiroot_gather", "multiroot_scatter"),
        ("multiroot_scatter", "multiroot_gather"),
    ],
)
@pytest.mark.parametrize("chunks", [1, 3])
def test_duals_are_the_standard_ones(kind: str, dual: str, chunks: int) -> None:
    roots = [2] if kind in ("reduce", "gather", "scatter") else []
    problem = Problem(ring(4), make(kind, 4, chunks=chunks, roots=roots), bytes=77)
    turned, _ = reverse(problem)
    assert turned.collective == make(dual, 4, chunks=chunks, roots=roots)
    assert turned.topology.links == ring(4).reversed().links
    assert turned.bytes == 77


@given(topologies(), st.data(), st.integers(0, 2**16))
@settings(max_examples=examples(30, 150))
def test_there_and_back(topology: Topology, data: st.DataObject, seed: int) -> None:
    """A tree of the dual, turned round, solves the problem, whatever the dual's extra copies."""
    collective = data.draw(collectives(topology.ranks, REVERSIBLE))
    dual, undo = reverse(Problem(topology, collective))
    there = tree_schedule(dual.topology, dual.collective, seed)
    back = undo(there)
    verdict = verify(back)
    assert verdict.ok, verdict.problems
    assert back.topology == topology
    assert back.collective == collective
    assert len(back) == len(there)
    assert back.rounds == there.rounds[::-1]
    assert bool(back.reduce.all()) is collective.combining or not len(back)


@given(topologies(max_ranks=5), st.data(), st.integers(0, 2**16))
@settings(max_examples=examples(32, 150))
def test_custom_collectives_there_and_back(
    topology: Topology, data: st.DataObject, seed: int
) -> None:
    """Sums through relays that start empty, mixed with plain copies; or a refusal in words."""
    problem = Problem(topology, data.draw(custom_collectives(topology.ranks)))
    c = problem.collective
    starts, ends = (np.bincount(p.chunks, minlength=c.chunks) for p in (c.pre, c.post))
    copied = np.isin(np.arange(c.chunks), c.pre.chunks[_twice(c)])
    if (ends > 1).any() or (copied & (starts > 1)).any():
        with pytest.raises(UserError, match=r"is summed for|is copied to|exactly once"):
            reverse(problem)
        return
    dual, undo = reverse(problem)
    back = undo(tree_schedule(dual.topology, dual.collective, seed))
    verdict = verify(back)
    assert verdict.ok, verdict.problems


def _twice(c: Collective) -> list[bool]:
    """Rows of the precondition whose contribution starts on several ranks."""
    rows = [(int(k), int(s)) for k, s in zip(c.pre.chunks, c.pre.sets, strict=True)]
    return [rows.count(row) > 1 for row in rows]


def test_an_idle_first_step_of_the_dual_falls_off() -> None:
    dual, undo = reverse(Problem(ring(3), make("reduce", 3)))
    sends = [Transfer(0, 0, 2, (2,), 1), Transfer(0, 2, 1, (1,), 3)]
    back = undo(Schedule.of(dual.topology, dual.collective, sends, rounds=(1, 2, 3, 4)))
    assert [t.step for t in back] == [0, 2]
    assert back.rounds == (4, 3, 2)
    assert verify(back).ok


def test_needless_copies_of_the_dual_do_not_come_back() -> None:
    """Broadcast over a relay into a dead end: turned round, the dead end has nothing to send."""
    c = custom("from two", 4, [(1, 0, [1], 0), (2, 0, [2], 0)], [(0, 0, [1, 2], 0)])
    dual, undo = reverse(Problem(ring(4), c))
    sends = [
        Transfer(0, 0, 3, (3,), 0),
        Transfer(0, 3, 2, (2,), 1),
        Transfer(0, 2, 1, (1,), 2),
        Transfer(0, 1, 0, (0,), 3),
    ]
    there = Schedule.of(dual.topology, dual.collective, sends, rounds=(1, 2, 3, 4))
    assert verify(replace(there, rounds=())).ok
    back = undo(there)
    assert verify(back).ok
    assert [(t.src, t.dst, t.step, t.reduce) for t in back] == [
        (1, 2, 1, True),
        (2, 3, 2, False),
        (3, 0, 3, False),
    ]
    assert back.rounds == (4, 3, 2, 1)


def test_a_finer_dual_schedule_comes_back_finer() -> None:
    problem = Problem(ring(4), make("reduce_scatter", 4))
    dual, undo = reverse(problem)
    fine = tree_schedule(dual.topology, dual.collective.split(3))
    back = undo(fine)
    assert back.collective == make("reduce_scatter", 4, chunks=3)
    assert verify(back).ok
    with pytest.raises(UserError, match="expected a dual of"):
        undo(tree_schedule(ring(4), make("alltoall", 4)))


@pytest.mark.parametrize(
    ("collective", "why"),
    [
        (make("allreduce", 4), "chunk 0 is summed for 4 ranks"),
        (make("broadcast", 4), "chunk 0 is copied to 4 ranks while others are summed"),
        (one_shot_allreduce(4), "summed at home"),
        (
            custom("twice", 4, [(0, 0, [0], 0), (1, 0, [0], 0)], [(2, 0, [0], 0)]),
            "starts with 2 contributions and must end with 1",
        ),
    ],
)
def test_refusals(collective: object, why: str) -> None:
    with pytest.raises(UserError, match=why):
        reverse(Problem(ring(4), collective))  # type: ignore[arg-type]


# --- reverse: the sketch ----------------------------------------------------------------------


def two_boxes() -> Topology:
    """Boxes {0, 1} and {2, 3}: cables inside, and between all across."""
    nodes = (gpu(0, 0), gpu(1, 0), gpu(2, 1), gpu(3, 1))
    ends = [(u, v) for u in range(4) for v in range(u)]
    return Topology("boxes", nodes, tuple(x for u, v in ends for x in both_ways(u, v, 25)))


SENDS = st.builds(
    FixedSend,
    label=st.just("send"),
    owner=st.integers(0, 3),
    pair=st.sampled_from([(u, v) for u in range(4) for v in range(4) if u != v]),
    must=st.booleans(),
    step=st.none() | st.integers(1, 3),
    piece=st.none() | st.integers(0, 1),
    target=st.none() | st.integers(0, 3),
)
PAIRS = st.frozensets(st.sampled_from([(u, v) for u in range(4) for v in range(4) if u != v]))
PARTS = st.sampled_from(
    [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)), ((0, 1, 2, 3),), ((0, 1, 2), (3,))]
)
PHASES = st.builds(Phase, st.just(Kind.ALLREDUCE), PARTS)
RULES = st.one_of(
    SENDS,
    st.builds(Only, label=st.just("only"), pairs=PAIRS, links=st.frozensets(st.integers(0, 11))),
    st.builds(Forbid, label=st.just("no"), pairs=PAIRS),
    st.builds(MaxHops, label=st.just("hops"), count=st.integers(1, 3)),
    st.builds(MaxSteps, label=st.just("steps"), count=st.integers(1, 4)),
    st.builds(
        MaxDetour,
        st.sampled_from(Measure),
        st.integers(0, 1),
        st.sampled_from([0, 50]),
        label=st.just("detour"),
    ),
    st.builds(
        Phases,
        st.lists(PHASES, min_size=1, max_size=3).map(tuple),
        st.just(Kind.ALLREDUCE),
        label=st.just("phases"),
    ),
    st.builds(Chunks, label=st.just("chunks"), count=st.integers(1, 2)),
    st.builds(SwitchPolicy, label=st.just("peers"), switch=st.just(4), limit=st.just(1)),
    st.builds(Symmetry, label=st.just("swap"), image=st.permutations(range(4)).map(tuple)),
    st.builds(
        Relay,
        label=st.just("relay"),
        sources=st.frozensets(st.integers(0, 3), min_size=1),
        through=st.sampled_from([((0, 2), (3, 1)), ((1, 2),), ((0, 2), (0, 3), (2, 0))]),
    ),
)


@given(
    st.sampled_from(["reduce", "reduce_scatter", "gather", "scatter", "alltoall"]),
    st.integers(1, 2),
    RULES,
    st.integers(0, 2**16),
)
@settings(max_examples=examples(50, 400))
def test_a_rule_and_its_dual_judge_alike(kind: str, chunks: int, rule: Rule, seed: int) -> None:
    """The dual schedule breaks the dual sketch exactly if the original breaks the original."""
    collective = make(kind, 4, chunks=chunks)
    sketch = Sketch("mine", (rule,))
    plain, undo = reverse(Problem(two_boxes(), collective))
    there = tree_schedule(plain.topology, plain.collective, seed)
    back, problem = undo(there), Problem(two_boxes(), collective, sketch)
    if isinstance(rule, FixedSend) and rule.step is not None:
        with pytest.raises(UserError, match="names a step"):
            reverse(problem)
        return
    dual, _ = reverse(problem)
    forth_ok, back_ok = verify(there, dual.sketch).ok, verify(back, sketch).ok
    if dual.sketch is None:
        assert isinstance(rule, FixedSend)
        # No chunk is meant: a send that must be cannot be found, and has no dual to miss.
        assert back_ok is not rule.must
    elif isinstance(rule, FixedSend) and rule.must and rule.piece == 1 and chunks == 1:
        assert not back_ok
        assert not forth_ok
    else:
        assert forth_ok == back_ok


def test_a_step_cannot_be_turned_round() -> None:
    span = Span(Source("mine.sketch", "send 0 over 0 -> 1 at step 2"), 0, 28)
    rule = FixedSend(label="send", span=span, owner=0, pair=(0, 1), must=True, step=2)
    problem = Problem(ring(4), make("reduce_scatter", 4), Sketch("mine", (rule,)))
    with pytest.raises(UserError, match="names a step") as caught:
        reverse(problem)
    assert caught.value.where is span


def test_own_data_first_has_no_dual_for_copies() -> None:
    rule = Relay(label="mine first", sources=frozenset({0}), through=((0, 2),), own_first=True)
    with pytest.raises(UserError, match="'mine first' has no meaning"):
        reverse(Problem(two_boxes(), make("gather", 4), Sketch("mine", (rule,))))


def test_phases_turned_round_gather_what_was_scattered() -> None:
    rows, columns = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    down = (Phase(Kind.REDUCE_SCATTER, rows), Phase(Kind.REDUCE_SCATTER, columns))
    rule = Phases(down, Kind.REDUCE_SCATTER, label="down")
    dual, _ = reverse(Problem(two_boxes(), make("reduce_scatter", 4), Sketch("mine", (rule,))))
    assert dual.sketch is not None
    (up,) = dual.sketch.rules
    assert isinstance(up, Phases)
    assert up.phases == (Phase(Kind.ALLGATHER, columns), Phase(Kind.ALLGATHER, rows))
    assert up.kind is Kind.ALLGATHER


def test_the_dual_sketch_names_the_dual_collective() -> None:
    within = MaxSteps(label="steps", count=9)
    problem = Problem(ring(4), make("reduce", 4), Sketch("mine", (within,), collective="reduce"))
    dual, _ = reverse(problem)
    assert dual.sketch is not None
    assert dual.sketch.collective == "broadcast"


# --- compose ----------------------------------------------------------------------------------


@given(topologies(), st.integers(1, 3), st.integers(0, 2**16))
@settings(max_examples=examples(20, 60))
def test_composed_and_one_shot_allreduce(topology: Topology, chunks: int, seed: int) -> None:
    n = topology.ranks
    gather = tree_schedule(topology, make("allgather", n, chunks=chunks), seed)
    scatter = tree_schedule(topology, make("reduce_scatter", n, chunks=chunks), seed)
    whole = compose_allreduce(scatter, gather)
    verdict = verify(whole)
    assert verdict.ok, verdict.problems
    assert whole.collective == make("allreduce", n, chunks=n * chunks)
    assert whole.rounds == scatter.rounds + gather.rounds
    shot = one_shot_allreduce_from(gather)
    assert verify(shot).ok
    assert shot.collective.message_chunks == chunks
    assert shot.rounds == gather.rounds


def test_halves_that_do_not_fit() -> None:
    def half(kind: str, chunks: int = 1, n: int = 3) -> Schedule:
        return tree_schedule(ring(n), make(kind, n, chunks=chunks))

    with pytest.raises(UserError, match="needed"):
        compose_allreduce(half("allgather"), half("allgather"))
    with pytest.raises(UserError, match="cut in 1 chunks here, in 2"):
        compose_allreduce(half("reduce_scatter"), half("allgather", 2))
    with pytest.raises(UserError, match="different machines"):
        compose_allreduce(half("reduce_scatter"), half("allgather", n=4))
    with pytest.raises(UserError, match="segmented"):
        compose_allreduce(replace(half("reduce_scatter"), segments=2), half("allgather"))
    with pytest.raises(UserError, match="from an allgather"):
        one_shot_allreduce_from(half("reduce_scatter"))


def test_rounds_only_where_both_halves_have_them() -> None:
    scatter = tree_schedule(ring(3), make("reduce_scatter", 3))
    gather = replace(tree_schedule(ring(3), make("allgather", 3)), rounds=())
    assert compose_allreduce(scatter, gather).rounds == ()


def test_halves_of_unequal_shares_are_cut_alike() -> None:
    def half(kind: str, shares: list[list[int]]) -> Schedule:
        return in_pieces(tree_schedule(ring(3), make(kind, 3)), shares)

    shares = [[3, 1], [4], [2, 2]]
    whole = compose_allreduce(half("reduce_scatter", shares), half("allgather", shares))
    assert verify(whole).ok
    assert whole.collective == make("allreduce", 3).cut([[3, 1, 4, 2, 2]])
    with pytest.raises(UserError, match="other shares"):
        compose_allreduce(half("reduce_scatter", shares), half("allgather", [[4], [4], [2, 2]]))
    with pytest.raises(UserError, match="unequal"):
        one_shot_allreduce_from(half("allgather", shares))


def test_a_planned_order_survives_composing_and_refining() -> None:
    def half(kind: str) -> Schedule:
        plain = tree_schedule(ring(3), make(kind, 3))
        return replace(plain, priority=np.arange(len(plain), dtype=np.int32)[::-1], stride=2)

    scatter, gather = half("reduce_scatter"), half("allgather")
    first = len(scatter)
    whole = compose_allreduce(scatter, gather)
    assert whole.priority is not None
    assert sorted(whole.priority[:first]) == list(range(first))
    assert sorted(whole.priority[first:]) == list(range(first, len(whole)))
    finer = refine(replace(scatter, segments=3, bytes=99), 2)
    assert verify(finer).ok
    assert (finer.segments, finer.stride, finer.bytes) == (3, 2, 99)
    assert finer.priority is not None
    assert finer.priority.tolist() == np.repeat(scatter.priority, 2).tolist()


def test_unequal_shares_are_refined_as_well() -> None:
    """Every piece in as many: the shares of the ways stay what they were."""
    shares = [[3, 1], [4], [2, 2]]
    one = in_pieces(tree_schedule(ring(3), make("allgather", 3)), shares)
    finer = refine(one, 3)
    assert verify(finer).ok
    assert finer.collective.grains.tolist() == [3, 3, 3, 1, 1, 1, 4, 4, 4, *[2] * 6]
    assert us_per_byte(finer) == us_per_byte(one)


# --- under a sketch -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (Chunks(1, label=""), Fraction(3)),  # at home: three whole buffers come in
        (Chunks(4, label=""), Fraction(3, 2)),  # a chunk for each block
        (MaxSteps(1, label=""), Fraction(3)),
        (MaxSteps(2, label=""), Fraction(3, 2)),
    ],
)
def test_rules_hold_for_the_whole_allreduce(rule: Rule, least: Fraction) -> None:
    hub = topology("hub:4")
    sketch = Sketch("s", (rule,))
    found = synthesize(Problem(hub, make("allreduce", 4), sketch), "exact", Budget(5)).points
    assert all(verify(p.schedule, sketch).ok for p in found)
    assert min(p.rounds_per_chunk for p in found) == least


def test_an_allreduce_that_no_halves_make_is_refused() -> None:
    """In a chunk per block it has two halves, of a step each; and one step is all there is."""
    sketch = Sketch("s", (Chunks(4, label=""), MaxSteps(1, label="")))
    with pytest.raises(UserError, match="put together, break a rule"):
        synthesize(Problem(topology("hub:4"), make("allreduce", 4), sketch), "exact", Budget(5))

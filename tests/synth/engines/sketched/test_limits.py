"""Rules about how far chunks come and by which hops: kept, and followed wherever they can be."""

import re

import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import (
    FixedSend,
    MaxDetour,
    MaxHops,
    MaxSteps,
    Measure,
    Rule,
    Sketch,
    SwitchPolicy,
)
from weft.dsl.nouns.topology import Topology, gpu, link
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Status
from weft.synth.engines.sketched.engine import Sketched
from weft.synth.engines.sketched.limits import _distances, _hop_sums
from weft.synth.judge.verify import verify

KINDS = ("allgather", "alltoall", "broadcast", "allreduce", "reduce_scatter", "scatter")


def solved(machine: Topology, kind: str, *rules: Rule, chunks: int = 1) -> Schedule:
    """The schedule under some rules, which the independent checker has accepted."""
    roots = (0,) if kind in ("broadcast", "scatter") else ()
    sketch = Sketch("limits", rules)
    problem = Problem(
        machine, make(kind, machine.ranks, roots=roots), sketch, Objective.TIME, 1 << 16
    )
    engine = f"sketched{{patience=60,chunks={chunks}}}"
    schedule = synthesize(problem, engine, Budget(0.5)).points[0].schedule
    assert verify(schedule, sketch).ok
    return schedule


def test_the_quickest_way_may_be_too_long_to_be_passed_on() -> None:
    """Rank 1 gets the chunk first by way of 2, but then rank 3 is three hops away."""
    ways = (
        link(0, 2, 100, "0.1"),
        link(2, 1, 100, "0.1"),
        link(0, 1, 1, "0.1"),
        link(1, 3, 100, "0.1"),
    )
    machine = Topology("detour", tuple(map(gpu, range(4))), ways)
    schedule = solved(machine, "broadcast", MaxHops(2, label="max hops 2"))
    assert (0, 1) in zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True)


@settings(max_examples=examples(6, 40), deadline=None)
@given(topologies(max_ranks=6), st.sampled_from(KINDS), st.integers(1, 6), st.booleans())
def test_a_limit_of_hops_is_kept_wherever_it_can_be(
    machine: Topology, kind: str, most: int, steps: bool
) -> None:
    far = hop_distances(machine)
    # A sum goes up to some root and down again: to each piece's own, here all ranks in turn.
    need = far[0].max() if kind in ("broadcast", "scatter") else far.max()
    if kind == "allreduce":
        need = max(far[:, r].max() + far[r].max() for r in range(machine.ranks))
    rule: Rule = (MaxSteps if steps else MaxHops)(most, label=f"at most {most}")
    if most >= need:
        solved(machine, kind, rule, chunks=machine.ranks if kind == "allreduce" else 1)
    elif kind != "allreduce":
        with pytest.raises(UserError, match=r"no way was found|cannot reach|break a rule"):
            solved(machine, kind, rule)


@settings(max_examples=examples(4, 30), deadline=None)
@given(
    topologies(max_ranks=6),
    st.sampled_from(["allgather", "alltoall", "broadcast", "reduce_scatter"]),
    st.sampled_from(Measure),
    st.integers(0, 1),
)
def test_no_detour_is_always_possible(
    machine: Topology, kind: str, measure: Measure, more: int
) -> None:
    solved(machine, kind, MaxDetour(measure, more, label="max detour"))


def test_detours_of_two_measures_hold_together() -> None:
    rules = (MaxDetour(Measure.HOPS, 1, label="hops"), MaxDetour(Measure.ALPHA, 0, 50, label="α"))
    solved(topology("dgx1"), "allgather", *rules)
    solved(topology("ndv2:nodes=2"), "alltoall", *rules)


@settings(max_examples=examples(5, 30), deadline=None)
@given(topologies(max_ranks=5), st.sampled_from(["allgather", "broadcast", "alltoall"]), st.data())
def test_sends_that_must_be_are_and_those_that_must_not_are_not(
    machine: Topology, kind: str, data: st.DataObject
) -> None:
    owner = 0 if kind == "broadcast" else data.draw(st.integers(0, machine.ranks - 1))
    pairs = sorted({(x.src, x.dst) for x in machine.links})
    pairs = [(u, v) for u, v in pairs if max(u, v) < machine.ranks]
    assume(pairs)
    u, v = data.draw(st.sampled_from(pairs))
    must = data.draw(st.booleans())
    target = None
    if kind == "alltoall":
        target = data.draw(st.integers(0, machine.ranks - 1).filter(lambda t: t != owner))
    rule = FixedSend(owner, (u, v), must, target=target, label="a send")
    try:
        schedule = solved(machine, kind, rule)
    except UserError as error:  # the only way, or of what is there already
        if not re.search("no way was found|cannot reach|is there already", error.message):
            raise
        return
    mine = schedule.collective.pre.chunks[schedule.collective.pre.ranks == owner]
    if kind == "allgather":
        sent = (schedule.chunk == mine[0]) & (schedule.src == u) & (schedule.dst == v)
        assert sent.any() == must


def test_what_leaves_its_owner_leaves_in_the_first_step() -> None:
    machine = topology("dgx1")
    schedule = solved(machine, "allgather", FixedSend(3, (3, 2), True, step=1, label="first"))
    sent = (schedule.chunk == 3) & (schedule.src == 3) & (schedule.dst == 2)
    assert (schedule.step[sent] == 0).all()


def test_the_images_of_a_fixed_send_are_fixed_too() -> None:
    machine = topology("ring:6")
    text = "sketch s\nsymmetry: rotate 1\n"
    turn = elaborate(parse(text, "s"), machine).rules
    schedule = solved(machine, "allgather", FixedSend(0, (2, 1), True, label="round"), *turn)
    for r in range(6):
        hops = zip(
            schedule.chunk.tolist(), schedule.src.tolist(), schedule.dst.tolist(), strict=True
        )
        assert (r, (r + 2) % 6, (r + 1) % 6) in hops


@pytest.mark.parametrize(
    ("kind", "rule", "why"),
    [
        ("allreduce", MaxDetour(Measure.HOPS, 1, label="no detour"), "no detour.*root"),
        ("allreduce", FixedSend(0, (0, 1), True, label="a send"), "up or down"),
        ("allgather", FixedSend(0, (1, 2), True, step=2, label="late"), "plans times"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(kind: str, rule: Rule, why: str) -> None:
    sketch = Sketch("limits", (rule,))
    problem = Problem(topology("star:4"), make(kind, 4), sketch, Objective.TIME, 1 << 16)
    assert re.search(why, Sketched().refuses(problem) or "")


def test_a_send_of_what_is_there_already_is_a_mistake_of_the_sketch() -> None:
    with pytest.raises(UserError, match="is there already"):
        solved(topology("full:4"), "broadcast", FixedSend(0, (1, 0), True, label="home"))


def test_sums_turn_into_halves_where_a_detour_is_limited() -> None:
    solved(topology("full:4"), "allreduce", MaxDetour(Measure.HOPS, 1, label="one more"))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", ["allgather", "alltoall", "allreduce"])
def test_peers_over_a_switch_are_few(kind: str, limit: int) -> None:
    solved(topology("hub:6"), kind, SwitchPolicy(6, limit=limit, label="few"), chunks=6)


def test_peers_are_chosen_so_that_all_are_near() -> None:
    for count, limit, hops in ((16, 4, 3), (8, 2, 3), (8, 7, 1), (9, 1, 8)):
        assert _hop_sums(count, _distances(count, limit, 5000))[0] == hops
    assert len(set(_distances(144, 8, 5000))) == 8
    assert _hop_sums(144, _distances(144, 8, 5000))[0] <= 8


def test_few_peers_cost_nothing_where_messages_are_large() -> None:
    """As `dgx2_four_peers` says: the allgather of a DGX-2 at its bound, with four peers each."""
    machine = topology("dgx2")
    text = "sketch s\nswitch nvswitch: at most 4 peers\nsymmetry: rotate 2 within node\n"
    sketch = elaborate(parse(text, "s"), machine)
    problem = Problem(machine, make("allgather", 16), sketch, Objective.TIME, 64 << 20)
    outcome = synthesize(problem, "sketched", Budget(20))
    assert outcome.status is Status.OPTIMAL
    assert outcome.points[0].schedule.topology is machine


def test_a_symmetry_that_does_not_keep_the_peers_is_named() -> None:
    machine = topology("hub:8")
    turn = elaborate(
        parse("sketch s\nsymmetry: permute (0 2)(1 3)(4 5)(6 7)\n", "s"), machine
    ).rules
    with pytest.raises(UserError, match="not mapped to each other"):
        solved(machine, "allgather", SwitchPolicy(8, limit=2, label="two"), *turn)

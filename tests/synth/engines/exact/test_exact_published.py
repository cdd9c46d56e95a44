"""The frontiers that were published, found and refuted beyond (facts: SCCL's tables, LP values)."""

from fractions import Fraction as F
from pathlib import Path

import pytest

from weft.dsl.base.errors import Missing
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Silent, Status
from weft.synth.bounds.steps.demands import demands, find_orbits, reach
from weft.synth.bounds.steps.flow_bound import flow_bound
from weft.synth.engines.exact import paper, realize
from weft.synth.engines.exact.instance import ExactQuestion, ExactRun, build_space
from weft.synth.solvers.pool import solvers

FRONTIERS = [
    ("dgx1", "allgather", {2: F(3, 2), 3: F(7, 6)}),
    ("dgx1", "reduce_scatter", {2: F(3, 2), 3: F(7, 6)}),
    ("dgx1", "gather", {2: F(7, 6)}),
    ("dgx1", "scatter", {2: F(7, 6)}),
    ("dgx1", "alltoall", {2: F(8, 3)}),
    ("ring:8", "allgather", {4: F(7, 2)}),
    ("ring:8", "alltoall", {4: F(8)}),
    ("hub:8", "allgather", {1: F(7)}),
    ("dgx2", "allgather", {1: F(15)}),
    ("torus:4x4", "allgather", {4: F(15, 4)}),
    ("torus:4x4", "alltoall", {4: F(8)}),
]


@pytest.mark.parametrize(("machine", "collective", "frontier"), FRONTIERS)
def test_frontier_is_the_published_one_and_proved(machine, collective, frontier):
    box = topology(machine)
    outcome = synthesize(Problem(box, make(collective, box.ranks)), "exact")
    assert {p.steps: p.rounds_per_chunk for p in outcome.points} == frontier
    assert outcome.status is Status.OPTIMAL
    assert all(p.bound == p.rounds_per_chunk for p in outcome.points)
    assert [p.bandwidth_optimal for p in outcome.points] == [False] * (len(frontier) - 1) + [True]
    assert outcome.points[0].step_optimal


@pytest.mark.slow
def test_broadcast_goes_beyond_the_published_table_and_ends():
    box = topology("dgx1")
    budget = Budget(effort=300)
    outcome = synthesize(Problem(box, make("broadcast", 8)), "exact{max-steps=5}", budget=budget)
    found = {p.steps: p.rounds_per_chunk for p in outcome.points}
    assert found == {2: F(1), 3: F(9, 22), 4: F(4, 13), 5: F(5, 19)}
    assert outcome.status is Status.OPTIMAL
    assert "1/6 rounds per chunk is approached, not reached" in outcome.statements[-1]


def test_allreduce_is_composed_and_direct():
    box = topology("dgx1")
    outcome = synthesize(Problem(box, make("allreduce", 8)), "exact")
    found = {p.steps: (p.rounds_per_chunk, p.factor) for p in outcome.points}
    assert found[2] == (F(3, 2), 2)
    assert found[6] == (F(14, 48), 48)
    assert outcome.points[-1].bandwidth_optimal
    assert [p.steps for p in outcome.points] == [2, 3, 4, 5, 6]
    for point in outcome.points:
        assert point.bound <= point.rounds_per_chunk


def test_least_steps_only():
    box = topology("dgx1")
    outcome = synthesize(Problem(box, make("alltoall", 8), objective=Objective.LATENCY), "exact")
    assert [p.steps for p in outcome.points] == [2]


# (C, S, R): whether such a schedule exists; published.md §1.1, §1.2, §7 (gold values).
GOLD = [
    ("allgather", (1, 2, 2), True),
    ("allgather", (3, 2, 4), False),
    ("allgather", (5, 2, 7), False),
    ("allgather", (6, 3, 7), True),
    ("gather", (4, 2, 5), True),
    ("gather", (5, 2, 6), False),
    ("gather", (6, 2, 7), True),
    ("broadcast", (2, 2, 2), True),
    ("broadcast", (3, 2, 2), False),
    ("broadcast", (6, 3, 3), True),
    ("broadcast", (12, 3, 4), False),
    ("broadcast", (18, 5, 5), True),
    ("alltoall", (1, 2, 2), False),
    ("alltoall", (1, 2, 3), True),
    ("alltoall", (3, 3, 8), True),
]


def _space(machine, collective):
    box = topology(machine)
    wanted = demands(make(collective, box.ranks))
    return build_space(box, find_hops(box), wanted, reach(box))


@pytest.mark.parametrize(("collective", "question", "answer"), GOLD)
def test_gold_values(collective, question, answer):
    chunks, steps, rounds = question
    space = _space("dgx1", collective)
    found = realize.solve(
        space, ExactQuestion(chunks, steps, rounds), Budget(60).meter(), ExactRun(0, Silent())
    )
    assert found.verdict is (realize.SolverVerdict.YES if answer else realize.SolverVerdict.NO)


QUICK = [g for g in GOLD if g[1][0] * g[1][2] <= 12 and g[0] != "alltoall"]


@pytest.mark.parametrize(("collective", "question", "answer"), QUICK)
def test_the_papers_encoding_agrees(collective, question, answer):
    space = _space("dgx1", collective)
    found = paper.solve(space, ExactQuestion(*question), Budget(60).meter(), ExactRun(0, Silent()))
    assert found.verdict is (realize.SolverVerdict.YES if answer else realize.SolverVerdict.NO)


def test_flow_lp_with_and_without_symmetry_agree():
    box = topology("torus:3x3")
    wanted = demands(make("allgather", 9))
    near = reach(box)
    from weft.dsl.symmetry import symmetry

    images = symmetry.verified(box)
    links = [symmetry.link_image(box, x) for x in images]
    assert images
    plain = flow_bound(box, wanted, near, 3, find_orbits(box, wanted, (), ()))
    folded = flow_bound(box, wanted, near, 3, find_orbits(box, wanted, images, links))
    assert plain.rounds_per_chunk == folded.rounds_per_chunk
    assert folded.columns < plain.columns / 5


def test_same_seed_same_schedule():
    box = topology("dgx1")
    problem = Problem(box, make("allgather", 8))
    first, second = (synthesize(problem, "exact", budget=Budget(seed=3)) for _ in range(2))
    assert [p.schedule for p in first.points] == [p.schedule for p in second.points]


def test_more_steps_than_a_simple_path_has_hops_can_pay():
    # Pipelining: on a line of three, a broadcast in pieces gains from steps beyond the two hops.
    box = topology("line:3")
    outcome = synthesize(Problem(box, make("broadcast", 3)), "exact")
    found = {p.steps: p.rounds_per_chunk for p in outcome.points}
    assert found == {2: F(2), 3: F(3, 2), 4: F(4, 3), 5: F(5, 4), 6: F(6, 5)}


def test_without_z3_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(solvers().close)  # it would miss z3 in the tests after this one
    (tmp_path / "z3.py").write_text("raise ModuleNotFoundError('no z3')")
    monkeypatch.syspath_prepend(tmp_path)
    solvers().close()  # the next process sees that path
    problem = Problem(topology("ring:3"), make("allgather", 3))
    with pytest.raises(Missing, match="needs the Python package 'z3-solver'") as caught:
        synthesize(problem, "exact{solver=z3}")
    assert "pip install 'weft[z3]'" in str(caught.value.hint)

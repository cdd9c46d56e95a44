"""The exact engine under a sketch: rules obeyed, bounds of what is left, conflicts named."""

from dataclasses import replace
from fractions import Fraction as F

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Silent, Status
from weft.synth.bounds.steps.demands import demands, reach
from weft.synth.engines.exact import realize
from weft.synth.engines.exact.instance import ExactQuestion, ExactRun, apply_rules, build_space
from weft.synth.judge.verify import verify

DOUBLES = "0 <-> 1, 1 <-> 3, 3 <-> 2, 2 <-> 6, 6 <-> 7, 7 <-> 5, 5 <-> 4, 4 <-> 0"


def solve(machine: str, collective: str, *rules: str, effort: float = 20) -> Outcome:
    box = topology(machine)
    text = "sketch test\n" + "\n".join(rules) + "\n"
    problem = Problem(box, make(collective, box.ranks), elaborate(parse(text), box))
    outcome = synthesize(problem, "exact", Budget(effort))
    for point in outcome.points:
        assert verify(point.schedule, problem.sketch).ok
    return outcome


def frontier(outcome: Outcome) -> dict[int, F]:
    return {p.steps: p.rounds_per_chunk for p in outcome.points}


def test_the_bound_is_that_of_the_links_left():
    # The double links form a ring of eight with twice the round bandwidth: 7/2 halved.
    outcome = solve("dgx1", "allgather", f"only links {DOUBLES}")
    assert frontier(outcome) == {4: F(7, 4)}
    assert outcome.points[0].bound == F(7, 4)


@pytest.mark.parametrize(
    ("machine", "collective"),
    [("dgx1", "alltoall"), ("mesh:2x3", "allgather"), ("mesh:2x3", "reduce_scatter")],
)
def test_forbidding_links_is_taking_them_away(machine, collective):
    box = topology(machine)
    dead = [i for i, x in enumerate(box.links) if {x.src, x.dst} == {0, 1}]
    less = replace(box.without_links(dead), name="less")
    plain = synthesize(Problem(less, make(collective, box.ranks)), "exact")
    ruled = solve(machine, collective, "forbid links 0 <-> 1")
    assert frontier(ruled) == frontier(plain)
    assert [p.bound for p in ruled.points] == [p.bound for p in plain.points]


def test_chunks_are_exactly_as_many_and_the_rest_is_refuted():
    outcome = solve("dgx1", "allgather", "chunks 3", "max steps 2")
    # (3, 2, 4) has no schedule: SCCL's published refutation. So 5 rounds are best with 3 chunks.
    (point,) = outcome.points
    assert (point.factor, point.steps, point.rounds) == (3, 2, 5)
    assert point.optimal
    assert outcome.status is Status.OPTIMAL


def test_symmetry_makes_the_schedule_invariant():
    outcome = solve("ring:6", "allgather", "symmetry: rotate 1")
    schedule = outcome.points[0].schedule
    turned = {
        ((c // f + 1) % 6 * f + c % f, (s + 1) % 6, (d + 1) % 6, t)
        for f in [schedule.collective.factor]
        for c, s, d, t in _rows(schedule)
    }
    assert turned == set(_rows(schedule))


def _rows(schedule: Schedule) -> list[tuple[int, int, int, int]]:
    columns = (schedule.chunk, schedule.src, schedule.dst, schedule.step)
    return list(zip(*(c.tolist() for c in columns), strict=True))


def test_hops_and_fixed_sends_are_obeyed():
    send = "send chunk 0 of rank 0 over 1 -> 2 at step 2"
    outcome = solve("ring:5", "broadcast", "max hops 2", "max steps 3", send, effort=0.5)
    assert outcome.points
    for point in outcome.points:
        rows = _rows(point.schedule)
        assert (0, 1, 2, 1) in rows


def test_at_most_two_peers_each_way():
    outcome = solve("hub:6", "allgather", "switch hub: at most 2 peers")
    pairs = {(s, d) for _, s, d, _ in _rows(outcome.points[-1].schedule)}
    assert all(sum(p[side] == r for p in pairs) <= 2 for r in range(6) for side in (0, 1))
    assert outcome.points[0].steps == 2  # one step reaches three ranks, two reach seven


def test_few_peers_are_as_few_as_possible():
    # Five steps of one round leave a ring: six ordered pairs, fewer cannot connect six GPUs.
    box = topology("hub:6")
    sketch = elaborate(parse("sketch few\nswitch hub: few peers\n"), box)
    wanted = demands(make("allgather", 6))
    space = build_space(box, find_hops(box), wanted, reach(box))
    space = apply_rules(space, sketch.rules)
    answer = realize.solve(space, ExactQuestion(1, 5, 5), Budget(20).meter(), ExactRun(0, Silent()))
    assert len({(t.src, t.dst) for t in answer.transfers}) == 6


def test_infeasible_names_the_smallest_conflict():
    outcome = solve(
        "dgx1", "allgather", "max hops 7", f"only links {DOUBLES}", "forbid links 0 -> 1, 0 -> 4"
    )
    assert outcome.status is Status.INFEASIBLE
    assert len(outcome.conflict) == 2
    assert any("only" in label for label in outcome.conflict)
    assert any("forbid" in label for label in outcome.conflict)


def test_too_few_steps_is_a_conflict_of_one_rule():
    outcome = solve("ring:6", "allgather", "max steps 2", "max hops 5")
    assert outcome.status is Status.INFEASIBLE
    assert len(outcome.conflict) == 1
    assert "steps" in outcome.conflict[0]


def test_a_ring_of_eight_needs_seven_steps_not_the_machines_one():
    rules = [f"only links {p} -> {(p + 1) % 8}" for p in range(8)]
    outcome = solve("full:8", "allgather", *rules)
    assert outcome.points[0].steps == 7
    assert outcome.points[0].optimal


def test_a_send_at_a_late_step_makes_a_long_schedule():
    outcome = solve("ring:4", "gather", "send chunk 0 of rank 2 over 2 -> 1 at step 6")
    assert outcome.points[0].steps >= 6
    factor = outcome.points[0].factor
    assert (2 * factor, 2, 1, 5) in _rows(outcome.points[0].schedule)


def test_a_send_of_what_stays_at_home_is_not_meant():
    outcome = solve("full:3", "alltoall", "send chunk 0 of rank 0 over 0 -> 1", effort=0.3)
    rows = _rows(outcome.points[0].schedule)
    factor = outcome.points[0].factor
    assert {c for c, s, d, _ in rows if (s, d) == (0, 1)} >= {1 * factor, 2 * factor}


def test_a_step_that_a_rule_empties_stays():
    outcome = solve(
        "full:3",
        "broadcast",
        "never send any chunk of rank 0 over 0 -> 2 at step 1",
        "never send any chunk of rank 0 over 0 -> 1 at step 1",
        effort=0.3,
    )
    assert outcome.points
    assert all(t != 0 for *_, t in _rows(outcome.points[0].schedule))


def test_a_cut_off_search_is_not_called_optimal():
    box = topology("dgx1")
    problem = Problem(box, make("allgather", 8), objective=Objective.BANDWIDTH)
    outcome = synthesize(problem, "exact{max_steps=2}")
    assert outcome.status is Status.FEASIBLE


@pytest.mark.parametrize("limit", ["3 hops", "300% of hops", "300% of alpha"])
def test_a_detour_as_long_as_allowed_is_taken(limit: str):
    # With 0 -> 1 gone, what rank 0 has comes to rank 1 round the ring: 4 hops instead of 1.
    outcome = solve("ring:5", "allgather", "forbid links 0 -> 1", f"max detour {limit}")
    assert outcome.points


@pytest.mark.parametrize("limit", ["2 hops", "299% of hops", "299% of alpha"])
def test_a_detour_too_long_is_infeasible_and_names_both_rules(limit: str):
    outcome = solve("ring:5", "allgather", "forbid links 0 -> 1", f"max detour {limit}")
    assert outcome.status is Status.INFEASIBLE
    assert outcome.conflict == ("forbid links 0 -> 1 (line 2)", f"max detour {limit} (line 3)")

"""Schedules with casts against rules of a sketch, and machines narrowed by them."""

from dataclasses import replace
from fractions import Fraction

import pytest
from casts import FREE, NVLS, TURNING, star, two_shot, up_and_down

from weft.dsl.nouns.capabilities import CastLimits
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import CastPolicy, Chunks, Forbid, MaxHops, MaxSteps, Only, Rule, Sketch
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Status
from weft.synth.base.meter import Meter
from weft.synth.engines.packing.casts.search import cast_points
from weft.synth.judge.verify import verify
from weft.synth.reductions.solve import narrowed

HUB = 4
EVERY = frozenset((a, b) for a in range(4) for b in range(4) if a != b)


def policy(*allowed: str, groups: int | None = None) -> CastPolicy:
    return CastPolicy(HUB, None if groups else frozenset(allowed), groups, label="mine")


@pytest.mark.parametrize(
    ("schedule", "rule", "says"),
    [
        (two_shot(4), policy(), "hub sums"),
        (two_shot(4), policy("reduces"), "hub copies"),
        (two_shot(4), policy("multicast"), "hub sums"),
        (two_shot(4), policy("multicast", "reduces"), ""),
        (two_shot(4, TURNING), policy("multicast"), "hub sums"),
        (two_shot(4), policy(groups=1), ""),
        (two_shot(4, FREE), policy(groups=3), "the casts use 4 groups of hub"),
        (two_shot(4, FREE), policy(groups=4), ""),
        (two_shot(4), Forbid(frozenset({(1, 2)}), label="mine"), "forbidden"),
        (two_shot(4), Forbid(frozenset(), frozenset({3}), label="mine"), "forbidden"),
        (two_shot(4), Only(EVERY, label="mine"), ""),
        (two_shot(4), Only(EVERY - {(1, 2)}, label="mine"), "no such rule names all its hops"),
        (two_shot(4), Chunks(4, label="mine"), ""),
        (two_shot(4), MaxSteps(1, label="mine"), "has 2 steps"),
        (two_shot(4), MaxHops(9, label="mine"), "about transfers"),
        (up_and_down(), CastPolicy(6, frozenset({"reduces"}), label="mine"), "spine0 copies"),
        (up_and_down(), CastPolicy(4, frozenset({"reduces"}), label="mine"), "leaf0 copies"),
        (up_and_down(), CastPolicy(4, None, 1, label="mine"), ""),
        (up_and_down(), CastPolicy(7, frozenset(), label="mine"), ""),
    ],
)
def test_rules_and_casts(schedule: Schedule, rule: Rule, says: str) -> None:
    assert verify(schedule).ok
    problems = verify(schedule, Sketch("test", (rule,))).problems
    assert bool(problems) == bool(says)
    assert all("'mine'" in problem for problem in problems)
    assert not says or any(says in problem for problem in problems)


@pytest.mark.parametrize(
    ("rule", "rate"),
    [
        (policy(), Fraction(3, 2)),
        (policy("reduces"), Fraction(3, 2)),
        (policy(groups=1), Fraction(1)),
    ],
)
def test_engines_obey_by_a_machine_that_can_do_less(rule: CastPolicy, rate: Fraction) -> None:
    machine = star(4, FREE, "25GB/s")
    problem = Problem(
        machine, make("allreduce", 4), Sketch("test", (rule,)), Objective.BANDWIDTH, None
    )
    outcome = synthesize(problem, "packing", Budget(1))
    assert outcome.status in (Status.OPTIMAL, Status.FEASIBLE)
    best = min(outcome.points, key=lambda p: p.rounds_per_chunk)
    assert best.schedule.topology is machine
    assert best.rounds_per_chunk == rate
    assert verify(best.schedule, problem.sketch).ok


def test_a_switch_of_few_groups_gets_no_more() -> None:
    machine = star(4, FREE)
    hub = replace(machine.nodes[HUB], limits=CastLimits(groups=1))
    few = replace(machine, nodes=(*machine.nodes[:HUB], hub))
    problem = Problem(few, make("allreduce", 4), None, Objective.TIME, 10**6)
    (point,) = cast_points(problem, [10**6], Meter(10**8))
    assert verify(point.schedule).ok


def test_narrowing_takes_the_turn_with_either_half() -> None:
    one = narrowed(star(4, TURNING), Sketch("test", (policy("reduces"),))).nodes[HUB]
    assert one.capabilities == ("reduces",)
    none = narrowed(star(4, NVLS), Sketch("test", (policy(),))).nodes[HUB]
    assert none.capabilities == ()

"""Classic algorithms are what some sketches describe: the verifier says so, and of others not."""

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.load import load_sketch
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.judge.verify import verify


def classic(machine: str, collective: str, algorithm: str) -> Schedule:
    box = topology(machine)
    problem = Problem(box, make(collective, box.ranks), objective=Objective.BANDWIDTH)
    outcome = synthesize(problem, f"classic{{algorithm={algorithm}}}", Budget(10))
    return outcome.points[0].schedule


def broken(schedule: Schedule, sketch: str) -> tuple[str, ...]:
    rules = elaborate(load_sketch(sketch), schedule.topology)
    assert rules.collective in ("", str(schedule.collective.kind))
    return verify(schedule, rules).problems


@pytest.mark.parametrize(
    ("machine", "collective", "algorithm", "sketch"),
    [
        ("dgx-h100:nodes=2", "allreduce", "blueconnect", "dgx_h100_rails"),
        ("dgx-a100:nodes=2", "allreduce", "blueconnect", "dgx_a100_rails"),
        ("dgx-a100:nodes=2", "allgather", "two_level", "dgx_a100_spread"),
        ("mi300x", "allgather", "direct", "mi300x_direct"),
        ("hypercube:3", "allgather", "recursive_doubling", "hypercube_flips"),
        ("z52", "allgather", "biring", "z52_both_ways"),
        ("ring:8", "allgather", "ring", "ring_rotations"),
    ],
)
def test_an_algorithm_obeys_the_sketch_of_its_idea(
    machine: str, collective: str, algorithm: str, sketch: str
) -> None:
    assert broken(classic(machine, collective, algorithm), sketch) == ()


@pytest.mark.parametrize(
    ("machine", "collective", "algorithm", "sketch", "why"),
    [
        ("dgx-h100:nodes=2", "allreduce", "ring", "dgx_h100_rails", "no phase after that"),
        ("z52", "allgather", "ring", "z52_both_ways", "by a longer path"),
        ("mi300x", "allgather", "ring", "mi300x_direct", "more than 1 hops"),
    ],
)
def test_an_algorithm_of_another_idea_does_not(
    machine: str, collective: str, algorithm: str, sketch: str, why: str
) -> None:
    found = broken(classic(machine, collective, algorithm), sketch)
    assert any(why in problem for problem in found)

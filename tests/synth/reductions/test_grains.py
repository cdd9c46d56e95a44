"""Chunks of unequal sizes reach engines that plan in rounds as grains."""

from dataclasses import replace
from fractions import Fraction

import pytest

from weft.dsl.base.errors import Refusal
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, custom
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Status
from weft.synth.bounds import bounds
from weft.synth.judge.verify import verify
from weft.synth.reductions.solve import Grains


def three(unit: int = 1) -> Collective:
    """0 -> 1, 1 -> 2, 0 -> 2 of 3, 1 and 2 units on a line: 5 units cross each link."""
    before = [(0, 0, [0], 0), (1, 1, [1], 0), (0, 2, [0], 3 * unit)]
    after = [(1, 0, [0], unit), (2, 1, [1], 2 * unit), (2, 2, [0], 0)]
    sizes = (3 * unit, unit, 2 * unit)
    return replace(custom("three", 3, before, after), sizes=sizes)


@pytest.mark.parametrize("engine", ["exact", "greedy", "portfolio"])
def test_unequal_chunks_are_synthesized(engine: str) -> None:
    problem = Problem(topology("line:3"), three(), objective=Objective.BANDWIDTH)
    point = synthesize(problem, engine).points[0]
    assert verify(point.schedule).ok
    assert point.rounds_per_chunk == 5
    assert point.schedule.collective.message_chunks == problem.collective.message_chunks
    assert point.schedule.collective.grains.sum() == 6


def test_grains_are_as_large_as_they_can_be() -> None:
    problem = Problem(topology("line:3"), three(10**6), objective=Objective.LATENCY)
    outcome = synthesize(problem, "exact")
    assert outcome.status is Status.OPTIMAL
    assert outcome.points[0].schedule.collective.chunks == 6
    found = bounds(problem.topology, outcome.points[0].schedule.collective)
    assert found.us_per_byte == Fraction(1, 25000)


def test_too_many_grains_are_refused_in_words() -> None:
    sizes = (10**6 + 1, 1, 2)
    collective = custom(
        "three",
        3,
        [(0, 0, [0], 0), (1, 1, [1], 0), (0, 2, [0], sizes[0])],
        [(1, 0, [0], 0), (2, 1, [1], 2), (2, 2, [0], 0)],
    )
    problem = Problem(topology("line:3"), replace(collective, sizes=sizes))
    assert not Grains().fits(problem)
    with pytest.raises(Refusal, match="of one size"):
        synthesize(problem, "exact")

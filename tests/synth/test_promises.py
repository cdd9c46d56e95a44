"""Every sketch that comes with weft keeps what the comment at its head promises."""

from fractions import Fraction

import pytest
from enough import Enough

from weft.dsl.language.elaborate import elaborate, machine_of
from weft.dsl.language.load import Promise, catalogue_names, load_sketch, promised
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.explain.costs import least_time
from weft.synth.explain.feasibility import Feasibility
from weft.synth.time.schedule_time import simulate

LOOSE = Fraction(3, 20)
"""More than this is no promise."""


def least_us(problem: Problem, promise: Promise) -> float:
    """The bound that a promise speaks of."""
    machine, collective = problem.topology, problem.collective
    if promise.ruled:
        assert problem.sketch is not None
        rules = problem.sketch.rules
        return float(least_time(Feasibility(machine, collective), rules, promise.bytes).us)
    return float(lower_bound_us(bounds(machine, collective), promise.bytes))


@pytest.mark.parametrize("name", sorted(catalogue_names()))
def test_a_shipped_sketch_keeps_its_promise(name: str) -> None:
    tree = load_sketch(name)
    promise, machine = promised(tree), machine_of(tree, {})
    assert promise is not None, "no line # Promise: …"
    assert machine is not None
    assert promise.gap <= LOOSE
    sketch = elaborate(tree, machine)
    assert sketch.collective in ("", promise.collective)
    collective = make(Kind(promise.collective), machine.ranks)
    problem = Problem(machine, collective, sketch, Objective.TIME, promise.bytes)
    least = least_us(problem, promise)
    most = least * float(1 + promise.gap)
    engine, budget = sketch.engine or "portfolio", Budget(promise.seconds)
    outcome = synthesize(problem, engine, budget, Enough(problem, most))
    took = simulate(outcome.points[0].schedule, promise.bytes).time_us
    assert least * (1 - 1e-9) <= took <= most

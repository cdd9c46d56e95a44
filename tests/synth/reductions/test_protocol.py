"""A reduction is one frozen class in one tuple; solving knows nothing else of it."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from weft.dsl.base.errors import Refusal
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.base.engine import Budget, Outcome, Silent, Status
from weft.synth.reductions import solve as solving
from weft.synth.reductions.reduction import Reduction, Steps, Subproblem, run
from weft.synth.reductions.solve import REDUCTIONS, solve

PAIR = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))


class OnlyLatency:
    """An engine that takes one objective, and says what it was given."""

    name: ClassVar[str] = "only-latency"
    cites: ClassVar[str] = ""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @classmethod
    def availability(cls) -> str | None:
        return None

    def refuses(self, problem: Problem) -> str | None:
        return None if problem.objective is Objective.LATENCY else "not latency"

    def solve(self, problem: Problem, budget: Budget, observer: Silent) -> Outcome:
        self.seen.append((problem.objective, budget.seed))
        return Outcome(Status.FEASIBLE, statements=(f"seed {budget.seed}",))


class Twice:
    """A toy: two questions for latency, the second one asked for what the first one answered."""

    name: ClassVar[str] = "twice"

    def fits(self, problem: Problem) -> bool:
        return problem.objective is Objective.FRONTIER

    def apply(self, problem: Problem, budget: Budget, observer: Any, solver: str) -> Steps:
        simple = replace(problem, objective=Objective.LATENCY)
        first = yield Subproblem(simple, budget, observer)
        again = replace(budget, seed=budget.seed + len(first.statements))
        second = yield Subproblem(simple, again, observer)
        statements = (solver, *first.statements, *second.statements)
        return Outcome(Status.FEASIBLE, statements=statements)


def test_a_reduction_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = OnlyLatency()
    problem = Problem(PAIR, make("allgather", 2))
    with pytest.raises(Refusal, match="not latency"):
        solve(problem, engine, Budget(seed=3), Silent())
    toy: Reduction = Twice()
    monkeypatch.setattr(solving, "REDUCTIONS", (*REDUCTIONS, toy))
    outcome = solve(problem, engine, Budget(seed=3), Silent())
    assert outcome.statements == ("only-latency", "seed 3", "seed 4")
    assert engine.seen == [(Objective.LATENCY, 3), (Objective.LATENCY, 4)]


def test_the_first_that_fits_is_applied() -> None:
    def fitting(kind: str) -> list[str]:
        problem = Problem(PAIR, make(kind, 2))
        return [r.name for r in REDUCTIONS if r.fits(problem)]

    assert [r.name for r in REDUCTIONS] == ["phases", "grains", "compose", "reverse"]
    assert fitting("allgather") == []
    assert fitting("reduce_scatter") == ["reverse"]
    assert fitting("allreduce") == ["compose", "reverse"]


def test_what_a_subproblem_raises_ends_the_reduction() -> None:
    def fails(part: Subproblem) -> Outcome:
        raise Refusal("toy", "not this")

    steps = Twice().apply(Problem(PAIR, make("allgather", 2)), Budget(), Silent(), "toy")
    with pytest.raises(Refusal):
        run(steps, fails)

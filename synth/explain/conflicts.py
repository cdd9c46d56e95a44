"""The smallest set of rules of a sketch that exclude each other, and why no schedule obeys them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.sketch import Only, Rule, Sketch
from weft.dsl.nouns.topology import Topology

from ..base.cancellable import cut_off
from ..base.conflict import smallest_conflict
from ..base.engine import Budget, Silent, Status
from ..engines.exact import Exact
from ..reductions.solve import solve
from .feasibility import EXPLAIN_EFFORT, Feasibility

Unit = tuple[Rule, ...]
"""Rules that are left out together."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A minimal set of rules that exclude each other.

    ``why``: the contradiction. ``cures``: those of them without which the whole sketch is possible
    (where there are none, the sketch has another conflict besides).
    """

    rules: tuple[Rule, ...]
    why: str
    cures: tuple[Rule, ...]


def statements(rules: Iterable[Rule]) -> tuple[Unit, ...]:
    """Rules by the statement that they come from, in order.

    ``only`` adds up: with one of several left out less is allowed. So all of them are one.
    """
    found: dict[object, list[Rule]] = {}
    for rule in rules:
        key = Only if isinstance(rule, Only) else rule.span or rule.label
        found.setdefault(key, []).append(rule)
    return tuple(map(tuple, found.values()))


def find_conflict(topology: Topology, collective: Collective, sketch: Sketch) -> Conflict | None:
    """Return a minimal set of rules that leaves some chunk without a path; None if there is none.

    First statements are left out one by one, then the single rules that they stand for (the turns
    of a loop). Each question takes a :class:`Feasibility`.

    Raises:
        UserError: the collective is too large to be looked at chunk by chunk.
    """
    feasible = Feasibility(topology, collective)
    lines = smallest_conflict(statements(sketch.rules), _impossible(feasible))
    if not lines:
        return None
    units = smallest_conflict(
        [part for line in lines for part in _single(line)], _impossible(feasible)
    )
    rules = _flat(units)
    cures = [
        unit
        for unit in units
        if not feasible.obstacle([r for r in sketch.rules if not any(r is x for x in unit)])
    ]
    return Conflict(rules, feasible.obstacle(rules), _flat(cures))


def _impossible(feasible: Feasibility) -> Callable[[Sequence[Unit]], bool]:
    return lambda units: bool(feasible.obstacle(_flat(units)))


def _single(unit: Unit) -> list[Unit]:
    return [unit] if isinstance(unit[0], Only) else [(rule,) for rule in unit]


def _flat(units: Sequence[Unit]) -> tuple[Rule, ...]:
    return tuple(rule for unit in units for rule in unit)


def prove_conflict(
    topology: Topology,
    collective: Collective,
    sketch: Sketch,
    budget: Budget,
) -> Conflict | None:
    """Rules that exclude each other though each chunk by itself has a way, as the engine ``exact``
    proves it within a budget; None where it does not, or the machine is too large."""
    if collective.chunks * collective.ranks > EXPLAIN_EFFORT.provable:
        return None
    problem = Problem(topology, collective, sketch, Objective.LATENCY)
    engine = Exact()
    if engine.availability() is not None:
        return None
    try:
        outcome = solve(problem, engine, budget, cut_off(Silent(), budget))
    except UserError:  # it cannot take such a problem
        return None
    if outcome.status is not Status.INFEASIBLE or not outcome.conflict:
        return None
    rules = tuple(rule for rule in sketch.rules if rule.label in outcome.conflict)
    return Conflict(rules, "; ".join(outcome.statements) or TOGETHER, ())


TOGETHER = "every chunk by itself has a way, but not all of them together (proved by search)"

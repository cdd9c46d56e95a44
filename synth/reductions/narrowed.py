"""Reduction of rules on what switches may compute: the same problem on a machine that can do less.

``switch X: off`` and its like say what casts may do at a switch. So does the machine: a schedule
obeys such a rule where the switch has no more than the rule leaves to it. The narrower machine has
the same nodes and links, and its schedules are schedules of the machine itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import CastPolicy, Sketch
from weft.dsl.nouns.topology import Topology

from ..base.engine import Budget, Observer, Point
from .reduction import Steps, Subproblem, Translated


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Solves on the machine whose switches do only what the sketch leaves to them."""

    name: ClassVar[str] = "narrowed"

    def fits(self, problem: Problem) -> bool:
        """Return whether the sketch has such rules."""
        return problem.sketch is not None and bool(problem.sketch.of(CastPolicy))

    def apply(self, problem: Problem, budget: Budget, observer: Observer, solver: str) -> Steps:
        """Yield the problem without these rules; its answers, on the machine as it is."""
        assert problem.sketch is not None

        def back(point: Point) -> Point:
            return replace(point, schedule=replace(point.schedule, topology=problem.topology))

        rest = tuple(r for r in problem.sketch.rules if not isinstance(r, CastPolicy))
        inner = replace(
            problem,
            topology=narrowed(problem.topology, problem.sketch),
            sketch=replace(problem.sketch, rules=rest) if rest else None,
        )
        outcome = yield Subproblem(inner, budget, Translated(observer, back))
        return replace(outcome, points=tuple(map(back, outcome.points)))


def narrowed(topology: Topology, sketch: Sketch) -> Topology:
    """Return the machine whose switches do only what the rules of a sketch leave to them."""
    nodes = list(topology.nodes)
    for rule in sketch.rules:
        if not isinstance(rule, CastPolicy):
            continue
        node = nodes[rule.switch]
        if rule.allowed is not None:
            reduces = node.reduces and "reduces" in rule.allowed
            multicast = node.multicast and "multicast" in rule.allowed
            node = replace(
                node,
                reduces=reduces,
                multicast=multicast,
                turns=node.turns and reduces and multicast,
                issuer_in_group=node.issuer_in_group and (reduces or multicast),
            )
        if rule.groups is not None:
            most = rule.groups if node.limits.groups is None else node.limits.groups
            node = replace(node, limits=replace(node.limits, groups=min(most, rule.groups)))
        nodes[rule.switch] = node
    return replace(topology, nodes=tuple(nodes))  # declared symmetries are verified before use

"""Message sizes of an objective, and the Pareto frontier of points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology

from ..base.engine import Point
from ..base.meets import meets
from ..bounds.bounds import bounds, lower_bound_us
from ..bounds.distance import Lengths
from ..time.latency import latency_us
from ..time.order import LARGE
from ..time.schedule_time import simulate


def sizes_of(problem: Problem, ladder: Sequence[int]) -> tuple[int, ...]:
    """Return the message sizes in bytes to optimize for; for the frontier, ``ladder``."""
    match problem.objective:
        case Objective.LATENCY:
            return (1,)
        case Objective.BANDWIDTH:
            return (problem.bytes or LARGE,)
        case Objective.TIME:
            return (problem.bytes or 1,)
        case _:
            return tuple(ladder)


def pareto(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto points of (steps, rounds per chunk), by steps; the first of equals."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.steps, p.rounds_per_chunk)):
        if not kept or point.rounds_per_chunk < kept[-1].rounds_per_chunk:
            kept.append(point)
    return kept


def meets_bound(point: Point, problem: Problem) -> bool:
    """Return whether a schedule attains the proved bound at the message size of the problem."""
    size = problem.bytes or 1
    least = lower_bound_us(bounds(problem.topology, problem.collective), size)
    return meets(simulate(point.schedule, size).time_us, least)


def is_of_least_latency(point: Point, problem: Problem) -> bool:
    """Return whether a schedule of proved fewest steps has the least α: that of the bound, or of as
    many of the machine's quickest hops as it has steps."""
    took = latency_us(point.schedule)
    if meets(took, bounds(problem.topology, problem.collective).latency_us):
        return True
    return meets(took, point.steps * _quickest_hop_us(problem.topology))


def _quickest_hop_us(topology: Topology) -> Fraction:
    """Return the least α between two ranks."""
    lengths = Lengths.of(topology)
    apart = lengths.from_each(np.ones(len(lengths.alpha), bool), np.arange(topology.ranks))
    between = apart[:, : topology.ranks][~np.eye(topology.ranks, dtype=bool)]
    return int(between[between >= 0].min(initial=between.max(initial=0))) * lengths.unit

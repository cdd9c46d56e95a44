"""Points of an answer in numbers: for the table, for ``--json``, for the names of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import number, rational
from weft.dsl.nouns.problem import Objective
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.bounds.in_chunks import own_chunk_bound
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_time import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.dsl.nouns.problem import Problem
    from weft.synth.base.engine import Point
    from weft.synth.bounds import Bounds


@dataclass(frozen=True, slots=True)
class PointMetrics:
    """Figures of a point, computed once, since to simulate a large schedule takes seconds."""

    algbw_GBps: Fraction
    latency_us: float

    @staticmethod
    def of(point: Point) -> PointMetrics:
        """Return the figures by simulation, or from the load of the busiest link."""
        return PointMetrics(algbw(point), latency_us(point.schedule))


def algbw(point: Point) -> Fraction:
    """Return GB/s for large messages: M over the simulated time without α, as in ``weft
    simulate``."""

    schedule = point.schedule
    if point.rate is not None:  # in the limit of many segments, exactly
        load = us_per_byte(schedule)
        return 1 / (1000 * load) if load else Fraction(0)
    free = tuple(replace(x, latency=Fraction(0)) for x in schedule.topology.links)
    still = replace(schedule, topology=replace(schedule.topology, links=free, symmetries=()))
    size = 1 << 30
    time = simulate(still, size).time_us
    return Fraction(size / (1000 * time)).limit_denominator(10**6) if time else Fraction(0)


def time_us(point: Point, message_bytes: int) -> float:
    """Return the time (µs) of one message in the documented cost model."""

    return float(simulate(point.schedule, message_bytes).time_us)


def measure(problem: Problem) -> Callable[[Point], tuple[Any, ...]]:
    """Return the objective as a function of a point, least first: for a frontier the rate."""

    if problem.objective is Objective.LATENCY:
        return lambda p: (latency_us(p.schedule), p.steps, p.rounds_per_chunk)
    if problem.objective is Objective.TIME:
        return lambda p: (time_us(p, problem.bytes or 1),)
    return lambda p: (p.rounds_per_chunk, p.steps)


def timer(problem: Problem) -> Callable[[Point], Point] | None:
    """Return a function that adds its time (µs) and the bound on it to a point; None where the
    objective is not a time.

    An engine's own bound, such as that of its given chunks, stays where it is larger.
    """
    if problem.objective not in (Objective.TIME, Objective.LATENCY):
        return None
    size = problem.bytes or 1 if problem.objective is Objective.TIME else None

    @cache
    def proved() -> float:
        found = bounds(problem.topology, problem.collective)
        return float(found.latency_us if size is None else lower_bound_us(found, size))

    def timed(point: Point) -> Point:
        us = latency_us(point.schedule) if size is None else time_us(point, size)
        return replace(point, us=us, least_us=max(point.least_us or 0.0, proved()))

    return timed


def best(points: tuple[Point, ...], problem: Problem) -> Point:
    """Return the point that is best for the problem's objective."""
    if len(points) == 1:  # to simulate a large one takes seconds
        return points[0]
    return min(points, key=measure(problem))


def standing(points: tuple[Point, ...], problem: Problem, bound: Bounds) -> dict[str, Any]:
    """Return ``value`` of the objective and ``gap``: the distance from the proven bound, 0 for
    none."""

    if problem.objective is Objective.FRONTIER:
        if any(p.rounds_per_chunk and not p.bound for p in points):
            return {"value": None, "gap": None}  # a point of which nothing is proved
        gaps = [p.rounds_per_chunk / p.bound - 1 if p.bound else Fraction(0) for p in points]
        return {"value": None, "gap": number(max(gaps, default=None))}
    point = points[0]
    if problem.objective is Objective.BANDWIDTH:
        value = algbw(point)
        return {"value": number(value), "gap": _gap(float(bound.algbw_GBps or 0), float(value))}
    if problem.objective is Objective.LATENCY:
        took, least = latency_us(point.schedule), bound.latency_us
    else:
        took, least = time_us(point, problem.bytes or 1), lower_bound_us(bound, problem.bytes or 1)
    return {"value": number(took), "gap": _gap(took, float(least))}


def in_chunks(point: Point, problem: Problem) -> dict[str, Any]:
    """Return ``in_chunks``, the bound for schedules in the same pieces and the distance from it;
    nothing where the objective is not a time, or the bound is not known."""
    if problem.objective is not Objective.TIME:
        return {}
    size = problem.bytes or 1
    own = own_chunk_bound(point.schedule, size)
    if own is None:
        return {}
    return {"in_chunks": own.to_json() | {"gap": number(own.gap(time_us(point, size)))}}


def _gap(larger: float, smaller: float) -> float:
    return max(0.0, larger / smaller - 1) if smaller else 0.0


def point_json(point: Point, figures: PointMetrics, file: str | None) -> dict[str, Any]:
    """Return one entry of ``points``."""
    return {
        "chunks": point.factor,
        "steps": point.steps,
        "rounds": point.rounds,
        "rounds_per_chunk": rational(point.rounds_per_chunk),
        "bound": rational(point.bound),
        "algbw_GBps": number(figures.algbw_GBps),
        "latency_us": number(figures.latency_us),
        "segments": point.schedule.segments,
        "best_at": list(point.sizes),
        "found_by": point.schedule.provenance.get("found_by"),
        "optimal": {"latency": point.step_optimal, "bandwidth": point.bandwidth_optimal},
        "proved": point.optimal,
        "certificate": {"kind": point.certificate.kind, "text": point.certificate.text},
        "file": file,
    }


def file_names(points: tuple[Point, ...]) -> list[str]:
    """Return a name for each point; of equal ones the second and later are numbered."""
    names: list[str] = []
    for name in map(file_name, points):
        stem, number = name.removesuffix(".json"), 1
        while name in names:
            number += 1
            name = f"{stem}-{number}.json"
        names.append(name)
    return names


def file_name(point: Point) -> str:
    """Return ``allgather-3steps-7rounds-6chunks.json``; without rounds
    ``…-3steps-6chunks-16segments``."""
    collective = point.schedule.collective
    label = "".join(c if c.isalnum() or c in "_-" else "-" for c in collective.name)
    name = f"{label or collective.kind}-{point.steps}steps"
    if point.rate is None:
        return f"{name}-{point.rounds}rounds-{point.factor}chunks.json"
    return f"{name}-{point.factor}chunks-{point.schedule.segments}segments.json"


# --- turns of a race ------------------------------------------------------------------------------


TURN_COLUMNS = ("engine", "got", "spent", "best", "why", "then")
"""Keys of a turn (:class:`weft.synth.engines.portfolio.members.Turn`); got and spent in units of
effort, best in the unit of the objective."""


def turn_rows(turns: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row of texts for each turn, in the order of :data:`TURN_COLUMNS`."""
    return [
        [
            str(turn["engine"]),
            f"{float(turn['got']):.2f}",
            f"{float(turn['spent']):.2f}",
            "–" if turn["value"] is None else f"{float(turn['value']):,.3f}",
            str(turn["why"]),
            str(turn["then"]),
        ]
        for turn in turns
    ]

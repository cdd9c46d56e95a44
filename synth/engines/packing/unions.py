"""Schedules of custom collectives that are unions of standard ones, from their joint solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.effort import Effort, setting
from ...base.engine import Outcome, Point, Status
from ...base.meter import Meter
from ...bounds import bounds
from ...fabric.occupancy import rounds_per_chunk, us_per_byte
from ...joint.carried import carried_columns
from ...joint.union import has_union, joint_union, union_carriers
from ...time.schedule_tables import Prepared, doubled, prepare
from .trees.demands import moves_pairs


@dataclass(frozen=True, slots=True)
class UnionPackingEffort(Effort):
    """Limits of the search for the number of slices."""

    most_jobs: int = setting(600_000, "slices of transfers that one simulation looks at, at most")
    most_segments: int = setting(256, "slices of the message, at most")
    worse: float = setting(
        1.02, "more slices are not tried once the time is this factor above the best"
    )


UNION_PACKING_EFFORT = UnionPackingEffort()


def packs_union(problem: Problem) -> bool:
    """Return True if a problem is a union, and not of flows of equal chunks, which are paths."""
    collective = problem.collective
    if collective.kind is not Kind.CUSTOM or problem.sketch is not None:
        return False
    if collective.factor != 1 or (not collective.sizes and moves_pairs(collective)):
        return False
    return has_union(problem.topology, collective)


def union_outcome(problem: Problem, sizes: Sequence[int], meter: Meter) -> Outcome:
    """Return the trees and paths of the joint solution, in as many slices as each size needs.

    Raises:
        UserError: a rank is not reached.
    """
    plain = _schedule(problem)
    meter.spend(2 * len(plain))
    tables = prepare(plain)
    points: list[Point] = []
    for size in sizes if problem.objective is not Objective.BANDWIDTH else sizes[:1]:
        if points and meter.over():
            break
        us, segments = _quickest(tables, len(plain), size, meter)
        point = _point(problem, replace(plain, segments=segments), size, us)
        points.append(point)
    best = list({point.schedule.segments: point for point in reversed(points)}.values())[::-1]
    met = problem.objective is Objective.BANDWIDTH and best[0].optimal
    status = Status.OPTIMAL if met else Status.FEASIBLE
    return Outcome(status, tuple(best), (best[0].words,))


def _schedule(problem: Problem) -> Schedule:
    """Return the schedule in one slice."""
    topology, collective = problem.topology, problem.collective
    found = joint_union(topology, collective)
    assert found is not None, "else it was refused"
    shares, columns = carried_columns(union_carriers(topology, found))
    return Schedule.from_columns(topology, collective.cut_further(shares), *columns)


def _quickest(tables: Prepared, jobs: int, size: int, meter: Meter) -> tuple[float, int]:
    """Return the least µs, and the number of slices."""

    def time(segments: int) -> float:
        meter.spend(2 * jobs * segments)
        return tables.time(size, segments=segments)

    effort = UNION_PACKING_EFFORT
    most = min(effort.most_segments, effort.most_jobs // max(1, jobs))
    return min(doubled(time, most, effort.worse))


def _point(problem: Problem, schedule: Schedule, size: int, us: float) -> Point:
    topology, collective = problem.topology, problem.collective
    found, rate = bounds(topology, collective), us_per_byte(schedule)
    above = float(rate / found.us_per_byte - 1) if found.us_per_byte else 0.0
    words = (
        f"trees and paths of the joint solution, {above:.2%} above the bound on the rate: "
        f"{len(schedule)} transfers, {schedule.segments} slices, {us:.4g} µs at "
        f"{format_bytes(size)}"
    )
    return Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        found.rounds_per_chunk,
        found.certificate,
        sizes=(size,),
        bandwidth_optimal=rate == found.us_per_byte,
        rate=rounds_per_chunk(schedule),
        words=words,
    )

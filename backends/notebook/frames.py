"""Tables of values, for pandas: units are in the names of the columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft.dsl.base.errors import Missing
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule
from weft.synth.base.engine import Outcome, Point
from weft.synth.time.schedule_time import SimulatedTime

from ..report.points import PointMetrics


def frontier(outcome: Outcome) -> Any:
    """Return a row for each of ``outcome.points``, in their order."""
    return _frame(map(point_row, outcome.points))


def point_row(point: Point) -> dict[str, Any]:
    """Return the figures of a schedule of a frontier; exact fractions as texts are beside rates."""
    figures, made_by = PointMetrics.of(point), point.schedule.provenance
    return {
        "steps": point.steps,
        "rounds": point.rounds,
        "chunks": point.factor,
        "rounds_per_chunk": float(point.rounds_per_chunk),
        "bound": float(point.bound),
        "optimal": point.optimal,
        "algbw_GBps": float(figures.algbw_GBps),
        "latency_us": figures.latency_us,
        "segments": point.schedule.segments,
        "found_by": made_by.get("found_by") or made_by.get("engine"),
        "rounds_per_chunk_exact": str(point.rounds_per_chunk),
        "bound_exact": str(point.bound),
    }


def simulation(one: SimulatedTime) -> Any:
    """Return one row."""
    return _frame([time_row(one)])


def simulations(several: Iterable[SimulatedTime]) -> Any:
    """Return a row for each size."""
    return _frame(map(time_row, several))


def time_row(one: SimulatedTime) -> dict[str, Any]:
    """Return time and bandwidths at a size."""
    return {
        "bytes": one.message_bytes,
        "time_us": one.time_us,
        "algbw_GBps": one.algbw_GBps,
        "busbw_GBps": one.busbw_GBps,
        "bound_us": one.bound_us,
        "of_bound": one.of_bound,
    }


def schedule(s: Schedule) -> Any:
    """Return a row for each transfer."""
    columns: dict[str, Any] = {
        "step": s.step,
        "chunk": s.chunk,
        "src": s.src,
        "dst": s.dst,
        "reduce": s.reduce,
        "route": [s.route(i) for i in range(len(s))],
    }
    if s.start_us is not None and s.end_us is not None:
        columns |= {"start_us": s.start_us, "end_us": s.end_us}
    return _pandas().DataFrame(columns)


def library(of: Library) -> Any:
    """Return a row for each collective and size of its grid."""
    return _frame(_sizes(of))


def _sizes(of: Library) -> Iterator[dict[str, Any]]:
    for one in of.tuned:
        baseline = one.baseline_us()
        for at, size in enumerate(one.grid):
            plan = one.pick(size)
            gain = one.gain(at)
            yield {
                "collective": one.name,
                "bytes": size,
                "plan": plan.name,
                "candidate": plan.candidate,
                "protocol": plan.protocol,
                "instances": plan.instances,
                "time_us": one.chosen_us[at],
                "bound_us": one.bound_us[at],
                "baseline_us": baseline[at],
                "runtime_us": None if one.runtime is None else one.runtime.us[at],
                "gain": None if gain is None else gain.ratio,
            }


def _frame(rows: Iterable[dict[str, Any]]) -> Any:
    """Return a table; missing values are NaN, so that a column of numbers stays one of floats."""
    nan = float("nan")
    return _pandas().DataFrame(
        [{key: nan if value is None else value for key, value in row.items()} for row in rows]
    )


def _pandas() -> Any:
    try:
        import pandas  # half a second, and an extra
    except ImportError:
        raise Missing(
            "tables for pandas need pandas, which is not installed",
            hint="pip install 'weft[pandas]'",
        ) from None
    return pandas

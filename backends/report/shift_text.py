"""Texts and facts of jobs that are shifted in time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from weft.dsl.base.tables import facts, microseconds, number, table
from weft.synth.ordering.jobs import SharedJobs


def shift_text(found: SharedJobs) -> str:
    """Return shifts and iterations of the jobs, and how sure it is."""
    shifts = found.shifts
    rows = [
        (
            job.name,
            microseconds(float(job.period)),
            microseconds(float(shift)),
            microseconds(before),
            microseconds(after),
        )
        for job, shift, before, after in zip(
            found.jobs, shifts.us, found.before_us, found.after_us, strict=True
        )
    ]
    names = ("job", "period µs", "shift µs", "iteration before", "after")
    return "\n\n".join(
        [
            table(names, rows),
            facts(
                [
                    ("common period", f"{microseconds(float(shifts.common_us))} µs"),
                    ("excess before", _excess(found, shifts.before)),
                    ("excess", f"{_excess(found, shifts.excess)}, {_proof(found)}"),
                    ("score", f"{float(shifts.score):.4g}"),
                    ("drift", _drift(found)),
                ]
            ),
            verdict(found),
        ]
    )


def _excess(found: SharedJobs, us: Fraction) -> str:
    return f"{float(us):,.6g} µs of {float(found.shifts.common_us):,.6g} µs"


def _proof(found: SharedJobs) -> str:
    if not found.shifts.excess:
        return "so the jobs do not touch"
    if found.shifts.optimal:
        return "proved least"
    return f"at least {float(found.shifts.bound):,.6g} µs is proved"


def _drift(found: SharedJobs) -> str | None:
    drift = found.shifts.drift_us
    if drift is None:
        return None
    if not drift:
        return "none: a job that is late at all meets another"
    return f"a job may be late or early by {float(drift):,.6g} µs"


def verdict(found: SharedJobs) -> str:
    """Return in one sentence what shifts gain."""
    shifts = found.shifts
    if not shifts.by_resource:
        return "the jobs share no resource: no shift is needed"
    if not shifts.before:
        return "the jobs do not touch even unshifted"
    if not shifts.helps:
        sure = "no shift helps" if shifts.optimal else "no shift was found that helps"
        return f"{sure}: the excess stays {float(shifts.excess):,.6g} µs"
    if shifts.excess:
        rest = "no shift removes the rest" if shifts.optimal else "the rest was not removed"
        return f"shifts help, and {rest}: {float(shifts.excess):,.6g} µs"
    return "it holds while the periods stay as told: jobs that drift meet again"


def shift_facts(found: SharedJobs) -> dict[str, Any]:
    """Return the object of ``--json``."""
    shifts = found.shifts
    data: dict[str, Any] = {
        "jobs": [
            {
                "name": job.name,
                "period_us": number(job.period),
                "shift_us": number(shift),
                "iteration_before_us": number(before),
                "iteration_us": number(after),
            }
            for job, shift, before, after in zip(
                found.jobs, shifts.us, found.before_us, found.after_us, strict=True
            )
        ],
        "shifts": [number(shift) for shift in shifts.us],
        "common_us": number(shifts.common_us),
        "excess_before_us": number(shifts.before),
        "excess_us": number(shifts.excess),
        "bound_us": number(shifts.bound),
        "optimal": shifts.optimal,
        "helps": shifts.helps,
        "score": number(shifts.score),
        "drift_us": number(shifts.drift_us),
        "resources": {name: number(us) for name, us in shifts.by_resource.items()},
        "verdict": verdict(found),
    }
    if found.widths and set(shifts.by_resource) <= set(found.widths):
        data["excess"] = number(_kilobytes(found))
    return data


def _kilobytes(found: SharedJobs) -> Fraction:
    """Return the excess in GB/s times µs, that is in 1000 bytes."""
    by_resource = found.shifts.by_resource.items()
    return sum((us * found.widths[name] for name, us in by_resource), Fraction(0))

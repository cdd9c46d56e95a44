"""Tuned libraries in the verbs: as text, and as facts for ``--json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import facts, microseconds, table
from weft.dsl.base.units import format_binary
from weft.dsl.nouns.program import protocol_of

from ...report.model_numbers import assumed_words
from ...report.sheets import idea_words, plan_words
from ...tune.library_model import library_model

if TYPE_CHECKING:
    from weft.dsl.nouns.library import Library, PlanChange, RuntimeTimes, Tuned


def library_text(library: Library) -> str:
    """Return a library's machine, runtime and plans as text."""
    timing = ", ".join(f"{k} {_plain(v)}" for k, v in library.timing.items())
    head = facts(
        [
            ("library", library.name),
            ("topology", library.topology.name),
            ("sizes", f"{format_binary(library.low)} … {format_binary(library.high)}"),
            ("timed", timing),
            ("assumed", assumed_of(library)),
            ("made by", ", ".join(f"{k} {_plain(v)}" for k, v in library.provenance.items() if v)),
        ]
    )
    return f"{head}\n\n{tables(library)}"


def assumed_of(library: Library) -> str:
    """Return in words the assumptions of the times of a library's plans; empty without any."""
    protocols = {protocol_of(plan.protocol) for one in library.tuned for plan in one.plans}
    return assumed_words(library_model(library), protocols)


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def tables(library: Library) -> str:
    """Return the tables of the plans, one per collective."""
    parts = (f"{t.name}:\n{tuned_text(t)}" for t in library.tuned)
    return "\n\n".join(parts)


def tuned_text(one: Tuned) -> str:
    """Return the table of one collective's plans: sizes, plan, time, and gain.

    Gains over the runtime's own programs come first, where these are known; then those over known
    algorithms as files, and the ratio to the bound. Below it the sizes from which another algorithm
    or protocol is used.
    """
    own = one.runtime
    head = ["plan", "from", "to", "what", "by", "µs"]
    if own:
        name = own.name.partition(" ")[0]
        head += [f"µs less than {name}", f"{name}/plan", f"{name}/plan without starts"]
    head += ["baseline/plan", "over schedule's bound"]
    head += ["over runtime's bound"] if one.runtime_bound_us else []
    rows = []
    base = one.baseline_us()
    for plan in one.plans:
        at = [i for i, n in enumerate(one.grid) if plan.low <= n <= plan.high]
        us = [one.chosen_us[i] for i in at]
        over = [one.chosen_us[i] / one.bound_us[i] for i in at if one.bound_us[i]]
        gain = [b / one.chosen_us[i] for i in at if (b := base[i]) is not None and one.chosen_us[i]]
        row = [
            plan.name,
            format_binary(plan.low),
            format_binary(plan.high),
            plan_words(one, plan),
            plan.engine,
            _span(us, microseconds),
        ]
        if own:
            gains = [found for i in at if (found := one.gain(i)) is not None]
            row += [
                _span([g.us for g in gains], microseconds),
                _span([g.ratio for g in gains], _ratio),
                _span([g.run_ratio for g in gains], _ratio),
            ]
        program = [x for i in at if (x := one.over_runtime(i)) is not None]
        more = [_span(program, _ratio)] if one.runtime_bound_us else []
        rows.append([*row, _span(gain, _ratio), _span(over, _ratio), *more])
    return "\n".join([table(head, rows), *map(_change, one.changes()), *one.remarks])


def _change(one: PlanChange) -> str:
    after, before = idea_words(one.after), idea_words(one.before)
    return f"from {format_binary(one.bytes)}: {after} instead of {before}"


def recipes(library: Library) -> str:
    """Return the exact recipe of every plan: schedule and compile options."""
    rows = [[p.name, p.candidate, p.engine] for one in library.tuned for p in one.plans]
    return table(["plan", "recipe", "by"], rows)


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _span(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Return a range as ``1.41..2.75``, or one value where both ends print alike."""
    if not values:
        return "-"
    ends = dict.fromkeys((show(min(values)), show(max(values))))
    return "..".join(ends)


def library_facts(library: Library) -> dict[str, Any]:
    """Return the facts for ``--json``: the plans, and times at every size of the grid."""
    return {
        "topology": library.topology.name,
        "ranks": library.topology.ranks,
        "low": library.low,
        "high": library.high,
        "timing": dict(library.timing),
        "libraries": [_tuned_facts(one) for one in library.tuned],
    }


def _tuned_facts(one: Tuned) -> dict[str, Any]:
    columns = zip(one.grid, one.chosen_us, one.bound_us, one.baseline_us(), strict=True)
    own = one.runtime
    return {
        "collective": one.name,
        "plans": [
            {
                "name": p.name,
                "low": p.low,
                "high": p.high,
                "candidate": p.candidate,
                "engine": p.engine,
                "protocol": p.protocol,
                "instances": p.instances,
                "schedule": p.schedule,
                "files": [a.file for a in p.artefacts],
            }
            for p in one.plans
        ],
        "bound": dict(one.bound),
        "sizes": [
            {"bytes": n, "us": us, "bound_us": least, "baseline_us": base, **more}
            for (n, us, least, base), more in zip(columns, _least_facts(one), strict=True)
        ],
        "changes": [
            {"bytes": c.bytes, "what": c.what, "before": c.before, "after": c.after}
            for c in one.changes()
        ],
        **({} if own is None else {"runtime": _runtime_facts(one, own)}),
        "remarks": list(one.remarks),
    }


def _least_facts(one: Tuned) -> list[dict[str, Any]]:
    """Return the least time of any program of the runtime at each size, where it is known."""
    if not one.runtime_bound_us:
        return [{}] * len(one.grid)
    return [
        {"runtime_bound_us": us, "over_runtime": one.over_runtime(i)}
        for i, us in enumerate(one.runtime_bound_us)
    ]


def _runtime_facts(one: Tuned, own: RuntimeTimes) -> dict[str, Any]:
    """Return the runtime's own programs, and the gain of the plans over them in µs."""
    gains = [one.gain(i) for i in range(len(one.grid))]
    return {
        "name": own.name,
        "apart": own.apart,
        "sizes": [
            {
                "bytes": one.grid[i],
                "how": own.how[i],
                "us": own.us[i],
                "start_us": own.start_us[i],
                "gained_us": gain.us,
                "ratio": gain.ratio,
                "ratio_without_starts": gain.run_ratio,
                **({"apart_us": own.apart_us[i]} if own.apart else {}),
            }
            for i, gain in enumerate(gains)
            if gain is not None
        ],
    }

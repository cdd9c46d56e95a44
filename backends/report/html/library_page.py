"""Page of a library: the plan for each size, its gain, and a view of each plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.dsl.base.files import parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.library import Library, RuntimeTimes, Tuned, TunedPlan
from weft.dsl.nouns.program import Program, protocol_of
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.schedule import Schedule, load
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, bounds

from ...compile.variants import Variant, variant_of
from ...deploy.guide import TAKES, guide
from ...deploy.launchers import PLACE as FOLDER
from ...deploy.launchers import assigned
from ...tune.library_model import library_choice, library_model, library_runtime
from ..back_ends import advice
from ..sheets import candidate_words, idea_words, source_of
from ..sizes import LIMITS
from .chart import Series, size_charts
from .machine import machine_map
from .page import byte_words, figure, fitted, microseconds
from .schedule import Look
from .schedule_page import Shown, compiled, view_of
from .sheet import (
    Facts,
    assumed_section,
    charts_section,
    head,
    provenance_facts,
    sheet,
    table_section,
    tile,
    views_section,
)

Find = Callable[[str], Schedule | None]
"""Function that returns the verified schedule in a file of the library's folder; None if it is
missing."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanView:
    """Inputs of the view of a plan, which do not depend on the number of its bars."""

    plan: TunedPlan
    shown: Shown
    look: Look
    program: Program | None


def plan_views(library: Library, find: Find) -> list[PlanView]:
    """Return the views of the plans whose schedules are there."""
    programs: dict[tuple[int, Variant], Program | None] = {}
    views = []
    for plan, one in _shown(library, find):
        form = variant_of(plan)
        key = (id(one.schedule), form)  # which `one` keeps alive
        if key not in programs:
            programs[key] = compiled(one.schedule, form.options(MSCCL))
        views.append(PlanView(plan, one, one.look, programs[key]))
    return views


def library_page(
    library: Library, shown: Sequence[PlanView], name: str, most: int = LIMITS.bars
) -> Facts:
    """Return the page of a library, with the views of its plans."""
    t = library.topology
    each = most // max(1, len(shown))
    views = [view_of(one.shown, one.look, one.program, each, full=False) for one in shown]
    at = {id(one.plan): k for k, one in enumerate(shown)}
    sections: list[Facts | None] = [_head(library)]
    for number, tuned in enumerate(library.tuned):
        sections += [
            _plans(tuned, number, at),
            charts_section(
                f"sizes{number}", f"{tuned.name}: time over size", size_charts(*_series(tuned))
            ),
            _gains(tuned, number),
            _changes(tuned, number),
            _candidates(tuned, number),
            _bound(tuned, number),
        ]
    sections.append(views_section("Each plan", EACH) if views else None)
    sections.append(back_end_section(t))
    protocols = {protocol_of(plan.protocol) for one in library.tuned for plan in one.plans}
    sections.append(assumed_section(library_model(library), protocols))
    sections.append(deploy_section(library))
    return sheet(
        "library",
        f"{library.name}: {', '.join(one.name for one in library.tuned)} on {t.name}",
        sections,
        subtitle=name,
        views=views,
        maps=[machine_map(t)],
    )


def library_sections(library: Library) -> list[Facts]:
    """Return the sections that need no script and no file: figures, and plans by size."""
    tables = [_plans(tuned, number, {}) for number, tuned in enumerate(library.tuned)]
    return [_head(library), *tables]


EACH = (
    "The schedule of every plan at a size in the middle of its range; below the links, the "
    "thread blocks of the program that it was compiled to."
)


def _shown(library: Library, find: Find) -> list[tuple[TunedPlan, Shown]]:
    choice, runtime = library_choice(library), library_runtime(library)
    known: dict[str, Bounds] = {}
    found = []
    for plan in (plan for one in library.tuned for plan in one.plans):
        schedule = find(plan.schedule) if plan.schedule else None
        if schedule is None or not schedule.moves:
            continue
        key = repr(
            (schedule.collective.kind, schedule.collective.chunks, schedule.collective.roots)
        )
        if key not in known:
            known[key] = bounds(schedule.topology, schedule.collective)
        size = middle(plan.low, plan.high)
        found.append((plan, Shown(plan.name, schedule, size, known[key], choice, runtime)))
    return found


def middle(low: int, high: int) -> int:
    """Return the power of two in the logarithmic middle of a range; always inside the range."""
    size = 1 << round(math.log2(math.sqrt(low * high)))
    return min(max(size, low), high)


def _head(library: Library) -> Facts:
    how = ", ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in library.timing.items()
    )
    set_ = {key: value for key, value in library.provenance.items() if value not in ([], "")}
    tiles = [
        tile("collectives", str(len(library.tuned)), ", ".join(x.name for x in library.tuned)),
        tile(
            "plans",
            str(sum(len(x.plans) for x in library.tuned)),
            f"{byte_words(library.low)} to {byte_words(library.high)}",
        ),
    ]
    for one in library.tuned:
        tiles += [tile(f"{one.name}: most gained", *told) for told in _most_gained(one)]
    notes = [f"{one.name}: {line}" for one in library.tuned for line in one.remarks]
    t = library.topology
    return head(
        [
            ("topology", f"{t.name}: {t.ranks} GPUs, {t.hosts} host{'s' if t.hosts > 1 else ''}"),
            ("timed", how),
            *provenance_facts(set_),
        ],
        tiles,
        notes,
    )


def _most_gained(one: Tuned) -> Iterator[tuple[str, str]]:
    """Yield the largest gain over the runtime's own programs, else over the best baseline."""
    if own := one.runtime:
        gains = [(gain.ratio, at, gain) for at in range(len(one.grid)) if (gain := one.gain(at))]
        if gains:
            ratio, at, gain = max(gains, key=lambda known: known[:2])
            run = f"{figure(gain.run_ratio)} × without starts"
            words = f"{figure(ratio)} × over {own.name}, {run}, at {byte_words(one.grid[at])}"
            yield f"{signed_us(gain.us)}", words
        return
    ratios = [
        (base / us, size, base - us)
        for base, us, size in zip(one.baseline_us(), one.chosen_us, one.grid, strict=True)
        if base is not None and us
    ]
    if ratios:
        ratio, size, us = max(ratios)
        yield signed_us(us), f"{figure(ratio)} × over the best baseline, at {byte_words(size)}"


def signed_us(us: float) -> str:
    """Return a gain in µs; with a minus where it is a loss."""
    return microseconds(us) if us >= 0 else f"-{microseconds(-us)}"


# --- one collective -------------------------------------------------------------------------------


def _plans(one: Tuned, number: int, at: dict[int, int]) -> Facts:
    rows = [
        {
            "range": f"{size_words(p.low)} – {size_words(p.high)}",
            "name": p.name,
            "view": at.get(id(p)),
            "cells": [
                idea_words(source_of(one, p), p.engine),
                p.engine,
                p.protocol,
                p.instances,
                p.segments,
                ", ".join(
                    f"{a.format}{' in place' if a.in_place else ''}: {a.file}" for a in p.artefacts
                )
                or "–",
            ],
        }
        for p in one.plans
    ]
    return {
        "id": f"plans{number}",
        "title": f"{one.name}: plans by size",
        "part": "plans",
        "rows": rows,
        "head": [
            "message size",
            "plan",
            "algorithm",
            "found by",
            "protocol",
            "instances",
            "segments",
            "files",
        ],
    }


def size_words(size: int) -> str:
    """Return a size in words; one below a round size as ``just below 64 KiB``."""
    text = format_bytes(size + 1)
    if size % 2 and len(text) < len(format_bytes(size)):
        return f"below {byte_words(size + 1)}"
    return byte_words(size)


def _series(one: Tuned) -> tuple[list[Series], Series]:
    grid = one.grid
    lines = [Series("library", list(zip(grid, one.chosen_us, strict=True)), "this")]
    bases = [c for c in one.candidates if c.baseline and any(u is not None for u in c.us)]
    bases.sort(key=lambda c: min(u for u in c.us if u is not None))
    lines += [
        _line(f"baseline {candidate_words(c)}", grid, c.us) for c in bases[: LIMITS.plan_baselines]
    ]
    if own := one.runtime:
        lines.append(_line(own.name, grid, own.us))
        if own.apart:
            lines.append(_line(f"{own.apart} (a time only)", grid, own.apart_us))
    if one.runtime_bound_us:
        lines.append(_line("any program of the runtime, at least", grid, one.runtime_bound_us))
    if any(u is not None for u in one.idea_us):
        lines.append(_line("its schedules without a runtime", grid, one.idea_us))
    return lines, Series("lower bound", list(zip(grid, one.bound_us, strict=True)), "bound")


def _line(name: str, grid: Sequence[int], times: Sequence[float | None]) -> Series:
    return Series(name, [(n, u) for n, u in zip(grid, times, strict=True) if u is not None])


def _gains(one: Tuned, number: int) -> Facts:
    """Return what the plans gain over the runtime's own programs, where these are known, and over
    the best baseline."""
    own = one.runtime
    head = ["message size", "plan", "library"]
    if own:
        head += [f"{own.name} runs", "its time", "µs less", "quicker by", "without starts"]
        head += [f"{own.apart} (a time only)"] if own.apart else []
    head += ["best baseline", "quicker by", "lower bound", "of bound"]
    head += ["any program of the runtime", "over it"] if one.runtime_bound_us else []
    rows: list[list[Any]] = []
    base_us = one.baseline_us()
    for at, size in enumerate(one.grid):
        if size & (size - 1) and len(one.grid) > LIMITS.gain_rows:
            continue
        us, base, least = one.chosen_us[at], base_us[at], one.bound_us[at]
        plan = one.pick(size).name if one.plans[0].low <= size <= one.plans[-1].high else "–"
        row = [byte_words(size), plan, microseconds(us)]
        if own:
            row += _runtime_gain(one, own, at)
        rows.append(
            [
                *row,
                microseconds(base),
                f"{figure(base / us)} ×" if base is not None and us else "–",
                microseconds(least),
                f"{100 * least / us:.1f} %" if us else "–",
                *_least_program(one, at),
            ]
        )
    title = (
        f"{one.name}: gains over {own.name} and known algorithms" if own else f"{one.name}: gains"
    )
    return table_section(f"gains{number}", title, head, rows)


def _least_program(one: Tuned, at: int) -> list[str]:
    """Return the least time of any program of the runtime, and the plan's over it."""
    over = one.over_runtime(at)
    return [] if over is None else [microseconds(one.runtime_bound_us[at]), f"{over:.3f} ×"]


def _runtime_gain(one: Tuned, own: RuntimeTimes, at: int) -> list[str]:
    gain, apart = one.gain(at), [microseconds(own.apart_us[at])] if own.apart else []
    if gain is None:
        return ["–"] * 5 + apart
    ratios = (f"{figure(gain.ratio)} ×", f"{figure(gain.run_ratio)} ×")
    return [own.how[at], microseconds(own.us[at]), signed_us(gain.us), *ratios, *apart]


def _changes(one: Tuned, number: int) -> Facts | None:
    rows = [
        [byte_words(c.bytes), c.what, idea_words(c.before), idea_words(c.after)]
        for c in one.changes()
    ]
    if not rows:
        return None
    head = ("from", "what changes", "below", "from there on")
    return table_section(f"changes{number}", f"{one.name}: where plans change", head, rows)


def _candidates(one: Tuned, number: int) -> Facts:
    wins = {c.name: 0 for c in one.candidates}
    for at in range(len(one.grid)):
        timed = [(c.us[at], c.name) for c in one.candidates if c.us[at] is not None]
        if timed:
            wins[min(timed, key=lambda x: x[0] or 0.0)[1]] += 1
    chosen = {p.candidate for p in one.plans}
    order = sorted(one.candidates, key=lambda c: (c.name not in chosen, -wins[c.name], c.name))
    ends = sorted({0, len(one.grid) // 2, len(one.grid) - 1})
    rows = [
        [
            candidate_words(c),
            "chosen" if c.name in chosen else "baseline" if c.baseline else "",
            wins[c.name],
            *(microseconds(c.us[k]) for k in ends),
        ]
        for c in order[: LIMITS.candidates]
    ]
    hidden = len(order) - LIMITS.candidates
    return table_section(
        f"candidates{number}",
        f"{one.name}: candidates",
        ("candidate", "", "quickest at sizes", *(f"at {byte_words(one.grid[k])}" for k in ends)),
        rows,
        f"{hidden} more candidates are in the library's file." if hidden > 0 else "",
    )


def _bound(one: Tuned, number: int) -> Facts | None:
    """Return the certificates, as the library keeps them."""
    names = (("latency_certificate", "Latency"), ("certificate", "Bandwidth"))
    parts = []
    for key, title in names:
        certificate = one.bound.get(key)
        if isinstance(certificate, dict) and certificate.get("text"):
            parts.append((title, [f"{certificate['text']}."]))
    if not parts:
        return None
    return {
        "id": f"bound{number}",
        "title": f"{one.name}: the bound",
        "part": "certificate",
        "parts": parts,
    }


def back_end_section(topology: Topology) -> Facts:
    """Return the table of back ends that fit a machine, the best first."""
    rows = [
        [x.back_end.format, x.back_end.runtime, ", ".join(x.back_end.frameworks), x.why]
        for x in advice(topology)
        if x.fits
    ]
    head = ("--to", "runtime", "for programs in", "why")
    after = "The first that fits your framework is the one to begin with."
    return table_section("backends", "Which back end", head, rows, after)


def deploy_section(library: Library) -> Facts:
    """Return the settings by which a runtime uses the library, with a place for its folder."""
    found = guide(library, FOLDER)
    rows = [
        f"{one.loader.name}: {one.loader.title}\n  {TAKES[one.loader.format]}; {one.words}"
        for one in found.runtimes
    ]
    parts = [("Which runtime", "\n".join(rows))]
    if found.settings is not None:
        debug = " ".join(assigned(*one) for one in found.settings.loader.debug)
        parts += [
            ("Settings", "\n".join(assigned(*one) for one in found.variables)),
            ("Start with mpirun", found.launch["mpirun"]),
            ("Was it used?", "\n".join([f"With {debug}:", *found.proof])),
        ]
    if found.settings is not None and found.tests:
        parts.append(("Before, after, and the proof", "\n".join(found.tests.values())))
    notes = [
        f"{FOLDER} is the path of this folder, where all hosts see it; weft deploy FOLDER prints "
        "these lines with it, for mpirun, Slurm, torchrun and Kubernetes",
        *found.notes,
    ]
    return {
        "id": "deploy",
        "title": "Next: make a runtime use it",
        "part": "listing",
        "open": True,
        "parts": [{"title": title, "text": text} for title, text in parts],
        "notes": [f"{note[:1].upper()}{note[1:]}." for note in notes],
    }


REPORT = "report.html"
"""File name of the library's page."""


def library_html(library: Library, texts: Mapping[str, str]) -> str:
    """Return the library's page; ``texts``: its files by path in its folder."""

    read: dict[str, Schedule] = {}  # plans of different sizes may have one schedule

    def find(file: str) -> Schedule | None:
        if library.topology.ranks > LIMITS.plan_ranks or file not in texts:
            return None
        text = texts[file]
        if text not in read:
            found = load(parse_json(text, file), file)
            same = found.topology.digest() == library.topology.digest()
            read[text] = replace(found, topology=library.topology) if same else found
        return read[text]

    views = plan_views(library, find)
    return fitted(lambda most: library_page(library, views, library.name, most))[1]

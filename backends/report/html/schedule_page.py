"""Pages of one schedule, of two side by side, and of a frontier of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dsl.base.errors import WeftError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, exact
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, bounds
from weft.synth.explain.critical import gap_words, what_binds
from weft.synth.fabric.occupancy import rounds_per_chunk, us_per_byte
from weft.synth.time.calibrated import DATASHEET, USUAL_CHOICE, ModelChoice
from weft.synth.time.latency import latency_us
from weft.synth.time.program_record import ProgramTimeline
from weft.synth.time.program_time import ProgramClock, ProgramSimulation
from weft.synth.time.runtime_model import RuntimeModel

from ...compile.compile import CompileOptions, lower_schedule
from ..model_numbers import schedule_remark
from ..sizes import LIMITS
from .chart import ChartAxis, Series, chart
from .code import listing
from .machine import machine_map
from .page import byte_words, figure, microseconds, share
from .program_page import (
    baselines,
    bound_curve,
    program_curve,
    program_lanes,
    record,
    schedule_curve,
    spent_facts,
)
from .schedule import Look, compare_section, difference_section, schedule_view
from .sheet import (
    Facts,
    assumed_section,
    certificate_section,
    charts_section,
    curves_section,
    head,
    listing_section,
    own_proof,
    problem_facts,
    provenance_facts,
    sheet,
    tile,
    views_section,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """Verified schedule to be shown: its name, the size to show it at, its bound; the model and
    runtime that time its program."""

    name: str
    schedule: Schedule
    size: int
    bound: Bounds
    choice: ModelChoice = USUAL_CHOICE
    runtime: str | None = None

    @staticmethod
    def of(
        name: str,
        schedule: Schedule,
        size: int | None = None,
        bound: Bounds | None = None,
        choice: ModelChoice = USUAL_CHOICE,
    ) -> Shown:
        """Return a schedule to be shown at the requested size, or the one it was made for."""
        bound = bound or bounds(schedule.topology, schedule.collective)
        return Shown(name, schedule, size or schedule.bytes or LIMITS.message_bytes, bound, choice)

    @property
    def model(self) -> RuntimeModel:
        """Return the model that times the schedule's program."""
        return self.choice.on(self.schedule.topology, self.runtime)

    @property
    def start_notes(self) -> list[str]:
        """Return the addition of a program's call to times by α and β; none by data sheets."""
        told = "" if self.choice.name == DATASHEET else schedule_remark(self.schedule.topology)
        return _sentences([told]) if told else []

    @property
    def look(self) -> Look:
        """Return the simulated schedule."""
        return Look(self.schedule, self.size, what_binds(self.schedule, self.size, self.bound))


def schedule_page(shown: Shown, search: Sequence[Facts] = (), most: int = LIMITS.bars) -> Facts:
    """Return the page of a schedule, with about ``most`` bars at most."""
    s, look = shown.schedule, shown.look
    program = compiled(s)
    view = {**view_of(shown, look, program, most), "facts": None}  # the head has them
    curves = [
        schedule_curve(s, "this schedule", "this"),
        program_curve(program, s.topology, COMPILED_CURVE, shown.model) if program else None,
        *baselines(s.topology, s.collective),
    ]
    words = gap_words(look.found)
    bound = certificate_section(
        shown.bound,
        [
            (
                f"At {byte_words(shown.size)}",
                [look.found.certificate.text + ".", *_sentences(words)],
            ),
            *own_proof(s.provenance),
        ],
    )
    return sheet(
        "schedule",
        _title(s),
        [
            schedule_head(shown, look),
            bound,
            curves_section(curves, bound_curve(shown.bound), CURVES),
            *search,
            views_section(),
            _assumed(shown, program),
            listing_section(listing(program, 6 * most), COMPILED) if program else None,
        ],
        subtitle=shown.name,
        views=[view],
        maps=[map_of(s, view)],
    )


PROOFS = {
    "cut": "a cut",
    "path": "the farthest pair",
    "composite": "a cut, and latency around it",
    "reach": "pairs of ranks that a cut can serve in time",
    "prices": "prices of links",
    "trees": "prices of trees",
    "partition": "a partition",
    "cuts": "weighted cuts",
}
"""Kinds of certificates in words."""


CURVES = (
    "Predicted by simulation: the schedule, the program it compiles to with default options, "
    "and the classic algorithms that are quickest somewhere (as schedules). Schedules are timed by "
    "α and bandwidth alone, the program with the start of a call and what a runtime reaches. "
    "weft bench measures."
)
COMPILED_CURVE = "compiled, thread blocks and all"
COMPILED = "Program, compiled for MSCCL with default options"


def _title(s: Schedule) -> str:
    return f"{s.collective.name or s.collective.kind} on {s.topology.name}"


def _sentences(words: Sequence[str]) -> list[str]:
    return [one[:1].upper() + one[1:] + "." for one in words]


def schedule_head(shown: Shown, look: Look) -> Facts:
    """Return the figures of a schedule at its size, and where it is from."""
    s, found, kind = shown.schedule, look.found, look.found.certificate.kind
    gap = look.time_us / found.bound_us - 1 if found.bound_us else 0.0
    above = "no schedule is quicker" if gap < 5e-7 else f"{100 * gap:.2f} % above the bound"
    tiles = [
        tile(f"time at {byte_words(shown.size)}", microseconds(look.time_us), above),
        tile("lower bound", microseconds(found.bound_us), f"proved: {PROOFS.get(kind, kind)}"),
        tile(
            "algbw",
            f"{figure(found.simulation.algbw_GBps)} GB/s",
            f"busbw {figure(found.simulation.busbw_GBps)} GB/s",
        ),
        tile("steps", str(s.steps), f"α alone {figure(latency_us(s))} µs"),
    ]
    rounds = f"{sum(s.rounds)} ({exact(rounds_per_chunk(s))} per chunk)" if s.rounds else ""
    return head(
        [
            *problem_facts(s.topology, s.collective),
            ("transfers", f"{len(s):,}"),
            ("casts", len(s.casts) or ""),
            ("rounds", rounds),
            ("segments", s.segments if s.segments > 1 else ""),
            ("made for", byte_words(s.bytes) if s.bytes else ""),
            *provenance_facts(s.provenance),
            ("topology digest", s.topology.digest()[:16]),
        ],
        tiles,
        shown.start_notes,
    )


def _assumed(shown: Shown, *programs: Program | None) -> Facts | None:
    protocols = {one.protocol for one in programs if one}
    return assumed_section(shown.model, protocols) if protocols else None


def compiled(schedule: Schedule, options: CompileOptions | None = None) -> Program | None:
    """Return the program of a schedule; None where that is large or impossible."""
    if len(schedule) * schedule.segments > LIMITS.compiled_transfers:
        return None
    try:
        return lower_schedule(schedule, options)
    except WeftError:
        return None


def view_of(
    shown: Shown,
    look: Look,
    program: Program | None = None,
    most: int = LIMITS.bars,
    *,
    full: bool = True,
) -> dict[str, Any]:
    """Return the view of a schedule, with the thread blocks of its program below the links.

    ``full``: every chunk is named; else only some hundreds, where there are many views.
    """
    view = schedule_view(look, shown.name, most if program is None else most // 2, full=full)
    if program is None:
        return view
    ran = _ran(program, shown.schedule.topology, shown.size, shown.choice, shown.runtime)
    if ran is None:
        return view
    run, notes, spent = ran
    lanes, table = program_lanes(run, of=1, links=False, model=shown.model, most=most // 2)
    words = f"of the compiled program, which takes {microseconds(run.time_us)}"
    if run.message_bytes != shown.size:
        words += f" at {byte_words(run.message_bytes)}"
    for lane in lanes:
        lane |= {"words": words, "span": run.time_us}
    view["lanes"] += lanes
    view["items"].append(table)
    view["spent"] = spent_facts(spent)
    view["notes"] += notes
    return view


@kept()
def _ran(
    program: Program, topology: Topology, size: int, choice: ModelChoice, runtime: str | None
) -> tuple[ProgramTimeline, list[str], ProgramSimulation] | None:
    """Return what can be drawn of a run of a program, notes, and what its blocks do; None if it
    does not run on the machine. Kept, as pages are made again with fewer bars."""
    try:
        model = choice.on(topology, runtime)
        run, notes = record(program, topology, size, model)
        return run, notes, ProgramClock(program, topology, model).simulate(run.message_bytes)
    except WeftError:
        return None


def map_of(schedule: Schedule, view: Facts) -> Facts:
    """Return the drawing of a schedule's machine."""
    import numpy as np

    return machine_map(schedule.topology, np.array(view["share"]))


# --- several --------------------------------------------------------------------------------------


def frontier_page(
    title: str, several: Sequence[Shown], search: Sequence[Facts] = (), most: int = LIMITS.bars
) -> Facts:
    """Return the page of a folder of schedules: the best sizes of each, and a view of each."""
    first = several[0].schedule
    looks = [one.look for one in several]
    budget = most // len(several)
    programs = [compiled(one.schedule) for one in several]
    views = [
        view_of(one, look, program, budget, full=len(several) < 4)
        for one, look, program in zip(several, looks, programs, strict=True)
    ]
    curves = [
        schedule_curve(s, f"{k} ({count(s.steps, 'step')}, {s.collective.factor} chunks)")
        for k, s in enumerate((one.schedule for one in several), 1)
    ]
    curves += baselines(first.topology, first.collective)[:2]
    best = min(range(len(several)), key=lambda i: looks[i].time_us)
    tiles = [
        tile("schedules", str(len(several)), "each best at something"),
        tile(
            "fewest steps",
            str(min(x.schedule.steps for x in several)),
            f"at least {several[0].bound.steps} are needed",
        ),
        tile(
            "most algbw",
            f"{figure(max(map(_algbw, several)))} GB/s",
            f"at most {figure(float(several[0].bound.algbw_GBps or 0))} GB/s",
        ),
        tile(
            f"quickest at {byte_words(several[0].size)}",
            microseconds(looks[best].time_us),
            f"number {best + 1}, {share(looks[best].found.simulation.of_bound)} of the bound",
        ),
    ]
    said = [provenance_facts(one.schedule.provenance) for one in several]
    common = [fact for fact in said[0] if all(fact in other for other in said)]
    sections = [
        head(
            [*problem_facts(first.topology, first.collective), *common],
            tiles,
            several[0].start_notes,
        ),
        _frontier(several),
        certificate_section(several[0].bound),
        curves_section(curves, bound_curve(several[0].bound)),
        *search,
        views_section("Each schedule"),
        _assumed(several[0], *programs),
    ]
    return sheet(
        "frontier",
        _title(first),
        sections,
        subtitle=title,
        views=views,
        maps=[map_of(first, views[0])],
    )


def _algbw(one: Shown) -> float:
    load = us_per_byte(one.schedule)
    return float(1 / (1000 * load)) if load else 0.0


def _frontier(several: Sequence[Shown]) -> Facts:
    spots = [(latency_us(one.schedule), _algbw(one)) for one in several]
    most = float(several[0].bound.algbw_GBps or 0)
    least = float(several[0].bound.latency_us)
    xs, ys = [x for x, _ in spots], [y for _, y in spots]
    room = max(0.08 * (max([*xs, least]) - min([*xs, least])), 0.05 * max([*xs, least], default=1))
    x = ChartAxis(
        "α alone, µs (less is better)",
        [max(0.0, min([*xs, least]) - room), max([*xs, least]) + room],
    )
    y = ChartAxis("algbw of large messages, GB/s (more is better)", [0.0, max([*ys, most]) * 1.08])
    ends = x.values
    lines = [
        Series("bandwidth bound", [(ends[0], most), (ends[1], most)], "bound"),
        Series(
            "schedules",
            spots,
            "this",
            marks=True,
            labels=[f"{k}: {one.schedule.steps} steps" for k, one in enumerate(several, 1)],
        ),
    ]
    rows = [
        [
            f"{k}",
            one.schedule.steps,
            sum(one.schedule.rounds) or "–",
            one.schedule.collective.factor,
            exact(rounds_per_chunk(one.schedule)),
            f"{figure(bw)} GB/s",
            f"{figure(alpha)} µs",
            one.schedule.segments,
            one.name,
        ]
        for k, (one, (alpha, bw)) in enumerate(zip(several, spots, strict=True), 1)
    ]
    names = ("steps", "rounds", "chunks per rank", "rounds per chunk", "algbw", "α alone")
    return charts_section(
        "frontier",
        "The frontier",
        [chart("Latency against bandwidth", x, y, lines)],
        (*names, "segments", "file"),
        rows,
        first="number",
        beside=True,
    )


def pair_page(one: Shown, other: Shown, most: int = LIMITS.bars) -> Facts:
    """Return the page of two schedules side by side."""
    looks = [one.look, other.look]
    programs = [compiled(x.schedule) for x in (one, other)]
    views = [
        view_of(x, look, program, most // 2)
        for x, look, program in zip((one, other), looks, programs, strict=True)
    ]
    same = one.schedule.topology.digest() == other.schedule.topology.digest()
    views[1]["map"] = 0 if same else 1
    maps = [map_of(one.schedule, views[0])]
    if not same:
        maps.append(map_of(other.schedule, views[1]))
    curves = [
        schedule_curve(x.schedule, name, style)
        for x, name, style in ((one, f"A: {one.name}", "this"), (other, f"B: {other.name}", ""))
    ]
    sections = [
        compare_section(_said(one, looks[0]), _said(other, looks[1]), one.name, other.name),
        curves_section(curves, bound_curve(one.bound) if same else None),
        difference_section(looks[0], looks[1]) if same else None,
        views_section("Side by side"),
        _assumed(one, *programs),
    ]
    return sheet(
        "two schedules", f"{one.name} and {other.name}", sections, views=views, maps=maps, pair=True
    )


def _said(one: Shown, look: Look) -> list[tuple[str, object]]:
    s, found = one.schedule, look.found
    return [
        *problem_facts(s.topology, s.collective),
        ("message", byte_words(one.size)),
        ("time", microseconds(look.time_us)),
        ("lower bound", microseconds(found.bound_us)),
        ("of bound", share(found.simulation.of_bound)),
        ("algbw", f"{figure(found.simulation.algbw_GBps)} GB/s"),
        ("α alone", f"{figure(latency_us(s))} µs"),
        ("most algbw, large messages", f"{figure(_algbw(one))} GB/s"),
        ("steps", s.steps),
        ("transfers", f"{len(s):,}"),
        ("casts", len(s.casts) or ""),
        ("chunks", s.collective.chunks),
        ("segments", s.segments),
        ("busiest", f"{found.name}, {share(found.share)} of the time"),
        *provenance_facts(s.provenance),
    ]

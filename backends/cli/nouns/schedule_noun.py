"""Schedules as files: verified, simulated by the α–β model, compared."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.tables import count
from weft.dsl.base.units import format_bytes, parse_size_range
from weft.dsl.nouns import schedule
from weft.dsl.nouns.schedule import Schedule, move_words
from weft.synth.fabric.fabric import fabric_of
from weft.synth.fabric.occupancy import links_used
from weft.synth.judge.verify import require_valid, verify
from weft.synth.time.schedule_tables import CostModel
from weft.synth.time.schedule_time import SimulatedTime, simulate

from ...check.checks import Check
from ...formats.listings import Sheet, Sheets, Value, digest_of
from ...report.model_numbers import program_starts, schedule_remark
from ...report.report import problem_json
from ...report.sheets import link_names, plain, times
from ...report.sizes import TEXT
from ...report.text import schedule_text
from ..flags.files import CheckFlags, DiffFlags, SimulateFlags
from ..flags.values import LIMITS
from ..inputs.machines import on_machine
from ..output.console import Console
from .noun import (
    USUAL_SIZES,
    FileKind,
    Noun,
    SimulationSetup,
    Subject,
    compared_sizes,
    refuse_flags,
)

RUNTIME_FLAGS = (
    *("protocol", "target", "local_bandwidth", "model", "timing"),
    *("group", "collective", "root", "roots"),
)


class ScheduleNoun(Noun):
    """Schedules: verified, simulated by the α–β model."""

    kind = FileKind.SCHEDULE

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Verify the schedule, also against the sketch of ``-s``."""
        schedule = subject.schedule()
        sketch = None
        if args.sketch:
            from ..inputs.sketches import read_sketch  # Lark takes 100 ms to load

            sketch = read_sketch(args.sketch, schedule.topology, schedule.collective, console)
        verdict = verify(schedule, sketch)
        size = f"{move_words([schedule])} in {count(schedule.steps, 'step')}"
        facts = f"{size}, {schedule.collective}"
        checks = [Check("form", True, f"{facts} on {schedule.topology.name}")]
        if verdict.ok:
            obeys = f", and the sketch {sketch.name}" if sketch else ""
            checks.append(Check("schedule", True, f"achieves its collective{obeys}"))
            return checks + _part_checks(schedule)
        return checks + [Check("schedule", False, str(problem)) for problem in verdict.problems]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return facts, steps, and a chart of small schedules."""
        schedule = subject.schedule()
        collective = schedule.collective
        return schedule_text(schedule), {
            **problem_json(schedule.topology, collective),
            "steps": schedule.steps,
            "rounds": sum(schedule.rounds),
            "chunks": collective.factor,
            "segments": schedule.segments,
            "transfers": len(schedule),
            "provenance": dict(schedule.provenance),
        }

    def timed(self, subject: Subject, args: SimulateFlags) -> SimulationSetup:
        """Return the simulation by the α–β model, under the rule that flags choose."""
        refuse_flags(
            args, RUNTIME_FLAGS, "is for programs; a schedule has none of its own", subject
        )
        schedule = verified_schedule(subject, args.topology)
        model = CostModel(args.alpha_occupies, args.store_and_forward, args.overhead, args.barrier)

        def evaluate(message_bytes: int, least: float) -> SimulatedTime:
            return simulate(schedule, message_bytes, model, bound_us=least)

        sizes = parse_size_range(USUAL_SIZES)
        return SimulationSetup(
            schedule.topology,
            schedule.collective,
            evaluate,
            {"program_start_us": program_starts(schedule.topology)},
            sizes,
            remark=schedule_remark(schedule.topology),
        )

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return facts, times, loads and transfers; no times for a wrong or too large schedule."""
        schedule = subject.schedule()
        timed = on_machine(schedule, args.topology) if args.topology else schedule
        sheets = schedule_sheets(schedule)
        wrong = not verify(schedule).ok
        large = len(schedule) * schedule.segments > LIMITS.compared_slices
        if wrong or large:
            why = "it is wrong; `weft check` says why" if wrong else "it has too many transfers"
            console.warn(f"{subject.where}: not simulated: {why}")
            return sheets
        time = times(compared_sizes(args), lambda size: simulate(timed, size).time_us)
        return {"facts": sheets.pop("facts"), **time, **sheets}


def _part_checks(schedule: Schedule) -> list[Check]:
    checks = [
        Check(
            f"part {one.name}",
            True,
            f"{one.kind} of {count(len(one.group), 'rank')}, {format_bytes(one.bytes)}",
        )
        for one in schedule.parts
    ]
    if checks:
        checks.append(Check("launch", True, "one order for all ranks: no deadlock"))
    return checks


def verified_schedule(subject: Subject, topology: str | None) -> Schedule:
    """Return the verified schedule of a file, with another machine's costs if one is named."""
    schedule = subject.schedule()
    if topology:
        schedule = on_machine(schedule, topology)
    require_valid(schedule)
    return schedule


def schedule_sheets(s: Schedule) -> dict[str, Sheet]:
    """Return facts, the load of every link and shared resource, and all transfers."""
    made = s.provenance
    facts: dict[str, Value] = {
        "collective": str(s.collective),
        "topology": s.topology.name,
        "machine": s.topology.digest()[:16],
        "chunks": s.collective.factor,
        "steps": s.steps,
        "rounds": sum(s.rounds) or None,
        "transfers": len(s),
        **({"casts": len(s.casts)} if len(s.casts) else {}),
        "segments": s.segments,
        "planned order": s.planned,
        "made for bytes": s.bytes,
        **{key: plain(made.get(key)) for key in ("engine", "found_by", "seed")},
        "digest": digest_of(schedule.dumps(replace(s, provenance={}))),
    }
    sheets: dict[str, Sheet] = {
        "facts": facts,
        f"bytes of {format_bytes(LIMITS.load_bytes)}": _loads(s),
    }
    if len(s) <= TEXT.compared_rows:
        sheets["transfers"] = _transfers(s)
    if 0 < len(s.casts) <= TEXT.compared_rows:
        sheets["casts"] = _casts(s)
    return sheets


def _loads(s: Schedule) -> Sheet:
    t = s.topology
    fabric = fabric_of(t)
    links, _, chunk = links_used(s)
    position, rows = fabric.resources_of(links)
    grains = s.collective.grains[chunk[position]]
    load = np.zeros(fabric.resources)
    np.add.at(load, rows, grains)
    load *= LIMITS.load_bytes / s.collective.message_chunks
    names = [*link_names(t), *(f"shared {r.name}" for r in t.resources)]
    return {name: float(x) for name, x in zip(names, load, strict=True) if x}


def _casts(s: Schedule) -> Sheet:
    names = link_names(s.topology)
    sheet: dict[str, Value] = {}
    for i, one in enumerate(s.casts):
        ends = " -> ".join(",".join(map(str, x)) for x in (one.sources, one.destinations))
        does = "adds" if one.reduce else "stores"
        way = ", ".join(names[k] for k in one.links)
        sheet[f"cast {i}"] = f"step {one.step}: chunk {one.chunk} {ends} {does} over {way}"
    return sheet


def _transfers(s: Schedule) -> Sheet:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in s:
        way = ",".join(map(str, one.route))
        kind = "+>" if one.reduce else "->"
        name = f"chunk {one.chunk}: {one.src} {kind} {one.dst}"
        found[name].append(f"step {one.step + 1} over {way}")
    return {name: "; ".join(sorted(steps)) for name, steps in found.items()}

"""Simulated runs with the start and end of every transfer or operation, as text or for drawings."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.base.errors import UserError, an
from weft.dsl.base.tables import facts, microseconds, table
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.timeline import Timeline, timeline

from ...formats.format import Requirements
from ...report.sizes import LIMITS, TEXT
from ...report.text import cut_table, rank_fills
from ..flags.files import ShowFlags
from ..inputs.machines import read_topology
from ..inputs.models import chosen_model
from .noun import FileKind, Subject
from .program_noun import ProgramNoun
from .program_simulation import no_machine, sizes_of
from .schedule_noun import verified_schedule


def timed_text(subject: Subject, args: ShowFlags) -> str:
    """Return a simulation as text, for ``weft show`` with ``--size`` or ``-t``.

    The header of a stream has its time: the text is empty.
    """
    if subject.kind == FileKind.SCHEDULE:
        return run_text(schedule_timeline(subject, args))
    if isinstance(subject.noun, ProgramNoun):
        return program_run_text(program_timeline(subject.noun, subject, args, "simulated"))
    if subject.kind == FileKind.STREAM:
        return ""
    raise UserError(
        f"{an(subject.kind)} takes no time", where=subject.where, hint="leave --size and -t out"
    )


def schedule_timeline(subject: Subject, args: ShowFlags) -> Timeline:
    """Return the start and end of every transfer of the schedule in a file."""
    schedule = verified_schedule(subject, args.topology)
    return timeline(schedule, args.size or schedule.bytes or LIMITS.message_bytes)


def program_timeline(
    noun: ProgramNoun, subject: Subject, args: ShowFlags, done: str
) -> ProgramTimeline:
    """Return the start and end of every operation, on the machine that is named.

    Raises:
        UserError: no machine is named, or the subject lacks a program.
    """
    noun.require(subject, done)
    machine = read_topology(args.topology) if args.topology else noun.machine(subject)
    if machine is None:
        raise no_machine(subject)
    held = noun.held(subject, Requirements(may_hang=True), done)
    usual = sizes_of(held)
    size = args.size or min(max(LIMITS.message_bytes, usual.low), usual.high)
    return record_program(held.program, machine, size, chosen_model(args).on(machine))


def run_text(run: Timeline) -> str:
    """Return the time, the use of every link and shared resource, and the sends of each rank as
    text."""
    s = run.schedule
    head = facts(
        [
            ("time", f"{microseconds(run.time_us)} µs at {format_bytes(run.message_bytes)}"),
        ]
    )
    links = len(s.topology.links)
    names = [
        f"{s.topology.nodes[x.src].name} -> {s.topology.nodes[x.dst].name}"
        for x in s.topology.links
    ]
    parts = [head, _used(run, "link", names, 0)]
    if (run.held_row >= links).any():
        shared = [r.name for r in s.topology.resources]
        parts.append(_used(run, "shared", shared, links))
    if s.topology.ranks <= TEXT.gantt_ranks and run.time_us:
        parts.append(_gantt(run))
    return "\n\n".join(parts)


def _used(run: Timeline, noun: str, names: list[str], first: int) -> str:
    """Return a table of rows of one sort, the busiest first: bytes, µs in use, first and last
    use."""
    capacities = run.schedule.topology.capacities()
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    rows: list[tuple[float, tuple[object, ...]]] = []
    for i, name in enumerate(names):
        at = np.flatnonzero(run.held_row == first + i)
        if not len(at):
            continue
        begin, end = run.start_us[owner[at]], run.held_until_us[at]
        busy = float((end - begin).sum())
        speed = float(capacities[first + i])
        rows.append(
            (
                -busy,
                (
                    name,
                    format_bytes(round(busy * speed * 1000)),
                    f"{speed:.4g}",
                    microseconds(busy),
                    f"{busy / run.time_us:.0%}",
                    microseconds(float(begin.min())),
                    microseconds(float(end.max())),
                ),
            )
        )
    rows.sort(key=lambda row: row[0])
    head = (noun, "bytes", "GB/s", "busy µs", "use", "from µs", "to µs")
    return cut_table("", table(head, (row for _, row in rows)))


def _gantt(run: Timeline) -> str:
    """Return a chart with a row per rank; each cell shows the use of its outgoing links."""
    s = run.schedule
    fills = rank_fills(s.topology, s.topology.links, _use(run, s))
    lines = [f"{name} |{''.join(marks)}|" for name, marks in fills]
    end = f"{microseconds(run.time_us)} µs"
    axis = f"{'':8}  0{end:>{TEXT.timeline_cells - 1}}"
    return "\n".join(["use of the outgoing links of every rank over time:", *lines, axis])


def _use(run: Timeline, s: Schedule) -> Floats:
    """Return the share of each part of the time in which each link is held; shape (links,
    parts)."""
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    link = run.held_row < len(s.topology.links)
    row = run.held_row[link]
    begin = run.start_us[owner][link] / run.time_us * TEXT.timeline_cells
    end = run.held_until_us[link] / run.time_us * TEXT.timeline_cells
    use = np.zeros((len(s.topology.links), TEXT.timeline_cells))
    for cell in range(TEXT.timeline_cells):
        inside = np.clip(np.minimum(end, cell + 1) - np.maximum(begin, cell), 0, None)
        np.add.at(use[:, cell], row, inside)
    return use


def program_run_text(run: ProgramTimeline) -> str:
    """Return the time as text, with the activities of every thread block."""
    repeats = f"{run.skipped} operations repeat others" if run.skipped else ""
    head = facts(
        [
            ("time", f"{microseconds(run.time_us)} µs at {format_bytes(run.message_bytes)}"),
            ("start", f"{microseconds(run.start_us)} µs of it" if run.start_us else ""),
            ("iterations", run.cut.iterations),
            ("left out", repeats),
        ]
    )
    shown = [a for a in Activity if a is not Activity.DONE]
    spent = np.zeros((run.table.blocks, len(Activity)))
    np.add.at(spent, (run.block[run.phase_of], run.phase), run.phase_end_us - run.phase_start_us)
    gaps: Floats = run.skipped_us  # iterations that repeat others
    whole = run.time_us - float((gaps[:, 1] - gaps[:, 0]).sum())
    used = [a for a in shown if spent[:, a].any()]
    rows = [
        (
            f"rank {run.table.program.block_rank[b]} block {run.table.program.block_index[b]}",
            *(f"{spent[b, a] / whole:.0%}" if whole else "-" for a in used),
        )
        for b in distinct_values(run.block).tolist()
    ]
    title = "of the time" + (" that is not left out" if run.skipped else "")
    return head + "\n\n" + cut_table(title, table(("", *(a.words for a in used)), rows))

"""The charts of runs: which link carries what when, and what thread blocks do."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.tables import count
from weft.synth.fabric.occupancy import row_name
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline
from weft.synth.time.timeline import Timeline

from .scale import OKABE_ITO
from .svg import MOST_ROWS, Piece, Row, gantt_piece, joined
from .trace_schedule import transfer_name

MOST_MARKS = 5_000
"""Bars of a chart beyond which those that touch are drawn as one."""

COLOURS = {
    Activity.SENDING: OKABE_ITO[0],
    Activity.LOCAL: OKABE_ITO[2],
    Activity.LINK: OKABE_ITO[1],
    Activity.MESSAGE: "#dddddd",
    Activity.SLOT: "#c8b8c8",
    Activity.BLOCK: "#b8c8c8",
}
"""What a thread block does."""


def schedule_chart(run: Timeline) -> Piece:
    """A row for every link and shared resource that is held, the busiest first; a colour a step."""
    s = run.schedule
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    hold = run.held_until_us - run.start_us[owner]
    busy = np.zeros(len(s.topology.links) + len(s.topology.resources))
    np.add.at(busy, run.held_row, hold)
    used = [int(row) for row in np.argsort(-busy, kind="stable") if busy[row] > 0]
    rows = []
    for row in sorted(used[:MOST_ROWS]):
        bars = []
        for at in np.flatnonzero(run.held_row == row).tolist():
            passage = int(owner[at])
            i = int(run.transfer[passage])
            colour = OKABE_ITO[int(s.step[i]) % len(OKABE_ITO)]
            words = f"{transfer_name(s, i)}, step {s.step[i] + 1}"
            bars.append((float(run.start_us[passage]), float(run.held_until_us[at]), colour, words))
        if len(owner) > MOST_MARKS:
            bars = joined(bars, run.time_us)
        rows.append(Row(_short(row_name(s.topology, row)), bars))
    hidden = len(used) - len(rows)
    more = f"… and {count(hidden, 'row')} less busy" if hidden > 0 else ""
    return gantt_piece(rows, run.time_us, more)


def _short(name: str) -> str:
    """``link 3 (gpu0 -> gpu1)`` as ``gpu0 -> gpu1``."""
    inside = name.partition("(")[2].rstrip(")")
    return inside or name.removeprefix("resource ")


def program_chart(run: ProgramTimeline) -> Piece:
    """A row for every thread block, with what it does and waits for."""
    blocks = np.unique(run.block).tolist()
    large = len(run.phase) > MOST_MARKS
    rows = []
    for block in blocks[:MOST_ROWS]:
        bars = []
        for at in np.flatnonzero(run.block[run.phase_of] == block).tolist():
            activity = Activity(run.phase[at])
            if large and activity not in (Activity.SENDING, Activity.LOCAL):
                continue
            bars.append(
                (
                    float(run.phase_start_us[at]),
                    float(run.phase_end_us[at]),
                    COLOURS[activity],
                    activity.words,
                )
            )
        name = f"rank {run.table.block_rank[block]} block {run.table.block_id[block]}"
        rows.append(Row(name, joined(bars, run.time_us) if large else bars))
    hidden = len(blocks) - len(rows)
    said = [f"… and {count(hidden, 'thread block')} more"] if hidden > 0 else []
    if run.skipped:
        said.append("iterations that repeat those before are not drawn")
    return gantt_piece(rows, run.time_us, "; ".join(said))

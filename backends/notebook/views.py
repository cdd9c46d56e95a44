"""Display of a value in notebooks: figures, tables and drawings of its page, without script.

A cell's output is small, and made at once: large machines and schedules are shown in words.
"""

from __future__ import annotations

from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Outcome

from ..report.html.library_page import library_sections
from ..report.html.page import fragment, share
from ..report.html.schedule_page import Shown, schedule_head
from ..report.html.sheet import Facts, head
from ..report.html.text_page import machine_tiles
from ..report.sizes import LIMITS
from ..report.svg import SvgPart, drawing, machine_piece
from .frames import point_row


def topology(shown: Topology) -> str | None:
    """Return figures and a drawing."""
    if shown.ranks > LIMITS.notebook_ranks:
        return None
    return fragment([head((), machine_tiles(shown))]) + _drawn(shown.name, machine_piece(shown))


def schedule(s: Schedule) -> str | None:
    """Return time and bound at its size, and the use of the links."""
    if s.topology.ranks > LIMITS.notebook_ranks or not 0 < len(s) <= LIMITS.notebook_transfers:
        return None
    shown = Shown.of("", s)
    look = shown.look
    busy = look.found.simulation.busy_us / (look.time_us or 1.0)
    return fragment([schedule_head(shown, look)]) + _drawn(
        f"{s.topology.name}: links by use", machine_piece(s.topology, busy)
    )


def frontier(outcome: Outcome) -> str | None:
    """Return a table of the schedules."""
    rows = []
    for point in outcome.points:
        row = point_row(point)
        row |= {key: row.pop(f"{key}_exact") for key in ("rounds_per_chunk", "bound")}
        row["algbw_GBps"] = f"{row['algbw_GBps']:.4g}"
        row["latency_us"] = f"{row['latency_us']:.4g}"
        reached = float(point.bound / point.rounds_per_chunk) if point.rounds_per_chunk else 1.0
        row["optimal"] = "yes" if point.optimal else f"{share(reached)} reached"
        rows.append([*row.values()])
    names = [
        "steps",
        "rounds",
        "chunks",
        "rounds per chunk",
        "at least",
        "optimal",
        "algbw, GB/s",
        "α alone, µs",
        "segments",
        "found by",
    ]
    said = [f"{outcome.status}", *outcome.statements[:4], *outcome.conflict[:4]]
    table: Facts = {"part": "table", "head": names, "rows": rows, "title": "schedules"}
    return fragment([head((), (), ["; ".join(said)]), *([table] if rows else [])])


def library(of: Library) -> str | None:
    """Return its figures and its plans by size."""
    return fragment(library_sections(of))


def _drawn(title: str, piece: SvgPart) -> str:
    return f'<div style="max-width:100%;overflow:auto">{drawing(title, [piece])}</div>'

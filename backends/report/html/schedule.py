"""Views of a schedule at one size: the use of links over time, and the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dsl.base.tables import count
from weft.dsl.nouns.schedule import Schedule
from weft.synth.bounds import Bounds
from weft.synth.explain.critical import Binding, gap_words, what_binds
from weft.synth.fabric.fabric import fabric_of
from weft.synth.fabric.occupancy import transfer_of_link
from weft.synth.time.timeline import timeline

from .chunks import FEW_NAMED, MOST_NAMED, chunk_names
from .lanes import MOST_BARS, TICKS, Bars, LaneRow, lane
from .loads import Loads, load_facts, row_order, short_name
from .page import byte_words

COPY, SUM = 0, 1

MOST_SLICES = 60_000
"""Largest transfers times segments that are drawn slice by slice; beyond, a bar per transfer."""


@dataclass(frozen=True, slots=True)
class Look:
    """Schedule simulated for a message of a given size in bytes, with its bound."""

    schedule: Schedule
    message_bytes: int
    found: Binding

    @staticmethod
    def at(schedule: Schedule, message_bytes: int, bound: Bounds) -> Look:
        """Simulate a schedule.

        Raises:
            UserError: nothing moves in it.
        """
        return Look(schedule, message_bytes, what_binds(schedule, message_bytes, bound))

    @property
    def time_us(self) -> float:
        """Return the time in µs until the last arrival."""
        return self.found.simulation.time_us


def schedule_view(
    look: Look, title: str, most: int = MOST_BARS, *, full: bool = True
) -> dict[str, Any]:
    """Return the facts of one view: chart, chunks, loads and bottleneck, at the size of the
    look."""
    s, found = look.schedule, look.found
    number = _numbers(s)
    bars, notes = _bars(look, number)
    t = s.topology
    share = found.simulation.busy_us / look.time_us if look.time_us else found.simulation.busy_us
    rows = [
        LaneRow(short_name(t, i), i, float(share[i]))
        for i in range(len(t.links) + len(t.resources))
    ]
    chart = lane(
        "Links and shared resources", "links", rows, bars, look.time_us, most, row_order(t)
    )
    kept = chart["kept"]
    if not chart["whole"]:
        notes.append(
            f"{kept:,} of {chart['items']:,} transfers are drawn one by one (those of the first "
            "chunks); shades say how full each row is with all of them."
        )
    table = items(s, number, kept, look.time_us)
    return {
        "title": title,
        "us": look.time_us,
        "bytes": look.message_bytes,
        "tick": TICKS,
        "size": byte_words(look.message_bytes),
        "map": 0,
        "share": [round(x, 4) for x in share.tolist()],
        "lanes": [{**chart, "of": 0}],
        "items": [table],
        "chunks": chunk_names(s.collective, MOST_NAMED if full else FEW_NAMED),
        "pieces": [1],
        "chain": [int(number[x.transfer]) for x in found.chain if number[x.transfer] < kept],
        "loads": load_facts(loads_of(look), look.time_us, found.bound_us, found.certificate),
        "facts": _facts(look),
        "notes": notes,
    }


def _numbers(s: Schedule) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of each transfer as an item: chunk after chunk, so that the first are
    complete."""
    number = np.empty(len(s), np.int64)
    number[np.lexsort((s.step, s.chunk))] = np.arange(len(s))
    return number


def _bars(look: Look, number: Any) -> tuple[Bars, list[str]]:
    """Return the bars of each transfer's slices; with very many slices, one bar for each
    transfer."""
    s = look.schedule
    if len(s) * s.segments <= MOST_SLICES:
        run = timeline(s, look.message_bytes)
        passage = np.repeat(np.arange(len(run)), np.diff(run.held_start))
        start, transfer = run.start_us[passage], run.transfer[passage]
        return Bars(
            run.held_row,
            start,
            run.held_until_us - start,
            number[transfer],
            s.reduce[transfer].astype(np.int64),
        ), []
    whole = look.found.simulation
    of = transfer_of_link(s)
    span = (whole.end_us - whole.start_us)[of]
    note = (
        f"Each bar spans all {s.segments} slices of a transfer; the gaps between them are not "
        "drawn, nor are shared resources."
    )
    return Bars(
        s.route_links.astype(np.int64),
        whole.start_us[of],
        span,
        number[of],
        s.reduce[of].astype(np.int64),
    ), [note]


def items(s: Schedule, number: Any, kept: int, span: float) -> dict[str, Any]:
    """Return for each item its chunk and route; routes with the ticks of their α."""
    scale = TICKS / span if span else 0.0
    routes: dict[tuple[int, ...], int] = {}
    which = [0] * kept
    chunk = [0] * kept
    for i in np.flatnonzero(number < kept).tolist():
        which[number[i]] = routes.setdefault(s.route(i), len(routes))
        chunk[number[i]] = int(s.chunk[i])
    links = s.topology.links
    late = [round(float(sum(links[i].latency for i in route)) * scale) for route in routes]
    return {
        "set": chunk,
        "route": which,
        "sets": None,
        "routes": [list(route) for route in routes],
        "late": late,
    }


def loads_of(look: Look) -> Loads:
    """Return the bytes over each link and resource."""
    s = look.schedule
    fabric = fabric_of(s.topology)
    moved = np.zeros(fabric.resources)
    grain = look.message_bytes / s.collective.message_chunks
    carried = grain * s.collective.grains[s.chunk[transfer_of_link(s)]]
    np.add.at(moved, s.route_links.astype(np.int64), carried)
    for row, resource in s.topology.shared_rows():
        moved[row] = moved[list(resource.links)].sum()
    return Loads(s.topology, moved, look.found.simulation.busy_us)


def _facts(look: Look) -> dict[str, Any]:
    """Return the facts in words."""
    s, found = look.schedule, look.found
    run = found.simulation
    return {
        "time_us": run.time_us,
        "bound_us": found.bound_us,
        "of_bound": run.of_bound,
        "algbw_GBps": run.algbw_GBps,
        "busbw_GBps": run.busbw_GBps,
        "certificate": found.certificate.text,
        "certificate_kind": found.certificate.kind,
        "gap": gap_words(found),
        "busiest": found.name,
        "busy_share": found.share,
        "steps": s.steps,
        "transfers": len(s),
        "segments": s.segments,
        "chain": count(len(found.chain), "transfer") if found.chain else "",
    }

"""Gantt charts, and the loads of links.

Charts: rows of bars, each bar a stretch of time that some item holds the row.

An *item* is one transfer of a schedule or one operation of a program. Times are whole ticks, of
which the whole chart has ``LIMITS.ticks``; bars are stored as differences, so that a file of many
thousand stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Certificate

from ..sizes import LIMITS

WORDS = (
    "copy",
    "sum at the receiver",
    "waits for a message",
    "waits for a slot",
    "waits for a block",
    "queues for links",
    "sends",
    "works locally",
)
"""Meaning of bars, by their kind."""


@dataclass(frozen=True, eq=False)
class Bars:
    """Columns: the row, start and length in µs, the item, and its ``kind``."""

    row: Ints
    start: Floats
    length: Floats
    item: Ints
    kind: Ints

    def of(self, kept: Ints | Bools) -> Bars:
        """Return a selection of the bars, or all in another order."""
        return Bars(
            self.row[kept], self.start[kept], self.length[kept], self.item[kept], self.kind[kept]
        )


@dataclass(frozen=True, slots=True)
class LaneRow:
    """Name of a row, the number of its link or resource (-1: neither), and its share of the
    time."""

    name: str
    link: int
    busy: float


def lane(
    title: str,
    what: str,
    rows: Sequence[LaneRow],
    bars: Bars,
    span: float,
    most: int = LIMITS.bars,
    order: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the facts of a chart; too many bars are cut to the first items, too many rows to the
    busiest.

    ``order``: of the rows, from top to bottom.

    ``what``: ``links`` or ``blocks``. Rows without any bar are left out.
    """
    used = np.bincount(bars.row, minlength=len(rows)) > 0
    shown = [i for i in order or range(len(rows)) if used[i]]
    room = min(LIMITS.rows, max(LIMITS.least_rows, most // LIMITS.row_bars))
    hidden = len(shown) - room
    if hidden > 0:
        best = set(sorted(shown, key=lambda i: -rows[i].busy)[:room])
        shown = [i for i in shown if i in best]
    items, count = np.unique(bars.item, return_counts=True)
    kept = items[np.cumsum(count) <= most]  # all, or the first ones up to the limit of bars
    whole = len(kept) == len(items)
    by_row = np.lexsort((bars.start, bars.row))
    few = bars.of(by_row[np.isin(bars.item[by_row], kept)])
    edges = np.searchsorted(few.row, np.arange(len(rows) + 1))
    scale = LIMITS.ticks / span if span else 0.0
    lines = []
    for i in shown:
        part = slice(int(edges[i]), int(edges[i + 1]))
        line: dict[str, Any] = {
            "n": rows[i].name,
            "l": rows[i].link,
            "u": round(rows[i].busy, 4),
            "b": _packed(few, part, scale),
        }
        if not whole:
            line["d"] = density(bars, i, span)
        lines.append(line)
    return {
        "title": title,
        "what": what,
        "rows": lines,
        "whole": whole,
        "kinds": [[int(k), WORDS[int(k)]] for k in distinct_values(bars.kind)],
        "items": len(items),
        "kept": len(kept),
        "hidden": max(0, hidden),
    }


def density(bars: Bars, row: int, span: float) -> str:
    """Return the fill of each cell of a row, a digit from 0 to 9 each."""
    mine = bars.row == row
    start, end = bars.start[mine], bars.start[mine] + bars.length[mine]
    edges = np.linspace(0, span, LIMITS.cells + 1)
    # Bars of a row follow each other, so what is done by a time is a sum of clipped lengths.
    done = np.clip(edges[:, None] - start, 0, end - start).sum(axis=1)
    full = np.clip(np.diff(done) / (span / LIMITS.cells), 0, 1)
    return "".join(str(int(np.ceil(x * 9 - 1e-9))) for x in full)


def _packed(bars: Bars, part: slice, scale: float) -> list[int]:
    """Return (start after the previous bar's, length, item, kind) of each bar, concatenated."""
    start = np.rint(bars.start[part] * scale).astype(np.int64)
    end = np.rint((bars.start[part] + bars.length[part]) * scale).astype(np.int64)
    columns = (
        np.diff(start, prepend=0),
        np.maximum(end - start, 1),
        bars.item[part],
        bars.kind[part],
    )
    packed: list[int] = np.stack(columns, axis=1).ravel().tolist()
    return packed


@dataclass(frozen=True, eq=False)
class Loads:
    """Bytes of every link, then every shared resource, and the µs that they hold it."""

    topology: Topology
    moved: Floats
    busy_us: Floats


def load_facts(
    loads: Loads, time_us: float, bound_us: float, certificate: Certificate
) -> dict[str, Any]:
    """Return the busiest resources, and those of the bottleneck with their total.

    ``share``: of the time, how much a row is busy; ``at``: the bound, on the same scale.
    """
    listed = certificate.data.get("cover") or certificate.data.get("prices") or []
    binding = {int(row): Fraction(times) for row, times in listed}
    order = np.argsort(-loads.busy_us, kind="stable")
    used = [int(i) for i in order if loads.moved[i] > 0]
    capacity = loads.topology.capacities()
    rows = [
        {
            "row": i,
            "name": short_name(loads.topology, i),
            "GBps": float(capacity[i]),
            "shared": i >= len(loads.topology.links),
            "bytes": float(loads.moved[i]),
            "us": float(loads.busy_us[i]),
            "share": float(loads.busy_us[i]) / time_us if time_us else 0.0,
            "binds": i in binding,
        }
        for i in used[: LIMITS.loads]
    ]
    return {
        "rows": rows,
        "more": max(0, len(used) - LIMITS.loads),
        "unused": int((loads.moved[: len(loads.topology.links)] == 0).sum()),
        "links": len(loads.topology.links),
        "at": bound_us / time_us if time_us else 0.0,
        "bottleneck": _bottleneck(loads, binding, capacity),
    }


def _bottleneck(
    loads: Loads, binding: dict[int, Fraction], capacity: tuple[Fraction, ...]
) -> dict[str, Any] | None:
    """Return the total over the binding resources, each with its multiplier in the certificate."""
    if not binding:
        return None
    moved = sum(float(times) * float(loads.moved[i]) for i, times in binding.items())
    worth = float(sum((times * capacity[i] for i, times in binding.items()), Fraction(0)))
    return {"rows": len(binding), "bytes": moved, "GBps": worth, "us": moved / worth / 1000}


def row_order(topology: Topology) -> list[int]:
    """Return the order: links by source and destination, then shared resources."""
    links = sorted(
        range(len(topology.links)), key=lambda i: (topology.links[i].src, topology.links[i].dst, i)
    )
    return [*links, *range(len(links), len(links) + len(topology.resources))]


def short_name(topology: Topology, row: int) -> str:
    """Return ``gpu0 → gpu1`` or ``nic0``; parallel links and numbers are distinguished on the
    map."""
    if row >= len(topology.links):
        return topology.resources[row - len(topology.links)].name
    one = topology.links[row]
    return f"{topology.nodes[one.src].name} → {topology.nodes[one.dst].name}"

"""Differences between two things of one kind: schedules, programs, topologies, libraries, texts.

A thing is described by **sheets**: named tables of rows, each row one value. Two things are equal
if all their sheets are. Rows are listed by how much they changed, and what only one of the two has
comes first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.dsl.base.tables import count, number, table
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns import library, schedule
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.fabric import fabric_of
from weft.synth.fabric.occupancy import transfer_of_link

from ..formats.listings import Sheet, Sheets, Value, digest_of, move_text

EQUAL = 1e-9
"""Relative difference up to which floats are equal, since they were rounded."""

LONGEST = 20
"""Largest number of rows of a sheet; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a row of a sheet; None: no such row on that side."""

    what: str
    before: Value
    after: Value

    @property
    def size(self) -> float:
        """Return the size of the change: relative for numbers, infinite where a side has none."""
        a, b = self.before, self.after
        if a is None or b is None:
            return math.inf
        if isinstance(a, str | bool) or isinstance(b, str | bool):
            return 0.0
        return abs(b - a) / max(abs(a), abs(b))

    @property
    def words(self) -> str:
        """Return ``+12.5%``, ``gone`` or ``new``; empty for texts."""
        a, b = self.before, self.after
        if a is None or b is None:
            return "new" if a is None else "gone"
        if isinstance(a, str | bool) or isinstance(b, str | bool) or not a:
            return ""
        return f"{b / a:.3g}x" if abs(b) > 10 * abs(a) else f"{(b - a) / abs(a):+.2%}"


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed rows of a sheet, the largest change first, and the number of equal rows."""

    name: str
    rows: tuple[Change, ...]
    same: int


def differences(before: Sheets, after: Sheets) -> list[Changes]:
    """Return the sheets that differ."""
    found = []
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name, {}), after.get(name, {})
        keys = list(dict.fromkeys((*a, *b)))
        rows = [Change(key, a.get(key), b.get(key)) for key in keys]
        changed = [row for row in rows if not _equal(row.before, row.after)]
        if changed:
            ordered = sorted(changed, key=lambda row: -row.size)  # stable: else as in the sheet
            found.append(Changes(name, tuple(ordered), len(rows) - len(changed)))
    return found


def _equal(a: Value, b: Value) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return bool(numbers and math.isclose(a, b, rel_tol=EQUAL))  # type: ignore[arg-type]
    return a == b


def differences_text(found: list[Changes], names: tuple[str, str]) -> str:
    """Return a table for each sheet that differs."""
    parts = []
    for changes in found:
        rows = [
            (_label(row.what), _shown(row.before), _shown(row.after), row.words)
            for row in changes.rows[:LONGEST]
        ]
        text = table((changes.name, *names, "change"), rows)
        hidden = len(changes.rows) - LONGEST
        if hidden > 0:
            text += f"\n… and {hidden} more"
        if changes.same:
            text += f"\n({count(changes.same, 'row')} the same)"
        parts.append(text)
    return "\n\n".join(parts)


def _label(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else _label(str(value))


def differences_json(found: list[Changes]) -> list[dict[str, Any]]:
    """Return all rows that differ."""

    def plain(value: Value) -> Value:
        return number(value) if isinstance(value, float) else value

    return [
        {
            "name": changes.name,
            "same": changes.same,
            "changes": [
                {"what": row.what, "before": plain(row.before), "after": plain(row.after)}
                for row in changes.rows
            ],
        }
        for changes in found
    ]


TIMES = "µs at size"
UNIT = 1 << 20
"""Message size in bytes for which the load of links is stated."""

MOST_LISTED = 200_000
"""Largest number of transfers or moves compared one by one; of more, only counts and loads."""

Time = Callable[[int], float]
"""Function from message size (bytes) to time (µs)."""


def times(sizes: Iterable[int], time: Time | None) -> Sheets:
    """Return the sheet of times; empty without a time function."""
    if time is None:
        return {}
    return {TIMES: {format_bytes(size): time(size) for size in sizes}}


# --- schedules ------------------------------------------------------------------------------------


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
        "segments": s.segments,
        "planned order": s.priority is not None,
        "made for bytes": s.bytes,
        **{key: _plain(made.get(key)) for key in ("engine", "found_by", "seed")},
        "digest": digest_of(schedule.dumps(replace(s, provenance={}))),
    }
    sheets: dict[str, Sheet] = {"facts": facts, f"bytes of {format_bytes(UNIT)}": _loads(s)}
    if len(s) <= MOST_LISTED:
        sheets["transfers"] = _transfers(s)
    return sheets


def _loads(s: Schedule) -> Sheet:
    """Return the bytes over each link and resource that is used."""
    t = s.topology
    fabric = fabric_of(t)
    position, rows = fabric.resources_of(s.route_links.astype(np.int64))
    grains = s.collective.grains[s.chunk[transfer_of_link(s)[position]]]
    load = np.zeros(fabric.resources)
    np.add.at(load, rows, grains)
    load *= UNIT / s.collective.message_chunks
    names = [*_link_names(t), *(f"shared {r.name}" for r in t.resources)]
    return {name: float(x) for name, x in zip(names, load, strict=True) if x}


def _transfers(s: Schedule) -> Sheet:
    """Return every transfer with its time and links."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in s:
        way = ",".join(map(str, one.route))
        kind = "+>" if one.reduce else "->"
        name = f"chunk {one.chunk}: {one.src} {kind} {one.dst}"
        found[name].append(f"step {one.step + 1} over {way}")
    return {name: "; ".join(sorted(steps)) for name, steps in found.items()}


# --- topologies -----------------------------------------------------------------------------------


def _link_names(t: Topology) -> list[str]:
    """Return ``gpu0 -> gpu1``; parallel ones are counted: ``gpu0 -> gpu1 (2)``."""
    seen: Counter[str] = Counter()
    names = []
    for one in t.links:
        name = f"{t.nodes[one.src].name} -> {t.nodes[one.dst].name}"
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return names


def topology_sheets(t: Topology) -> dict[str, Sheet]:
    """Return facts, nodes, and the capacities of links and shared resources."""
    links = _link_names(t)
    numbers = Counter(node.name for node in t.nodes)
    return {
        "facts": {
            "topology": t.name,
            "ranks": t.ranks,
            "nodes": len(t.nodes),
            "links": len(t.links),
            "shared resources": len(t.resources),
            "hosts": t.hosts,
            "symmetries": ", ".join(map(str, t.symmetries)) or None,
            "digest": t.digest()[:16],
        },
        "nodes": {
            (x.name if numbers[x.name] == 1 else f"{x.name} (node {i})"): _node(x)
            for i, x in enumerate(t.nodes)
        },
        "GB/s": {name: float(x.bandwidth) for name, x in zip(links, t.links, strict=True)},
        "α µs": {name: float(x.latency) for name, x in zip(links, t.links, strict=True)},
        "lanes": {name: x.lanes for name, x in zip(links, t.links, strict=True)},
        "shared GB/s": {x.name: float(x.bandwidth) for x in t.resources},
        "links that share": {x.name: ", ".join(links[i] for i in x.links) for x in t.resources},
        "order": {f"link {i}": name for i, name in enumerate(links)},
        "notes": dict.fromkeys(t.notes, "there"),
    }


def _node(x: Any) -> str:
    able = [word for word in ("multicast", "reduces") if getattr(x, word)]
    host = [] if x.host is None else [f"host {x.host}"]
    return ", ".join([str(x.kind), *host, *able])


# --- programs -------------------------------------------------------------------------------------


def algorithm_sheets(a: Algorithm) -> dict[str, Sheet]:
    """Return facts, and the moves in order."""
    m = a.moves
    columns = (m.chunk, m.src, m.source, m.dst, m.target, m.operand)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    sheets: dict[str, Sheet] = {
        "facts": {
            "algorithm": a.name,
            "collective": str(a.collective),
            "in place": a.in_place,
            "protocol": str(a.protocol),
            "instances": a.instances,
            "moves": len(m),
            "scratch chunks": max(a.scratch, default=0),
            "digest": digest_of(repr([column.tolist() for column in columns])),
        },
    }
    if len(m) <= MOST_LISTED:
        sheets["moves"] = {
            f"move {i}": " ".join(move_text(*row).split()) for i, row in enumerate(rows)
        }
    return sheets


# --- libraries, results, texts --------------------------------------------------------------------


def library_sheets(x: Library) -> dict[str, Sheet]:
    """Return facts, and for each collective its plans and times.

    Times are at powers of two, which libraries on different grids share (or at all sizes, where
    there are none).
    """
    plans: dict[str, Value] = {}
    chosen: dict[str, Value] = {}
    bound: dict[str, Value] = {}
    for one in x.tuned:
        for p in one.plans:
            name = f"{one.name} {format_bytes(p.low)} … {format_bytes(p.high)}"
            ways = [
                p.candidate,
                p.protocol,
                f"x{p.instances}",
                f"{p.segments} segments",
                *(f"{k} {v}" for k, v in sorted(p.options.items())),
                *(f"{a.format} {a.target}".strip() for a in p.artefacts),
            ]
            plans[name] = ", ".join(ways)
        times = list(zip(one.grid, one.chosen_us, one.bound_us, strict=True))
        for size, us, least in [x for x in times if not x[0] & (x[0] - 1)] or times:
            chosen[f"{one.name} at {format_bytes(size)}"] = us
            bound[f"{one.name} at {format_bytes(size)}"] = least
    facts: dict[str, Value] = {
        "library": x.name,
        "topology": x.topology.name,
        "machine": x.topology.digest()[:16],
        "low bytes": x.low,
        "high bytes": x.high,
        "timing": ", ".join(f"{k} {v}" for k, v in sorted(x.timing.items())),
        "collectives": ", ".join(one.name for one in x.tuned),
        "plans": sum(len(one.plans) for one in x.tuned),
        "digest": digest_of(library.dumps(replace(x, provenance={}))),
    }
    return {"facts": facts, "plans": plans, TIMES: chosen, "bound µs at size": bound}


def results_sheets(data: Mapping[str, Any]) -> dict[str, Sheet]:
    """Return the sheets of the ``--json`` output of `bench`, `run`, `simulate` or `bound`."""
    sheets: dict[str, dict[str, Value]] = {"facts": {}, TIMES: {}, "least µs at size": {}}
    for key in ("on", "topology", "collective", "ranks", "dtype", "protocol", "target"):
        if key in data:
            sheets["facts"][key] = _plain(data[key])
    for one in data["sizes"]:
        parts = [one.get("name"), one.get("dtype"), format_bytes(one["bytes"])]
        name = " ".join(str(part) for part in parts if part)
        sheets[TIMES][name] = float(one["us"])
        if "least_us" in one:
            sheets["least µs at size"][name] = float(one["least_us"])
    return dict(sheets)


def text_sheets(text: str) -> dict[str, Sheet]:
    """Return lines, independent of position; the n-th of several equal ones is a row of its own."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    seen: Counter[str] = Counter()
    rows: dict[str, Value] = {}
    for line in lines:
        seen[line] += 1
        rows[f"{line} ({seen[line]})" if seen[line] > 1 else line] = "there"
    return {"lines": rows, "all": {"digest": digest_of("\n".join(lines))}}


def _plain(value: Any) -> Value:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

"""Sheets of topologies, algorithms, libraries, results and texts, which ``weft diff`` compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from weft.dsl.base.units import format_bytes
from weft.dsl.nouns import library
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.library import Library, Tuned, TunedPlan
from weft.dsl.nouns.topology import Topology

from ..formats.listings import Sheet, Sheets, Value, digest_of, move_text
from .plan_words import plan_words

TIMES = "µs at size"
RUN_TIMES = "µs at size without the start of the call"
MOST_LISTED = 200_000
"""Largest number of transfers or moves compared one by one; of more, only counts and loads."""


def times(sizes: Iterable[int], time: Callable[[int], float], start_us: float = 0.0) -> Sheets:
    """Return the sheet of times in µs at message sizes in bytes; also without the start."""
    found: dict[str, Value] = {format_bytes(size): time(size) for size in sizes}
    return {TIMES: found, **_without(dict.fromkeys(found, start_us), found)}


def _without(starts: Mapping[str, float], times: Mapping[str, Value]) -> Sheets:
    """Return the sheet of times without their starts; none where they have no start."""
    if not any(starts.values()):
        return {}
    return {RUN_TIMES: {k: us - starts[k] for k, us in times.items() if isinstance(us, float)}}


def link_names(t: Topology) -> list[str]:
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
    links = link_names(t)
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
    host = [] if x.host is None else [f"host {x.host}"]
    limits = [
        f"{key} {' '.join(value) if isinstance(value, list) else value}"
        for key, value in x.limits.to_json().items()
    ]
    return ", ".join([str(x.kind), *host, *x.capabilities, *limits])


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

    Plans are told by what they are, not by their names or numbers, which differ for equal ones.
    Both are at powers of two, which libraries on different grids share (or at all sizes, where
    there are none).
    """
    plans: dict[str, Value] = {}
    chosen: dict[str, Value] = {}
    starts: dict[str, float] = {}
    bound: dict[str, Value] = {}
    for one in x.tuned:
        for at in [at for at, n in enumerate(one.grid) if not n & (n - 1)] or range(len(one.grid)):
            name = f"{one.name} at {format_bytes(one.grid[at])}"
            plans[name] = _plan_row(one, one.pick(one.grid[at]))
            chosen[name], bound[name] = one.chosen_us[at], one.bound_us[at]
            starts[name] = one.start_at(at)
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
    named: Sheets = {"facts": facts, "plans": plans, TIMES: chosen}
    return {**named, **_without(starts, chosen), "bound µs at size": bound}


def _plan_row(one: Tuned, plan: TunedPlan) -> str:
    files = dict.fromkeys(f"{a.format} {a.target}".strip() for a in plan.artefacts)
    return ", ".join(
        [plan_words(one, plan), *(f"{k} {v}" for k, v in sorted(plan.options.items())), *files]
    )


def results_sheets(data: Mapping[str, Any]) -> dict[str, Sheet]:
    """Return the sheets of the ``--json`` output of `bench`, `run`, `simulate` or `bound`."""
    sheets: dict[str, dict[str, Value]] = {"facts": {}, TIMES: {}, "least µs at size": {}}
    for key in ("on", "topology", "collective", "ranks", "dtype", "protocol", "target"):
        if key in data:
            sheets["facts"][key] = plain(data[key])
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


def plain(value: Any) -> Value:
    """Return a value for a sheet: scalars as they are, others as text."""
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

"""Sheets of topologies, algorithms, libraries, results and texts, which ``weft diff`` compares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from weft.dsl.base.units import format_bytes
from weft.dsl.nouns import library
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.library import FOUND_IN_SWITCHES, Candidate, Library, Tuned, TunedPlan
from weft.dsl.nouns.topology import Topology

from ..formats.listings import Sheet, Sheets, Value, digest_of, move_text
from .sizes import TEXT

TIMES = "µs at size"
RUN_TIMES = "µs at size without the start of the call"


def times(sizes: Iterable[int], time: Callable[[int], float], start_us: float = 0.0) -> Sheets:
    """Return the sheet of times in µs at message sizes in bytes; also without the start."""
    found: dict[str, Value] = {format_bytes(size): time(size) for size in sizes}
    return {TIMES: found, **_without(dict.fromkeys(found, start_us), found)}


def _without(starts: Mapping[str, float], times: Mapping[str, Value]) -> Sheets:
    """Return the sheet of times without their starts; none where they lack a start."""
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
    if len(m) <= TEXT.compared_rows:
        sheets["moves"] = {
            f"move {i}": " ".join(move_text(*row).split()) for i, row in enumerate(rows)
        }
    return sheets


# --- libraries, results, texts --------------------------------------------------------------------


def library_sheets(x: Library) -> dict[str, Sheet]:
    """Return facts, and for each collective its plans and times.

    Plans are identified by contents, not by their names or numbers, which differ for equal ones.
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
            plan = one.pick(one.grid[at])
            files = dict.fromkeys(f"{a.format} {a.target}".strip() for a in plan.artefacts)
            options = (f"{k} {v}" for k, v in sorted(plan.options.items()))
            plans[name] = ", ".join([plan_words(one, plan), *options, *files])
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


def results_sheets(data: Mapping[str, Any]) -> dict[str, Sheet]:
    """Return the sheets of the ``--json`` output of `bench`, `run`, `simulate` or `bound`.

    They are the facts, and one for each key of ``sizes`` (GB/s follow from the times).
    """
    sheets: dict[str, dict[str, Value]] = {"facts": dict(_values(data)), TIMES: {}}
    for one in data["sizes"]:
        parts = [one.get("name"), one.get("dtype"), one["bytes"] and format_bytes(one["bytes"])]
        name = " ".join(str(part) for part in parts if part)
        sheets[TIMES][name] = float(one["us"])
        for key, value in _values(one):
            if key not in ("us", "name", "dtype", "bytes"):
                sheet = "least µs at size" if key == "least_us" else f"{key} at size"
                sheets.setdefault(sheet, {})[name] = value
    return dict(sheets)


NOT_COMPARED = ("schema", "seconds", "sizes", "checks", "trace", "bound", "certificate", "binds")
"""Keys of results that are of the run, or proofs; a bound counts by the share that is reached."""


def _values(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Yield the values of an object by key, those of objects in it by ``key.key``."""
    for key, value in data.items():
        if isinstance(value, dict) and key not in NOT_COMPARED:
            yield from _values(value, f"{prefix}{key}.")
        elif key not in (*NOT_COMPARED, "algbw_GBps", "busbw_GBps"):
            yield prefix + key, plain(value)


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


ENGINES = {
    "exact": "proved shortest",
    "packing": "packed trees",
    "flow": "flows",
    "greedy": "greedy matching",
    "sketched": "routes by integer program",
    "intervals": "proved quickest",
}
"""Ideas of engines; ``classic`` has an algorithm's name instead."""

ASKED = re.compile(r" (?P<size>\d+(?:\.\d+)?(?:[KMGT]i?)?B)(?: \(\d+\))?$")
"""The end of a schedule's name: the size that an engine was given."""

ONE_SHOT = "one shot, "
MENDED = re.compile(r"mended \S+")


def idea_words(source: str, engine: str = "") -> str:
    """Return the algorithm of a schedule by its name in a race, and the engine that found it.

    >>> idea_words("packing{trees=1,segments=8} 1GiB", "packing")
    'packed trees found for 1GiB'
    >>> idea_words("one shot, classic 1KiB", "classic"), idea_words("two_shot", "classic")
    ('one shot found for 1KiB', 'two shot')
    >>> idea_words("dgx2_relay:nodes=2 4MiB", "sketched")
    'sketch dgx2_relay:nodes=2, found for 4MiB'
    >>> idea_words("in switches, packing 4MiB", "packing"), idea_words("nvls", "classic")
    ('packed trees through switches that compute found for 4MiB', 'nvls')
    """
    if MENDED.fullmatch(source):
        return "former plan, mended"
    asked = ASKED.search(source)
    if asked is None:
        return source.replace("_", " ") if "{" not in source else _engine(source, engine)
    return f"{_engine(source[: asked.start()], engine)} found for {asked['size']}"


def _engine(asked: str, engine: str) -> str:
    """Return the idea of a request: an engine with its options, or a sketch."""
    if asked.startswith(ONE_SHOT):
        return "one shot"
    if asked.startswith(FOUND_IN_SWITCHES):
        idea = _engine(asked.removeprefix(FOUND_IN_SWITCHES), engine)
        return f"{idea} through switches that compute"
    name = asked.partition("{")[0]
    if name.startswith("classic:"):
        return name.removeprefix("classic:").replace("_", " ")
    if name == "portfolio":
        return ENGINES.get(engine, engine if engine not in ("", "portfolio") else "best")
    if name in ENGINES or name == "classic":
        return ENGINES.get(name, "classic algorithm")
    return f"sketch {asked},"


def form_words(plan: TunedPlan) -> str:
    """Return how a plan is compiled: protocol, copies side by side, pieces one after the other."""
    words = [plan.protocol]
    words += [f"{plan.instances} copies"] if plan.instances > 1 else []
    words += [f"{plan.segments} pieces"] if plan.segments > 1 else []
    return ", ".join(words)


def source_of(one: Tuned, plan: TunedPlan) -> str:
    """Return the name of a plan's schedule in the race."""
    found = next((c for c in one.candidates if c.name == plan.candidate), None)
    return plan.candidate if found is None else found.source or found.name


def plan_words(one: Tuned, plan: TunedPlan) -> str:
    """Return a plan as ``packed trees found for 1GiB; LL128, 8 copies, 4 pieces``."""
    return f"{idea_words(source_of(one, plan), plan.engine)}; {form_words(plan)}"


def candidate_words(candidate: Candidate) -> str:
    """Return a candidate as ``swing; Simple, 2 copies, 4 lanes``, different for different ones."""
    if not candidate.source:
        return candidate.name
    form = candidate.name.removeprefix(candidate.source).removeprefix(", ")
    return "; ".join(filter(None, (idea_words(candidate.source), variant_words(form))))


VARIANT_WORDS = (
    (r" x1\b", ""),
    (r" x(\d+)", r", \1 copies"),
    (r" pairs=none", ", a block for each connection"),
    (r" pairs=fewest", ", fewest blocks"),
    (r" pairs=(\w+)", r", blocks by \1"),
    (r" in (\d+) segments", r", \1 pieces"),
    (r" in (\d+) lanes", r", \1 lanes"),
    (r" (sums in \d+ parts)", r", \1"),
    (r" by (\w+)", r", ordered by \1"),
    (r" chains", ", channels of their own for chains"),
)
"""Patterns in the short name of a way to compile, and the words for each."""


def variant_words(name: str) -> str:
    """Return a way to compile in words.

    >>> variant_words("Simple x1 pairs=none in 2 segments")
    'Simple, a block for each connection, 2 pieces'
    >>> variant_words("LL128 x4 chains in 4 lanes")
    'LL128, 4 copies, channels of their own for chains, 4 lanes'
    """
    for short, words in VARIANT_WORDS:
        name = re.sub(short, words, name)
    return name

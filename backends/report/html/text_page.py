"""Pages of a machine, of a plan of a workload, and of texts: a collective, a sketch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from weft.dsl.base.errors import WeftError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload_plan import WorkloadPlan
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.ordering.plan import graph_of

from ..plan_chart import exposed, plan_chart
from ..plan_text import certificate_text, class_times, is_best, plan_text
from ..sizes import LIMITS
from ..svg import drawing
from .machine import machine_map
from .page import figure, microseconds
from .sheet import Facts, head, listing_section, sheet, table_section, tile


def topology_page(topology: Topology, text: str, name: str) -> Facts:
    """Return the page of a machine: drawing and facts."""
    machine = {"id": "machine", "title": "The machine", "part": "machine"}
    kinds = Counter(
        (topology.nodes[x.src].kind, topology.nodes[x.dst].kind, x.bandwidth)
        for x in topology.links
    )
    links = [
        (f"{a} → {b}", f"{number} of {figure(float(width))} GB/s")
        for (a, b, width), number in kinds.items()
    ]
    return sheet(
        "topology",
        topology.name,
        [
            head([("file", name), *links[: LIMITS.link_kinds]], machine_tiles(topology)),
            machine,
            bounds_section(topology),
            _structure(topology),
            listing_section(_parts(text), "In full"),
        ],
        subtitle=name,
        maps=[machine_map(topology)],
    )


def _structure(topology: Topology) -> Facts | None:
    """Return what splits a machine and what it is like; None of a large one, where that takes
    long."""
    if len(topology.nodes) > LIMITS.open_ranks:
        return None
    from ..structure import structure, structure_text  # networkx: 150 ms

    part = {"title": "text", "text": structure_text(structure(topology))}
    found = listing_section({"parts": [part], "notes": []}, "Structure")
    return found and {**found, "id": "structure", "open": True}


def text_page(kind: str, title: str, text: str, name: str) -> Facts:
    """Return the page of anything else, with the text of ``weft show``."""
    facts = listing_section(_parts(text), "In full")
    return sheet(
        kind, title, [head([("file", name)]), facts and {**facts, "open": True}], subtitle=name
    )


def _parts(text: str) -> Facts:
    """Return a text, or its beginning with a note on the rest."""
    shown = text[: LIMITS.characters]
    notes = []
    if len(shown) < len(text):
        notes.append(
            f"{len(text) - len(shown):,} further characters are left out; weft show prints them"
        )
    return {"parts": [{"title": "text", "text": shown}], "notes": notes}


COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast")

_SCALE = 1000
"""Capacities of flows are whole MB/s."""

_ALL = 2**30


def machine_tiles(topology: Topology) -> list[Facts]:
    """Return the figures in large type."""
    out = [0.0] * topology.ranks
    for link in topology.links:
        if link.src < topology.ranks:
            out[link.src] += float(link.bandwidth)
    low, high = min(out), max(out)
    each = figure(low) if low == high else f"{figure(low)} to {figure(high)}"
    hosts = f"in {topology.hosts} hosts" if topology.hosts > 1 else ""
    tiles = [
        tile("GPUs", str(topology.ranks), hosts),
        tile("out of a GPU", f"{each} GB/s", "all its links together"),
    ]
    across = halves_GBps(topology)
    if across is not None:
        told = "one way, from the first half of the ranks to the second, over links alone"
        tiles.append(tile("bisection", f"{figure(across)} GB/s", told))
    return tiles


def halves_GBps(topology: Topology) -> float | None:
    """Return the largest flow in GB/s from the first half of the ranks to the second; None for an
    odd number of them."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    n, half = len(topology.nodes), topology.ranks // 2
    if topology.ranks % 2 or topology.ranks > LIMITS.bound_ranks:
        return None
    width: Counter[tuple[int, int]] = Counter()
    for link in topology.links:
        width[link.src, link.dst] += round(float(link.bandwidth) * _SCALE)
    width.update({(n, rank): _ALL for rank in range(half)})
    width.update({(rank, n + 1): _ALL for rank in range(half, topology.ranks)})
    ends = np.array(list(width)).T
    sizes = np.minimum(np.array(list(width.values()), np.int64), _ALL).astype(np.int32)
    graph = csr_array((sizes, (ends[0], ends[1])), shape=(n + 2, n + 2))
    return float(maximum_flow(graph, n, n + 1).flow_value) / _SCALE


def bounds_section(topology: Topology) -> Facts | None:
    """Return the lower bounds of the usual collectives; None where they cannot be computed."""
    if not 2 <= topology.ranks <= LIMITS.bound_ranks:
        return None
    rows: list[list[Any]] = []
    for kind in COLLECTIVES:
        roots = (0,) if kind == "broadcast" else ()
        try:
            found = bounds(topology, make(kind, topology.ranks, roots=roots))
        except WeftError:
            continue
        algbw = found.algbw_GBps
        times = [microseconds(float(lower_bound_us(found, size))) for size in (1 << 20, 1 << 30)]
        rows.append([kind, f"{figure(float(algbw)) if algbw else '–'} GB/s", *times])
    if not rows:
        return None
    head = ("collective", "algbw at most", "1 MiB takes at least", "1 GiB takes at least")
    title, after = "Bounds of every schedule", "weft bound prints the proof of each."
    return table_section("bounds", title, head, rows, after, numbers=True)


def plan_page(plan: WorkloadPlan, name: str) -> Facts:
    """Return the page."""
    tiles = [
        tile("plan", microseconds(plan.us), "proved best" if is_best(plan) else ""),
        tile("lower bound", microseconds(float(plan.bound_us)), ""),
        tile("fair sharing", microseconds(plan.times.fair), ""),
        tile("one queue", microseconds(plan.times.queue), ""),
    ]
    bare = None
    if any(not x.communicates for x in plan.workload.operations):
        bare = sum(end - start for start, end in exposed(plan, graph_of(plan)))
    facts = [
        ("machine", plan.machine),
        ("operations", len(plan.workload.operations)),
        ("why not faster", certificate_text(plan.proof)),
        ("no overlap", microseconds(plan.times.sequence)),
        ("exposed", None if bare is None else f"{microseconds(bare)} sent while no rank computes"),
    ]
    rows = [
        [x["name"], str(x["operations"]), microseconds(x["alone_us"]), microseconds(x["end_us"])]
        for x in class_times(plan)
    ]
    sections: list[Facts | None] = [
        head(facts, tiles, plan.remarks),
        {
            "id": "gantt",
            "title": "In time",
            "part": "drawing",
            "svg": drawing(plan.workload.name, [plan_chart(plan)]),
        },
        table_section(
            "classes", "Classes", ("class", "operations", "alone", "ends"), rows, numbers=True
        ),
        listing_section(
            {"parts": [{"title": "text", "text": plan_text(plan)}], "notes": []}, "In full"
        ),
    ]
    return sheet("plan", plan.workload.name, sections, subtitle=name)

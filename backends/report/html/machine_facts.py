"""Figures of a machine: GPUs, bandwidths, its bisection, bounds of the usual collectives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from weft.dsl.base.errors import WeftError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import bounds, lower_bound_us

from .page import figure, microseconds
from .sheet import Facts, tile

MOST_RANKS = 1024
"""Largest number of GPUs whose bounds a page computes."""

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
    if topology.ranks % 2 or topology.ranks > MOST_RANKS:
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
    if not 2 <= topology.ranks <= MOST_RANKS:
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
    return {
        "id": "bounds",
        "title": "What no schedule can beat",
        "part": "table",
        "head": ["collective", "algbw at most", "1 MiB takes at least", "1 GiB takes at least"],
        "rows": rows,
        "numbers": True,
        "after": "weft bound prints the proof of each.",
    }

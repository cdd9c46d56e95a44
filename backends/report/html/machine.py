"""Drawing of a machine for a page: nodes, links, hosts and shared resources."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.nouns.topology import Topology

from ..layout import half_width, layout, link_paths, node_label

MOST_LINKS = 2500
"""Largest number of links drawn; of more, only the busiest."""


def machine_map(topology: Topology, share: Floats | None = None) -> dict[str, Any]:
    """Return the facts of the drawing.

    ``links`` are (source, destination, GB/s, path) of those that are drawn, ``index`` their
    numbers; ``share``: of its time, how much each link and resource is in use, by which the busiest
    are chosen where there are too many.
    """
    found = layout(topology)
    drawn = list(range(len(topology.links)))
    if len(drawn) > MOST_LINKS:
        use = np.zeros(len(drawn)) if share is None else share[: len(drawn)]
        drawn = sorted(np.argsort(-use, kind="stable")[:MOST_LINKS].tolist())
    paths = link_paths(topology, found, drawn)
    return {
        "name": topology.name,
        "grid": found.grid,
        "width": _short(found.width),
        "height": _short(found.height),
        "nodes": [
            [
                node.name,
                str(node.kind),
                _short(x),
                _short(y),
                _short(half_width(topology, i)),
                ", ".join(node.names),
                node_label(topology, i),
            ]
            for i, (node, (x, y)) in enumerate(zip(topology.nodes, found.spots, strict=True))
        ],
        "boxes": [[b.name, *map(_short, (b.x, b.y, b.width, b.height))] for b in found.frames],
        "links": [
            [x.src, x.dst, float(f"{float(x.bandwidth):.6g}"), paths[i]]
            for i, x in ((i, topology.links[i]) for i in drawn)
        ],
        "index": drawn,
        "wraps": [i for i in drawn if i in found.wraps],
        "own": {i: ", ".join(topology.links[i].names) for i in drawn if topology.links[i].names},
        "resources": [
            [r.name, float(f"{float(r.bandwidth):.6g}"), list(r.links)] for r in topology.resources
        ],
        "left_out": len(topology.links) - len(drawn),
    }


def _short(value: float) -> float:
    return round(value, 1)

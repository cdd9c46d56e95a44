"""Drawing of a machine for a page: nodes, links, hosts and shared resources."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import Topology

from ..folded import FoldedMachine, folded, ranks_words
from ..layout import half_width, layout, link_paths, node_label
from .page import figure

MOST_LINKS = 2500
"""Largest number of links drawn at a time; of more, only the busiest."""

MOST_FOLDED = 8000
"""The same of a machine of which one host is drawn at a time."""


def machine_map(topology: Topology, share: Floats | None = None) -> dict[str, Any]:
    """Return the facts of the drawing.

    ``links`` are (source, destination, GB/s, path) of those that are drawn, ``index`` their
    numbers; ``share``: of its time, how much each link and resource is in use, by which the busiest
    are chosen where there are too many. A machine of many hosts is ``folded`` as well: drawn as
    hosts, each of which opens.
    """
    topology = plain_machine(topology).machine if share is None else topology
    small = folded(topology)
    facts = _drawn(topology, share, MOST_FOLDED if small else MOST_LINKS)
    return {**facts, "folded": _folded_facts(small)} if small else facts


def _folded_facts(one: FoldedMachine) -> dict[str, Any]:
    """Return the drawing of hosts, and what of the whole each of its parts stands for."""
    facts = _drawn(one.topology, None, MOST_LINKS)
    racks = {box[0]: f"rack {box[0].removeprefix('host ')}" for box in facts["boxes"]}
    hosts = len(one.ranks)
    return {
        **facts,
        "boxes": [[racks[box[0]], *box[1:]] for box in facts["boxes"]],
        "nodes": [
            [node[0], "host", *node[2:5], f"GPUs {ranks_words(one.ranks[i])}", node[6]]
            if i < hosts
            else node
            for i, node in enumerate(facts["nodes"])
        ],
        "of": list(one.link_of),
        "at": list(one.node_of),
        "hosts": [
            f"{node.name}: GPUs {ranks_words(one.ranks[i])}, {figure(one.out_GBps(i))} GB/s out"
            for i, node in enumerate(one.topology.nodes[:hosts])
        ],
    }


def _drawn(topology: Topology, share: Floats | None, most: int) -> dict[str, Any]:
    found = layout(topology)
    drawn = list(range(len(topology.links)))
    if len(drawn) > most:
        use = np.zeros(len(drawn)) if share is None else share[: len(drawn)]
        drawn = sorted(np.argsort(-use, kind="stable")[:most].tolist())
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

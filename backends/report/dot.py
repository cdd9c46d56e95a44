"""A machine as Graphviz text: nodes by host, links with their bandwidth, and how much each is used.

Lay it out with ``dot``, ``neato`` or ``fdp``. Names are quoted, so that any of them is safe.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.dsl.base.arrays import Floats
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import NodeKind, Topology

from .scale import shade, share_words

_SHAPES = {NodeKind.GPU: "circle", NodeKind.SWITCH: "box", NodeKind.NIC: "hexagon"}


def machine_dot(topology: Topology, use: Floats | None = None, title: str = "") -> str:
    """Return the graph of a machine; ``use``: share of the time each link and resource is occupied.

    Without it, the two directions of a cable are one line.
    """
    whole = plain_machine(topology)
    topology, use = whole.machine, None if use is None else whole.shares(use)
    lines = [
        f"digraph {quoted(topology.name)} {{",
        f"  graph [label={quoted(title or topology.name)}, labelloc=t, fontname=Helvetica];",
        "  node [fontname=Helvetica, fontsize=10, margin=0.03];",
        "  edge [fontname=Helvetica, fontsize=8, arrowsize=0.6];",
        *_nodes(topology),
        *(_cables(topology) if use is None else _links(topology, use)),
        *_resources(topology, use),
        "}",
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a string literal of the language: only backslashes and quotes are escaped."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "\\n".join(plain.splitlines()) + '"'


def _nodes(topology: Topology) -> Iterator[str]:
    """Yield all nodes, those of a host in a frame where there are several."""
    framed = topology.hosts > 1
    for host in sorted({n.host for n in topology.nodes if n.host is not None}) if framed else ():
        yield f"  subgraph cluster_{host} {{"
        yield f"    label={quoted(f'host {host}')}; color=gray60;"
        for i, node in enumerate(topology.nodes):
            if node.host == host:
                yield f"    {_node(topology, i)}"
        yield "  }"
    for i, node in enumerate(topology.nodes):
        if not framed or node.host is None:
            yield f"  {_node(topology, i)}"


def _node(topology: Topology, i: int) -> str:
    node = topology.nodes[i]
    return f"n{i} [label={quoted(node.name)}, shape={_SHAPES.get(node.kind, 'box3d')}];"


def _cables(topology: Topology) -> Iterator[str]:
    """Yield similar links between two nodes as one line, with arrows both ways if there are
    both."""
    count: dict[tuple[int, int, object], int] = {}
    for x in topology.links:
        key = (x.src, x.dst, x.bandwidth)
        count[key] = count.get(key, 0) + 1
    for (src, dst, bandwidth), times in count.items():
        both = count.get((dst, src, bandwidth)) == times
        if both and src > dst:
            continue
        label = f"{times} x " if times > 1 else ""
        label += f"{float(bandwidth):.4g} GB/s"  # type: ignore[arg-type]
        way = ", dir=both" if both else ""
        yield f"  n{src} -> n{dst} [label={quoted(label)}{way}];"


def _links(topology: Topology, use: Floats) -> Iterator[str]:
    """Yield every link that is used, darker and thicker with its use; the others pale."""
    for x, share in zip(topology.links, use.tolist(), strict=False):
        label = f"{float(x.bandwidth):.4g} GB/s, {share_words(share)}"
        shown = (
            f"label={quoted(label)}, penwidth={0.5 + 3 * share:.2f}" if share else "style=dotted"
        )
        yield f'  n{x.src} -> n{x.dst} [{shown}, color="{shade(share)}"];'


def _resources(topology: Topology, use: Floats | None) -> Iterator[str]:
    """Yield a note for each shared resource, tied to the nodes that send through it."""
    for row, resource in topology.shared_rows():
        at = row - len(topology.links)
        label = f"{resource.name}: {float(resource.bandwidth):.4g} GB/s shared"
        colour = "gray40"
        if use is not None:
            share = float(use[row])
            label, colour = f"{label}, {share_words(share)}", shade(share)
        yield f'  r{at} [label={quoted(label)}, shape=note, fontsize=8, color="{colour}"];'
        for node in sorted({topology.links[i].src for i in resource.links}):
            yield f"  r{at} -> n{node} [dir=none, style=dashed, color=gray70];"

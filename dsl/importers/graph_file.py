"""Importers of graphs: GraphML, GML (networkx, yEd, Gephi, igraph), edge lists, msccl-tools' JSON.

Attributes as :mod:`weft.dsl.nouns.graph` describes them. Options: ``bw=`` and ``alpha=`` for edges
that have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from ..base.errors import BadFile, BadTopology, UnknownName, placed
from ..base.files import Fields
from ..base.units import exact
from ..machines.families import BANDWIDTH
from ..machines.spec import MAX_GPUS, MAX_LINKS, MachineSpec
from ..nouns.capabilities import as_fields, read_capabilities
from ..nouns.topology import Link, Node, NodeKind, Resource, Topology, gpu
from ..symmetry.symmetry import guess
from .generations import CABLE_ALPHA
from .xml_tree import Element, parse_xml

_GRAPHML = re.compile(r"<(?:\w+:)?graphml[\s>]")
_GML = re.compile(  # possessive: a line is taken in one way, so that other text ends at once
    r"\s*+(?:(?:#[^\n]*+|[A-Za-z]\w*+[ \t]++(?:\"[^\"\n]*+\"|[^\s\[]++))[ \t\r]*+\n\s*+)*+"
    r"graph\s*+\["
)


def looks_like_graphml(text: str) -> bool:
    """Return True if an XML text is GraphML."""
    return _GRAPHML.search(text, 0, 4096) is not None


def looks_like_gml(text: str) -> bool:
    """Return True if a text is GML: ``graph [`` after comments and simple keys."""
    return _GML.match(text) is not None


def read_graphml(text: str, where: str, options: MachineSpec) -> Topology:
    """Read a topology from GraphML.

    Raises:
        BadFile: not GraphML. BadTopology: attributes that cannot be read, an impossible machine.
    """
    import networkx as nx  # 150 ms: only where such a file is read

    # Refuse entities, document types and expansion bombs, which networkx would accept.
    _check_ends(parse_xml(text, where))
    try:
        # Drop the declaration: networkx encodes the text itself, ignoring the named encoding.
        graph = nx.parse_graphml(re.sub(r"^\s*<\?xml[^>]*\?>", "", text), force_multigraph=True)
    except (nx.NetworkXException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"cannot be read as GraphML: {_reason(error)}", where=where) from None
    return _finished(_plain_labels(graph), where, options)


def read_gml(text: str, where: str, options: MachineSpec) -> Topology:
    """Read a topology from GML.

    Raises:
        BadFile: not GML. BadTopology: attributes that cannot be read, an impossible machine.
    """
    import networkx as nx  # 150 ms: only where such a file is read

    label = "label" if re.search(r"\blabel\b", text) else "id"
    try:
        graph = nx.parse_gml(text, label=label)
    except (nx.NetworkXException, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFile(f"cannot be read as GML: {_reason(error)}", where=where) from None
    return _finished(graph, where, options)


def _check_ends(root: Element) -> None:
    """Refuse edges to unknown nodes, which networkx would add silently."""
    elements = [root]
    for element in elements:
        elements.extend(element.children)
    tags = [(element.tag.rpartition("}")[2], element) for element in elements]
    nodes = {element.get("id") for tag, element in tags if tag == "node"}
    for tag, element in tags:
        for end in ("source", "target") if tag == "edge" else ():
            if element.get(end) not in nodes:
                raise BadFile(
                    f"expected the {end} of an edge to be a node, got {element.get(end)!r}",
                    where=element.where,
                )


def _plain_labels(graph: Any) -> Any:
    """Rename nodes to their ``label``: yEd and Gephi use numbers (n0, n1 …) as node ids."""
    import networkx as nx  # loaded by the caller

    labels = [data.get("label") for _, data in graph.nodes(data=True)]
    if labels and all(isinstance(x, str) and x for x in labels) and len(set(labels)) == len(labels):
        graph = nx.relabel_nodes(graph, dict(zip(graph, labels, strict=True)))
        for _, data in graph.nodes(data=True):
            del data["label"]
    return graph


def _finished(graph: Any, where: str, options: MachineSpec) -> Topology:
    if len(graph) > MAX_GPUS or graph.number_of_edges() > MAX_LINKS:
        raise BadFile(f"more than {MAX_GPUS} nodes or {MAX_LINKS} edges", where=where)
    bandwidth = options.bandwidth("bw", CABLE_ALPHA) if options.has("bw") else None
    options.bandwidth("bw", CABLE_ALPHA)  # marks the option as known, even if not given
    latency = options.microseconds("alpha", CABLE_ALPHA)
    name = str(graph.graph.get("name") or options.title())[:200]
    try:
        made = Topology.from_networkx(graph, name, bandwidth=bandwidth, latency=latency)
    except BadTopology as error:
        raise BadTopology(error.message, where=where, hint=error.hint) from None
    return replace(made, symmetries=made.symmetries or guess(made))


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


# --- topologies of msccl-tools --------------------------------------------------------------------
# In JSON (``msccl.serialization``, ``msccl_type``).
# ``links[dst][src]`` are the chunks that a link carries in a round; an entry of ``switches`` is
# [sources, destinations, chunks, name]: the sum over all links from the first to the second.


def read_msccl_topology(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the parsed JSON.

    Options: ``bw=`` GB/s of one chunk a round; ``alpha=`` µs of every link.

    Raises:
        BadFile: not a square matrix of numbers, or a switch of unknown nodes.
    """
    fields = Fields(data, where)
    fields.get("msccl_type", str)
    rows, name = fields.get("links", list), fields.get("name", str)
    unit = options.bandwidth("bw", BANDWIDTH)
    alpha = options.microseconds("alpha", CABLE_ALPHA)
    gpus = len(rows)
    if not 0 < gpus <= MAX_GPUS or gpus**2 > MAX_LINKS:
        raise BadFile(f"links has {gpus} rows", where=where)
    if any(not isinstance(row, list) or len(row) != gpus for row in rows):
        raise BadFile(f"links is not a square of {gpus} rows and columns", where=where)
    links: list[Link] = []
    for dst, row in enumerate(rows):
        for src, chunks in enumerate(row):
            if many := _chunks(chunks, f"{where}: links[{dst}][{src}]"):
                lanes = int(many) if many.denominator == 1 else 1
                links.append(Link(src, dst, many * unit, alpha, lanes))
    places = {(x.src, x.dst): i for i, x in enumerate(links)}
    switches, of_nodes = fields.get("switches", list, []), range(gpus)
    shared = tuple(_switches(switches, places, unit, of_nodes, f"{where}: switches"))
    notes = (
        f"links[dst][src] of msccl-tools are chunks a round: one is {float(unit):g}GB/s (bw=), and "
        f"alpha is {float(alpha):g}us (alpha=)",
    )
    made = Topology(name[:200], tuple(map(gpu, range(gpus))), tuple(links), shared, notes=notes)
    return replace(made, symmetries=guess(made))


def _switches(
    data: list[Any],
    places: dict[tuple[int, int], int],
    unit: Fraction,
    nodes: range,
    where: str,
) -> Iterator[Resource]:
    """Yield the resources that links share; switches may stand in lists of their own."""
    for number, one in enumerate(data):
        place = f"{where}[{number}]"
        if isinstance(one, list) and one and all(isinstance(x, list) and len(x) == 4 for x in one):
            yield from _switches(one, places, unit, nodes, place)
            continue
        if not isinstance(one, list) or len(one) != 4:
            raise BadFile("a switch is [sources, destinations, chunks, name]", where=place)
        sources, targets, chunks, name = one
        if not (isinstance(sources, list) and isinstance(targets, list)):
            raise BadFile("sources and destinations are lists of nodes", where=place)
        for node in (*sources, *targets):
            if type(node) is not int or node not in nodes:
                raise BadFile(f"{str(node)[:40]!r} is not a node below {len(nodes)}", where=place)
        ends = ((a, b) for a in sources for b in targets)
        if used := tuple(dict.fromkeys(places[end] for end in ends if end in places)):
            if not (many := _chunks(chunks, place)):
                raise BadFile("a switch carries 0 chunks", where=place)
            yield Resource(str(name)[:80], used, many * unit)


def _chunks(value: Any, where: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFile(f"{str(value)[:40]!r} is not a number of chunks", where=where)
    many = exact(value, where)
    if many < 0:
        raise BadFile(f"{float(many):g} chunks a round", where=where)
    return many


# --- edge lists -----------------------------------------------------------------------------------
# JSON objects with ``edges`` and ``gpu_ids``.
# An edge is [source, destination, GB/s, µs]; ``gpu_ids`` lists the nodes that are GPUs, in rank
# order; every other node is a switch that only forwards. Other keys are ignored, ``topology`` or
# ``name`` is the name. With ``"parallel": true`` an edge may occur more than once. ``"switches":
# {"NODE": ["multicast", "reduces", "turns", "issuer_in_group"]}`` lists the switches that do more.


def read_edge_list(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the parsed JSON of an edge list.

    Option ``entry=`` selects one of an object with several edge lists.

    Raises:
        BadFile: a malformed edge, a duplicate edge or GPU, no ``gpu_ids``.
        BadTopology: a bandwidth that is not positive, a self-loop.
    """
    data, where = _entry(data, where, options)
    ids = _names(data.get("gpu_ids"), where)
    places = {name: rank for rank, name in enumerate(ids)}
    links: list[Link] = []
    seen: dict[tuple[int, int], int] = {}
    notes: list[str] = []
    for i, (src, dst, bandwidth, alpha) in enumerate(_edges(data.get("edges"), where)):
        ends = (places.setdefault(src, len(places)), places.setdefault(dst, len(places)))
        if ends in seen and data.get("parallel") is not True:
            raise BadFile(
                f"edges {seen[ends]} and {i} both go from {src} to {dst}",
                where=where,
                hint='add their bandwidths, or write "parallel": true',
            )
        seen[ends] = i
        if alpha is None:
            alpha = CABLE_ALPHA
            notes = [f"alpha is not on every edge; assumed {float(CABLE_ALPHA)}us"]
        width = placed(partial(exact, bandwidth, "bandwidth"), f"{where}: edge {i}")
        delay = placed(partial(exact, alpha, "latency"), f"{where}: edge {i}")
        links.append(Link(*ends, width, delay))
    able = _capable(data.get("switches"), places, len(ids), where)
    nodes = tuple(
        replace(node, **as_fields(able[i])) if i in able else node
        for i, node in enumerate(_nodes(places, len(ids)))
    )
    made = Topology(_name(data, options), nodes, tuple(links), notes=tuple(notes))
    return replace(made, symmetries=guess(made))


def _entry(data: Any, where: str, options: MachineSpec) -> tuple[dict[str, Any], str]:
    key, span = options.word("entry")
    if not isinstance(data, dict):
        raise BadFile("an object with edges and gpu_ids is expected", where=where)
    if not key:
        return data, where
    if not isinstance(data.get(key), dict):
        raise BadFile(f"{where}: expected an object {key!r}, got none", where=span)
    return data[key], f"{where}: {key}"


def _names(ids: Any, where: str) -> list[str]:
    if not isinstance(ids, list) or not ids:
        raise BadFile(
            "gpu_ids is missing", where=where, hint="list the nodes that are GPUs, in rank order"
        )
    if len(ids) > MAX_GPUS:
        raise BadFile(f"more than {MAX_GPUS} GPUs", where=where)
    names = [_node_name(x, f"{where}: gpu_ids") for x in ids]
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise BadFile(f"GPU {twice[0]!r} is listed twice in gpu_ids", where=where)
    return names


def _edges(edges: Any, where: str) -> Iterator[tuple[str, str, Any, Any]]:
    if not isinstance(edges, list):
        raise BadFile("edges must be a list", where=where)
    if len(edges) > MAX_LINKS:
        raise BadFile(f"more than {MAX_LINKS} edges", where=where)
    for i, edge in enumerate(edges):
        place = f"{where}: edge {i}"
        if not isinstance(edge, list) or len(edge) not in (3, 4):
            raise BadFile("an edge is [source, destination, GB/s, µs]", where=place)
        src, dst = _node_name(edge[0], place), _node_name(edge[1], place)
        yield src, dst, edge[2], edge[3] if len(edge) == 4 else None


def _capable(data: Any, places: dict[str, int], gpus: int, where: str) -> dict[int, frozenset[str]]:
    if data is None:
        return {}
    where = f"{where}: switches"
    if not isinstance(data, dict):
        raise BadFile('switches is an object: {"sw0": ["multicast", "reduces"]}', where=where)
    found = {}
    for name, words in data.items():
        if name not in places:
            others = [key for key, i in places.items() if i >= gpus]
            raise UnknownName("switch", name[:60], others, where=where)
        if places[name] < gpus:
            raise BadFile(
                f"{name} is a GPU", where=where, hint="only nodes that are not in gpu_ids compute"
            )
        found[places[name]] = read_capabilities(words, f"{where}: {name}")
    return found


def _node_name(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > 200:
        raise BadFile(f"a node is named by a string or a number, not {value!r}"[:120], where=where)
    return str(value)


def _nodes(places: dict[str, int], gpus: int) -> Iterator[Node]:
    numbers = {f"gpu{r}" for r in range(gpus)}
    for name, i in places.items():
        if i < gpus:
            yield Node(f"gpu{i}")
        else:
            yield Node(f"switch-{name}" if name in numbers else name, NodeKind.SWITCH)


def _name(data: dict[str, Any], options: MachineSpec) -> str:
    for key in ("topology", "name"):
        if isinstance(data.get(key), str):
            return str(data[key])[:200]
    return options.title()

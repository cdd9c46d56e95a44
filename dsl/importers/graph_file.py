"""Importers of GraphML and GML, as written by networkx, yEd, Gephi, igraph and others.

Attributes as :mod:`weft.dsl.nouns.graph` describes them. Options: ``bw=`` and ``alpha=`` for edges
that have none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ..base.errors import BadFile, BadTopology
from ..machines.spec import MAX_GPUS, MAX_LINKS, MachineSpec
from ..nouns.topology import Topology
from ..symmetry.symmetry import GUESSED, guess
from .generations import CABLE_ALPHA
from .xml_tree import Element, parse_xml

_GRAPHML = re.compile(r"<(?:\w+:)?graphml[\s>]")
_GML = re.compile(  # possessive: a line is taken in one way, so that what is none ends at once
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
                    f"an edge has no {end}, or one that is not a node: {element.get(end)!r}",
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
    if made.symmetries or made.ranks > GUESSED:
        return made
    return replace(made, symmetries=guess(made))


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]

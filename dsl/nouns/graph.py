"""Conversion between topologies and networkx graphs, for ``Topology.to_networkx`` and back.

A topology becomes a ``MultiDiGraph`` whose nodes are the topology's node names. Attributes:

* nodes: ``kind`` (gpu, switch, nic, host), ``rank`` (GPUs), ``host`` (int), ``multicast``,
  ``reduces``, ``turns``, ``issuer_in_group`` (where true) and their limits (``groups``,
  ``least_group``, ``types`` and ``operators`` joined by ``;``), ``names`` of the machine's own
  tools, joined by ``;`` (where known), ``copy_of`` (of further copies of a part);
* edges, one for each directed link, keyed by the link's index: ``bandwidth`` in GB/s, ``latency``
  in µs, ``lanes`` (where not 1), ``medium`` (where it is named), ``shared``: the shared resources
  that the link loads, as ``name=GB/s`` joined by ``;``, ``names`` as of nodes.

Numbers are floats where a float stands for exactly that decimal, and texts such as ``"100/3"``
elsewhere, so that nothing is lost on the way back. GraphML and GML keep all of it.

>>> from weft.dsl.nouns.topology import Topology, both_ways, gpu
>>> pair = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))
>>> graph = pair.to_networkx()
>>> graph.nodes["gpu0"], graph.edges["gpu0", "gpu1", 0]
({'kind': 'gpu', 'rank': 0}, {'bandwidth': 25.0, 'latency': 0.7})
>>> Topology.from_networkx(graph) == pair
True
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

from ..base.errors import BadTopology, UserError, WrongType, an, suggest
from ..base.files import Fields
from ..base.record import without_empty
from ..base.spans import one_line
from ..base.tables import count
from ..base.units import exact, parse_bandwidth, parse_microseconds
from .capabilities import CAPABILITIES, NO_LIMITS, CastLimits, read_limits
from .parts import Link, Medium, Node, NodeKind, Resource

T = TypeVar("T")

LIMITS = ("groups", "least_group", "types", "operators")
NODE_ATTRIBUTES = frozenset({"kind", "rank", "host", "names", "copy_of", *CAPABILITIES, *LIMITS})
EDGE_ATTRIBUTES = frozenset({"bandwidth", "latency", "lanes", "medium", "shared", "names"})
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


Parts = tuple[tuple[Node, ...], tuple[Link, ...], tuple[Resource, ...], tuple[str, ...]]
"""Nodes, links, shared resources, and notes on assumptions."""


def graph_of(
    name: str, nodes: Sequence[Node], links: Sequence[Link], resources: Sequence[Resource]
) -> Any:
    """Return the ``networkx.MultiDiGraph`` of the parts; attributes as in the module's text."""
    import networkx as nx  # 150 ms to import, so only where a graph is built

    graph = nx.MultiDiGraph(name=name)
    for index, node in enumerate(nodes):
        of_node = {
            "kind": node.kind,
            "rank": index if node.stores else None,
            "host": node.host,
            **dict.fromkeys(node.capabilities, True),
            **node.limits.to_json(),
            "names": node.names,
            "copy_of": node.copy_of,
        }
        graph.add_node(node.name, **_joined(of_node))
    shared: dict[int, list[str]] = {}
    for resource in resources:
        for member in resource.links:
            text = f"{resource.name}={_number(resource.bandwidth)}"
            shared.setdefault(member, []).append(text)
    for index, link in enumerate(links):
        ends = (nodes[link.src].name, nodes[link.dst].name)
        held = {
            "bandwidth": _number(link.bandwidth),
            "latency": _number(link.latency),
            "lanes": None if link.lanes == 1 else link.lanes,
            "medium": link.medium,
            "shared": shared.get(index),
            "names": link.names,
        }
        graph.add_edge(*ends, key=index, **_joined(held))
    return graph


def parts_of(graph: Any, bandwidth: float | Fraction | None, latency: float | Fraction) -> Parts:
    """Return the parts that a graph describes, GPUs first.

    Args:
        graph: nodes and edges with the attributes above; bandwidths may be GB/s or texts with a
            unit (``"200Gb/s"``), latencies µs or texts (``"700ns"``).
        bandwidth: GB/s of edges that name none; None refuses them.
        latency: µs of edges that name none.

    Raises:
        BadTopology: as ``Topology.from_networkx``.
    """
    if not hasattr(graph, "nodes") or not hasattr(graph, "edges"):
        told = f"graph is a networkx graph, not {an(type(graph).__name__)}"
        raise WrongType(told, hint="networkx.Graph(), or topology.to_networkx()")
    notes: list[str] = []
    usual = None if bandwidth is None else exact(bandwidth, "bandwidth")
    latency = exact(latency, "latency")
    nodes = _nodes(graph, notes)
    place = {key: i for i, (key, _) in enumerate(nodes)}
    edges = _edges(graph)
    _note_missing(edges, usual, latency, notes)
    _note_unread("nodes", (data for _, data in graph.nodes(data=True)), NODE_ATTRIBUTES, notes)
    _note_unread("edges", (data for *_, data in edges), EDGE_ATTRIBUTES, notes)
    links: list[Link] = []
    shared: dict[str, tuple[Fraction, list[int]]] = {}
    for u, v, data in edges:
        where = f"edge {u} - {v}"
        width = _quantity(data, "bandwidth", where, parse_bandwidth, usual)
        delay = _quantity(data, "latency", where, parse_microseconds, latency)
        lanes = _integer(data, "lanes", where)
        for resource, capacity in _shared(data, where):
            _join(shared, resource, capacity, len(links), where)
        lanes, medium = 1 if lanes is None else lanes, _medium(data, where)
        links.append(Link(place[u], place[v], width, delay, lanes, medium, _own_names(data)))
    return (
        tuple(node for _, node in nodes),
        tuple(links),
        tuple(Resource(key, tuple(members), width) for key, (width, members) in shared.items()),
        tuple(notes),
    )


def held_json(graph: Any, key: str, kind: type[T]) -> T:
    """Return the list or object that a graph's attribute holds as JSON text; empty if none."""
    try:
        found = json.loads(graph.graph.get(key, ""))
    except (TypeError, ValueError, RecursionError):
        return kind()
    return found if isinstance(found, kind) else kind()


def _joined(held: Mapping[str, Any]) -> dict[str, Any]:
    told = without_empty(held)
    return {key: ";".join(x) if isinstance(x, list) else x for key, x in told.items()}


def _number(value: Fraction) -> float | str:
    """Return a float if its shortest decimal is the exact value, else the fraction as text."""
    near = float(value)
    return near if Fraction(repr(near)) == value else str(value)


def _nodes(graph: Any, notes: list[str]) -> list[tuple[Any, Node]]:
    """Return keys and nodes, GPUs first in rank order, then the others in the graph's order."""
    unnamed = [str(key) for key, data in graph.nodes(data=True) if "kind" not in data]
    if unnamed:
        notes.append(f"{_without(unnamed, 'node', 'kind')}; assumed gpu")
    made = [(key, data, _node(key, data)) for key, data in graph.nodes(data=True)]
    gpus = [(key, data, node) for key, data, node in made if node.stores]
    others = [(key, node) for key, _, node in made if not node.stores]
    ranks = [_integer(data, "rank", f"node {key}") for key, data, _ in gpus]
    if any(rank is not None for rank in ranks):
        if sorted(-1 if r is None else r for r in ranks) != list(range(len(gpus))):
            raise BadTopology(
                f"the ranks of the graph's {len(gpus)} GPUs are not 0 … {len(gpus) - 1}",
                hint="give every GPU another rank, or none of them one",
            )
        gpus = [gpus[ranks.index(rank)] for rank in range(len(gpus))]
    elif gpus:
        notes.append("no GPU has a `rank`; ranks follow the order of the graph's nodes")
    return [*((key, node) for key, _, node in gpus), *others]


def _node(key: Any, data: Mapping[str, Any]) -> Node:
    where = f"node {key}"
    kind = str(data.get("kind", NodeKind.GPU)).strip().lower()
    if kind not in set(NodeKind):
        raise BadTopology(f"{where} is of unknown kind {kind!r}", hint=suggest(kind, NodeKind))
    return Node(
        one_line(str(key)),
        NodeKind(kind),
        _integer(data, "host", where),
        names=_own_names(data),
        limits=_limits(data, where),
        copy_of=str(data.get("copy_of", "")),
        **{word: _boolean(data, word, where) for word in CAPABILITIES},
    )


def _limits(data: Mapping[str, Any], where: str) -> CastLimits:
    """Return the limits of a switch; numbers may be texts, as GraphML writes them."""
    if not any(key in data for key in LIMITS):
        return NO_LIMITS
    numbers = {key: _integer(data, key, where) for key in ("groups", "least_group") if key in data}
    words = {
        key: [word.strip() for word in str(data[key]).split(";") if word.strip()]
        for key in ("types", "operators")
        if key in data
    }
    try:
        return read_limits(Fields({**numbers, **words}, where), where)
    except UserError as error:
        raise BadTopology(f"{where}: {error.message}", hint=error.hint) from None


def _own_names(data: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, str(data.get("names", "")).split(";"))))


def _medium(data: Mapping[str, Any], where: str) -> Medium | None:
    if (value := data.get("medium")) is None:
        return None
    if str(value) not in set(Medium):
        raise BadTopology(f"{where}: unknown medium {value!r}", hint=suggest(str(value), Medium))
    return Medium(str(value))


def _edges(graph: Any) -> list[tuple[Any, Any, Mapping[str, Any]]]:
    """Return directed edges; in graphs written by weft, in the order of their keys (links)."""
    if graph.is_multigraph():
        keyed = list(graph.edges(keys=True, data=True))
        if [k for _, _, k, _ in keyed] and {k for _, _, k, _ in keyed} == set(range(len(keyed))):
            keyed.sort(key=lambda edge: edge[2])
        edges = [(u, v, data) for u, v, _, data in keyed]
    else:
        edges = list(graph.edges(data=True))
    if graph.is_directed():
        return edges
    return [ends for u, v, data in edges for ends in ((u, v, data), (v, u, data))]


def _quantity(
    data: Mapping[str, Any],
    key: str,
    where: str,
    parse: Callable[[str], Fraction],
    default: Fraction | None,
) -> Fraction:
    """Parse a number in GB/s or µs, or a text with a unit."""
    value = data.get(key)
    if value is None:
        assert default is not None  # _note_missing has refused it
        return default
    try:
        if isinstance(value, str) and any(c.isalpha() and c not in "eE" for c in value):
            return parse(value)
        return exact(value, key)
    except UserError as error:
        raise BadTopology(f"{where}: {error.message}", hint=error.hint) from None


def _integer(data: Mapping[str, Any], key: str, where: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    try:
        number = exact(value, key)
    except UserError as error:
        raise BadTopology(f"{where}: {error.message}") from None
    if number.denominator != 1 or number < 0:
        raise BadTopology(f"{where}: {key} must be an integer, not {value!r}")
    return number.numerator


def _boolean(data: Mapping[str, Any], key: str, where: str) -> bool:
    value = data.get(key, False)
    found = BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise BadTopology(f"{where}: {key} must be true or false, not {value!r}")
    return found


def _shared(data: Mapping[str, Any], where: str) -> list[tuple[str, Fraction]]:
    """Parse the shared resources of an edge: ``nic0=25;plane0=100GB/s``."""
    found = []
    for item in filter(None, str(data.get("shared", "")).split(";")):
        name, equals, width = item.rpartition("=")
        if not equals or not name.strip():
            raise BadTopology(
                f"{where}: shared resource {item!r} is not name=bandwidth",
                hint="write shared as nic0=25;plane0=100, in GB/s",
            )
        capacity = _quantity(
            {"bandwidth": width.strip()}, "bandwidth", where, parse_bandwidth, None
        )
        found.append((name.strip(), capacity))
    return found


def _join(
    shared: dict[str, tuple[Fraction, list[int]]],
    name: str,
    capacity: Fraction,
    index: int,
    where: str,
) -> None:
    """Add a link to a shared resource; refuse a bandwidth that differs from its other links'."""
    known, members = shared.setdefault(name, (capacity, []))
    if known != capacity:
        raise BadTopology(
            f"{where}: shared resource {name!r} has {capacity} GB/s here and {known} elsewhere"
        )
    members.append(index)


def _note_missing(
    edges: list[tuple[Any, Any, Mapping[str, Any]]],
    bandwidth: Fraction | None,
    latency: Fraction,
    notes: list[str],
) -> None:
    """Note fields that edges lack; refuse edges without a bandwidth or default."""
    bare = [f"{u} - {v}" for u, v, data in edges if data.get("bandwidth") is None]
    if bare and bandwidth is None:
        raise BadTopology(
            _without(bare, "edge", "bandwidth"),
            hint="give edges a bandwidth in GB/s, or one for all of them: bw=25GB/s",
        )
    if bare:
        notes.append(f"{_without(bare, 'edge', 'bandwidth')}; assumed {bandwidth} GB/s")
    bare = [f"{u} - {v}" for u, v, data in edges if data.get("latency") is None]
    if bare:
        notes.append(f"{_without(bare, 'edge', 'latency')}; assumed {float(latency)}us")


def _note_unread(
    noun: str, attributes: Iterable[Mapping[str, Any]], known: frozenset[str], notes: list[str]
) -> None:
    ignored = sorted({str(key) for data in attributes for key in data} - known)
    if ignored:
        notes.append(f"attributes of {noun} that are not read: {', '.join(ignored[:12])}")


def _without(names: list[str], noun: str, attribute: str) -> str:
    """Report which nodes or edges lack an attribute: ``3 edges (…) have no `latency```."""
    verb = "has" if len(names) == 1 else "have"
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return f"{count(len(names), noun)} ({shown}) {verb} no `{attribute}`"

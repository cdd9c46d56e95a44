"""The file form of a topology: one strict, versioned JSON object."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..base.errors import BadFile, UserError
from ..base.files import SCHEMA, Fields, require_kind
from ..base.units import exact
from .topology import Link, Node, NodeKind, Resource, Topology


def dump(topology: Topology) -> dict[str, Any]:
    """The JSON object of a topology; rationals that are not integers are strings."""
    return {
        "weft": "topology",
        "schema": SCHEMA,
        "name": topology.name,
        "nodes": [_node(n) for n in topology.nodes],
        "links": [
            [x.src, x.dst, _number(x.bandwidth), _number(x.latency), x.lanes]
            for x in topology.links
        ],
        "resources": [
            {"name": r.name, "links": list(r.links), "bandwidth_GBps": _number(r.bandwidth)}
            for r in topology.resources
        ],
        "symmetries": [list(s) for s in topology.symmetries],
        "notes": list(topology.notes),
    }


def load(data: Any, where: str = "topology") -> Topology:
    """Read the object that :func:`dump` writes.

    Raises:
        BadFile: not such an object. BadTopology: an impossible machine.
    """
    require_kind(data, "topology", where)
    fields = Fields(data, where)
    topology = Topology(
        fields.get("name", str),
        tuple(_read_node(x, f"{where}: node {i}") for i, x in enumerate(fields.get("nodes", list))),
        tuple(_read_link(x, f"{where}: link {i}") for i, x in enumerate(fields.get("links", list))),
        tuple(
            _read_resource(x, f"{where}: resource {i}")
            for i, x in enumerate(fields.get("resources", list, []))
        ),
        tuple(_permutation(x, where) for x in fields.get("symmetries", list, [])),
        tuple(str(x) for x in fields.get("notes", list, [])),
    )
    fields.finish()
    return topology


def _number(value: Fraction) -> int | str:
    return value.numerator if value.denominator == 1 else str(value)


def _node(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name, "kind": str(node.kind)}
    if node.host is not None:
        data["host"] = node.host
    if node.multicast:
        data["multicast"] = True
    if node.reduces:
        data["reduces"] = True
    return data


def _read_node(data: Any, where: str) -> Node:
    fields = Fields(data, where)
    kind = fields.get("kind", str)
    if kind not in set(NodeKind):
        raise BadFile(f"unknown kind of node {kind!r}", where=where, hint=", ".join(NodeKind))
    node = Node(
        fields.get("name", str),
        NodeKind(kind),
        fields.get("host", (int, type(None)), None),
        fields.get("multicast", bool, False),
        fields.get("reduces", bool, False),
    )
    fields.finish()
    return node


def _read_link(data: Any, where: str) -> Link:
    if not isinstance(data, list) or len(data) != 5:
        raise BadFile("a link is [src, dst, GB/s, µs, lanes]", where=where)
    src, dst, bandwidth, latency, lanes = data
    if not all(type(x) is int for x in (src, dst, lanes)):
        raise BadFile("src, dst and lanes of a link are integers", where=where)
    try:
        return Link(src, dst, exact(bandwidth, "bandwidth"), exact(latency, "latency"), lanes)
    except UserError as error:
        raise BadFile(error.message, where=where) from None


def _read_resource(data: Any, where: str) -> Resource:
    fields = Fields(data, where)
    resource = Resource(
        fields.get("name", str),
        tuple(fields.integers("links")),
        exact(fields.get("bandwidth_GBps", (int, float, str)), f"{where}: bandwidth_GBps"),
    )
    fields.finish()
    return resource


def _permutation(data: Any, where: str) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(type(x) is int for x in data):
        raise BadFile("a symmetry is a list of node indices", where=where)
    return tuple(data)

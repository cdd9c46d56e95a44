"""Nodes of Chakra execution traces (mlcommons/chakra 1.0.0, ``et_def.proto``), read and written.

What weft adds are attributes and names of its own, which readers pass over: ``weft_input`` and
``weft_output`` are offsets in a rank's buffers (as ``3`` or ``3,7``), ``weft_route`` of a send the
links of its message, and the attribute ``weft`` of the first file's metadata is a JSON object with
collective, size and copies. A turn is a computation of no time that takes no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.dsl.base.errors import BadFile
from weft.dsl.importers.chakra_et import COMP, RECV, SEND, Attribute, ExecutionTrace, TraceNode

from ..messages.model import GraphNode, GraphNodeKind

PS_PER_US = 10**6

TYPES = {GraphNodeKind.SEND: SEND, GraphNodeKind.RECV: RECV}
KINDS = {number: kind for kind, number in TYPES.items()} | {COMP: GraphNodeKind.SUM}

NUMBERS = {"weft_input": "inputs", "weft_output": "outputs", "weft_route": "route"}
"""Attributes that list numbers, and the fields of nodes that hold them."""


def trace_of(nodes: Sequence[GraphNode], metadata: Mapping[str, Attribute]) -> ExecutionTrace:
    """Return the trace of a rank; one without nodes gets one that does nothing: ASTRA-sim's
    algorithm ends when its last node is over, and never without any."""
    written = [_written(number, node) for number, node in enumerate(nodes)]
    return ExecutionTrace(metadata, tuple(written or [TraceNode(0, COMP, "idle")]))


def _written(number: int, node: GraphNode) -> TraceNode:
    attributes: dict[str, Attribute] = {}
    name = f"sum {node.bytes}B" if node.kind is GraphNodeKind.SUM else str(node.kind)
    if not node.local:
        end, word = ("comm_dst", "to") if node.kind is GraphNodeKind.SEND else ("comm_src", "from")
        name = f"{node.kind} {word} {node.peer}"
        attributes = {end: node.peer, "comm_tag": node.tag, "comm_size": node.bytes}
    for key, field in NUMBERS.items():
        if numbers := getattr(node, field):
            attributes[key] = ",".join(map(str, numbers))
    return TraceNode(
        number,
        TYPES.get(node.kind, COMP),
        name,
        ctrl_deps=node.waits,
        data_deps=node.needs,
        duration_us=node.ps // PS_PER_US,
        attributes=attributes,
    )


# --- reading --------------------------------------------------------------------------------------


def nodes_of(trace: ExecutionTrace, where: str) -> tuple[GraphNode, ...]:
    """Return the nodes of a rank's trace: sends, receives and computations.

    Raises:
        BadFile: another type of node, an identifier twice, or an attribute that ASTRA-sim needs
            is missing.
    """
    place = {node.id: number for number, node in enumerate(trace.nodes)}
    if len(place) < len(trace.nodes):
        raise BadFile("two nodes have one id", where=where)
    return tuple(_read(node, place, where) for node in trace.nodes)


def _read(node: TraceNode, place: Mapping[int, int], where: str) -> GraphNode:
    at = f"{where}: node {node.id}"
    kind = KINDS.get(node.type)
    if kind is None:
        raise BadFile(
            f"a node of the type {node.type}: a collective algorithm has sends, receives and "
            "computations",
            where=at,
        )
    unknown = [other for other in (*node.ctrl_deps, *node.data_deps) if other not in place]
    if unknown:
        raise BadFile(f"it depends on node {unknown[0]}, which is not there", where=at)
    peer = tag = -1
    size = 0
    if kind is GraphNodeKind.SUM and not (
        node.data_deps or node.duration_us or "weft_input" in node.attributes
    ):
        kind = GraphNodeKind.TURN
    if kind in TYPES:
        end = "comm_dst" if kind is GraphNodeKind.SEND else "comm_src"
        peer, tag, size = (_needed(node, name, at) for name in (end, "comm_tag", "comm_size"))
    return GraphNode(
        kind,
        size,
        peer,
        tag,
        needs=tuple(place[other] for other in node.data_deps),
        waits=tuple(place[other] for other in node.ctrl_deps),
        inputs=_offsets(node, "weft_input", at),
        outputs=_offsets(node, "weft_output", at),
        ps=int(node.duration_us * PS_PER_US),
        route=_offsets(node, "weft_route", at),
    )


def _needed(node: TraceNode, name: str, where: str) -> int:
    value = node.attributes.get(name)
    if not isinstance(value, int):
        raise BadFile(f"the attribute {name} is missing: ASTRA-sim ends there", where=where)
    return value


def _offsets(node: TraceNode, name: str, where: str) -> tuple[int, ...]:
    value = node.attributes.get(name)
    if value is None:
        return ()
    parts = str(value).split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise BadFile(f"{name} is {str(value)[:40]!r}, not offsets such as 3,7", where=where)
    return tuple(map(int, parts))

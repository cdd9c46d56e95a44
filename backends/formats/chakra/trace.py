"""Nodes of Chakra execution traces (mlcommons/chakra 1.0.0, ``et_def.proto``), read and written.

What weft adds are attributes and names of its own, which readers pass over: ``weft_input`` and
``weft_output`` are offsets in a rank's buffers (as ``3`` or ``3,7``), and the attribute ``weft`` of
the first file's metadata is a JSON object with collective, size and copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.dsl.base.errors import BadFile

from ..messages.model import GraphNode, GraphNodeKind
from .wire import (
    fields_of,
    framed,
    frames_of,
    integers_in,
    put_bytes,
    put_integer,
    put_packed,
    signed,
)

VERSION = "0.0.4"
"""``GlobalMetadata.version`` of ASTRA-sim's own generators; nothing checks it."""

COMP, SEND, RECV, COLL = 4, 5, 6, 7
"""``NodeType``."""

PS_PER_US = 10**6

ID, NAME, TYPE, CTRL_DEPS, DATA_DEPS, DURATION, ATTR = 1, 2, 3, 4, 5, 7, 10
"""Fields of ``Node``."""

INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, STRING = 7, 9, 11, 13, 15, 17, 27, 29
"""Fields of ``AttributeProto`` beside its name (1) and text (2)."""

Attribute = int | str

TYPES = {GraphNodeKind.SUM: COMP, GraphNodeKind.SEND: SEND, GraphNodeKind.RECV: RECV}
KINDS = {number: kind for kind, number in TYPES.items()}


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One ``Node`` of a trace."""

    id: int
    type: int
    name: str = ""
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """One file: the metadata's attributes, and the nodes."""

    metadata: Mapping[str, Attribute]
    nodes: tuple[TraceNode, ...]


# --- writing --------------------------------------------------------------------------------------


def encoded(trace: ExecutionTrace) -> bytes:
    """Return the bytes of a file."""

    def messages() -> Iterator[bytes]:
        attributes = _attributes(2, trace.metadata)
        yield put_bytes(1, VERSION.encode()) + attributes
        for node in trace.nodes:
            yield _node(node)

    return framed(messages())


def _node(node: TraceNode) -> bytes:
    parts = [put_integer(ID, node.id)]
    parts += [put_bytes(NAME, node.name.encode()), put_integer(TYPE, node.type)]
    parts += [put_packed(CTRL_DEPS, node.ctrl_deps), put_packed(DATA_DEPS, node.data_deps)]
    if node.duration_us:
        parts.append(put_integer(DURATION, node.duration_us))
    return b"".join(parts) + _attributes(ATTR, node.attributes)


def _attributes(number: int, attributes: Mapping[str, Attribute]) -> bytes:
    def value(name: str, one: Attribute) -> bytes:
        if isinstance(one, str):
            return put_bytes(STRING, one.encode())
        if isinstance(one, bool):
            return put_integer(BOOL, one)
        return put_integer(INT64 if name == "comm_size" or one > 0x7FFFFFFF else INT32, one)

    return b"".join(
        put_bytes(number, put_bytes(1, name.encode()) + value(name, one))
        for name, one in attributes.items()
    )


def trace_of(nodes: Sequence[GraphNode], metadata: Mapping[str, Attribute]) -> ExecutionTrace:
    """Return the trace of a rank; one without nodes gets one that does nothing: ASTRA-sim's
    algorithm ends when its last node is over, and never without any."""
    written = [_written(number, node) for number, node in enumerate(nodes)]
    return ExecutionTrace(metadata, tuple(written or [TraceNode(0, COMP, "idle")]))


def _written(number: int, node: GraphNode) -> TraceNode:
    attributes: dict[str, Attribute] = {}
    name = f"sum {node.bytes}B"
    if node.kind is not GraphNodeKind.SUM:
        end, word = ("comm_dst", "to") if node.kind is GraphNodeKind.SEND else ("comm_src", "from")
        name = f"{node.kind} {word} {node.peer}"
        attributes = {end: node.peer, "comm_tag": node.tag, "comm_size": node.bytes}
    for key, offsets in (("weft_input", node.inputs), ("weft_output", node.outputs)):
        if offsets:
            attributes[key] = ",".join(map(str, offsets))
    return TraceNode(
        number,
        TYPES[node.kind],
        name,
        data_deps=node.needs,
        duration_us=node.ps // PS_PER_US,
        attributes=attributes,
    )


# --- reading --------------------------------------------------------------------------------------


def decoded(data: bytes, where: str) -> ExecutionTrace:
    """Return the trace in a file.

    Raises:
        BadFile: it is cut off, or not a trace.
    """
    try:
        messages = frames_of(data)
        first = next(messages, None)
        if first is None:
            raise ValueError("the file is empty")
        metadata = _read_attributes(first, 2)
        return ExecutionTrace(metadata, tuple(map(_read_node, messages)))
    except (ValueError, UnicodeDecodeError) as error:
        told = "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise BadFile(f"not a Chakra execution trace: {told}", where=where) from None


def _read_node(message: bytes) -> TraceNode:
    numbers = {ID: 0, TYPE: 0, DURATION: 0}
    deps: dict[int, list[int]] = {CTRL_DEPS: [], DATA_DEPS: []}
    name = ""
    for number, value in fields_of(message):
        if number in numbers:
            numbers[number] = _integer(value)
        elif number in deps:
            deps[number] += [value] if isinstance(value, int) else integers_in(value)
        elif number == NAME:
            name = _bytes(value).decode()
    return TraceNode(
        numbers[ID],
        numbers[TYPE],
        name,
        tuple(deps[CTRL_DEPS]),
        tuple(deps[DATA_DEPS]),
        numbers[DURATION],
        _read_attributes(message, ATTR),
    )


def _read_attributes(message: bytes, number: int) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for at, value in fields_of(message):
        if at != number:
            continue
        name = ""
        held: Attribute | None = None
        for inner, part in fields_of(_bytes(value)):
            if inner == 1:
                name = _bytes(part).decode()
            elif inner in (INT32, INT64):
                held = signed(_integer(part))
            elif inner in (SINT32, SINT64):
                zigzag = _integer(part)
                held = zigzag >> 1 ^ -(zigzag & 1)
            elif inner in (UINT32, UINT64, BOOL):
                held = _integer(part)
            elif inner == STRING:
                held = _bytes(part).decode()
        if held is not None:
            found[name] = held
    return found


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes, where a number should be")
    return value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number, where bytes should be")
    return value


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
    if kind is not GraphNodeKind.SUM:
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
        ps=node.duration_us * PS_PER_US,
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

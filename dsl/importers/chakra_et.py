"""Chakra execution traces on disk: a message of metadata, then nodes (``et_def.proto``, 1.0.0).

A file belongs to one rank. Messages stand one after another, each after its length, in the form of
Protocol Buffers: varints and length-delimited fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction

from ..base.errors import BadFile
from ..base.lazy_dataclass import Frozen, dataclass

# --- Protocol Buffers -----------------------------------------------------------------------------

VARINT, WIDE, DELIMITED, NARROW = 0, 1, 2, 5
"""Wire types: a varint, 64 bits, a length with its bytes, 32 bits."""

MOST = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Return an integer in groups of seven bits, the lowest first; a negative one has 64 bits."""
    value &= MOST
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def put_integer(field: int, value: int) -> bytes:
    """Return a field of any integer type, or bool."""
    return varint(field << 3 | VARINT) + varint(value)


def put_bytes(field: int, value: bytes) -> bytes:
    """Return a field of bytes, a text or a message."""
    return varint(field << 3 | DELIMITED) + varint(len(value)) + value


def put_packed(field: int, values: tuple[int, ...]) -> bytes:
    """Return a repeated field of integers (packed, as proto3 has it); nothing if there are none."""
    return put_bytes(field, b"".join(map(varint, values))) if values else b""


def take_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and the position behind it.

    Raises:
        ValueError: it is cut off, or longer than 64 bits.
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("an integer is cut off")
        group = data[at]
        at += 1
        value |= (group & 0x7F) << shift
        shift += 7
        if group < 0x80:
            break
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
    if value > MOST:
        raise ValueError("an integer of more than 64 bits")
    return value, at


def signed(value: int) -> int:
    """Return an unsigned integer of 64 bits as the signed one of the same bits."""
    return value - (1 << 64) if value >> 63 else value


def integers_in(data: bytes) -> Iterator[int]:
    """Yield packed integers.

    Raises:
        ValueError: one is cut off.
    """
    at = 0
    while at < len(data):
        value, at = take_varint(data, at)
        yield value


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: integers, or bytes.

    >>> list(fields_of(put_integer(1, 300) + put_bytes(2, b"ab")))
    [(1, 300), (2, b'ab')]

    Raises:
        ValueError: it is not a message.
    """
    at = 0
    while at < len(data):
        key, at = take_varint(data, at)
        field, kind = key >> 3, key & 7
        if not field:
            raise ValueError("a field with the number 0")
        if kind == VARINT:
            value, at = take_varint(data, at)
            yield field, value
            continue
        if kind == DELIMITED:
            length, at = take_varint(data, at)
        elif kind in (WIDE, NARROW):
            length = 8 if kind == WIDE else 4
        else:
            raise ValueError(f"a field of the wire type {kind}")
        if at + length > len(data):
            raise ValueError("a field is cut off")
        yield field, data[at : at + length]
        at += length


def framed(messages: Iterator[bytes]) -> bytes:
    """Return messages one after another, each after its length."""
    return b"".join(varint(len(one)) + one for one in messages)


def frames_of(data: bytes) -> Iterator[bytes]:
    """Yield messages that stand one after another, each after its length.

    Raises:
        ValueError: one is cut off.
    """
    at = 0
    while at < len(data):
        length, at = take_varint(data, at)
        if at + length > len(data):
            raise ValueError("a message is cut off")
        yield data[at : at + length]
        at += length


VERSION = "0.0.4"
"""``GlobalMetadata.version`` of ASTRA-sim's own generators; nothing checks it."""

COMP, SEND, RECV, COLL = 4, 5, 6, 7
"""``NodeType``."""

ID, NAME, TYPE, CTRL_DEPS, DATA_DEPS, DURATION, INPUTS, ATTR = 1, 2, 3, 4, 5, 7, 8, 10
"""Fields of ``Node``."""

INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, STRING = 7, 9, 11, 13, 15, 17, 27, 29
"""Fields of ``AttributeProto`` beside its name (1) and text (2)."""

Attribute = int | str


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One ``Node`` of a trace; ``inputs``: the values of its inputs, as a text."""

    id: int
    type: int
    name: str = ""
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    duration_us: int | Fraction = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    inputs: str = ""


class ExecutionTrace(Frozen):
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
        parts.append(put_integer(DURATION, int(node.duration_us)))
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
    name = inputs = ""
    for number, value in fields_of(message):
        if number in numbers:
            numbers[number] = _integer(value)
        elif number in deps:
            deps[number] += [value] if isinstance(value, int) else integers_in(value)
        elif number == NAME:
            name = _bytes(value).decode()
        elif number == INPUTS:
            inputs = "".join(_bytes(x).decode() for n, x in fields_of(_bytes(value)) if n == 1)
    return TraceNode(
        numbers[ID],
        numbers[TYPE],
        name,
        tuple(deps[CTRL_DEPS]),
        tuple(deps[DATA_DEPS]),
        numbers[DURATION],
        _read_attributes(message, ATTR),
        inputs,
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

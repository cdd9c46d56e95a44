"""Protocol Buffers on the wire: varints and length-delimited fields, all that Chakra needs.

>>> put_integer(1, 300) + put_bytes(2, b"ab")
b'\\x08\\xac\\x02\\x12\\x02ab'
>>> list(fields_of(_))
[(1, 300), (2, b'ab')]
"""

from __future__ import annotations

from collections.abc import Iterator

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

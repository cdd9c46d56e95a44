"""A program as a JSON object (``docs/formats.md``): strict, versioned, an instruction per row."""

from __future__ import annotations

from typing import Any

from ..base.errors import BadFile, UnknownName
from ..base.files import SCHEMA, Fields, require_kind
from . import collective_json
from .program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice

LARGEST = 1 << 31
"""Numbers in a file are smaller."""


def dump(program: Program) -> dict[str, Any]:
    """The JSON object of a program."""
    return {
        "weft": "program",
        "schema": SCHEMA,
        "name": program.name,
        "collective": collective_json.dump(program.collective),
        "message_chunks": program.message_chunks,
        "in_place": program.in_place,
        "protocol": str(program.protocol),
        "ranks": [
            {
                "input_chunks": rank.input_chunks,
                "output_chunks": rank.output_chunks,
                "scratch_chunks": rank.scratch_chunks,
                "blocks": [_block(b) for b in rank],
            }
            for rank in program.ranks
        ],
    }


def _block(block: Block) -> dict[str, Any]:
    rows = [
        [
            str(i.op),
            str(i.src.buffer),
            i.src.offset,
            str(i.dst.buffer),
            i.dst.offset,
            i.count,
            [list(wait) for wait in i.waits],
        ]
        for i in block.code
    ]
    return {"channel": block.channel, "send": block.send, "recv": block.recv, "code": rows}


def load(data: Any, where: str = "program") -> Program:
    """Read the object that :func:`dump` writes: well formed, not proved.

    Raises:
        BadFile: not such an object. UserError: a collective that makes no sense.
    """
    require_kind(data, "program", where)
    fields = Fields(data, where)
    protocol = fields.get("protocol", str)
    if protocol not in set(Protocol):
        raise UnknownName("protocol", protocol, Protocol, where=where)
    program = Program(
        fields.get("name", str),
        collective_json.load(fields.get("collective", dict), f"{where}: collective"),
        tuple(_rank(x, f"{where}: rank {r}") for r, x in enumerate(fields.get("ranks", list))),
        _number(fields, "message_chunks", where),
        fields.get("in_place", bool),
        Protocol(protocol),
    )
    fields.finish()
    return program


def _rank(data: Any, where: str) -> RankProgram:
    fields = Fields(data, where)
    sizes = [_number(fields, f"{name}_chunks", where) for name in ("input", "output", "scratch")]
    blocks = tuple(
        _read_block(x, f"{where} block {b}") for b, x in enumerate(fields.get("blocks", list))
    )
    fields.finish()
    return RankProgram(blocks, *sizes)


def _read_block(data: Any, where: str) -> Block:
    fields = Fields(data, where)
    channel = _number(fields, "channel", where)
    peers = []
    for name in ("send", "recv"):
        peer = fields.get(name, (int, type(None)))
        peers.append(None if peer is None else _whole(peer, name, where))
    code = tuple(
        _instr(row, f"{where} instruction {i}") for i, row in enumerate(fields.get("code", list))
    )
    fields.finish()
    return Block(channel, peers[0], peers[1], code)


def _instr(row: Any, where: str) -> Instr:
    kinds = [str, str, int, str, int, int, list]
    if not isinstance(row, list) or [type(x) for x in row] != kinds:
        raise BadFile(
            "an instruction is [op, buffer, offset, buffer, offset, count, waits]", where=where
        )
    op, src, src_at, dst, dst_at, count, waits = row
    for name, known, noun in (
        (op, Op, "operation"),
        (src, Buffer, "buffer"),
        (dst, Buffer, "buffer"),
    ):
        if name not in set(known):
            raise UnknownName(noun, name, known, where=where)
    for wait in waits:
        if not isinstance(wait, list) or [type(x) for x in wait] != [int, int]:
            raise BadFile("a wait is [block, instruction]", where=where)
    return Instr(
        Op(op),
        Slice(Buffer(src), _whole(src_at, "the offset", where)),
        Slice(Buffer(dst), _whole(dst_at, "the offset", where)),
        _whole(count, "the count", where),
        tuple((_whole(b, "a wait", where), _whole(i, "a wait", where)) for b, i in waits),
    )


def _number(fields: Fields, key: str, where: str) -> int:
    return _whole(fields.get(key, int), key, where)


def _whole(value: int, what: str, where: str) -> int:
    if not 0 <= value < LARGEST:
        raise BadFile(f"{what} is {value}, outside 0 … {LARGEST - 1}", where=where)
    return value

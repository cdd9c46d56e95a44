"""The line in which a round is written, one for each rank.

>>> line = "o[3] > 1, s[0:2] < 7; o[2] = i[2] + s[0], o[4] = i[4]"
>>> parse(line).recvs
(Message(part=ChunkRange(buffer=<Buffer.SCRATCH: 's'>, first=0, count=2), peer=7),)
>>> write(parse(line)) == line
True

``i``, ``o`` and ``s`` are the input, the output and the scratch memory, ``[3]`` a chunk, ``[0:2]``
chunks 0 and 1. Before the semicolon are messages, sent (``>``) and received (``<``); behind it is
the work that follows.
"""

from __future__ import annotations

import re

from weft.dsl.base.errors import BadFile
from weft.dsl.nouns.program import Buffer

from .model import ChunkRange, LocalOperation, Message, Round

_PART = re.compile(r"([ios])\[(\d+)(?::(\d+))?\]")
_MESSAGE = re.compile(r"(\S+) ([<>]) (\d+)")


def write(one: Round) -> str:
    """Return the line of a round; a round in which the rank does nothing is an empty one."""
    talk = [f"{part_text(m.part)} > {m.peer}" for m in one.sends]
    talk += [f"{part_text(m.part)} < {m.peer}" for m in one.recvs]
    work = [work_text(w) for w in one.work]
    return ", ".join(talk) + (f"; {', '.join(work)}" if work else "")


def work_text(one: LocalOperation) -> str:
    """``o[3] = i[3] + s[0]``."""
    return f"{part_text(one.into)} = {' + '.join(map(part_text, one.terms))}"


def part_text(part: ChunkRange) -> str:
    """``o[3]`` or ``s[0:2]``."""
    end = f":{part.first + part.count}" if part.count > 1 else ""
    return f"{part.buffer}[{part.first}{end}]"


def parse(line: str, where: str = "round") -> Round:
    """Read the text of :func:`write`.

    Raises:
        BadFile: anything else.
    """
    talk, _, work = line.partition(";")
    sends: list[Message] = []
    recvs: list[Message] = []
    for text in _pieces(talk):
        match = _MESSAGE.fullmatch(text)
        if not match:
            raise _bad(text, "a message such as o[3] > 1 or s[0] < 2", where)
        (sends if match[2] == ">" else recvs).append(
            Message(read_part(match[1], where), int(match[3]))
        )
    return Round(tuple(sends), tuple(recvs), tuple(read_work(x, where) for x in _pieces(work)))


def _pieces(text: str) -> list[str]:
    return [piece.strip() for piece in text.split(",")] if text.strip() else []


def read_work(text: str, where: str) -> LocalOperation:
    """Read the text of :func:`work_text`.

    Raises:
        BadFile: anything else.
    """
    into, equals, rest = text.partition(" = ")
    terms = tuple(read_part(term, where) for term in rest.split(" + "))
    if not equals or len(terms) > 2:
        raise _bad(text, "work such as o[3] = i[3] + s[0]", where)
    return LocalOperation(read_part(into, where), terms)


def read_part(text: str, where: str) -> ChunkRange:
    """Read the text of :func:`part_text`.

    Raises:
        BadFile: anything else.
    """
    match = _PART.fullmatch(text)
    if not match:
        raise _bad(text, "chunks such as o[3] or s[0:2]", where)
    first = int(match[2])
    return ChunkRange(Buffer(match[1]), first, int(match[3]) - first if match[3] else 1)


def _bad(text: str, wanted: str, where: str) -> BadFile:
    return BadFile(f"{text!r} is not {wanted}", where=where)

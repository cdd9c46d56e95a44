"""Thread blocks of a plan as text, and back.

>>> line = "wait 3.0; nop; re o[2] + s[0] -> o[2]; nop; put o[2], o[4:6] -> 3.o[2], 3.o[4:6]"
>>> operations = parse_block(line, "block 0")
>>> [str(one.op) for one in operations]
['wait', 'nop', 're', 'nop', 'put']
>>> operations[2].parts[0]
Part(peer=None, buffer=<Buffer.OUTPUT: 'o'>, index=2, size=1, group=None)
>>> write_line(operations) == line
True

``i``, ``o`` and ``s`` are input, output and scratch, ``[2]`` a chunk and ``[4:6]`` two;
``3.o[2]`` is of rank 3. ``*.o[2]`` is what the switch sums of all ranks, or stores on all of them,
and ``0+1.s[0]`` what is stored on two. ``3.0`` is the channel with number 0 to rank 3; semaphores
are numbers, and a barrier is ``number/blocks``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from weft.dsl.base.errors import BadFile
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ..mscclpp.plan.model import PlanOp

PAIRED = frozenset({PlanOp.PUT, PlanOp.PUT_PACKETS})
SIGNALS = frozenset({PlanOp.SIGNAL, PlanOp.WAIT, PlanOp.RELAXED_SIGNAL, PlanOp.RELAXED_WAIT})
SEMAPHORES = frozenset({PlanOp.ACQUIRE, PlanOp.RELEASE})
CASTS = frozenset({PlanOp.MULTICAST_REDUCE_STORE, PlanOp.MULTICAST_STORE})
"""Operations of the switch: loads that it sums, stores that it copies."""

SUMS = frozenset(
    {
        PlanOp.REDUCE,
        PlanOp.REDUCE_SEND,
        PlanOp.REDUCE_PACKETS,
        PlanOp.REDUCE_SEND_PACKETS,
        PlanOp.MULTICAST_REDUCE_STORE,
    }
)
DATA = (
    SUMS
    | CASTS
    | frozenset(
        {
            PlanOp.PUT,
            PlanOp.COPY,
            PlanOp.PUT_PACKETS,
            PlanOp.READ_PUT_PACKETS,
            PlanOp.UNPACK,
        }
    )
)
"""Operations on data that the kernel executes: all push, and by the switch alone peers are read."""

KNOWN = DATA | SIGNALS | SEMAPHORES | {PlanOp.NOP, PlanOp.BARRIER}

BETWEEN = " | "
"""Separator of the thread blocks on one line."""

_PART = re.compile(r"(?:(\*|\d{1,6}(?:\+\d{1,6})*)\.)?([ios])\[(\d{1,9})(?::(\d{1,9}))?\]")
_CHANNEL = re.compile(r"(\d{1,6})\.(\d{1,6})")
_BARRIER = re.compile(r"(\d{1,6})/(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Part:
    """Chunks of an own buffer, a peer's, or those of several ranks at once.

    ``peer``: None: an own one. ``group``: the ranks at once, none named for all; None: one rank.
    """

    peer: int | None
    buffer: Buffer
    index: int
    size: int = 1
    group: tuple[int, ...] | None = None

    def __str__(self) -> str:
        owner = "" if self.peer is None else f"{self.peer}."
        if self.group is not None:
            owner = f"{'+'.join(map(str, self.group)) or '*'}."
        end = f":{self.index + self.size}" if self.size > 1 else ""
        return f"{owner}{self.buffer}[{self.index}{end}]"


@dataclass(frozen=True, slots=True)
class BlockStep:
    """One operation with names instead of positions.

    ``ends``: channels as (peer, number); of semaphores and barriers (0, number), and ``together``
    the blocks that meet. ``parts``: the operands, of which the first ``sources`` are read.
    """

    op: PlanOp
    ends: tuple[tuple[int, int], ...] = ()
    together: int = 0
    parts: tuple[Part, ...] = ()
    sources: int = 0

    def __str__(self) -> str:
        if self.op in SIGNALS:
            return f"{self.op} {', '.join(f'{peer}.{k}' for peer, k in self.ends)}"
        if self.op in SEMAPHORES:
            return f"{self.op} {', '.join(str(k) for _, k in self.ends)}"
        if self.op is PlanOp.BARRIER:
            return f"{self.op} {self.ends[0][1]}/{self.together}"
        if self.op is PlanOp.NOP:
            return str(self.op)
        between = ", " if self.op in PAIRED else " + "
        sources = between.join(map(str, self.parts[: self.sources]))
        return f"{self.op} {sources} -> {', '.join(map(str, self.parts[self.sources :]))}"


def write_line(steps: Sequence[BlockStep]) -> str:
    """Return the text of a block."""
    return "; ".join(map(str, steps))


def write_blocks(blocks: Iterable[Sequence[BlockStep]], width: int) -> list[str]:
    """Return lines of a rank's blocks, several on a line of at most ``width`` characters.

    >>> write_blocks([parse_block(f"wait {peer}.0", "") for peer in (1, 2, 3)], 22)
    ['wait 1.0 | wait 2.0', 'wait 3.0']
    """
    lines: list[str] = []
    for text in map(write_line, blocks):
        if lines and len(lines[-1]) + len(BETWEEN) + len(text) <= width:
            lines[-1] += BETWEEN + text
        else:
            lines.append(text)
    return lines


def parse_block(line: str, where: str) -> list[BlockStep]:
    """Read the text of :func:`write_line`.

    Raises:
        BadFile: anything else.
    """
    return [_step(text, where) for text in line.split("; ") if text]


def _step(text: str, where: str) -> BlockStep:
    word, _, rest = text.partition(" ")
    if word not in {str(op) for op in KNOWN}:
        raise _bad(text, "an operation", where)
    op = PlanOp(word)
    if op is PlanOp.NOP and not rest:
        return BlockStep(op)
    if op in SIGNALS:
        found = [_CHANNEL.fullmatch(one) for one in rest.split(", ")]
        if all(found):
            return BlockStep(op, tuple((int(m[1]), int(m[2])) for m in found if m))
        raise _bad(text, f"channels such as `{op} 3.0`", where)
    if op in SEMAPHORES:
        if re.fullmatch(r"\d{1,6}(, \d{1,6})*", rest):
            return BlockStep(op, tuple((0, int(one)) for one in rest.split(", ")))
        raise _bad(text, f"semaphores such as `{op} 0`", where)
    if op is PlanOp.BARRIER:
        if match := _BARRIER.fullmatch(rest):
            return BlockStep(op, ((0, int(match[1])),), int(match[2]))
        raise _bad(text, "a barrier such as `barrier 0/4`", where)
    sources, arrow, sinks = rest.partition(" -> ")
    sides = [sources.split(", " if op in PAIRED else " + "), sinks.split(", ")]
    if not arrow or op is PlanOp.NOP:
        raise _bad(text, f"operands such as `{op} o[2] -> 3.o[2]`", where)
    parts = tuple(_part(one, text, where) for side in sides for one in side)
    summed = [part.group for part in parts[: len(sides[0])] if part.group is not None]
    if summed != ([()] if op is PlanOp.MULTICAST_REDUCE_STORE else []):
        raise _bad(text, "`*` before the source of glres, and of nothing else", where)
    return BlockStep(op, parts=parts, sources=len(sides[0]))


def _part(text: str, step: str, where: str) -> Part:
    match = _PART.fullmatch(text)
    if not match:
        raise _bad(step, "chunks such as o[2], s[0:2] or 3.o[2]", where)
    first = int(match[3])
    size = int(match[4]) - first if match[4] else 1
    if size < 1:
        raise _bad(step, "chunks in ascending order", where)
    ranks = tuple(map(int, match[1].split("+"))) if match[1] and match[1] != "*" else ()
    several = match[1] == "*" or len(ranks) > 1
    peer = ranks[0] if len(ranks) == 1 else None
    return Part(peer, Buffer(match[2]), first, size, ranks if several else None)


def _bad(text: str, wanted: str, where: str) -> BadFile:
    return BadFile(f"{text!r}: {wanted} is expected", where=where, hint="compile the file anew")

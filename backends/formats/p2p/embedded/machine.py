"""Carry out a rank's rounds on the caller's arrays: contained, word for word, in every file."""

from __future__ import annotations

# --- in every file from here on ---
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Shape:
    """The buffers, in chunks.

    A buffer is made of units, which the caller sees (of an allgather: what each rank gives); each
    is cut into ``unit`` chunks, the last of them padded. ``input`` and ``output`` are the largest
    of any rank, ``scratch`` has one entry per rank. ``shift``: in place, the output chunk that is
    the rank's first input chunk; None: input and output are apart. ``gives`` and ``takes``: the
    ranks that have an input, and an output; None: all.
    """

    ranks: int
    input: int
    output: int
    unit: int
    scratch: tuple[int, ...]
    shift: tuple[int, ...] | None = None
    gives: tuple[int, ...] | None = None
    takes: tuple[int, ...] | None = None


OPERATIONS = ("sum", "prod", "max", "min")

Chunks = tuple[str, int, int]
Line = tuple[list[tuple[Chunks, int]], list[tuple[Chunks, int]], list[list[Chunks]]]


@cache
def parse(line: str) -> Line:
    """A round: what is sent, what is received, and the work that follows."""

    def chunks(text: str) -> list[Chunks]:
        found = re.findall(r"([ios])\[(\d+):?(\d*)\]", text)
        return [(name, int(a), int(b or int(a) + 1)) for name, a, b in found]

    talk, _, work = line.partition(";")
    sends = [(chunks(a)[0], int(peer)) for a, peer in re.findall(r"(\S+) > (\d+)", talk)]
    recvs = [(chunks(a)[0], int(peer)) for a, peer in re.findall(r"(\S+) < (\d+)", talk)]
    return sends, recvs, [chunks(text) for text in work.split(",") if text]


def play(
    wire: Any, code: Sequence[str], memory: dict[str, Any], size: int, op: str
) -> Iterator[int]:
    """Carry out the rounds, stopping after the messages of each.

    ``memory``: the buffers by letter, ``size``: elements of a chunk.
    """

    def at(chunks: Chunks) -> Any:
        name, first, end = chunks
        return memory[name][first * size : end * size]

    for number, line in enumerate(code, 1):
        sends, recvs, work = parse(line)
        if sends or recvs:
            given = [(at(chunks), peer) for chunks, peer in sends]
            wire.exchange(number, given, [(at(chunks), peer) for chunks, peer in recvs])
        yield number
        for into, *terms in work:
            if len(terms) > 1:
                wire.combine(op, at(into), at(terms[0]), at(terms[1]))
            else:
                wire.copy(at(into), at(terms[0]))


def call(
    wire: Any, shape: Shape, code: Sequence[Sequence[str]], send: Any, recv: Any, op: str = "sum"
) -> None:
    """The collective on the caller's arrays; one that the rank has nothing in may be None.

    Raises:
        ValueError, TypeError: the arrays do not fit each other, or the job has other ranks.
    """
    for _ in stages(wire, shape, code, send, recv, op):
        pass


def stages(
    wire: Any, shape: Shape, code: Sequence[Sequence[str]], send: Any, recv: Any, op: str
) -> Iterator[int]:
    """As :func:`call`, for who does something else between the rounds."""
    if wire.ranks != shape.ranks:
        raise ValueError(f"the program is for {shape.ranks} ranks; this job has {wire.ranks}")
    if op not in OPERATIONS:
        raise ValueError(f"op is {op!r}; there are {', '.join(OPERATIONS)}")
    send, recv = _line(wire, "send", send), _line(wire, "recv", recv)
    _require(wire.rank, "send", send, shape.gives)
    _require(wire.rank, "recv", recv, shape.takes)
    ins, outs = shape.input // shape.unit, shape.output // shape.unit
    length = _length(send, ins, recv, outs)
    like = recv if send is None else send
    if not length:
        return
    size = -(-length // shape.unit)
    wire.agree(f"{like.dtype}, {op}, {shape.unit * size - length} of padding")
    buffers = _Buffers(wire, length, shape.unit * size, like)
    memory = {"s": wire.empty(shape.scratch[wire.rank] * size, buffers.like)}
    given, result = buffers.itself(send, ins), buffers.itself(recv, outs)
    if shape.shift is None:
        if given is None or _overlap(wire, given, recv):
            given = buffers.room(ins)
            buffers.move(given, send, ins)
        memory |= {"i": given, "o": buffers.room(outs) if result is None else result}
    elif shape.input > shape.output:  # the output is a block of the input, which is overwritten
        first = -shape.shift[wire.rank] * size
        end = first + shape.output * size
        if given is None or recv is None or not _same(wire, given[first:end], recv):
            given = buffers.room(ins)
            buffers.move(given, send, ins)
        memory |= {"i": given, "o": given[first:end]}
    else:
        whole = buffers.room(outs) if result is None else result
        first = shape.shift[wire.rank] * size
        memory |= {"i": whole[first : first + shape.input * size], "o": whole}
        buffers.move(memory["i"], send, ins)
    yield from play(wire, code[wire.rank], memory, size, op)
    buffers.move(recv, memory["o"], outs)


@dataclass(frozen=True)
class _Buffers:
    """Memory for units of ``length`` elements, padded, of the type of ``like``."""

    wire: Any
    length: int
    padded: int
    like: Any

    def itself(self, array: Any, units: int) -> Any:
        """The caller's array, if it can be used as it is: in one piece, without padding."""
        whole = array is not None and len(array) == units * self.padded
        return self.wire.flat(array) if whole else None

    def room(self, units: int) -> Any:
        """New memory."""
        made = self.wire.empty(units * self.padded, self.like)
        if self.length < self.padded:
            made[:] = 0  # so that no sum of the padding overflows
        return made

    def move(self, out: Any, array: Any, units: int) -> None:
        """``out = array``, unit by unit; only one of them is padded, if any."""
        if out is None or array is None or _same(self.wire, out, array):
            return
        a, b = array.reshape(units, -1), out.reshape(units, -1)
        both = min(a.shape[1], b.shape[1])
        self.wire.copy(b[:, :both], a[:, :both])


def _require(rank: int, name: str, array: Any, ranks: tuple[int, ...] | None) -> None:
    if array is None and (ranks is None or rank in ranks):
        who = "every rank" if ranks is None else f"rank {', '.join(map(str, ranks))}"
        raise ValueError(f"{name} is None on rank {rank}; {who} needs one")


def _line(wire: Any, name: str, array: Any) -> Any:
    """The array in one dimension."""
    if array is None or array.ndim == 1:
        return array
    flat = wire.flat(array)
    if flat is None:
        raise ValueError(f"{name}: an array of several dimensions must be contiguous")
    return flat


def _length(send: Any, ins: int, recv: Any, outs: int) -> int:
    """Elements of a unit, of which both arrays must be made."""
    lengths = []
    for name, array, units in (("send", send, ins), ("recv", recv, outs)):
        if array is not None:
            if len(array) % units:
                raise ValueError(
                    f"{name}: a multiple of {units} elements is needed, not {len(array)}"
                )
            lengths.append(len(array) // units)
    if send is not None and recv is not None and send.dtype != recv.dtype:
        raise TypeError(f"send has {send.dtype} and recv {recv.dtype}: one type is needed")
    if not lengths or lengths[0] != lengths[-1]:
        raise ValueError(f"for every {ins} elements of send, recv must have {outs}")
    return lengths[0]


def _same(wire: Any, a: Any, b: Any) -> bool:
    a, b = wire.flat(a), wire.flat(b)
    return a is not None and b is not None and wire.span(a) == wire.span(b)


def _overlap(wire: Any, a: Any, b: Any) -> bool:
    if a is None or b is None:
        return False
    (first, end), (other, last) = wire.span(a), wire.span(b)
    return bool(first < last and other < end)

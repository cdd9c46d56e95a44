"""Builder of hand-written algorithms: chunk references that are copied and summed.

Every call is checked at its line.

>>> from weft.dsl.author.standard import Allreduce
>>> p = Builder(Allreduce(2, chunks=2), in_place=True)
>>> for r in range(2):
...     p.chunk(r, 1 - r).reduce_into(rank=1 - r).copy_to(rank=r)
chunk 1 of rank 0 in o[1]
chunk 0 of rank 1 in o[0]
>>> len(p.algorithm().moves)
4

**Chunks by number.** ``p.chunk(rank, k)`` is chunk *k of the collective* at its current location on
the rank: in the input at first, later where the last copy or sum was stored. Received chunks go to
the output if the rank must end with them, otherwise to scratch; the input is never written. So one
program works in place and out of place. Chunk k is the k-th of the buffer for allreduce, reduce
and broadcast, of the whole output for allgather and gather, of the whole input for reduce_scatter
and scatter; for alltoall on n ranks, the data of rank s for rank d is chunk ``s * n + d`` (times
the factor).

**Chunks by location.** ``p.chunk(rank, i, buffer="scratch")`` is the chunk at that index of a
buffer; ``copy_to`` and ``reduce_into`` also accept a buffer and an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from ..base.errors import BadAlgorithm, UserError, suggest
from ..base.integers import integer
from ..nouns.algorithm import Algorithm
from ..nouns.collective import Collective, Kind
from ..nouns.program import Buffer, Protocol, protocol_of
from ..nouns.slots import BASE, NONE, OUTPUT, SCRATCH, slice_of
from .call_site import user_span, wrong
from .contributions import Contributions, Value, Wishes, numbers_text, place_of, value_text

MOST_INSTANCES = 64
"""Most instances of a program; no runtime has channels for more."""

_NUMBERED = {
    Kind.ALLGATHER: "numbers are those of the whole output: rank r has {r}",
    Kind.GATHER: "numbers are those of the whole output: rank r has {r}",
    Kind.REDUCE_SCATTER: "numbers are those of the whole input: rank r ends with {r}",
    Kind.SCATTER: "numbers are those of the root's whole input: rank r ends with {r}",
    Kind.ALLTOALL: "numbers are the collective's: what rank s has for rank d is {sd}",
}
"""Chunk numbering of kinds whose buffers hold only some of the chunks, for error messages."""

_OTHERS_CHUNK = {
    "reduce": "a.reduce(b) of MSCCLang is b.reduce_into(rank=…, buffer=…, index=…)",
    "copy": "copy_to(rank=…)",
    "send": "copy_to(rank=…)",
}
_OTHERS_BUILDER = {
    "copy": "p.chunk(rank, k).copy_to(rank=…)",
    "reduce": "p.chunk(rank, k).reduce_into(rank=…)",
}
_OTHERS_OPTION = {
    "dst": "rank",
    "to": "rank",
    "src": "rank",
    "size": "count",
    "ch": "channel",
    "sendtb": "send_block",
    "recvtb": "recv_block",
}
"""Option names of MSCCLang, with their names here."""


class NoSuchName(BadAlgorithm, AttributeError):
    """An unknown attribute of a builder or a reference."""


_BUFFERS = {b.name.lower(): b for b in Buffer} | {b.value: b for b in Buffer}


class Builder:
    """Recorder of an algorithm for a collective.

    Args:
        collective: the collective to achieve (``Allreduce(8, chunks=8)``, ``custom(…)``).
        name: name of the algorithm.
        in_place: input and output alias as the collective defines.
        instances: parallel copies of the algorithm in the program.
        protocol: protocol of the program.

    Raises:
        BadAlgorithm: from every method, at the caller's line: a rank, chunk or buffer that does
            not exist; a read of a slot never written, or overwritten since; an invalid sum.
    """

    def __init__(
        self,
        collective: Collective,
        *,
        name: str = "",
        in_place: bool = False,
        instances: int = 1,
        protocol: Protocol | str = Protocol.SIMPLE,
    ) -> None:
        if not isinstance(collective, Collective):
            raise UserError(
                f"{collective!r} is not a collective", hint="Builder(Allreduce(8, chunks=8))"
            )
        if collective.local_reduce:
            raise UserError(
                "a collective whose ranks sum groups of chunks by themselves cannot be written "
                "by hand",
                hint='write the sums out: make("allreduce", …) and reduce_into',
            )
        self.collective = collective
        settled = settle(name, in_place, instances, protocol)
        name, self.in_place, self.instances, self.protocol = settled
        self.name = name or collective.name or str(collective.kind)
        self._state = Contributions(collective, self.in_place)
        self._sizes = {
            Buffer.INPUT: collective.input_chunks,
            Buffer.OUTPUT: collective.output_chunks,
        }

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.collective.ranks

    @property
    def chunks(self) -> int:
        """Return the number of chunks of the collective."""
        return self.collective.chunks

    def chunk(
        self,
        rank: int,
        index: int,
        *,
        count: int = 1,
        buffer: Buffer | str | None = None,
        **unknown: Never,
    ) -> Chunk:
        """Return a reference to ``count`` chunks from ``index``: numbers, or buffer indices."""
        _refuse(unknown)
        state = self._state
        rank, index, count = _integers(rank=rank, index=index, count=count)
        self._check_rank(rank)
        if count < 1:
            raise wrong(f"a reference is to at least one chunk, not {count}")
        held = state.held[rank]
        if buffer is None:
            if not 0 <= index <= index + count - 1 < self.chunks:
                raise wrong(
                    f"expected a chunk, got {index if index < 0 else index + count - 1}",
                    f"the chunks are 0 … {self.chunks - 1}",
                )
            place = state.place[rank]
            slots = tuple([place.get(k, NONE) for k in range(index, index + count)])
            if NONE in slots:
                raise wrong(
                    f"rank {rank} holds nothing of chunk {index + slots.index(NONE)} here",
                    self._numbers(rank),
                )
            for k, slot in enumerate(slots, index):
                if held[slot][0] != k:
                    raise wrong(
                        f"rank {rank} holds chunk {k} no longer: {state.overwritten(rank, slot)}",
                        "use it before, or keep a copy in scratch",
                    )
        else:
            first = self._slot(rank, buffer, index, count)
            slots = tuple([state.aliases.name(rank, first + k) for k in range(count)])
            for slot in slots:
                if slot not in held:
                    raise wrong(f"{place_of(rank, slot)} is read before it is written")
        return Chunk(self, rank, slots, tuple([held[slot] for slot in slots]))

    def algorithm(self) -> Algorithm:
        """Return the finished algorithm.

        Chunks of a rank's input that it must end with and that never moved are copied to the
        output.

        Raises:
            BadAlgorithm: a rank does not meet its postcondition.
        """
        self._state.finish()
        return Algorithm(
            self.name,
            self.collective,
            self._state.moves(),
            tuple(self._state.scratch),
            self.in_place,
            self.instances,
            self.protocol,
        )

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._state.finish()

    if not TYPE_CHECKING:  # it knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            raise _no_attribute("a builder", name, _OTHERS_BUILDER)

    # --- used by references -----------------------------------------------------------------------

    def _numbers(self, rank: int) -> str:
        """Return a hint with the chunks that a rank holds, and how they are numbered."""
        state = self._state
        chunks = [k for k, slot in state.place[rank].items() if state.held[rank][slot][0] == k]
        hint = "copy it there first"
        if chunks:
            hint += f"; it holds {numbers_text('chunk', sorted(chunks))}"
        n, f = self.ranks, self.collective.factor
        r, sd = (
            ("r", f"s * {n} + d")
            if f == 1
            else (
                f"r * {f} and the {f - 1} after it",
                f"(s * {n} + d) * {f} and the {f - 1} after it",
            )
        )
        if self.collective.kind in _NUMBERED:
            hint += "; " + _NUMBERED[self.collective.kind].format(r=r, sd=sd)
        return hint

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.collective.ranks:
            raise wrong(
                f"expected a rank, got {rank}",
                f"the ranks are 0 … {self.collective.ranks - 1}",
            )

    def _slot(self, rank: int, buffer: Buffer | str, index: int, count: int) -> int:
        """Return the first slot of a location, checked; scratch grows as it is used."""
        which = _BUFFERS.get(str(buffer))
        if which is None:
            raise wrong(f"unknown buffer {str(buffer)!r}", "input, output, scratch")
        limit = self._sizes.get(which, 1 << 31)
        if not 0 <= index <= index + count <= limit:
            bad = index if index < 0 else index + count - 1
            raise wrong(
                f"expected a chunk of the {which.name.lower()} buffer, got {bad}",
                f"its chunks are 0 … {limit - 1}",
            )
        if which is Buffer.SCRATCH:
            self._state.scratch[rank] = max(self._state.scratch[rank], index + count)
        return BASE[which] + index


def settle(
    name: str, in_place: bool, instances: int, protocol: Protocol | str
) -> tuple[str, bool, int, Protocol]:
    """Return the arguments of a program, converted and checked.

    Raises:
        UserError: an argument of another type or range.
    """
    if not isinstance(name, str):
        raise UserError(f"the name must be a string, not {name!r}", hint='name="…"')
    if not isinstance(in_place, int | np.bool_):
        raise UserError(
            f"in_place must be true or false, not {in_place!r}",
            hint="in_place=True or in_place=False",
        )
    instances = integer(instances, "instances", high=MOST_INSTANCES)
    if instances < 1:
        raise UserError(f"instances must be at least 1, not {instances}", hint="use 1, 2, 4 …")
    return name, bool(in_place), instances, protocol_of(protocol)


class Chunk:
    """Reference to chunks on one rank, with their values at the time it was made.

    A reference is stale once one of its slots has been overwritten with another value; using a
    stale reference is an error.
    """

    __slots__ = ("_builder", "_slots", "_values", "rank")

    def __init__(
        self, builder: Builder, rank: int, slots: tuple[int, ...], values: tuple[Value, ...]
    ) -> None:
        self._builder = builder
        self._slots = slots
        self._values = values
        self.rank = rank

    @property
    def count(self) -> int:
        """Return the number of chunks."""
        return len(self._slots)

    @property
    def contiguous(self) -> bool:
        """Return True if the chunks are adjacent, so that they can be sent as one message.

        Each instance of the program has a part of every unit of the collective (the block of a
        rank): with several instances, chunks of different units in the caller's buffers are not
        adjacent.
        """
        first, builder = self._slots[0], self._builder
        if builder.instances > 1 and self.count > builder.collective.factor and first < SCRATCH:
            return False
        return self._slots == tuple(range(first, first + self.count))

    def __repr__(self) -> str:
        parts = [slice_of(slot) for slot in (self._slots[0], self._slots[-1])]
        numbers = [value[0] for value in (self._values[0], self._values[-1])]
        if self.count == 1:
            where = f"{parts[0].buffer}[{parts[0].offset}]"
            return f"chunk {numbers[0]} of rank {self.rank} in {where}"
        where = " … ".join(f"{part.buffer}[{part.offset}]" for part in parts)
        return f"chunks {numbers[0]} … {numbers[1]} of rank {self.rank} in {where}"

    if not TYPE_CHECKING:  # it knows which attributes there are

        def __getattr__(self, name: str) -> Never:
            raise _no_attribute("a reference to chunks", name, _OTHERS_CHUNK)

    def copy_to(
        self,
        rank: int | None = None,
        buffer: Buffer | str | None = None,
        index: int | None = None,
        *,
        channel: int = NONE,
        send_block: int = NONE,
        recv_block: int = NONE,
        **unknown: Never,
    ) -> Chunk:
        """Copy to another rank or location, and return the reference to the copy.

        Without a buffer the chunk goes to that rank's location for it; scratch without an index is
        newly allocated. ``channel``, ``send_block`` and ``recv_block`` are requests for the
        program: the channel, and numbers that distinguish thread blocks of the two ranks.
        """
        wishes = self._wishes(channel, send_block, recv_block, unknown)
        return self._moved(rank, buffer, index, wishes, adds=False)

    def reduce_into(
        self,
        rank: int | None = None,
        buffer: Buffer | str | None = None,
        index: int | None = None,
        *,
        channel: int = NONE,
        send_block: int = NONE,
        recv_block: int = NONE,
        **unknown: Never,
    ) -> Chunk:
        """Add to another rank's chunk, or another of this rank; return the reference to the sum."""
        wishes = self._wishes(channel, send_block, recv_block, unknown)
        return self._moved(rank, buffer, index, wishes, adds=True)

    def split(self, pieces: int) -> tuple[Chunk, ...]:
        """Return references to ``pieces`` equal parts."""
        (pieces,) = _integers(pieces=pieces)
        if pieces < 1 or self.count % pieces:
            raise wrong(
                f"{self.count} chunks cannot be split into {pieces}",
                "cut the collective into more chunks: chunks=…",
            )
        size = self.count // pieces
        return tuple(
            Chunk(self._builder, self.rank, self._slots[i : i + size], self._values[i : i + size])
            for i in range(0, self.count, size)
        )

    def group(self, *others: Chunk) -> Chunk:
        """Return one reference to these chunks and others of the same rank, in that order."""
        for other in others:
            if not isinstance(other, Chunk):
                raise wrong(
                    f"{other!r} is not a reference to chunks",
                    "a.group(b, c) of what p.chunk(…) returns",
                )
            if other._builder is not self._builder:
                raise wrong("these chunks belong to another builder")
            if other.rank != self.rank:
                raise wrong(
                    f"chunks of rank {self.rank} and rank {other.rank} are not in one place"
                )
        parts = (self, *others)
        slots = tuple(slot for part in parts for slot in part._slots)
        values = tuple(value for part in parts for value in part._values)
        return Chunk(self._builder, self.rank, slots, values)

    # --- implementation ---------------------------------------------------------------------------

    def _targets(
        self, rank: int | None, buffer: Buffer | str | None, index: int | None
    ) -> tuple[int, Sequence[int]]:
        """Return the other rank and the slots there; NONE for slots not chosen by the author."""
        builder, state = self._builder, self._builder._state
        dst = self.rank if rank is None else _integers(rank=rank)[0]
        builder._check_rank(dst)
        if buffer is None:
            if index is not None:
                raise wrong("an index needs its buffer", 'buffer="output", or leave the index out')
            return dst, [NONE] * self.count
        if index is None:
            if str(buffer) not in ("scratch", Buffer.SCRATCH.value):
                raise wrong(f"the place in the {buffer} buffer is missing", "add index=…")
            first = state.new_scratch(dst, self.count)
        else:
            first = builder._slot(dst, buffer, _integers(index=index)[0], self.count)
        targets = [state.aliases.name(dst, first + k) for k in range(self.count)]
        if any(slot < OUTPUT for slot in targets) and not builder.in_place:
            raise wrong(
                f"the input of rank {dst} belongs to the caller and is not written",
                "write to output or scratch, or say in_place=True",
            )
        return dst, targets

    def _moved(
        self,
        rank: int | None,
        buffer: Buffer | str | None,
        index: int | None,
        wishes: Wishes,
        *,
        adds: bool,
    ) -> Chunk:
        """Move each chunk, or add it to the one there; return the reference to the results."""
        dst, targets = self._targets(rank, buffer, index)
        state, there = self._builder._state, []
        for source, value, target in zip(self._slots, self._values, targets, strict=True):
            self._check_fresh(source, value)
            operand, chosen = NONE, target
            if adds:
                operand = state.place[dst].get(value[0], NONE) if target == NONE else target
                if operand == NONE or operand not in state.held[dst]:
                    what = f"rank {dst}" if NONE in (operand, target) else place_of(dst, target)
                    raise wrong(
                        f"{what} holds nothing that chunk {value[0]} could be added to",
                        "use copy_to for what arrives first",
                    )
            if target == NONE:
                chosen = state.room_for(dst, value[0])
            if adds or (self.rank, source) != (dst, chosen):
                state.move(self.rank, source, dst, chosen, operand, wishes)
            if buffer is None or state.home[dst].get(value[0]) == chosen:
                state.place[dst][value[0]] = chosen  # sent by number, or to its output slot
            there.append(chosen)
        return Chunk(self._builder, dst, tuple(there), tuple([state.held[dst][s] for s in there]))

    def _check_fresh(self, slot: int, value: Value) -> None:
        state = self._builder._state
        if state.held[self.rank][slot] != value:
            raise wrong(
                f"{place_of(self.rank, slot)} no longer holds {value_text(value)}: "
                f"{state.overwritten(self.rank, slot)}",
                "use it before, or keep a copy in scratch",
            )

    def _wishes(
        self, channel: int, send_block: int, recv_block: int, unknown: Mapping[str, object]
    ) -> Wishes:
        _refuse(unknown)
        wishes = {"channel": channel, "send_block": send_block, "recv_block": recv_block}
        for name, value in zip(wishes, settled := _integers(**wishes), strict=True):
            if value < NONE:
                raise wrong(f"{name} {value} is negative")
        return settled[0], settled[1], settled[2]


def _no_attribute(noun: str, name: str, others: Mapping[str, str]) -> AttributeError:
    """Return the error for an unknown attribute; Python itself probes many with underscores."""
    if name not in others:
        return AttributeError(f"{noun} has no {name!r}", name=name)
    return NoSuchName(f"{noun} has no {name!r}", where=user_span(), hint=others[name])


def _refuse(unknown: Mapping[str, object]) -> None:
    for name in unknown:
        known = ("rank", "buffer", "index", "count", "channel", "send_block", "recv_block")
        ours = _OTHERS_OPTION.get(name)
        raise wrong(f"unknown option {name!r}", f"use {ours}=…" if ours else suggest(name, known))


def _integers(**numbers: Any) -> list[int]:
    """Return the numbers as Python ints, or raise at the caller's line."""
    try:
        return [integer(number, name) for name, number in numbers.items()]
    except UserError as error:
        raise wrong(error.message, error.hint) from None

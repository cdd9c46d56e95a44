"""Symbolic execution of an algorithm while it is written: the contributions in every slot.

The value of a slot is a chunk of the collective and the set of ranks whose contribution it holds,
as a bit mask. Every move is checked when it is recorded, so that errors point at its line.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import CodeType

import numpy as np

from ..base.errors import BadAlgorithm
from ..nouns.algorithm import Moves
from ..nouns.collective import Collective
from ..nouns.placement import Placement
from ..nouns.slots import INPUT, NONE, OUTPUT, SCRATCH, Aliases, slice_of
from .call_site import line_of, user_frame, wrong

Value = tuple[int, int]
"""(chunk, bit mask of the contributing ranks)"""

Wishes = tuple[int, int, int]
"""Requested (channel, thread block of the sender, thread block of the receiver) or NONE."""

NO_WISH: Wishes = (NONE, NONE, NONE)


class Contributions:
    """Contributions in all slots, and the moves so far.

    ``held[rank]`` maps slots to values; ``place[rank]`` maps chunks to their current slot on the
    rank; ``home[rank]`` maps chunks to the output slot where they must end. Slots are canonical
    names by ``aliases``.
    """

    def __init__(self, collective: Collective, in_place: bool) -> None:
        self.collective, self.in_place = collective, in_place
        self.aliases = Aliases.of(collective, in_place)
        ranks = collective.ranks
        self.masks = [sum(1 << r for r in who) for who in collective.contributions]
        self.held: list[dict[int, Value]] = [{} for _ in range(ranks)]
        self.place: list[dict[int, int]] = [{} for _ in range(ranks)]
        self.home: list[dict[int, int]] = [{} for _ in range(ranks)]
        self.wanted: list[dict[int, int]] = [{} for _ in range(ranks)]
        self.scratch = [0] * ranks
        self._rows = array("q")
        self._codes: list[CodeType] = []
        self._lasti = array("q")
        for rank, chunk, value, offset in _rows(collective.pre):
            slot = self.aliases.name(rank, INPUT + offset)
            self.held[rank][slot] = (chunk, self.masks[value])
            self.place[rank][chunk] = slot
        for rank, chunk, value, offset in _rows(collective.post):
            self.home[rank][chunk] = OUTPUT + offset
            self.wanted[rank][chunk] = self.masks[value]

    def new_scratch(self, rank: int, count: int = 1) -> int:
        """Return the first of ``count`` new adjacent scratch slots."""
        slot = SCRATCH + self.scratch[rank]
        self.scratch[rank] += count
        return slot

    def room_for(self, rank: int, chunk: int) -> int:
        """Return the slot for a received chunk: its output slot, else a scratch slot.

        In place, the output slot may still hold another chunk; that one moves to scratch.
        """
        slot = self.home[rank].get(chunk)
        if slot is None:
            slot = self.place[rank].get(chunk, NONE)
            return slot if slot >= SCRATCH else self.new_scratch(rank)
        there = self.held[rank].get(slot)
        if there is not None and there[0] != chunk and self.place[rank].get(there[0]) == slot:
            away = self.new_scratch(rank)
            self.move(rank, slot, rank, away, NONE)
            self.place[rank][there[0]] = away
        return slot

    def move(
        self, src: int, source: int, dst: int, target: int, operand: int, wishes: Wishes = NO_WISH
    ) -> None:
        """Record one move; the slots ``source`` and ``operand`` are known to hold values.

        Raises:
            BadAlgorithm: a sum of different chunks, or of one contribution twice.
        """
        value = self.held[src][source]
        if operand != NONE:
            other = self.held[dst][operand]
            if other[0] != value[0] or other[1] & value[1]:
                raise self.bad_sum(src, value, dst, other)
            value = (value[0], value[1] | other[1])
            if src == dst and operand != target:  # a local reduction adds to its target slot
                self.move(dst, operand, dst, target, NONE)
                operand = target
        self.held[dst][target] = value
        self._rows.extend((value[0], src, source, dst, target, operand, *wishes))
        frame = user_frame()
        self._codes.append(frame.f_code)
        self._lasti.append(frame.f_lasti)

    def moves(self) -> Moves:
        """Return all moves so far."""
        return Moves.of(np.array(self._rows, np.int64))

    def finish(self) -> None:
        """Copy unmoved input chunks to their output slots, and check the postcondition.

        Raises:
            BadAlgorithm: a rank does not meet its postcondition.
        """
        written: set[tuple[int, int]] | None = None
        for rank, (homes, wanted) in enumerate(zip(self.home, self.wanted, strict=True)):
            held = self.held[rank]
            for chunk, slot in homes.items():
                want = (chunk, wanted[chunk])
                if held.get(slot) == want:
                    continue
                if written is None:
                    moves = self.moves()
                    written = set(zip(moves.dst.tolist(), moves.target.tolist(), strict=True))
                source = self.place[rank].get(chunk, NONE)
                if (rank, slot) in written or held.get(source) != want:
                    raise self._bad_end(rank, chunk, slot)
                self.move(rank, source, rank, self.room_for(rank, chunk), NONE)
                self.place[rank][chunk] = slot

    # --- error messages ---------------------------------------------------------------------------

    def written_at(self, rank: int, slot: int) -> str:
        """Return the line that last wrote a slot, as the end of a sentence."""
        moves = self.moves()
        found = np.flatnonzero((moves.dst == rank) & (moves.target == slot))
        if not len(found):
            return ""
        last = int(found[-1])
        return f"line {line_of(self._codes[last], self._lasti[last])}"

    def overwritten(self, rank: int, slot: int) -> str:
        """Return the line that overwrote a slot and the new value, as a sentence."""
        return (
            f"{self.written_at(rank, slot)} overwrote it with {value_text(self.held[rank][slot])}"
        )

    def bad_sum(self, src: int, value: Value, dst: int, other: Value) -> BadAlgorithm:
        """Return the error for an invalid sum."""
        if value[0] != other[0]:
            return wrong(
                f"chunk {value[0]} of rank {src} is added to chunk {other[0]} of rank {dst}",
                "only equal chunks of different ranks can be summed",
            )
        twice = ranks_of(value[1] & other[1])
        return wrong(
            f"rank {dst} would count the contribution of {twice} to chunk {value[0]} twice",
            f"what arrives is {value_text(value)}; what is there is {value_text(other)}",
        )

    def _bad_end(self, rank: int, chunk: int, slot: int) -> BadAlgorithm:
        want, value = (chunk, self.wanted[rank][chunk]), self.held[rank].get(slot)
        line = self.written_at(rank, slot)
        if value is None or not line:
            best = self.held[rank].get(self.place[rank].get(chunk, NONE))
            text = "is never written"
            hint = f"the rank holds {value_text(best)}" if best else "no move brings it there"
        else:
            text, hint = f"ends as {value_text(value)}", f"it was last written at {line}"
        return wrong(f"{place_of(rank, slot)} {text}; it must be {value_text(want)}", hint)


def _rows(placement: Placement) -> list[list[int]]:
    rows: list[list[int]] = placement.rows().tolist()
    return rows


def place_of(rank: int, slot: int) -> str:
    """Return a slot as text."""
    part = slice_of(slot)
    return f"{part.buffer.name.lower()} chunk {part.offset} of rank {rank}"


def value_text(value: Value) -> str:
    """Return a value as text."""
    chunk, mask = value
    one = mask & (mask - 1) == 0
    return f"chunk {chunk} {'of' if one else 'summed over'} {ranks_of(mask)}"


def ranks_of(mask: int) -> str:
    """Return the ranks of a bit mask as text, with runs abbreviated.

    >>> ranks_of(0b1011101)
    'ranks 0, 2-4, 6'
    """
    return numbers_text("rank", [r for r in range(mask.bit_length()) if mask >> r & 1])


def numbers_text(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with ascending numbers as text, with runs abbreviated.

    >>> numbers_text("chunk", [7]), numbers_text("chunk", [0, 1, 2, 5])
    ('chunk 7', 'chunks 0-2, 5')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    shown = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    return f"{noun}{'s' if len(numbers) > 1 else ''} {shown}"

"""Slots: the address of one chunk in one buffer of a rank, as one integer.

``buffer << 32 | offset``, so that consecutive chunks are consecutive integers and whole columns of
slots can be compared at once.

>>> slice_of(OUTPUT + 3)
Slice(buffer=<Buffer.OUTPUT: 'o'>, offset=3)
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import Ints
from ..base.lazy_dataclass import Frozen
from .collective import Collective
from .program import BUFFERS, Program, Slice

INPUT, OUTPUT, SCRATCH = (i << 32 for i in range(3))
BASE = {buffer: i << 32 for i, buffer in enumerate(BUFFERS)}

WIDE = 1 << 36
"""Larger than any slot: ``rank * WIDE + slot`` identifies a slot among all ranks."""

NONE = -1
"""Absence of a slot, block or channel."""


def slice_of(slot: int) -> Slice:
    """Return the buffer and offset of a slot."""
    return Slice(BUFFERS[slot >> 32], slot & 0xFFFFFFFF)


class Aliases(Frozen):
    """Canonical name of every slot: in place, that of the output where the buffers alias.

    ``shift[rank]``: the slot of the output that is the first of the input, as
    :meth:`.in_place_shift` says. ``outputs[rank]``: slots of
    the output; 0 where input and output do not alias.

    >>> from weft.dsl.nouns.collective import make
    >>> slice_of(Aliases.of(make("allgather", 4), True).name(2, INPUT))
    Slice(buffer=<Buffer.OUTPUT: 'o'>, offset=2)
    """

    shift: tuple[int, ...]
    outputs: tuple[int, ...]

    @staticmethod
    def of(collective: Collective, in_place: bool) -> Aliases:
        """Return the aliases of all ranks of a collective."""
        outputs = collective.output_chunks if in_place else 0
        ranks = range(collective.ranks)
        return Aliases(tuple(map(collective.in_place_shift, ranks)), (outputs,) * len(ranks))

    @staticmethod
    def of_program(program: Program) -> Aliases:
        """Return the aliases of a program, whose chunks may be pieces of its collective's chunks.

        The output is the larger of the collective's and the declared one: files declare what their
        code accesses, which may be less or more.
        """
        collective = program.collective
        pieces = max(1, program.message_chunks // collective.message_chunks)
        least = collective.output_chunks * pieces
        return Aliases(
            tuple(collective.in_place_shift(r) * pieces for r in range(program.rank_count)),
            tuple(
                max(least, declared) if program.in_place else 0
                for declared in program.chunks[:, 1].tolist()
            ),
        )

    def name(self, rank: int, slot: int) -> int:
        """Return the canonical name of one slot."""
        there = slot - INPUT + self.shift[rank]
        if slot < OUTPUT and 0 <= there < self.outputs[rank]:
            return OUTPUT + there
        return slot

    def names(self, rank: Ints, slot: Ints) -> Ints:
        """Return the canonical names of a column of slots; :data:`NONE` is kept."""
        there = slot - INPUT + np.array(self.shift, np.int64)[rank]
        inside = (slot >= INPUT) & (slot < OUTPUT)
        inside &= (there >= 0) & (there < np.array(self.outputs, np.int64)[rank])
        return np.where(inside, OUTPUT + there, slot)

"""The algorithm: what moves where, chunk by chunk, in an order that works; no thread blocks yet.

It is what the builder records (:mod:`.builder`) and what a program of others becomes when
it is to be optimized anew. One **move** reads one chunk on one rank and writes one chunk on
another (or the same); carried out one after another, in order, the moves do what the collective
asks for. Which of them may happen at once follows from the slots they read and write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ..base.arrays import Bools, Ints
from .collective import Collective
from .program import Protocol
from .slots import NONE


@dataclass(frozen=True, eq=False)
class Moves:
    """Columns with one entry per move, in order, shape (moves,).

    ``dst.target = src.source``, or, where ``operand`` is a slot, ``src.source ⊕ dst.operand``.
    ``src`` and ``dst`` are ranks; ``source``, ``target`` and ``operand`` slots
    (:mod:`weft.dsl.nouns.slots`) on them. ``chunk`` is the chunk of the collective that moves.
    ``channel``, ``send_block`` and ``recv_block`` are the author's wishes, NONE where there are
    none: the channel, and numbers of thread blocks on the two ranks (equal numbers of a rank mean
    one block).
    """

    chunk: Ints
    src: Ints
    source: Ints
    dst: Ints
    target: Ints
    operand: Ints
    channel: Ints
    send_block: Ints
    recv_block: Ints

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.chunk)

    @staticmethod
    def of(table: npt.ArrayLike) -> Moves:
        """From rows of nine numbers, in the order of the attributes."""
        rows = np.asarray(table, np.int64).reshape(-1, len(fields(Moves)))
        return Moves(*(np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])))

    @property
    def reduce(self) -> Bools:
        """Whether each move adds to what is there."""
        result: Bools = self.operand != NONE
        return result

    @property
    def local(self) -> Bools:
        """Whether each move stays on its rank."""
        result: Bools = self.src == self.dst
        return result


@dataclass(frozen=True, eq=False)
class Algorithm:
    """Moves that achieve a collective.

    ``scratch`` is the number of scratch chunks of each rank. ``in_place``: input and output alias
    as :meth:`Collective.in_place_shift` says; slots are then named by the output where both names
    fit. ``instances`` and ``protocol`` are the author's wishes for the program.
    """

    name: str
    collective: Collective
    moves: Moves
    scratch: Sequence[int]
    in_place: bool = False
    instances: int = 1
    protocol: Protocol = Protocol.SIMPLE

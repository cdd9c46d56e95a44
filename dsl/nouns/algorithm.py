"""Algorithms: moves of single chunks in a valid order, not yet assigned to thread blocks.

The builder (:mod:`.builder`) records algorithms, and imported programs are turned into them to be
optimized again. One **move** reads one chunk on one rank and writes one chunk on another (or the
same) rank; executed one after another, in order, the moves achieve the collective. The slots they
read and write determine which moves may run concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from ..base.arrays import Bools, Ints
from ..base.lazy_dataclass import Frozen
from ..base.tables import count
from .collective import Collective
from .program import Protocol
from .slots import NONE


class Moves(Frozen, eq=False):
    """Moves in columns with one entry per move, in order, shape (moves,).

    ``dst.target = src.source``, or, where ``operand`` is a slot, ``src.source ⊕ dst.operand``.
    ``src`` and ``dst`` are ranks; ``source``, ``target`` and ``operand`` slots
    (:mod:`weft.dsl.nouns.slots`) on them. ``chunk`` is the chunk of the collective that moves.
    ``channel``, ``send_block`` and ``recv_block`` are the author's requests, or NONE: the channel,
    and numbers of thread blocks on the two ranks (equal numbers on a rank mean the same block).
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
        """Return moves from rows of nine numbers, in the order of the attributes."""
        rows = np.asarray(table, np.int64).reshape(-1, len(fields(Moves)))
        return Moves(*(np.ascontiguousarray(rows[:, i]) for i in range(rows.shape[1])))

    @property
    def reduce(self) -> Bools:
        """Return for each move whether it adds to the data in its slot."""
        result: Bools = self.operand != NONE
        return result

    @property
    def local(self) -> Bools:
        """Return for each move whether source and destination rank are the same."""
        result: Bools = self.src == self.dst
        return result


class Algorithm(Frozen, eq=False):
    """Moves that achieve a collective.

    ``scratch`` is the number of scratch chunks of each rank. ``in_place``: input and output alias
    as :meth:`Collective.in_place_shift` says; slots are then named by the output where both names
    fit. ``instances`` and ``protocol`` are the author's requests for the program.
    """

    name: str
    collective: Collective
    moves: Moves
    scratch: Sequence[int]
    in_place: bool = False
    instances: int = 1
    protocol: Protocol = Protocol.SIMPLE

    def __repr__(self) -> str:
        return f"<Algorithm {self.name}: {self.collective}, {count(len(self.moves), 'move')}>"

"""Landing of messages: scratch slots, receives without a reduction, contention for slots.

What the two ways into the flow share: ``lower`` (from schedules) and ``trace`` (from algorithms).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.unique_rows import numbered
from weft.dsl.nouns.slots import WIDE

from .flow import NONE, SCRATCH


class Slots:
    """Hands out scratch slots, consecutive within a rank, from the given sizes on."""

    def __init__(self, sizes: npt.ArrayLike) -> None:
        self.sizes = np.array(sizes, np.int64)

    def take(self, rank: Ints) -> Ints:
        """One new slot for each entry; entries of one rank get consecutive ones, in order."""
        order = np.argsort(rank, kind="stable")
        counts = np.bincount(rank, minlength=len(self.sizes))
        starts = np.concatenate([[0], np.cumsum(counts)])[:-1]
        place = np.empty(len(rank), np.int64)
        place[order] = np.arange(len(rank)) - starts[rank[order]]
        slots = SCRATCH + self.sizes[rank] + place
        self.sizes = self.sizes + counts
        return slots


def same_as_before(*columns: npt.NDArray[np.integer[Any]]) -> Bools:
    """Test if each entry equals the one before it in all columns."""
    same = np.ones(len(columns[0]), bool)
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    same[:1] = False
    return same


def unfused(
    rank: Ints, target: Ints, operand: Ints, keys: tuple[Ints, ...], scratch: Slots
) -> tuple[Ints, Ints, Ints]:
    """Receive and add as two operations: (place of the message, summand, place of the sum).

    An operand other than the target is added to what has landed there. Else the message lands in a
    scratch slot of its own, one per receiver and ``keys``, in their order, so that what travels
    together lands together; and that is added to the target.
    """
    adds = operand != NONE
    later = np.flatnonzero(adds & (operand == target))
    add_from, add_to = np.where(adds, operand, NONE), np.where(adds, target, NONE)
    landing = target.copy()
    if len(later):
        table = np.stack([rank[later], *(key[later] for key in keys)])
        names, inverse = np.unique(table, axis=1, return_inverse=True)
        landing[later] = scratch.take(names[0])[inverse.reshape(-1)]
        add_from[later] = landing[later]
    return landing, add_from, add_to


def contended(src: Ints, dst: Ints, step: Ints, send: Ints, recv: Ints, add_to: Ints) -> Bools:
    """Test if a receive waits for another message of its step.

    That is so where the slot it writes is sent in that step, or where something else arrives; not
    where it lands by itself and is added afterwards.
    """
    count = len(src)
    written = np.where(add_to == NONE, recv, add_to)
    place = np.concatenate([src, dst]) * WIDE + np.concatenate([send, written])
    ids = numbered(place, np.concatenate([step, step]))
    reads, writes = ids[:count], ids[count:]
    touched = np.isin(writes, reads)
    shared = np.bincount(writes, minlength=2 * count)[writes] > 1
    result: Bools = np.where(add_to == NONE, touched | shared, touched & (recv == add_to))
    return result

"""Buffers and FIFO slots for one data type, on which orders of operations are replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.jit import fast
from weft.dsl.nouns.program import READS_SRC, REDUCE, WRITES_DST

from ..judge.events import Control
from . import kernel
from .layout import BufferLayout


def carried(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that stands for one that the compiled loop has no arithmetic for.

    Values are small integers (:func:`~.layout.data`), which a wider type holds as exactly.
    """
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype


class BufferMemory:
    """All buffers and FIFO slots for one data type.

    Attributes:
        rows: shape (chunks of all buffers, elements); see :class:`~.layout.BufferLayout`.
    """

    def __init__(self, machine: Control, place: BufferLayout, before: AnyArray) -> None:
        self._before = before
        self.rows = before.copy()
        longest = int(machine.operations.count.max(initial=0))
        payload = machine.shape.payload
        slots = len(machine.connections) * machine.depth
        self._slots = np.zeros((slots, longest, payload), before.dtype)
        self._value = np.empty((longest, payload), before.dtype)
        self._columns = _columns(machine, place)

    @property
    def elements(self) -> int:
        """The most elements that one operation moves."""
        return int(self._value.size)

    def reset(self) -> None:
        """Back to the state before the call."""
        np.copyto(self.rows, self._before)

    def replay(self, order: npt.ArrayLike, *, compiled: bool = True) -> None:
        """Do the data movement of operations in an order that the control allowed."""
        at = np.asarray(order, np.int64)
        loops = fast(kernel) if compiled else kernel
        with np.errstate(all="ignore"):  # compiled code is silent about overflows, too
            loops.replay(at, self.rows, self._slots, self._value, *self._columns)


def _columns(machine: Control, place: BufferLayout) -> tuple[Ints, ...]:
    """Return what each operation reads and writes, as :func:`.kernel.replay` takes it."""
    code, o, shape = machine.code, machine.operations, machine.shape
    t = o.transfer
    rank = code.block_rank[o.block]
    column = o.iteration * shape.payload
    width = np.minimum(shape.payload, shape.elements - column)
    reads, writes, sums = READS_SRC[code.op[t]], WRITES_DST[code.op[t]], code.op[t] == REDUCE
    start = place.base[rank, code.src_buffer[t]] + o.first
    src = np.where(reads, start + code.src_offset[t], -1)
    dst = np.where(writes, place.base[rank, code.dst_buffer[t]] + code.dst_offset[t] + o.first, -1)
    into = machine.recv_on[o.block] * machine.depth + o.into % machine.depth
    out = machine.send_on[o.block] * machine.depth + o.out % machine.depth
    # Further sources lie in the same buffer as the first.
    more, end = code.more_start[t], np.where(sums, code.more_start[t + 1], code.more_start[t])
    return (
        o.count,
        column,
        width,
        src,
        dst,
        np.where(o.receives, into, -1),
        np.where(o.sends, out, -1),
        sums.astype(np.int64),
        start,
        more,
        end,
        code.more_offset.copy(),  # one that may be written: the loop is compiled for such
    )

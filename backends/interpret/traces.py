"""Which orders of a program are the same computation.

Two orders in which every pair of conflicting accesses (one chunk, one of them a write) comes the
same way round read and write the same values (they are one *trace*, in Mazurkiewicz's sense), so
an order whose trace was executed before need not be executed again. A program without races has a
single trace. Messages need no pairs: the k-th is read by the k-th receive in every order, and its
slot is free by then.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from weft.dsl.program import Op

from ..listing import OPS, Ints
from .layout import Layout
from .machine import Machine

MOST_PAIRS = 2_000_000
"""With more conflicting pairs every order is executed."""


class Traces:
    """Tells the traces of a machine's orders apart."""

    def __init__(self, machine: Machine, place: Layout) -> None:
        found = _pairs(machine, place)
        self._known = found is not None
        self._first, self._second = found if found is not None else (_NONE, _NONE)
        self._when = np.empty(len(machine.operations), np.int64)
        self._seen: set[bytes] = set()

    def fresh(self, order: list[int]) -> bool:
        """Whether an order is of a trace that was not met before."""
        if not self._known:
            return True
        self._when[order] = np.arange(len(order))
        key = np.packbits(self._when[self._first] < self._when[self._second]).tobytes()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


_NONE: Ints = np.zeros(0, np.int64)


def _pairs(machine: Machine, place: Layout) -> tuple[Ints, Ints] | None:
    """Conflicting operations of different blocks, or None if there are too many."""
    code = machine.listing
    block = code.block_of_transfer()
    touches: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for i, o in enumerate(machine.operations):
        op = OPS[code.op[o.transfer]]
        t, base = o.transfer, place.base[code.block_rank[block[o.transfer]]]
        more = code.more_offset[int(code.more_start[t]) : int(code.more_start[t + 1])].tolist()
        reads = [int(code.src_offset[t]), *more] if op.reads_src else []
        writes = [int(code.dst_offset[t])] if op.writes_dst else []
        for offsets, buffer, side in (
            (reads, code.src_buffer[t], 0), (writes, code.dst_buffer[t], 1),
        ):  # fmt: skip
            for row in (int(base[buffer]) + offset + o.first for offset in offsets):
                for chunk in range(row, row + o.count if op is not Op.NOP else row):
                    touches.setdefault((chunk, o.iteration), ([], []))[side].append(i)
    owner = block[[o.transfer for o in machine.operations]] if machine.operations else _NONE
    parts: list[npt.NDArray[np.int64]] = []
    number = 0
    for readers, writers in touches.values():
        if not writers:
            continue
        number += len(writers) * (len(readers) + len(writers))
        if number > MOST_PAIRS:
            return None
        w, all_ = np.array(writers), np.array(readers + writers)
        grid = np.stack(np.meshgrid(w, all_, indexing="ij"), axis=-1).reshape(-1, 2)
        parts.append(grid[owner[grid[:, 0]] != owner[grid[:, 1]]])
    pairs = np.unique(np.concatenate(parts), axis=0) if parts else np.zeros((0, 2), np.int64)
    return pairs[:, 0], pairs[:, 1]

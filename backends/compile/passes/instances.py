"""Run n copies of a program side by side, each on its share of every chunk.

Before (2 instances)::

    0 -> 1 from i[0] into o[2]                      chunk 0, channel 0

After::

    0 -> 1 from i[0] into o[4]                      chunk 0, channel 0
    0 -> 1 from i[1] into o[5]                      chunk 1, channel 1

Chunk k is cut into n. A unit of the collective, which it has cut into f pieces itself (the whole
buffer of an allreduce, the block of a pair in an alltoall), has f·n of them now, all alike, so that
any instance may have any of them. MSCCLang's two policies:

* ``batched``, the default: instance i takes i·f … i·f+f-1 of every unit; what lay side by side
  still does and can travel together.
* ``interleaved``: chunk k becomes k·n … k·n+n-1, one for every instance; neighbours of one instance
  lie n apart and travel alone.

Scratch is always batched: it is invisible to the caller, and neighbours stay together. So
interleaved, a message between a user's buffer and scratch travels alone too.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from typing import ClassVar, TypeVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.placement import Placement
from weft.dsl.nouns.runtime import Target

from ..analyses.flow import NONE, SCRATCH, Flow, LocalOps, Messages


class Replication(StrEnum):
    """Policies that say which of the new chunks of a unit an instance takes."""

    BATCHED = "batched"  #: a stretch of each unit
    INTERLEAVED = "interleaved"  #: every n-th chunk


@dataclass(frozen=True, slots=True)
class Instances:
    """Replicate ``count`` times; the message is cut into as many times more chunks.

    ``policy``: which of the new chunks an instance takes.
    """

    name: ClassVar[str] = "instances"
    count: int = 1
    policy: Replication = Replication.BATCHED

    def apply(self, flow: Flow, target: Target) -> Flow:
        """Return the replicated flow.

        Raises:
            UserError: fewer than one instance.
        """
        if self.count < 1:
            raise UserError(f"{self.count} instances make no program", hint="use 1, 2, 4 …")
        if self.count == 1:
            return flow
        unit = unit_of(flow.collective) if self.policy is Replication.BATCHED else 1
        copies = range(self.count)
        return replace(
            flow,
            collective=flow.collective.split(self.count),
            messages=_joined(Messages, [self._messages(flow, unit, i) for i in copies]),
            local=_joined(LocalOps, [self._local(flow, unit, i) for i in copies]),
            scratch=flow.scratch * self.count,
            instances=self.count,
        )

    def _messages(self, flow: Flow, unit: int, i: int) -> Messages:
        m = flow.messages
        here = {"send": m.src, "recv": m.dst, "operand": m.dst, "add_from": m.dst, "add_to": m.dst}
        columns = {name: getattr(m, name) for name in (f.name for f in fields(m))}
        for name, rank in here.items():
            columns[name] = self._slots(columns[name], rank, flow.scratch, unit, i)
        columns["chunk"] = self._spread(m.chunk, unit, i)
        columns["instance"] = np.full(len(m), i, np.int64)
        return Messages(**columns)

    def _local(self, flow: Flow, unit: int, i: int) -> LocalOps:
        ops = flow.local
        source, target = (
            self._slots(x, ops.rank, flow.scratch, unit, i) for x in (ops.source, ops.target)
        )
        return replace(ops, source=source, target=target, instance=np.full(len(ops), i, np.int64))

    def _spread(self, index: Ints, unit: int, i: int) -> Ints:
        return index // unit * unit * self.count + i * unit + index % unit

    def _slots(self, slot: Ints, rank: Ints, scratch: Ints, unit: int, i: int) -> Ints:
        """Scratch is not shared: instance i has the i-th part of it."""
        base, offset = slot >> 32 << 32, slot & 0xFFFFFFFF
        user = base + self._spread(offset, unit, i)
        own = slot + i * scratch[rank]
        return np.where(slot == NONE, NONE, np.where(base == SCRATCH, own, user))


_T = TypeVar("_T", Messages, LocalOps)


def _joined(kind: type[_T], parts: list[_T]) -> _T:
    return kind(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(kind)))


@kept(most=8)
def unit_of(c: Collective) -> int:
    """Count the consecutive chunks that are pieces of one unit, alike in all but their offset.

    The factor of the collective, if its placements really have that form; else one.
    """
    f = c.factor
    return f if c.chunks % f == 0 and all(_repeats(p, f) for p in (c.pre, c.post)) else 1


def _repeats(p: Placement, f: int) -> bool:
    rows = p.rows()[np.lexsort((p.ranks, p.chunks))].astype(np.int64)
    piece = rows[:, 1] % f
    if len(rows) % f:
        return False
    # A row of piece j names what the row of piece 0 names, j further; offsets start at a multiple.
    rows[:, 1] //= f
    if ((rows[:, 3] - piece) % f).any():
        return False
    rows[:, 3] //= f
    if (np.bincount(piece, minlength=f) != len(rows) // f).any():
        return False
    parts = rows[np.argsort(piece, kind="stable")].reshape(f, len(rows) // f, rows.shape[1])
    return bool((parts == parts[0]).all())

"""Let neighbouring chunks travel together, and order the messages of a step in levels.

Before::

    step 3: 0 -> 1 from o[4] into o[4]       step 3: 0 -> 1 from o[5] into o[5]

After::

    step 3, level 0: 0 -> 1 two chunks from o[4] into o[4]

**Why no program of ours deadlocks.** All instructions are ordered by (step, level, sends before
receives); every thread block runs in that order and every dependence goes upwards in it. A level
has one message of a connection, so with at most ``depth`` chunks in it a send needs credit from
lower levels only (large messages: every chunk is an operation of its own). A larger message is let
through where its receive waits for nothing of its own level: where the receiving block sends
nothing and no other message of the step touches the slot. So all waits go upwards, and the least
instruction not done can always run.

Levels count the messages of a connection in a step. Two rules tie levels together: a slot that is
sent and overwritten in one step is sent first, and arrivals at one slot keep their order. In a step
where counting breaks one of them, messages stay single and the level is the rank of the chunk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import numbered
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.slots import WIDE

from ..analyses.flow import NONE, Blocks, Flow, LocalOps, Messages


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Merge up to ``count`` chunks (0: the limit of the target) of one step and connection.

    ``protocol`` says how many chunks a FIFO holds.
    """

    name: ClassVar[str] = "aggregate"
    protocol: Protocol = Protocol.SIMPLE
    count: int = 0

    def apply(self, flow: Flow, target: Target) -> Flow:
        """Return the flow with counts and levels; it must have blocks.

        Raises:
            UserError: less than no chunks.
        """
        if self.count < 0:
            raise UserError(
                f"{self.count} chunks cannot travel together", hint="aggregate{count=0}: any number"
            )
        assert flow.blocks is not None, "thread blocks come before aggregation"
        most = min(self.count or target.max_count, target.max_count)
        m, blocks = flow.messages, flow.blocks
        if not len(m):
            return replace(flow, local=_merged_local(flow.local, most))
        narrow = np.zeros(int(m.step.max()) + 1, bool)
        while True:
            cautious = blocks.mixed[blocks.connection] | m.contended
            cap = np.where(cautious, min(most, self.protocol.fifo_operations), most)
            cap = np.where(narrow[m.step], 1, cap)
            group, order = _runs(m, blocks.connection, cap)
            level = _levels(m, blocks.connection, group, order, narrow)
            broken = _broken_steps(m, level)
            if not broken.any():
                return _merged(flow, blocks, group, order, level, most)
            assert not (broken & narrow[m.step]).any(), "chunk ranks keep all orders"
            narrow[m.step[broken]] = True


def runs(m: Messages, connection: Ints, most: int) -> tuple[Ints, Ints, Ints]:
    """Find messages that could travel together, up to ``most`` chunks.

    Of each message: the length of its run, the run's level, and the place in the run.
    """
    if not len(m):
        return (np.zeros(0, np.int64),) * 3
    group, order = _runs(m, connection, np.full(len(m), most))
    length, place = np.empty(len(m), np.int64), np.empty(len(m), np.int64)
    size = np.bincount(group)
    length[order] = size[group]
    place[order] = np.arange(len(m)) - (np.cumsum(size) - size)[group]
    never = np.zeros(int(m.step.max()) + 1, bool)
    return length, _levels(m, connection, group, order, never), place


_SLOTS = ("send", "recv", "operand", "add_from", "add_to")


def _runs(m: Messages, connection: Ints, cap: Ints) -> tuple[Ints, Ints]:
    """The run of each message (numbered along ``order``) and the order that makes runs adjacent."""
    order = np.lexsort((m.turn, m.chunk, m.send, connection, m.step))
    follows = np.ones(len(m), bool)
    for column in (m.step, connection, m.turn, cap):
        follows[1:] &= column[order][1:] == column[order][:-1]
    for name in _SLOTS:
        follows[1:] &= _consecutive(getattr(m, name)[order])
    follows[0] = False
    return np.cumsum(_starts(follows, cap[order])) - 1, order


def _consecutive(slot: Ints) -> Bools:
    step = np.where(slot[:-1] == NONE, 0, 1)
    result: Bools = slot[1:] == slot[:-1] + step
    return result


def _starts(follows: Bools, cap: Ints | int) -> Bools:
    """Mark where runs start, when they are cut after ``cap`` entries."""
    at = np.arange(len(follows))
    start = np.maximum.accumulate(np.where(follows, 0, at))
    result: Bools = (at - start) % cap == 0
    return result


def _levels(m: Messages, connection: Ints, group: Ints, order: Ints, narrow: Bools) -> Ints:
    """Return the level of each message (of its run), in the original order of messages."""
    key = m.step[order] * (connection.max() + 1) + connection[order]
    first = np.searchsorted(key, key)  # the start of its (step, connection)
    level = np.empty(len(m), np.int64)
    level[order] = group - group[first]
    hard = np.flatnonzero(narrow[m.step])
    if len(hard):
        chunks = distinct_values(m.chunk[hard])
        level[hard] = np.searchsorted(chunks, m.chunk[hard])
    return level


def _broken_steps(m: Messages, level: Ints) -> Bools:
    """Messages in whose step the levels contradict the order that slots demand."""
    written = np.where(m.add_to == NONE, m.recv, m.add_to)
    place = np.concatenate([m.src * WIDE + m.send, m.dst * WIDE + written])
    ids = numbered(place, np.concatenate([m.step, m.step]))
    reads, writes = ids[: len(m)], ids[len(m) :]
    last_read = np.full(len(ids), -1, np.int64)
    np.maximum.at(last_read, reads, level)
    broken = last_read[writes] > level
    order = np.lexsort((m.turn, writes))
    same = writes[order][1:] == writes[order][:-1]
    broken[order[1:][same & (level[order][1:] < level[order][:-1])]] = True
    return broken


def _merged(flow: Flow, blocks: Blocks, group: Ints, order: Ints, level: Ints, most: int) -> Flow:
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    rows = order[starts]
    messages = replace(
        flow.messages.take(rows), count=np.diff(starts, append=len(group)), level=level[rows]
    )
    return replace(
        flow,
        messages=messages,
        blocks=replace(blocks, connection=blocks.connection[rows]),
        local=_merged_local(flow.local, most),
    )


def _merged_local(ops: LocalOps, most: int) -> LocalOps:
    if not len(ops) or (ops.count > 1).any():  # nothing to merge, or it is done
        return ops
    follows = np.ones(len(ops), bool)
    order = np.lexsort((ops.target, ops.source, ops.reduce, ops.step, ops.instance, ops.rank))
    ops = ops.take(order)
    for column in (ops.rank, ops.instance, ops.step, ops.reduce):
        follows[1:] &= column[1:] == column[:-1]
    follows[1:] &= _consecutive(ops.source) & _consecutive(ops.target)
    follows[0] = False
    starts = np.flatnonzero(_starts(follows, most))
    return replace(ops.take(starts), count=np.diff(starts, append=len(ops)))

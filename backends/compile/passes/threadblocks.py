"""Put the two ends of every connection into thread blocks.

Before::

    rank 1: receives from 0 (channel 0), sends to 2 (channel 0)      what it receives it forwards

After::

    rank 1, block 0: receives from 0, sends to 2                     the two ends can be fused

A block may hold one sending and one receiving end of a channel. Which ones is an assignment problem
for every rank and channel (Kuhn 1955; scipy's ``linear_sum_assignment``), of most weight:

* First, ends that **forward**: what comes in by one goes out by the other, in one instruction. The
  weight is the number of such messages, each with how critical it is, so that a chain that much
  depends on is not torn for one that ends soon.
* Then, under ``policy=auto``, ends that are not in each other's way: their block runs in the order
  of steps and sends before it receives, and by the earliest times of all messages none
  waits for another one of it; nor does the block take longer, from its first message to its last,
  than some block does anyway. For that is what bounds the loop over a large message: a block that
  adds on the way up a tree and copies on the way down cannot begin the next iteration before the
  end of this one.
* ``policy=fewest`` pairs all that are left, each pair a block less: first those that delay least.

No end is paired where its block would then have to cut its long messages (see ``aggregate``), nor
where the block would be longer than the target allows; unless ``pair_all`` says that the target has
too few blocks otherwise. Ends whose author names a block have that one.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.assignment import best_assignment
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import Target

from ..analyses.flow import NONE, Blocks, Flow, Messages
from ..analyses.forwarding import circular, earliest, forwarded, held_up, lone, urgency
from ..analyses.hints import HintedEnds, hinted_ends
from .aggregate import runs


class Pairing(StrEnum):
    """Policies that say which ends share a block though they forward nothing to each other."""

    AUTO = "auto"  #: those that are not in each other's way
    FEWEST = "fewest"  #: as many as can: the fewest blocks
    FORWARD = "forward"  #: none
    NONE = "none"  #: nor do those that forward: a block for every end


@dataclass(frozen=True, slots=True)
class ThreadBlocks:
    """Put the sending and the receiving end of connections on shared thread blocks.

    ``pair_all``: share blocks even where that is slower. ``count`` as aggregation will have it.
    ``protocol``: how deep the FIFOs are, which says what a shared block would hold up.
    """

    name: ClassVar[str] = "threadblocks"
    pair_all: bool = False
    protocol: Protocol = Protocol.SIMPLE
    policy: Pairing = Pairing.AUTO
    count: int = 0

    def apply(self, flow: Flow, target: Target) -> Flow:
        """Return the flow with its blocks.

        Raises:
            UserError: wishes that no thread block can fulfil.
        """
        m = flow.messages
        keys = (m.channel * flow.collective.ranks + m.src) * flow.collective.ranks + m.dst
        names, first, connection = np.unique(keys, return_index=True, return_inverse=True)
        times = earliest(m, connection)
        ends = _BlockEnds.of(m, connection, first, times)
        partner = np.full(len(names), NONE, np.int64)  # of a receiving end: the sending end
        wishes = hinted_ends(m, connection, first)
        depth = self.protocol.fifo_operations
        # Without fused instructions a pair that forwards saves a block and a wait, no instruction.
        if target.fuses if self.policy is Pairing.FORWARD else self.policy is not Pairing.NONE:
            _pair(partner, ends, *_unless(wishes, _forwarding(ends, m, connection, depth)))
        if self.pair_all or self.policy in (Pairing.AUTO, Pairing.FEWEST):
            most = min(self.count or target.max_count, target.max_count)
            length, level, _ = runs(m, connection, most)
            whole = np.ones(len(names), bool)
            whole[connection[length > depth]] = False
            fits = _fitting(partner, ends, whole, self.pair_all, target.max_steps // 2)
            i, o, _ = pairs = _unless(wishes, fits)
            held = held_up(i, o, m, connection, level, times)
            _pair(partner, ends, *self._graded(pairs, partner, ends, held))
        for receiving, sending in wishes.pairs:
            partner[receiving] = sending
        return replace(flow, blocks=_blocks(flow, ends, partner, connection))

    def _graded(self, pairs: _Pairs, partner: Ints, ends: _BlockEnds, held: Ints) -> _Pairs:
        """Value each pair; ``auto`` keeps those that cost nothing."""
        i, o, _ = pairs
        span = ends.spans(i, o)
        longer = np.maximum(span - _longest(partner, ends), 0)
        if self.policy is Pairing.AUTO and not self.pair_all:
            free = (held == 0) & (longer == 0)
            i, o, held, longer, span = (x[free] for x in (i, o, held, longer, span))
        # One pair more outweighs all costs; of equals, ends to the same peer.
        cost = (held + longer) * (span.max(initial=0) + 1) + span
        most = cost.max(initial=0) + 1
        return i, o, 2 * (most * (len(partner) + 1) - cost) + (ends.src[i] == ends.dst[o])


@dataclass(frozen=True, eq=False)
class _BlockEnds:
    """Connections: ranks, channel, messages, steps that receiving takes; when they are in use.

    Sending lasts from the first message's begin, ``opens``, receiving from its end, ``arrives``;
    both to the end of the last, ``closes``.
    """

    src: Ints
    dst: Ints
    channel: Ints
    messages: Ints
    received: Ints
    opens: Ints
    arrives: Ints
    closes: Ints

    @staticmethod
    def of(m: Messages, connection: Ints, first: Ints, times: tuple[Ints, Ints]) -> _BlockEnds:
        begin, end = times
        opens, arrives = (np.full(len(first), np.iinfo(np.int64).max) for _ in range(2))
        closes = np.zeros(len(first), np.int64)
        np.minimum.at(opens, connection, begin)
        np.minimum.at(arrives, connection, end)
        np.maximum.at(closes, connection, end)
        received = np.bincount(connection, 1 + (m.add_to != NONE)).astype(np.int64)
        return _BlockEnds(
            m.src[first],
            m.dst[first],
            m.channel[first],
            np.bincount(connection),
            received,
            opens,
            arrives,
            closes,
        )

    def spans(self, i: Ints, o: Ints) -> Ints:
        """Return the steps in which blocks that receive by ``i`` and send by ``o`` are in use."""
        return np.maximum(self.closes[i], self.closes[o]) - np.minimum(
            self.arrives[i], self.opens[o]
        )


_Pairs = tuple[Ints, Ints, Ints]
"""Receiving ends, sending ends of the same rank and channel, and the gain of each pair."""


def _unless(wishes: HintedEnds, pairs: _Pairs) -> _Pairs:
    """Without the ends whose author names a block."""
    i, o, weight = pairs
    free = ~wishes.receives[i] & ~wishes.sends[o]
    return i[free], o[free], weight[free]


def _forwarding(ends: _BlockEnds, m: Messages, connection: Ints, depth: int) -> _Pairs:
    """Pairs of ends by the messages that come in by one and go out by the other.

    Those count that may fuse: alone, or with neighbours, on their connection in their step; worth
    it where they are half of the lesser end's.
    """
    incoming, outgoing = forwarded(m)
    i, o = connection[incoming], connection[outgoing]
    same = ends.channel[i] == ends.channel[o]
    incoming, outgoing, i, o = (x[same] for x in (incoming, outgoing, i, o))
    most = np.where(circular(i, o, len(ends.src)), depth, depth + 1)
    same = np.zeros(len(i), bool)
    for limit in (depth, depth + 1):
        alone = lone(m, connection, limit)
        same |= (most == limit) & alone[incoming] & alone[outgoing]
    if not same.any():
        return i[same], o[same], i[same]
    pairs, inverse, number = np.unique(
        np.stack([i[same], o[same]]), axis=1, return_inverse=True, return_counts=True
    )
    urgent = urgency(m)[outgoing[same]]
    # A fused message more outweighs all urgency.
    weight = number * (len(m) + 1) * (urgent.max() + 1)
    weight += np.bincount(inverse.reshape(-1), urgent).astype(np.int64)
    pays = 2 * number >= np.minimum(ends.messages[pairs[0]], ends.messages[pairs[1]])
    return pairs[0, pays], pairs[1, pays], weight[pays]


def _fitting(partner: Ints, ends: _BlockEnds, whole: Bools, pair_all: bool, most: int) -> _Pairs:
    """Return all pairs of free ends of one rank and channel whose block would do as it is."""
    free_send = np.ones(len(partner), bool)
    free_send[partner[partner != NONE]] = False
    receiving = np.flatnonzero((partner == NONE) & (whole | pair_all))
    sending = np.flatnonzero(free_send)
    i, o = _joined(
        receiving,
        sending,
        ends.dst[receiving],
        ends.channel[receiving],
        ends.src[sending],
        ends.channel[sending],
    )
    keep = pair_all | (ends.received[i] + ends.messages[o] <= most)
    return i[keep], o[keep], np.zeros(int(keep.sum()), np.int64)


def _longest(partner: Ints, ends: _BlockEnds) -> int:
    i = np.flatnonzero(partner != NONE)
    alone = (ends.closes - ends.opens).max(initial=0)
    return int(max(alone, ends.spans(i, partner[i]).max(initial=0)))


def _joined(
    left: Ints,
    right: Ints,
    left_rank: Ints,
    left_channel: Ints,
    right_rank: Ints,
    right_channel: Ints,
) -> tuple[Ints, Ints]:
    wide = np.int64(max(left_channel.max(initial=0), right_channel.max(initial=0))) + 1
    key = right_rank * wide + right_channel
    order = np.argsort(key, kind="stable")
    wanted = left_rank * wide + left_channel
    start = np.searchsorted(key[order], wanted, "left")
    size = np.searchsorted(key[order], wanted, "right") - start
    rows = np.repeat(np.arange(len(left)), size)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    return left[rows], right[order[start[rows] + within]]


def _pair(partner: Ints, ends: _BlockEnds, i: Ints, o: Ints, weight: Ints) -> None:
    """The matching of most weight, rank by rank and channel by channel."""
    if not len(i):
        return
    wide = np.int64(ends.channel.max()) + 1
    key = ends.dst[i] * wide + ends.channel[i]
    order = np.argsort(key, kind="stable")
    key, i, o, weight = (x[order] for x in (key, i, o, weight))
    row, column = _places(key, i), _places(key, o)
    cuts = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
    for begin, end in pairwise(cuts):
        at, to = row[begin:end], column[begin:end]
        worth = np.zeros((int(at.max()) + 1, int(to.max()) + 1))
        worth[at, to] = weight[begin:end]
        receiving, sending = np.empty(len(worth), np.int64), np.empty(worth.shape[1], np.int64)
        receiving[at], sending[to] = i[begin:end], o[begin:end]
        chosen, with_ = best_assignment(worth)
        real = worth[chosen, with_] > 0
        partner[receiving[chosen[real]]] = sending[with_[real]]


def _places(key: Ints, value: Ints) -> Ints:
    """Return the place of each value among the different ones of its key; keys are ascending."""
    order = np.lexsort((value, key))
    opens = np.ones(len(key), bool)
    opens[1:] = key[1:] != key[:-1]
    new = np.ones(len(key), bool)
    new[1:] = np.diff(value[order]) != 0
    number = np.cumsum(new | opens)
    place = np.empty(len(key), np.int64)
    place[order] = number - number[np.flatnonzero(opens)][np.cumsum(opens) - 1]
    return place


def _blocks(flow: Flow, ends: _BlockEnds, partner: Ints, connection: Ints) -> Blocks:
    """Number the blocks of each rank by (channel, send peer, receive peer)."""
    count = len(ends.src)
    rows: list[list[tuple[int, int, int, int, int]]] = [[] for _ in range(flow.collective.ranks)]
    taken = set(partner.tolist())
    for end in range(count):
        src, dst, channel = int(ends.src[end]), int(ends.dst[end]), int(ends.channel[end])
        if end not in taken:
            rows[src].append((channel, dst, NONE, end, NONE))
        other = int(partner[end])
        to = int(ends.dst[other]) if other != NONE else NONE
        rows[dst].append((channel, to, src, other, end))
    send_block, recv_block = np.full(count, NONE, np.int64), np.full(count, NONE, np.int64)
    mixed = np.zeros(count, bool)
    peers: list[list[tuple[int, int, int]]] = []
    for rank_rows in rows:
        rank_rows.sort()
        for block, (_, _, _, sending, receiving) in enumerate(rank_rows):
            if sending != NONE:
                send_block[sending] = block
            if receiving != NONE:
                recv_block[receiving] = block
                mixed[receiving] = sending != NONE
        peers.append([row[:3] for row in rank_rows])
    return Blocks(connection, send_block, recv_block, mixed, tuple(map(tuple, peers)))

"""Put the two ends of every connection into thread blocks.

Before::

    rank 1: receives from 0 (channel 0), sends to 2 (channel 0)      what it receives it forwards

After::

    rank 1, block 0: receives from 0, sends to 2                     the two ends can be fused

A block may hold one sending and one receiving end. Holding both pays where what comes in goes out
again in one instruction, and costs otherwise: the two wait for each other. So ends are paired, the
heaviest pair first, where at least half of the lesser end's messages are forwarded; or all of them
where the target has too few blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.dsl.program import Protocol

from ..target import Target
from .flow import NONE, Blocks, Column, Flow, Messages
from .forwarding import forwarded, lone


@dataclass(frozen=True, slots=True)
class ThreadBlocks:
    """Pair the ends; ``pair_all``: also those that forward nothing to each other."""

    name: ClassVar[str] = "threadblocks"
    pair_all: bool = False
    protocol: Protocol = Protocol.SIMPLE

    def apply(self, flow: Flow, target: Target) -> Flow:
        """The flow with its blocks."""
        m = flow.messages
        keys = (m.channel * flow.collective.ranks + m.src) * flow.collective.ranks + m.dst
        names, first, connection = np.unique(keys, return_index=True, return_inverse=True)
        ends = _Ends(m.src[first], m.dst[first], m.channel[first], np.bincount(connection))
        partner = np.full(len(names), NONE, np.int64)  # of a receiving end: the sending end
        if target.fuses:
            _pair_forwarding(partner, ends, m, connection, self.protocol.fifo_operations)
        if self.pair_all:
            _pair_rest(partner, ends)
        return replace(flow, blocks=_blocks(flow, ends, partner, connection))


@dataclass(frozen=True, eq=False)
class _Ends:
    """Connections: their ranks, channel and number of messages."""

    src: Column
    dst: Column
    channel: Column
    messages: Column


def _pair_forwarding(
    partner: Column, ends: _Ends, m: Messages, connection: Column, depth: int
) -> None:
    """Greedy matching by the number of messages that come in by one end and go out by the other.

    Those count that may fuse: alone, or with neighbours, on their connection in their step.
    """
    incoming, outgoing = forwarded(m)
    i, o = connection[incoming], connection[outgoing]
    alone = lone(m, connection, depth)
    same = (ends.channel[i] == ends.channel[o]) & alone[incoming] & alone[outgoing]
    pairs, weight = np.unique(np.stack([i[same], o[same]]), axis=1, return_counts=True)
    pays = 2 * weight >= np.minimum(ends.messages[pairs[0]], ends.messages[pairs[1]])
    pairs, weight = pairs[:, pays], weight[pays]
    taken: set[int] = set()
    for at in np.lexsort((pairs[1], pairs[0], -weight)).tolist():
        receiving, sending = int(pairs[0, at]), int(pairs[1, at])
        if partner[receiving] == NONE and sending not in taken:
            partner[receiving] = sending
            taken.add(sending)


def _pair_rest(partner: Column, ends: _Ends) -> None:
    """Pair whatever is left, by rank and channel."""
    taken = set(partner.tolist())
    free: dict[tuple[int, int], list[int]] = {}
    for end, key in enumerate(zip(ends.src.tolist(), ends.channel.tolist(), strict=True)):
        if end not in taken:
            free.setdefault(key, []).append(end)
    for end, key in enumerate(zip(ends.dst.tolist(), ends.channel.tolist(), strict=True)):
        if partner[end] == NONE and free.get(key):
            partner[end] = free[key].pop(0)


def _blocks(flow: Flow, ends: _Ends, partner: Column, connection: Column) -> Blocks:
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

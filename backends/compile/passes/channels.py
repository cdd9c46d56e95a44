"""Give every message a channel, so that each connection stays within what a thread block can do.

Before::

    0 -> 1: 300 messages                             (a block runs at most 256 steps)

After::

    0 -> 1 on channel 0: 150 messages                0 -> 1 on channel 1: 150 messages

A connection (source, destination, channel) is one FIFO with one thread block on each end. Instances
have channels of their own. On one channel a rank may have 32 send peers; where it has more, the
distance in rank picks one of several: two peers at one end never differ by a multiple of the group.
Messages whose author names a channel keep it.

``policy=chains`` gives chains of forwarding that go different ways channels of their own
(``chains.py``): more blocks, shorter ones, each with one chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Protocol

from ...runtime.target import Target
from ..analyses.flow import NONE, Flow, Messages
from ..analyses.forwarding import circular, forwarded, places_in_step
from ..analyses.hints import wanted_channels
from .chains import chain_channels

MOST = 16
"""Thread blocks that a rank may get for one instance without being asked for them."""


class Spread(StrEnum):
    """What gets a channel of its own."""

    LANES = "lanes"  #: parts of a connection, as few as will do
    CHAINS = "chains"  #: chains of forwarding that go different ways


@dataclass(frozen=True, slots=True)
class Channels:
    """Spread each connection over ``lanes`` channels, and over more where ``steps`` demand it.

    ``lanes=0``: as many (within reason) as it takes to let most messages be forwarded by a fused
    instruction, or one. ``steps``: how many messages one connection may carry (0: no limit). A lane
    takes a range of the chunks of its connection, so that neighbours stay together. ``protocol``:
    how deep the FIFO is that a lane shall not fill. ``count``: how many may travel together (0: as
    many as the target allows).
    """

    name: ClassVar[str] = "channels"
    lanes: int = 0
    steps: int = 0
    protocol: Protocol = Protocol.SIMPLE
    policy: Spread = Spread.LANES
    count: int = 0

    def apply(self, flow: Flow, target: Target) -> Flow:
        """The flow with channels.

        Raises:
            UserError: a negative number of lanes or steps, or more channels than the target has.
        """
        if self.lanes < 0:
            raise UserError(f"lanes is {self.lanes}; 0 means as fusing needs", where=self.name)
        if self.steps < 0:
            raise UserError(f"steps is {self.steps}; 0 means no limit", where=self.name)
        m = flow.messages
        if not len(m):
            return flow
        hinted, channel = wanted_channels(m)
        free = np.flatnonzero(~hinted)
        width = int(channel[hinted].max(initial=NONE)) + 1  # channels of one instance
        if len(free):
            channel[free] = self._chosen(m.take(free), flow, target)
            width = max(width, int(channel[free].max()) + 1)
        if width * flow.instances > target.max_channels:
            raise UserError(
                f"{width * flow.instances} channels are needed ({flow.instances} instances × "
                f"{width} each); {target.name} has {target.max_channels}",
                hint="use fewer instances or lanes, or fewer chunks",
            )
        return replace(flow, messages=replace(m, channel=m.instance * width + channel))

    def _chosen(self, m: Messages, flow: Flow, target: Target) -> Ints:
        """The channel within the instance of messages without a wish."""
        ranks = flow.collective.ranks
        pair = (m.instance * ranks + m.src) * ranks + m.dst
        if self.policy is Spread.CHAINS:
            together = min(self.count or target.max_count, self.protocol.fifo_operations)
            most = target.max_channels // flow.instances
            channel = chain_channels(m, ranks, together, most)
            width = int(channel.max()) + 1
            lane = _ranges(pair * width + channel, m.chunk, 1, self.steps)
            return channel + width * lane
        group = _peer_group(m.src, m.dst, ranks, target.max_peers)
        groups = int(group.max()) + 1
        part = np.zeros(len(m), np.int64)
        if self.lanes == 0 and target.fuses:
            room = min(
                MOST // max(1, _degree(m.src, m.dst, ranks)),
                target.max_channels // (groups * flow.instances),
            )
            part = _fusing_lanes(m, pair, self.protocol.fifo_operations, room)
        parts = int(part.max()) + 1
        lane = _ranges(pair * parts + part, m.chunk, max(1, self.lanes), self.steps)
        lane = lane * parts + part
        return group * (int(lane.max()) + 1) + lane


def _fusing_lanes(m: Messages, pair: Ints, depth: int, most: int) -> Ints:
    """Lanes by position in the step, if chunks then keep their lane where they are forwarded.

    A block that receives and sends can fuse the two only where one message comes at a time, of
    fewer than ``depth`` chunks in a ring, where all would wait for credit with their FIFOs full.
    Worth it where half of all messages are forwarded and three quarters of those keep their lane.
    """
    position, total = places_in_step(m, pair)
    incoming, outgoing = forwarded(m)
    ring = circular(pair[incoming], pair[outgoing], int(pair.max()) + 1).any()
    lanes = -(-int(total.max()) // max(1, depth - 1 if ring else depth))
    if not 1 < lanes <= most:
        return np.zeros(len(m), np.int64)
    lane = position * lanes // np.maximum(total, lanes)
    kept = lane[incoming] == lane[outgoing]
    # Of several that send on what one brought, one is fused.
    fused, possible = len(np.unique(incoming[kept])), len(np.unique(incoming))
    worth = 2 * possible >= len(m) and 4 * fused >= 3 * possible
    return lane if worth else np.zeros(len(m), np.int64)


def _ranges(pair: Ints, chunk: Ints, lanes: int, steps: int) -> Ints:
    """Cut the chunks of each connection into ranges of about as many messages each.

    At least ``lanes`` of them, and so many that none has more than ``steps`` messages (0: any).
    """
    order = np.lexsort((chunk, pair))
    sorted_pair, sorted_chunk = pair[order], chunk[order]
    _, start, size = np.unique(sorted_pair, return_index=True, return_counts=True)
    position = np.arange(len(pair)) - np.repeat(start, size)
    # All messages of one chunk share the lane of the first, which keeps them in order.
    first = np.ones(len(pair), bool)
    first[1:] = (sorted_pair[1:] != sorted_pair[:-1]) | (sorted_chunk[1:] != sorted_chunk[:-1])
    position = position[np.maximum.accumulate(np.where(first, np.arange(len(pair)), 0))]
    wanted = np.maximum(lanes, -(-size // steps)) if steps else np.full(len(size), lanes)
    lane = np.empty(len(pair), np.int64)
    lane[order] = position * np.repeat(wanted, size) // np.repeat(size, size)
    return lane


def _peer_group(src: Ints, dst: Ints, ranks: int, limit: int) -> Ints:
    """Zero where no rank has more peers than ``limit`` on one side; else by distance in rank."""
    if _degree(src, dst, ranks) <= limit:
        return np.zeros(len(src), np.int64)
    return ((dst - src) % ranks) // limit


def _degree(src: Ints, dst: Ints, ranks: int) -> int:
    """The most peers of a rank on one side."""
    pairs = np.unique(src * ranks + dst)
    return int(max(np.bincount(pairs // ranks).max(), np.bincount(pairs % ranks).max()))

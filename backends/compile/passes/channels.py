"""Give every message a channel, so that each connection stays within the limits of a thread block.

Before::

    0 -> 1: 300 messages                             (a block runs at most 256 steps)

After::

    0 -> 1 on channel 0: 150 messages                0 -> 1 on channel 1: 150 messages

A connection (source, destination, channel) is one FIFO with one thread block on each end. Instances
have channels of their own. On one channel a rank may have 32 send peers; where it has more, the
distance in rank picks one of several: two peers at one end never differ by a multiple of the group.
Messages whose author names a channel keep it.

``policy=chains`` gives chains of forwarding that go different ways channels of their own
(:func:`chain_channels`): more blocks, shorter ones, each with one chain.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import Target

from ..analyses.flow import NONE, Flow, Messages
from ..analyses.forwarding import circular, forwarded, places_in_step, urgency
from ..analyses.hints import wanted_channels
from .aggregate import runs

MOST = 16
"""Thread blocks that a rank may get for one instance without a request."""


class Spread(StrEnum):
    """Policies that select the messages with a channel of their own."""

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
        """Return the flow with channels.

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
        if width * flow.instances > target.used_channels:
            raise UserError(
                f"{width * flow.instances} channels are needed ({flow.instances} instances × "
                f"{width} each); {target.name} has {target.used_channels}",
                hint="use fewer instances or lanes, or fewer chunks",
            )
        return replace(flow, messages=replace(m, channel=m.instance * width + channel))

    def _chosen(self, m: Messages, flow: Flow, target: Target) -> Ints:
        """Return the channel within the instance of messages without a wish."""
        ranks = flow.collective.ranks
        pair = (m.instance * ranks + m.src) * ranks + m.dst
        if self.policy is Spread.CHAINS:
            together = min(self.count or target.max_count, self.protocol.fifo_operations)
            most = target.used_channels // flow.instances
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
                target.used_channels // (groups * flow.instances),
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
    fused, possible = len(distinct_values(incoming[kept])), len(distinct_values(incoming))
    worth = 2 * possible >= len(m) and 4 * fused >= 3 * possible
    return lane if worth else np.zeros(len(m), np.int64)


def _ranges(pair: Ints, chunk: Ints, lanes: int, steps: int) -> Ints:
    """Cut the chunks of each connection into ranges of about as many messages each.

    At least ``lanes`` of them, and enough that none has more than ``steps`` messages (0: any).
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
    pairs = distinct_values(src * ranks + dst)
    return int(max(np.bincount(pairs // ranks).max(), np.bincount(pairs % ranks).max()))


def chain_channels(m: Messages, ranks: int, together: int, most: int) -> Ints:
    """Return a channel for each message (instances count for themselves), of ``most``.

    Up to ``together`` neighbouring chunks stay together.

    What is in no chain goes with the least laden chain of its connection, else by channel 0.

    This is the rule of the published compiler. A chain is a message, what it brings sent on, and so
    on, as long as the same chunks stay together; where several messages send on what one brought,
    the most urgent of them continues the chain (see :func:`.urgency`). Chains over the same
    connections share a channel; any other takes the smallest channel that is free on all of its
    hops. So a block holds a chain and nothing else: a chain that begins at one rank and ends before
    it comes round again cannot wait for itself, however many chunks it carries.

    Raises:
        UserError: more than ``most`` channels.
    """
    hop = (m.instance * ranks + m.src) * ranks + m.dst
    _, hop = np.unique(hop, return_inverse=True)
    chain = _chains(m, hop, together)
    _, chain, length = np.unique(chain, return_inverse=True, return_counts=True)
    channel = np.full(len(m), NONE, np.int64)
    in_chain = np.flatnonzero(length[chain] > 1)
    taken: dict[int, int] = {}  # hop -> bits of the channels in use
    flows: dict[bytes, int] = {}
    pairs = np.unique(np.stack([chain[in_chain], hop[in_chain]]), axis=1)
    found = np.full(len(length), NONE, np.int64)
    for hops in np.split(np.arange(pairs.shape[1]), np.flatnonzero(np.diff(pairs[0])) + 1):
        if not len(hops):
            break
        found[pairs[0, hops[0]]] = _channel(pairs[1, hops], taken, flows, most)
    channel[in_chain] = found[chain[in_chain]]
    alone = np.flatnonzero(channel == NONE)
    channel[alone] = _beside(hop[in_chain], channel[in_chain], hop[alone])
    return channel


def _chains(m: Messages, hop: Ints, together: int) -> Ints:
    length, _, place = runs(m, hop, together)
    incoming, outgoing = forwarded(m)
    same = (length[incoming] == length[outgoing]) & (place[incoming] == place[outgoing])
    incoming, outgoing = incoming[same], outgoing[same]
    order = np.lexsort((m.dst[outgoing], -urgency(m)[outgoing], incoming))
    incoming, outgoing = incoming[order], outgoing[order]
    first = np.ones(len(incoming), bool)
    first[1:] = incoming[1:] != incoming[:-1]
    incoming, outgoing = incoming[first], outgoing[first]
    head = np.arange(len(m))
    head[outgoing] = incoming
    while True:  # pointers are doubled: chains of n messages take log n rounds
        further = head[head]
        if np.array_equal(further, head):
            return head
        head = further


def _channel(hops: Ints, taken: dict[int, int], flows: dict[bytes, int], most: int) -> int:
    key = hops.tobytes()
    if key not in flows:
        used = 0
        each = hops.tolist()
        for hop in each:
            used |= taken.get(hop, 0)
        channel = (~used & (used + 1)).bit_length() - 1  # the lowest bit that is not set
        if channel >= most:
            raise UserError(
                f"chains of their own need more than {most} channels",
                hint="channels{policy=lanes} lets chains share connections",
            )
        for hop in each:
            taken[hop] = taken.get(hop, 0) | 1 << channel
        flows[key] = channel
    return flows[key]


def _beside(hop: Ints, channel: Ints, alone: Ints) -> Ints:
    """Return the channel with the fewest messages of a chain on each hop; 0 where none is."""
    if not len(hop):
        return np.zeros(len(alone), np.int64)
    wide = int(channel.max()) + 1
    names, count = np.unique(hop * wide + channel, return_counts=True)
    order = np.lexsort((names, count, names // wide))
    at = np.searchsorted(names[order] // wide, alone)
    at = np.minimum(at, len(names) - 1)
    found = names[order][at]
    return np.where(found // wide == alone, found % wide, 0)

"""Chains of forwarding, each on a channel of its own: the rule of the published compiler.

A chain is a message, what it brings sent on, and so on, as long as the same chunks stay together;
where several messages send on what one brought, the most urgent of them continues the chain (see
``criticality``). Chains over the same connections share a channel; any other takes the smallest
channel that is free on all of its hops.
So a block holds a chain and nothing else: a chain that begins at one rank and ends before it comes
round again cannot wait for itself, however many chunks it carries.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError

from ..analyses.criticality import urgency
from ..analyses.flow import NONE, Messages
from ..analyses.forwarding import forwarded
from .aggregate import runs


def chain_channels(m: Messages, ranks: int, together: int, most: int) -> Ints:
    """A channel for each message (instances count for themselves), of ``most``.

    Up to ``together`` neighbouring chunks stay together.

    What is in no chain goes with the least laden chain of its connection, else by channel 0.

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
    """The first message of the chain of each message."""
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
    """The channel with the fewest messages of a chain on each hop; 0 where none is."""
    if not len(hop):
        return np.zeros(len(alone), np.int64)
    wide = int(channel.max()) + 1
    names, count = np.unique(hop * wide + channel, return_counts=True)
    order = np.lexsort((names, count, names // wide))
    at = np.searchsorted(names[order] // wide, alone)
    at = np.minimum(at, len(names) - 1)
    found = names[order][at]
    return np.where(found // wide == alone, found % wide, 0)

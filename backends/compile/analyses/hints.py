"""Channels and thread blocks that an author requests, checked against the limits of a block.

A thread block has one send peer, one receive peer and one channel; a connection has one block at
each end. A message with a block but no channel goes by channel 0. Instances repeat the wishes on
channels and blocks of their own.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from .flow import NONE, Messages


def wanted_channels(m: Messages) -> tuple[Bools, Ints]:
    """Return which messages the passes may not move, and the channel (of one instance) of each."""
    hinted = (m.channel != NONE) | (m.send_hint != NONE) | (m.recv_hint != NONE)
    return hinted, np.maximum(m.channel, 0)


@dataclass(frozen=True)
class HintedEnds:
    """Ends of connections with a block of their author's: which are, and those that share one.

    ``sends``, ``receives``: by connection. ``pairs``: (receiving connection, sending connection).
    """

    sends: Bools
    receives: Bools
    pairs: tuple[tuple[int, int], ...]


def hinted_ends(m: Messages, connection: Ints, first: Ints) -> HintedEnds:
    """Return the blocks that authors request; ``first`` is a message of each connection.

    Raises:
        UserError: a block with two peers on one side or two channels, a connection in two blocks.
    """
    count = len(first)
    none = np.zeros(count, bool)
    if not ((m.send_hint != NONE) | (m.recv_hint != NONE)).any():
        return HintedEnds(none, none, ())
    sends = _numbers(m, m.send_hint, connection, count, "send to", m.src, m.dst)
    receives = _numbers(m, m.recv_hint, connection, count, "receive from", m.dst, m.src)
    blocks: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
    for side, (numbers, rank) in enumerate(((sends, m.src[first]), (receives, m.dst[first]))):
        asked = np.flatnonzero(numbers != NONE)
        keys = zip(rank[asked], m.instance[first[asked]], numbers[asked], strict=True)
        for end, (r, instance, number) in zip(asked.tolist(), keys, strict=True):
            key = (int(r), int(instance), int(number))
            blocks.setdefault(key, ([], []))[side].append(end)
    pairs = []
    for (r, _, number), (out, into) in sorted(blocks.items()):
        where = f"thread block {number} of rank {r}"
        _one_of_each(where, m, first, out, into)
        if out and into:
            pairs.append((into[0], out[0]))
    return HintedEnds(sends != NONE, receives != NONE, tuple(pairs))


def _numbers(
    m: Messages,
    hint: Ints,
    connection: Ints,
    count: int,
    verb: str,
    here: Ints,
    there: Ints,
) -> Ints:
    """Return the block number of each connection's end, NONE where no author names one."""
    rows = np.flatnonzero(hint != NONE)
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, NONE, np.int64)
    np.minimum.at(least, connection[rows], hint[rows])
    np.maximum.at(most, connection[rows], hint[rows])
    torn = rows[least[connection[rows]] != most[connection[rows]]]
    if len(torn):
        i, c = int(torn[0]), int(connection[torn[0]])
        raise UserError(
            f"thread blocks {least[c]} and {most[c]} of rank {here[i]} both {verb} rank {there[i]} "
            f"on channel {m.channel[i]}: a connection has one block at each end",
            hint="give them different channels",
        )
    return most


def _one_of_each(where: str, m: Messages, first: Ints, out: list[int], into: list[int]) -> None:
    for ends, peer, what in ((out, m.dst, "send"), (into, m.src, "receive")):
        peers = sorted({int(peer[first[end]]) for end in ends})
        if len(peers) > 1:
            raise UserError(
                f"{where} has {len(peers)} {what} peers, ranks {', '.join(map(str, peers))}: "
                "a block has one",
                hint="give each peer a block number of its own",
            )
    channels = sorted({int(m.channel[first[end]]) for end in (*out, *into)})
    if len(channels) > 1:
        raise UserError(
            f"{where} is on channels {', '.join(map(str, channels))}: a block has one",
            hint="give what is on another channel a block number of its own",
        )

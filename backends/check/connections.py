"""Connections: peers that exist, one block at each end, as many messages sent as received.

A connection (source, destination, channel) carries no tags: the k-th send meets the k-th receive.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.program import RECEIVES, SENDS, Code

from ..judge.events import connect
from .findings import Finding, Severity, at_blocks, at_transfers


def structure(code: Code) -> list[Finding]:
    """Block numbers and peers: 0, 1, 2 … on each rank; peers that exist and are others."""
    found: list[Finding] = []
    order = np.lexsort((code.block_id, code.block_rank))
    rank, number = code.block_rank[order], code.block_id[order]
    first = np.searchsorted(rank, np.arange(code.rank_count))
    wanted = np.arange(len(order)) - first[rank] if len(order) else order
    bad = np.flatnonzero(number != wanted)
    found += at_blocks(
        "structure",
        code,
        order[bad],
        lambda k: f"tb ids must be 0, 1, 2 …, and {wanted[bad[k]]} is missing or there twice",
        kind="refused",
    )
    found += _odd_peers(code, code.block_send, "send")
    found += _odd_peers(code, code.block_recv, "receive")
    block = code.block
    for does, peer, word in (
        (SENDS, code.block_send, "sends"),
        (RECEIVES, code.block_recv, "receives"),
    ):
        alone = np.flatnonzero(does[code.op] & (peer[block] < 0))
        text = f"{word}, but its block has no such peer"
        found += at_transfers("structure", code, alone, text, kind="refused")
    return found


def _odd_peers(code: Code, peer: Ints, verb: str) -> list[Finding]:
    found: list[Finding] = []
    beyond = peer >= code.rank_count
    own = (peer < -1) | (peer == code.block_rank)
    for bad, kind in ((beyond, "peer-beyond"), (own, "refused")):
        odd = np.flatnonzero(bad)

        def message(k: int, odd: Ints = odd) -> str:
            return f"{verb} peer {peer[odd[k]]} is not another rank"

        found += at_blocks("structure", code, odd, message, kind=kind)
    return found


def pairing(code: Code) -> list[Finding]:
    """One block at each end; the same messages at both ends."""
    found: list[Finding] = []
    links, *sides = connect(code)
    number = len(links)
    for side, word in zip(sides, ("sending", "receiving"), strict=True):
        ends = np.bincount(side[side >= 0], minlength=number)
        for c in np.flatnonzero(ends > 1)[:20].tolist():
            text = f"{ends[c]} thread blocks share the {word} end of {_name(links, c)}"
            found.append(_finding(links, c, text, "shared"))
        for c in np.flatnonzero(ends == 0)[:20].tolist():
            text = f"{_name(links, c)} has no {word} block: setting it up hangs"
            found.append(_finding(links, c, text, "one-sided"))
    return found or _messages(code, links, sides)


def _messages(code: Code, links: Ints, sides: list[Ints]) -> list[Finding]:
    """Numbers and counts of messages; each connection has one block at each end here."""
    block = code.block
    some = code.count > 0
    columns = []
    for does, side in zip((SENDS, RECEIVES), sides, strict=True):
        moves = np.flatnonzero(does[code.op] & some)
        order = np.argsort(side[block[moves]], kind="stable")
        moves = moves[order]
        where = side[block[moves]]
        columns.append((moves, where, np.bincount(where, minlength=len(links))))
    (sends, _, sent), (receives, _, received) = columns
    found = []
    for c in np.flatnonzero(sent != received)[:20].tolist():
        text = f"{sent[c]} sends but {received[c]} receives on {_name(links, c)}"
        found.append(_finding(links, c, text, "message-number"))
    if found:
        return found
    # Sorted by connection and of equal numbers, the k-th entries meet.
    bad = np.flatnonzero(code.count[sends] != code.count[receives])
    return at_transfers(
        "connections",
        code,
        receives[bad],
        lambda k: (
            f"takes {code.count[receives[bad[k]]]} chunks, but "
            f"{code.describe(int(sends[bad[k]]))} sends "
            f"{code.count[sends[bad[k]]]}"
        ),
        kind="message-count",
    )


def _name(links: Ints, c: int) -> str:
    source, target, channel = links[c].tolist()
    return f"the connection from rank {source} to rank {target} on channel {channel}"


def _finding(links: Ints, c: int, text: str, kind: str) -> Finding:
    return Finding("connections", Severity.ERROR, text, int(links[c, 0]), kind=kind)

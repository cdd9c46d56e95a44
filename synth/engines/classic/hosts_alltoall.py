"""Hierarchical alltoall: data for another host is gathered first, so that hosts exchange few, large
messages.

With m hosts of g GPUs and a message of M bytes per rank (its send buffer):

==========  ==============================  ===========================  ========================
algorithm   in the host                     between hosts                messages of a rank there
==========  ==============================  ===========================  ========================
flat        g-1 · M/n                       (n-g) · M/n                  n-g of M/n
two-step    g-1 of m · M/n                  (m-1) · g · M/n              m-1 of g · M/n
three-step  as two-step, twice              (m-1) · g · M/n              (m-1)/g of g² · M/n
==========  ==============================  ===========================  ========================

*Two-step*: GPU i hands what its host-mates' rails carry to them: to mate j, all that is for local
rank j of any host; then each rail exchanges among its m ranks (MSCCLang's two-step alltoall, Cowan
et al., ASPLOS 2023). *Three-step*: all that host b has for host b' is gathered on one GPU of b (or
on as many as keep every GPU busy), goes over as one message, and is handed out there.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.author.builder import Builder, Chunk
from weft.dsl.base.errors import UserError

from .grid import RankGrid
from .parcels import make_contiguous, post

Pair = tuple[int, int]
"""(source, destination) of a block."""

Blocks = dict[Pair, Chunk]
"""Blocks that are somewhere on their way."""


def write_two_step(p: Builder, grid: RankGrid) -> None:
    """Gather in the host by the destination's local rank, then across the rails."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    have: list[Blocks] = [{} for _ in range(p.ranks)]
    for shift in range(g):
        for host in at:
            for i, src in enumerate(host):
                rail = (i + shift) % g
                blocks = {(src, other[rail]): _data(p, src, other[rail]) for other in at}
                have[host[rail]] |= _send_to_scratch(blocks, host[rail])
    for shift in range(1, m):
        for b, host in enumerate(at):
            for here, there in zip(host, at[(b + shift) % m], strict=True):
                blocks = {(src, there): have[here].pop((src, there)) for src in host}
                have[there] |= _send_to_output(p, blocks, there)
    _settle(have)


def write_three_step(p: Builder, grid: RankGrid) -> None:
    """Gather in the host by destination host, across, hand out in the host."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    tours = _tours(g, m)
    have: list[Blocks] = [{} for _ in range(p.ranks)]
    for shift in range(g):
        for b, host in enumerate(at):
            for i, src in enumerate(host):
                mate = (i + shift) % g
                via = [
                    far
                    for (a, far, proxy), who in tours.items()
                    if (a, proxy) == (b, mate) and i in who
                ]
                targets = [host[mate], *(dst for far in via for dst in at[far])]
                blocks = {(src, dst): _data(p, src, dst) for dst in targets}
                have[host[mate]] |= _send_to_scratch(blocks, host[mate])
    for (b, far, proxy), who in tours.items():
        here, there = at[b][proxy], at[far][proxy]
        pairs = [(at[b][i], dst) for i in who for dst in at[far]]
        have[there] |= _send_to_scratch({pair: have[here].pop(pair) for pair in pairs}, there)
    for shift in range(1, g):
        for host in at:
            for i, here in enumerate(host):
                there = host[(i + shift) % g]
                blocks = {
                    pair: have[here].pop(pair) for pair in list(have[here]) if pair[1] == there
                }
                if blocks:
                    have[there] |= _send_to_scratch(blocks, there)
    _settle(have)


def _tours(g: int, m: int) -> dict[tuple[int, int, int], list[int]]:
    """(host, far host, proxy) -> the local ranks whose data for that host goes over that proxy."""
    tours = {}
    for shift in range(1, m):
        for host in range(m):
            far = (host + shift) % m
            proxies = proxies_of(host, far, g, m)
            for number, proxy in enumerate(proxies):
                tours[host, far, proxy] = list(range(number, g, len(proxies)))
    return tours


def _send_to_scratch(blocks: Blocks, dst: int) -> Blocks:
    """Blocks of one rank in the scratch of another, sent as one message."""
    (src,) = {chunk.rank for chunk in blocks.values()}
    if src == dst:
        return blocks
    landed = post(_parcel(blocks), dst, "scratch")
    return dict(zip(sorted(blocks), landed.split(len(blocks)), strict=True))


def _send_to_output(p: Builder, blocks: Blocks, dst: int) -> Blocks:
    """Blocks of one rank sent to where they end on another, as one message.

    In place that is where data may lie that still has to go: they wait beside it.
    """
    if p.in_place:
        return _send_to_scratch(blocks, dst)
    post(_parcel(blocks), dst)
    return {}


def _parcel(blocks: Blocks) -> Chunk:
    """Blocks side by side, in the order of their numbers."""
    first, *others = (blocks[pair] for pair in sorted(blocks))
    return make_contiguous(first.group(*others))


def _settle(have: Sequence[Blocks]) -> None:
    """Put what has come to its ranks in its places."""
    for rank, blocks in enumerate(have):
        for (src, dst), chunk in blocks.items():
            assert dst == rank, "nothing is left on its way"
            if src != dst:
                chunk.copy_to()


def proxies_of(host: int, far: int, g: int, m: int) -> list[int]:
    """The local ranks over which one host talks to another: different ones for different hosts.

    With fewer other hosts than GPUs, several for each, so that all NICs work.
    """
    others = m - 1
    each = max(1, g // others)
    number = (far - host) % m - 1  # 0 … m-2, and the same distance the other way for the receiver
    return [(number * each + t) % g for t in range(each)]


def _data(p: Builder, src: int, dst: int) -> Chunk:
    """Return the chunks that rank ``src`` holds for rank ``dst`` at the start."""
    factor = p.chunks // p.ranks**2
    return p.chunk(src, (src * p.ranks + dst) * factor, count=factor)


def _sides(grid: RankGrid) -> tuple[int, int]:
    """GPUs of a host, hosts.

    Raises:
        UserError: not two levels, or a single host.
    """
    if len(grid.shape) != 2 or grid.shape[1] < 2:
        raise UserError(
            "a hierarchical alltoall needs two or more hosts",
            hint="alltoall pairwise fits one host",
        )
    return grid.shape

"""Hierarchical alltoall: data for another box is gathered first, so that boxes exchange few, large
messages.

With m boxes of g GPUs and a message of M bytes per rank (its send buffer):

==========  ==============================  ===========================  ========================
algorithm   in the box                      between boxes                messages of a rank there
==========  ==============================  ===========================  ========================
flat        g-1 · M/n                       (n-g) · M/n                  n-g of M/n
two-step    g-1 of m · M/n                  (m-1) · g · M/n              m-1 of g · M/n
three-step  as two-step, twice              (m-1) · g · M/n              (m-1)/g of g² · M/n
==========  ==============================  ===========================  ========================

*Two-step*: GPU i hands what its box-mates' rails carry to them: to mate j, all that is for local
rank j of any box; then each rail exchanges among its m ranks (MSCCLang's two-step alltoall, Cowan
et al., ASPLOS 2023). *Three-step*: all that box b has for box b' is gathered on one GPU of b (or
on as many as keep every GPU busy), goes over as one message, and is handed out there.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dsl.builder import Builder, Chunk
from weft.dsl.errors import UserError

from .grid import Grid
from .parcels import packed, post


def write_two_step(p: Builder, grid: Grid) -> None:
    """Gather in the box by the destination's local rank, then across the rails."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    # parts[b, j][i][far]: what local rank i of box b has for local rank j of another box.
    parts: dict[tuple[int, int], dict[int, tuple[Chunk, ...]]] = {}
    arrived: list[Chunk] = []
    for shift in range(g):
        for b, box in enumerate(at):
            for i, src in enumerate(box):
                j = (i + shift) % g
                for_rail = [_data(p, src, other[j]) for other in at]
                if shift:
                    landed = _joined(for_rail, box[j])
                    for_rail = list(landed.split(m))
                    arrived.append(for_rail[b])
                parts.setdefault((b, j), {})[i] = tuple(for_rail)
    for shift in range(1, m):
        for b, box in enumerate(at):
            far = (b + shift) % m
            for j in range(g):
                here = parts[b, j]
                assert box[j] == here[j][far].rank
                arrived += _sent_home(p, [here[i][far] for i in range(g)], at[far][j])
    _settle(arrived)


def write_three_step(p: Builder, grid: Grid) -> None:
    """Gather in the box by destination box, across, hand out in the box."""
    g, m = _sides(grid)
    at = list(grid.lines(0))
    routes = [(b, far) for b in range(m) for far in range(m) if far != b]
    # Who gathers for whom, and hands out there: (box, far box, proxy) -> local sources.
    sources: dict[tuple[int, int, int], list[int]] = {}
    for b, far in routes:
        proxies = proxies_of(b, far, g, m)
        for number, proxy in enumerate(proxies):
            sources[b, far, proxy] = list(range(number, g, len(proxies)))
    gathered, arrived = _gather(p, at, sources)
    # handed[far, proxy][j]: what came there for local rank j.
    handed: dict[tuple[int, int], list[list[Chunk]]] = {}
    for (b, far, proxy), who in sources.items():
        by_target = [gathered[b, far, proxy, i][j] for j in range(g) for i in who]
        landed = _joined(by_target, at[far][proxy])
        rows = handed.setdefault((far, proxy), [[] for _ in range(g)])
        for row, piece in zip(rows, landed.split(g), strict=True):
            row.append(piece)
    for shift in range(g):
        for (far, proxy), rows in handed.items():
            j = (proxy + shift) % g
            arrived.append(_joined(rows[j], at[far][j]))
    _settle(arrived)


def _gather(
    p: Builder, at: list[tuple[int, ...]], sources: dict[tuple[int, int, int], list[int]]
) -> tuple[dict[tuple[int, int, int, int], tuple[Chunk, ...]], list[Chunk]]:
    """Every rank hands each box-mate, as one message, what is for it and what it is proxy for.

    The result: for (box, far box, proxy, source) the blocks for every local rank of the far box;
    and what has come to its end.
    """
    arrived: list[Chunk] = []
    found: dict[tuple[int, int, int, int], tuple[Chunk, ...]] = {}
    g = len(at[0])
    for shift in range(g):
        for b, box in enumerate(at):
            for i, src in enumerate(box):
                mate = (i + shift) % g
                keys = [k for k in sources if (k[0], k[2]) == (b, mate) and i in sources[k]]
                blocks = [_data(p, src, dst) for _, far, _ in keys for dst in at[far]]
                if shift:
                    landed = _joined([*blocks, _data(p, src, box[mate])], box[mate])
                    *blocks, own = landed.split(len(blocks) + 1)
                    arrived.append(own)
                for number, key in enumerate(keys):
                    found[*key, i] = tuple(blocks[number * g : (number + 1) * g])
    return found, arrived


def _joined(blocks: Sequence[Chunk], dst: int) -> Chunk:
    """Blocks of one rank in the scratch of another, sent as one message."""
    parcel = packed(blocks[0].group(*blocks[1:]))
    return parcel if parcel.rank == dst else post(parcel, dst, "scratch")


def _sent_home(p: Builder, blocks: Sequence[Chunk], dst: int) -> list[Chunk]:
    """Blocks of one rank sent to where they end on another, as one message.

    In place that is where data may lie that still has to go: they wait beside it.
    """
    if p.in_place:
        return [_joined(blocks, dst)]
    post(packed(blocks[0].group(*blocks[1:])), dst)
    return []


def _settle(arrived: Sequence[Chunk]) -> None:
    """Put what has come to its ranks in its places."""
    for chunk in arrived:
        chunk.copy_to()


def proxies_of(box: int, far: int, g: int, m: int) -> list[int]:
    """The local ranks over which one box talks to another: different ones for different boxes.

    With fewer other boxes than GPUs, several for each, so that all NICs work.
    """
    others = m - 1
    each = max(1, g // others)
    number = (far - box) % m - 1  # 0 … m-2, and the same distance the other way for the receiver
    return [(number * each + t) % g for t in range(each)]


def _data(p: Builder, src: int, dst: int) -> Chunk:
    """What one rank has for another, where it starts."""
    factor = p.chunks // p.ranks**2
    return p.chunk(src, (src * p.ranks + dst) * factor, count=factor)


def _sides(grid: Grid) -> tuple[int, int]:
    """GPUs of a box, boxes.

    Raises:
        UserError: not two levels, or a single box.
    """
    if len(grid.shape) != 2 or grid.shape[1] < 2:
        raise UserError(
            "a hierarchical alltoall needs two or more boxes", hint="alltoall pairwise fits one box"
        )
    return grid.shape

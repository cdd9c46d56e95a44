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

from weft.dsl.builder import Builder, Chunk
from weft.dsl.errors import UserError

from .grid import Grid


def write_two_step(p: Builder, grid: Grid) -> None:
    """Gather in the box by the destination's local rank, then across the rails."""
    g, m = _sides(grid)
    k = _factor(p)
    _in_box(p, grid, k)
    at = _lookup(grid)
    packed: dict[tuple[int, int, int], Chunk] = {}
    for b in range(m):
        for shift in range(g):  # a rank's own part needs no wire, yet its place in the message
            for i in range(g):
                j = (i + shift) % g
                for far in range(m):
                    if far == b:
                        continue
                    there = at[b][j]
                    row = far - (far > b)
                    packed[there, far, i] = _data(p, at[b][i], at[far][j], k).copy_to(
                        rank=there, buffer="scratch", index=(row * g + i) * k
                    )
    for shift in range(1, m):
        for b in range(m):
            far = (b + shift) % m
            for j in range(g):
                parts = [packed[at[b][j], far, i] for i in range(g)]
                parts[0].group(*parts[1:]).copy_to(rank=at[far][j])


def write_three_step(p: Builder, grid: Grid) -> None:
    """Gather in the box by destination box, across, hand out in the box."""
    g, m = _sides(grid)
    k = _factor(p)
    _in_box(p, grid, k)
    at = _lookup(grid)
    filled = [0] * p.ranks  # scratch that a proxy has given out
    sent: list[tuple[int, Chunk, tuple[int, int, list[int]]]] = []
    for b in range(m):
        for far in range(m):
            if far == b:
                continue
            proxies = proxies_of(b, far, g, m)
            for number, proxy in enumerate(proxies):
                sources = list(range(number, g, len(proxies)))
                here, first = at[b][proxy], filled[at[b][proxy]]
                parts = [
                    _data(p, at[b][i], at[far][j], k).copy_to(
                        rank=here, buffer="scratch", index=first + (j * len(sources) + s) * k
                    )
                    for j in range(g)
                    for s, i in enumerate(sources)
                ]
                filled[here] += g * len(sources) * k
                sent.append((at[far][proxy], parts[0].group(*parts[1:]), (far, g, sources)))
    for there, message, (far, _, sources) in sent:
        first = filled[there]
        filled[there] += message.count
        landed = message.copy_to(rank=there, buffer="scratch", index=first)
        for j, piece in enumerate(landed.split(g)):
            assert piece.count == len(sources) * k
            piece.copy_to(rank=at[far][j])


def proxies_of(box: int, far: int, g: int, m: int) -> list[int]:
    """The local ranks over which one box talks to another: different ones for different boxes.

    With fewer other boxes than GPUs, several for each, so that all NICs work.
    """
    others = m - 1
    each = max(1, g // others)
    number = (far - box) % m - 1  # 0 … m-2, and the same distance the other way for the receiver
    return [(number * each + t) % g for t in range(each)]


def _in_box(p: Builder, grid: Grid, k: int) -> None:
    """What stays in the box goes straight there."""
    for box in grid.lines(0):
        for shift in range(1, len(box)):
            for i, src in enumerate(box):
                dst = box[(i + shift) % len(box)]
                _data(p, src, dst, k).copy_to(rank=dst)


def _data(p: Builder, src: int, dst: int, k: int) -> Chunk:
    """What one rank has for another, where it starts."""
    return p.chunk(src, (src * p.ranks + dst) * k, count=k)


def _factor(p: Builder) -> int:
    return p.chunks // p.ranks**2


def _lookup(grid: Grid) -> list[tuple[int, ...]]:
    return list(grid.lines(0))


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

"""Messages of a round as matchings: a permutation sends at most once and receives at most once.

JAX's ``ppermute`` takes one such set of (source, destination) pairs. On a grid or a torus the
messages between neighbours of one axis and direction are a set, so that each permutation is a shift
along one axis, for which TPUs are wired. All others are coloured as the edges of a bipartite graph
are: as many sets as the busiest rank has messages, and no fewer do (Kőnig 1916). The longest come
first, so that messages of like length share a set, whose messages are padded to its longest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import product
from math import prod

from weft.dsl.nouns.topology import Topology

from .model import LIMITS

Pair = tuple[int, int]
"""The source and the destination of a message."""


def matchings(lengths: dict[Pair, int], grid: tuple[int, ...] = ()) -> list[list[Pair]]:
    """Return pairs in sets in which each source and each destination is in one pair.

    ``lengths``: the length of each pair's message. ``grid``: the shape that ranks are in, row by
    row; () if in none. Cost: O(pairs · the busiest rank's messages) at worst.
    """
    shifts: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    rest: list[Pair] = []
    for pair in sorted(lengths):
        step = _step(pair, grid)
        if step is None:
            rest.append(pair)
        else:
            shifts[step].append(pair)
    found = [shifts[step] for step in sorted(shifts)]
    return [*found, *_coloured(sorted(rest, key=lambda pair: (-lengths[pair], pair)))]


def _coloured(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Kőnig's proof as an algorithm: a new edge whose ends have no free colour in common gets one
    by exchanging two colours along a path from one of its ends."""
    ends = [Counter(pair[side] for pair in pairs) for side in (0, 1)]
    colours = max((n for side in ends for n in side.values()), default=0)
    full = (1 << colours) - 1
    free: list[dict[int, int]] = [dict.fromkeys(side, full) for side in ends]
    used: list[dict[tuple[int, int], Pair]] = [{}, {}]

    def paint(pair: Pair, colour: int) -> None:
        for side, rank in enumerate(pair):
            used[side][rank, colour] = pair
            free[side][rank] &= ~(1 << colour)

    def wipe(pair: Pair, colour: int) -> None:
        for side, rank in enumerate(pair):
            del used[side][rank, colour]
            free[side][rank] |= 1 << colour

    for pair in pairs:
        source, target = pair
        both = free[0][source] & free[1][target]
        if both:
            paint(pair, _lowest(both))
            continue
        a, b = _lowest(free[0][source]), _lowest(free[1][target])
        # The path from the target in colours a, b, a … never comes to the source: it would arrive
        # there by an edge of colour a, which is free there.
        path: list[tuple[Pair, int]] = []
        side, rank, colour = 1, target, a
        while (edge := used[side].get((rank, colour))) is not None:
            path.append((edge, colour))
            side = 1 - side
            rank, colour = edge[side], a + b - colour
        for edge, colour in path:
            wipe(edge, colour)
        for edge, colour in path:
            paint(edge, a + b - colour)
        paint(pair, a)
    sets: list[list[Pair]] = [[] for _ in range(colours)]
    for (_, colour), pair in used[0].items():
        sets[colour].append(pair)
    return [sorted(one) for one in sets]


def _lowest(bits: int) -> int:
    """Return the place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


# --- grids ----------------------------------------------------------------------------------------


def grid_of(topology: Topology) -> tuple[int, ...]:
    """Return the shape of a grid or torus row by row, as JAX's meshes have it; () if it is none.

    Links may be missing: every one that is there must join neighbours of one axis. Of several
    shapes that fit, the one with the fewest axes, then the most even one.
    """
    if topology.ranks < len(topology.nodes) or not topology.links:
        return ()
    joined = {(link.src, link.dst) for link in topology.links}
    shapes = [shape for shape in _shapes(topology.ranks) if len(shape) > 1]
    fits = (s for s in shapes if all(_step(pair, s) is not None for pair in joined))
    return min(fits, key=lambda shape: (len(shape), max(shape), shape), default=())


def _shapes(ranks: int) -> list[tuple[int, ...]]:
    """Return all ways to write a number as a product of up to ``LIMITS.axes`` axes."""
    divisors = [d for d in range(2, ranks + 1) if ranks % d == 0]
    return [
        shape
        for axes in range(1, LIMITS.axes + 1)
        for shape in product(divisors, repeat=axes)
        if prod(shape) == ranks
    ]


def _step(pair: Pair, grid: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the axis along which two ranks are neighbours, and the direction; else None."""
    source, target = pair
    found: tuple[int, int] | None = None
    for axis in range(len(grid) - 1, -1, -1):
        size = grid[axis]
        ahead = (target % size - source % size) % size
        source, target = source // size, target // size
        if not ahead:
            continue
        if found is not None or ahead not in (1, size - 1):
            return None
        found = axis, 1 if ahead == 1 else -1
    return found

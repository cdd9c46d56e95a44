"""Compiled search for contention-free rounds: edge colouring, then local search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.dsl.base.arrays import Ints, Ints32
from weft.dsl.base.jit import compiled


class Choices(NamedTuple):
    """Routes to choose from, and what they use."""

    first: Ints  # (transfers + 1,): the routes of which transfer t takes one
    first_resource: Ints  # (routes + 1,): of resources, those that route r uses
    resources: Ints  # links and shared resources, by route
    resource_count: int


@compiled
def edge_colouring(src: Ints, dst: Ints, ranks: int, colours: int) -> Ints:
    """Colour the transfers such that no two of a colour share their source or destination.

    ``colours`` are at least as many as any rank sends or receives; then they suffice. Alternating
    paths are exchanged (König, Math. Ann. 77 (1916)); O(transfers · ranks).
    """
    # at[side, rank, colour]: the edge of that colour there (0: it sends), -1: the colour is free.
    at = np.full((2, ranks, colours), -1, np.int64)
    colour = np.full(len(src), -1, np.int64)  # round of each edge; -1: none yet
    for edge in range(len(src)):
        a = np.argmin(at[0, src[edge]])
        b = np.argmin(at[1, dst[edge]])
        # Free the destination of colour a: exchange a and b on the path that leaves from there.
        side, node, now, other = 1, dst[edge], a, b
        held = at[side, node, now]
        at[side, node, now] = -1
        while held >= 0:
            at[side, node, other] = held
            side = 1 - side
            node = dst[held] if side else src[held]
            following = at[side, node, other]
            at[side, node, other] = held
            at[side, node, now] = -1
            colour[held] = other
            held = following
            now, other = other, now
        colour[edge] = a
        at[0, src[edge], a] = edge
        at[1, dst[edge], a] = edge
    return colour


@compiled
def _meets(c: Choices, use: Ints32, route: int, colour: int) -> int:
    """Return the number of uses, by earlier choices, of the resources of a route in a round."""
    total = 0
    for i in range(c.first_resource[route], c.first_resource[route + 1]):
        total += use[c.resources[i], colour]
    return total


@compiled
def _put(c: Choices, use: Ints32, route: int, colour: int, count: int) -> None:
    """Add a transfer to its resources (count 1), or remove it (-1)."""
    for i in range(c.first_resource[route], c.first_resource[route + 1]):
        use[c.resources[i], colour] += count


@compiled
def _random_below(state: Ints, below: int) -> int:
    """Return a random number below a limit, by xorshift (Marsaglia, J. Stat. Softw. 8 (2003))."""
    x = state[0]
    x ^= (x << 13) & 0x7FFFFFFFFFFFFFFF
    x ^= x >> 7
    x ^= (x << 17) & 0x7FFFFFFFFFFFFFFF
    state[0] = x
    return int((x >> 8) % below)


@compiled
def _better(
    c: Choices,
    use: Ints32,
    left: Ints,
    state: Ints,
    turn: tuple[int, int, int, int],
    span: tuple[int, int],
    spare: int,
) -> tuple[int, int, int]:
    """Return the route and round of fewest conflicts, and their number; -1 if there is none.

    ``turn``: step, transfer, and the route and round it leaves; ``span``: rounds that are open;
    ``spare``: with fewer meetings than this, what was left a moment ago is taken too.
    """
    step, t, route, colour = turn
    least, ties, to, at = 1 << 60, 0, -1, -1
    for r in range(c.first[t], c.first[t + 1]):
        for k in range(span[0], span[1]):
            if r == route and k == colour:
                continue
            met = _meets(c, use, r, k)
            if met > least or (left[r, k] >= step and met >= spare):
                continue
            if met < least:
                least, ties = met, 0
            ties += 1
            if _random_below(state, ties) == 0:
                to, at = r, k
    return to, at, least


@compiled
def settle(
    c: Choices,
    colours: int,
    colour: Ints,
    route: Ints,
    moves: bool,
    steps: int,
    tenure: int,
    seed: int,
) -> int:
    """Change routes (with ``moves``, rounds too) to reduce conflicts, in place.

    A transfer that meets another takes the best way and round that it has not left a moment ago
    (Hertz & de Werra, Using tabu search techniques for graph coloring, Computing 39 (1987)).
    The pause takes ``tenure`` steps, and up to as many again by chance. Returns the number of
    meetings left in the best colouring seen.
    """
    use = np.zeros((c.resource_count, colours), np.int32)  # transfers on a resource in a round
    state = np.array([seed * 2654435761 + 88172645463325252], np.int64)
    # step until which a route in a round is not taken again
    left = np.full((c.first[-1], colours), -1, np.int64)
    total = 0  # meetings: each pair of uses of a resource in a round counts one
    for t in range(len(colour)):
        total += _meets(c, use, route[t], colour[t])
        _put(c, use, route[t], colour[t], 1)
    best, best_colour, best_route = total, colour.copy(), route.copy()
    for step in range(steps):
        if best == 0:
            break
        t = _random_below(state, len(colour))
        r, k = route[t], colour[t]
        _put(c, use, r, k, -1)
        own = _meets(c, use, r, k)  # of the transfer, which is taken off its resources here
        if own:
            span = (0, colours) if moves else (k, k + 1)
            to, at, met = _better(c, use, left, state, (step, t, r, k), span, best - total + own)
            if to >= 0:
                left[r, k] = step + tenure + _random_below(state, tenure)
                total += met - own
                route[t], colour[t] = to, at
        _put(c, use, route[t], colour[t], 1)
        if total < best:
            best = total
            best_colour[:] = colour
            best_route[:] = route
    colour[:] = best_colour
    route[:] = best_route
    return best

"""Choice of few plans for all sizes, with the sizes at which they change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import Bools, Floats
from weft.dsl.base.lazy_dataclass import dataclass

from .effort import EFFORT

EVEN = 1 + 1e-9
"""Largest ratio of two times that count as equal."""

LEAST = 1e-12
"""Least time in µs of anything; 0 µs, where nothing moves, lacks a logarithm."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sizes of ``low`` to ``high`` bytes, both included, of one candidate, given by its index."""

    place: int
    low: int
    high: int


def few(times: Floats, limit: Floats, price: Floats) -> list[int]:
    """Return a candidate for every size: as few changes as possible, then as little time.

    ``times``: shape (candidates, sizes), infinite where unknown. ``limit``: the same shape, what
    is allowed there; some candidate must be within it at every size. ``price``: shape
    (candidates,), a factor on the times of a candidate for its other costs.

    The fewest runs of one candidate, and of those the least sum of logarithms (so that 1 % counts
    the same at every size), by dynamic programming: O(candidates × sizes).
    """
    cost = np.where(times <= limit, np.log(np.maximum(times * price[:, None], LEAST)), np.inf)
    count, sizes = cost.shape
    runs = np.where(np.isfinite(cost[:, 0]), 1.0, np.inf)
    total = cost[:, 0].copy()
    back = np.zeros((sizes, count), np.int64)
    own = np.arange(count)
    for at in range(1, sizes):
        # Lexicographic: fewest runs first. The best of all is where a change would come from.
        best = int(np.lexsort((total, runs))[0])
        stay = (runs < runs[best] + 1) | ((runs == runs[best] + 1) & (total <= total[best]))
        back[at] = np.where(stay, own, best)
        runs = np.where(stay, runs, runs[best] + 1)
        total = np.where(stay, total, total[best]) + cost[:, at]
        runs = np.where(np.isfinite(cost[:, at]), runs, np.inf)
    path = [int(np.lexsort((total, runs))[0])]
    for at in range(sizes - 1, 0, -1):
        path.append(int(back[at, path[-1]]))
    return path[::-1]


def limits(times: Floats, baseline: Floats, within: float, of_baselines: Bools) -> Floats:
    """Return the time limit of each plan at each size: near the best, and no more than the baseline
    but for a plan that is of a baseline itself, whose forms take turns every few KiB.

    ``baseline``: shape (sizes,), infinite without one. ``of_baselines``: shape
    (candidates,). The result has the shape of ``times``.
    """
    best = times.min(axis=0)
    held = baseline * np.where(of_baselines, 1 + EFFORT.edge_share, 1.0)[:, None]
    return np.asarray(np.minimum(best * (1 + within), np.maximum(held, best)) * EVEN)


def stretches(
    path: Sequence[int], grid: Sequence[int], us: Callable[[int, int], float]
) -> list[Stretch]:
    """Return the runs of a path along the grid, with the size at which each one ends.

    ``us(place, bytes)`` times a candidate. Between the last size of one and the first of the next
    the change is at the first size that the next moves no slower.
    """
    starts = [0] + [i for i in range(1, len(path)) if path[i] != path[i - 1]]
    lows = [grid[0]]
    for i in starts[1:]:
        lows.append(_crossing(path[i - 1], path[i], grid[i - 1], grid[i], us))
    highs = [low - 1 for low in lows[1:]] + [grid[-1]]
    return [Stretch(path[i], low, high) for i, low, high in zip(starts, lows, highs, strict=True)]


def rounded(
    found: Sequence[Stretch],
    grid: Sequence[int],
    allowed: Callable[[int, int], bool],
    us: Callable[[int, int], float],
) -> list[Stretch]:
    """Return the stretches with ends at powers of two, wherever that costs under ``edge_share``.

    ``allowed(place, at)``: whether a candidate may be used at an index of the grid. The nearer
    power of two is tried first.
    """
    made = list(found)
    for i in range(1, len(made)):
        one, other = made[i - 1], made[i]
        change = other.low
        below = 1 << (change.bit_length() - 1)
        if below == change:
            continue
        for size in sorted((below, 2 * below), key=lambda p: abs(math.log2(p / change))):
            if not one.low < size <= other.high:
                continue
            # The sizes between the two ends get the candidate that lost there.
            low, high = min(size, change), max(size, change) - 1
            winner, loser = (one, other) if size < change else (other, one)
            inside = [at for at, n in enumerate(grid) if low <= n <= high]
            if all(allowed(loser.place, at) for at in inside) and all(
                us(loser.place, n) <= (1 + EFFORT.edge_share) * us(winner.place, n)
                for n in dict.fromkeys((low, *(grid[at] for at in inside), high))
            ):
                made[i - 1], made[i] = replace(one, high=size - 1), replace(other, low=size)
                break
    return made


def _crossing(one: int, other: int, low: int, high: int, us: Callable[[int, int], float]) -> int:
    """Return the size in (low, high] from which the other is used: the least one from which it is
    not slower, down to ``change_parts``.

    Forms of one algorithm may cross more than once. So both are timed at the ends of some parts,
    and the change is made in the part where it costs least: first by the largest loss at one of
    these sizes, then by the sum of all losses. Where the other is quicker at ``low`` already it was
    passed over there to have few plans, and takes over right after; where it is not even at
    ``high``, it begins there.
    """

    def excess(size: int) -> float:
        """µs that the other takes longer; not above 0 from the crossing on."""
        mine, most = us(other, size), us(one, size) * EVEN
        return 0.0 if mine == most else mine - most  # both may be infinite

    cuts = (
        low + 1 + (high - low - 1) * part // EFFORT.crossing_parts
        for part in range(EFFORT.crossing_parts + 1)
    )
    looked = {size: excess(size) for size in cuts}
    sizes, more = list(looked), list(looked.values())
    losses = []
    for at in range(len(sizes)):
        lost = [max(x, 0.0) for x in (*(-x for x in more[:at]), *more[at:])]
        losses.append((max(lost), sum(lost)))
    at = losses.index(min(losses))
    if not at or more[at - 1] <= 0 or more[at] > 0:
        return sizes[at]
    return _change((sizes[at - 1], more[at - 1]), (sizes[at], more[at]), excess)


def _change(
    first: tuple[int, float], last: tuple[int, float], excess: Callable[[int], float]
) -> int:
    """Return the least size from which an excess is not above 0, down to ``change_parts``.

    ``first``, ``last``: a size with an excess above 0, and a larger one with none.
    """
    (below, slower), (above, quicker), straight = first, last, True
    while (gap := above - below) > (step := max(1, below // EFFORT.change_parts)):
        # A line through both ends hits most crossings at once: a size just before it and one just
        # beyond it are looked at. Where it misses, the gap is halved.
        share = slower / (slower - quicker) if straight and math.isfinite(slower) else 0.5
        guess = below + min(max(round(gap * share) - step // 2, 1), gap - 1)
        for size in (guess, min(guess + step, above - 1)) if straight else (guess,):
            if not below < size < above:
                continue
            if (more := excess(size)) > 0:
                below, slower = size, more
            else:
                above, quicker = size, more
        straight = not straight
    return above

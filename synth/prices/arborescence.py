"""Minimum arborescences in exact integers: the cheapest trees from every root at once.

Edmonds' contraction (1967), dense, in the path-growing form of Tarjan (1977) and Gabow, Galil,
Spencer and Tarjan (1986): from any vertex walk backwards over cheapest entering arcs; a cycle
becomes one vertex, and what enters it is made cheaper by the arc that it would replace. In a
graph where everything reaches everything the walk ends with one vertex that holds all. Nothing in
it depends on the root (Edmonds' theorem holds for every one): the cost of the
tree from r is the sum of all chosen arcs but those into the vertices that hold r, each less what
was taken off before. So one contraction serves all roots, O(N²) array operations.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools
from weft.dsl.base.lazy_dataclass import dataclass

_NONE = -1


@dataclass(frozen=True, eq=False)
class TreePrices:
    """Prices per resource and the least cost of a tree from every rank that holds something.

    ``spent``: cost of the trees of all chunks; ``worth``: price times GB/s, summed.
    """

    prices: tuple[int, ...]
    costs: tuple[tuple[int, int], ...]
    spent: int
    worth: Fraction


def tree_costs(cost: AnyArray) -> list[int]:
    """For every root the least cost of an arborescence that spans all vertices.

    ``cost[u, v]`` is a non-negative integer (int64 or Python integers), the cost of the arc
    from u to v, or negative where there is none; shape (n, n), the diagonal is ignored.

    Raises:
        ValueError: some vertex does not reach all others.

    >>> tree_costs(np.array([[0, 1, 5], [4, 0, 1], [1, 9, 0]]))
    [2, 2, 2]
    """
    n = len(cost)
    if n == 1:
        return [0]
    paid, parent = _contract(cost, n)
    # The dual of the tree from r: every contracted set without r is entered once, at what it paid.
    total = sum(paid)
    depth_paid = [0] * len(paid)
    for node in range(len(paid) - 1, -1, -1):
        above = parent[node]
        depth_paid[node] = paid[node] + (depth_paid[above] if above != _NONE else 0)
    return [total - depth_paid[r] for r in range(n)]


def _contract(cost: AnyArray, n: int) -> tuple[list[int], list[int]]:
    """Contract until one vertex is left.

    Returns what every vertex (the n given ones, then the contracted) paid for its cheapest
    entering arc, and the vertex it was contracted into. Payments are those of the dual: for all
    arcs the payments of the sets that it enters add up to at most its cost.
    """
    inf = int(cost.max()) * n + 1  # more than any tree
    # enter[k, u]: cheapest arc from the vertices now merged in slot u into slot k.
    enter = np.where(cost.T < 0, inf, cost.T).copy()
    np.fill_diagonal(enter, inf)
    alive = np.ones(n, bool)
    slot_of: list[int] = list(range(n))  # slot -> vertex of the contraction forest
    paid, parent = [0] * n, [_NONE] * n
    place = [_NONE] * n  # slot -> position on the path
    path: list[int] = [0]
    place[0] = 0
    left = n
    while left > 1:
        at = path[-1]
        source = int(enter[at].argmin())
        price = int(enter[at, source])
        if price >= inf:
            raise ValueError("some vertex does not reach all others")
        paid[slot_of[at]] = price
        row = enter[at]
        row[alive] = np.where(row[alive] >= inf, inf, row[alive] - price)
        if place[source] == _NONE:
            place[source] = len(path)
            path.append(source)
            continue
        cycle = path[place[source] :]
        del path[place[source] :]
        left -= len(cycle) - 1
        _merge(enter, alive, cycle, inf)
        new = len(paid)
        paid.append(0)
        parent.append(_NONE)
        for slot in cycle:
            parent[slot_of[slot]] = new
            place[slot] = _NONE
        slot_of[cycle[0]] = new
        place[cycle[0]] = len(path)
        path.append(cycle[0])
    return paid, parent


def _merge(enter: AnyArray, alive: Bools, cycle: list[int], inf: int) -> None:
    """The slots of a cycle become the first of them."""
    head, others = cycle[0], cycle[1:]
    enter[head] = enter[cycle].min(axis=0)
    enter[:, head] = enter[:, cycle].min(axis=1)
    alive[others] = False
    enter[others] = inf
    enter[:, others] = inf
    enter[head, head] = inf

"""Capacity of a set of links, limited by their bandwidths and by the resources that they share.

The capacity of links X is the largest sum of loads such that no link and no shared resource
exceeds its bandwidth. Any *cover* bounds it from above: multipliers on links and resources
that add up to at least 1 on every link of X. A reader can check the cover by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import as_small_integers, fabric_of
from ..lp.certified import LinearProgram, certified_minimum


@dataclass(frozen=True)
class Crossing:
    """Links that something must cross, and a cover that bounds what they carry.

    Attributes:
        links: indices of the links.
        cover: (resource, multiplier), resources as numbered by :mod:`weft.synth.fabric.fabric`.
        capacity: sum of multiplier times bandwidth, in GB/s.
    """

    links: tuple[int, ...]
    cover: tuple[tuple[int, Fraction], ...]
    capacity: Fraction

    def to_json(self) -> dict[str, Any]:
        """For :attr:`Certificate.data`: rationals as strings."""
        return {
            "links": list(self.links),
            "cover": [[row, str(times)] for row, times in self.cover],
            "capacity_GBps": str(self.capacity),
        }


def crossing(topology: Topology, links: Iterable[int]) -> Crossing:
    """The capacity of a set of links (module docstring).

    Exact where the resources are disjoint or nested on the set; where they overlap, the least
    fractional cover by a linear program, rounded up to a rational one.
    """
    chosen = tuple(sorted(set(links)))
    fabric = fabric_of(topology)
    crossed: dict[int, list[int]] = {}
    for link in chosen:
        for row in fabric.loaded[link][1:]:
            crossed.setdefault(row, []).append(link)
    shared = [(row, frozenset(crossed[row])) for row in sorted(crossed)]
    if _nested([members for _, members in shared]):
        rows = _nested_cover(fabric.bandwidth, chosen, shared)
        cover = tuple((row, Fraction(1)) for row in rows)
    else:
        cover = _fractional_cover(fabric.bandwidth, chosen, shared)
    capacity = sum((times * fabric.bandwidth[row] for row, times in cover), Fraction(0))
    return Crossing(chosen, cover, capacity)


_Shared = list[tuple[int, frozenset[int]]]


def _nested(sets: list[frozenset[int]]) -> bool:
    """Return whether any two sets are disjoint or nested."""
    if sum(map(len, sets)) == len(frozenset().union(*sets)):
        return True
    return all(not (a & b) or a <= b or b <= a for i, a in enumerate(sets) for b in sets[:i])


def _nested_cover(
    bandwidth: tuple[Fraction, ...], links: tuple[int, ...], shared: _Shared
) -> list[int]:
    """From small resources to large: take the resource where it is cheaper than its members."""
    price = {i: bandwidth[i] for i in links}  # of each group, under its first link
    rows = {i: [i] for i in links}
    group = {i: i for i in links}
    for row, members in sorted(shared, key=lambda x: len(x[1])):
        inner = {group[i] for i in members}
        total = sum((price[g] for g in inner), Fraction(0))
        head = min(inner)
        paid = [r for g in sorted(inner) for r in rows[g]]
        for g in inner:
            del price[g], rows[g]
        group |= dict.fromkeys(members, head)
        price[head], rows[head] = (
            (bandwidth[row], [row]) if bandwidth[row] < total else (total, paid)
        )
    return sorted(r for paid in rows.values() for r in paid)


def _fractional_cover(
    bandwidth: tuple[Fraction, ...], links: tuple[int, ...], shared: _Shared
) -> tuple[tuple[int, Fraction], ...]:
    place = {link: i for i, link in enumerate(links)}
    rows = [(i, frozenset([i])) for i in links] + shared
    cells = [(place[m], j) for j, (_, members) in enumerate(rows) for m in members]
    at = np.array(cells).T
    cost, _, _ = as_small_integers([bandwidth[row] for row, _ in rows])
    lp = LinearProgram(
        cost,
        SparseMatrix.of((len(links), len(rows)), at[0], at[1], -np.ones(len(cells), np.int64)),
        -np.ones(len(links), np.int64),
        upper=np.ones(len(rows), np.int64),
    )
    answer = certified_minimum(lp)
    if answer.x_numerators is None:  # an integral cover is always one: every link for itself
        return tuple((i, Fraction(1)) for i in links)
    return tuple(
        (rows[j][0], Fraction(int(k), answer.x_denominator))
        for j, k in enumerate(answer.x_numerators.tolist())
        if k
    )

"""Low-load trees: every rank is attached by the cheapest links, so inner links stay half empty.

At the best rate some resource is always saturated. But where *many* resources are nearly saturated,
as when all ranks send to all others through a fabric, transfers that need several resources at once
wait for each other, and no order keeps all resources busy. Trees that cross the fabric once and are
copied behind it leave slack. Rip-up and re-route with exponential prices, one tree per root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from math import exp

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Kind

from ....base.meter import Meter
from ..trees.model import PackedTree, Packing
from .plan_quick import Route, as_tree, load_us_per_byte

STEPS_PER_LOOK = 1
"""Work of looking at a link on the way to other ranks."""

_STALE = 1.0001  # a price that has risen by more than this since it was noted is looked at again


def low_load_packing(packing: Packing, rounds: int, meter: Meter) -> Packing | None:
    """Return one tree of least load per root, under the symmetry group of a packing.

    None for other collectives than allgather and reduce_scatter. About a ms per tree and round
    on a hundred nodes.
    """
    kind = packing.collective.kind
    if kind not in (Kind.ALLGATHER, Kind.REDUCE_SCATTER) or not packing.us_per_byte:
        return None
    backward = kind is Kind.REDUCE_SCATTER
    least = packing.images.min(axis=0)
    roots = [r for r in range(packing.topology.ranks) if least[r] == r]
    market = _Market(packing, backward)
    trees: dict[int, list[Route]] = {}
    best: tuple[float, dict[int, list[Route]]] | None = None
    for eta in _ramp(rounds):
        if best is not None and meter.over():
            break
        for root in roots:
            market.count(trees.pop(root, []), -1)
            trees[root] = market.grow(root, eta)
        worst = market.worst()
        if best is None or worst < best[0] * (1 - 1e-9):
            best = worst, dict(trees)
        meter.spend(STEPS_PER_LOOK * market.looks)
        market.looks = 0
    if best is None:
        return None
    made = replace(
        packing,
        trees=tuple(_as_tree(root, hops, backward) for root, hops in sorted(best[1].items())),
        remark="trees that load inner links little",
    )
    return replace(made, us_per_byte=load_us_per_byte(made))


def _ramp(rounds: int) -> Iterator[float]:
    """Exponents of the prices, rising."""
    for i in range(rounds):
        yield 2.0 * (20.0 / 2.0) ** (i / max(1, rounds - 1))


def _as_tree(root: int, hops: list[Route], backward: bool) -> PackedTree:
    if backward:
        turned = [(dst, src, links[::-1]) for src, dst, links in reversed(hops)]
        return as_tree(root, [(route, True) for route in turned])
    return as_tree(root, [(route, False) for route in hops])


@dataclass(slots=True, init=False)
class _Market:
    """Congestion prices: load of each orbit of links, relative to its capacity at the rate."""

    ranks: int
    orbit: list[int]
    share: list[float]
    load: list[float]
    near: list[list[tuple[int, int]]]
    looks: int

    def __init__(self, packing: Packing, backward: bool) -> None:
        topology = packing.topology
        orbit = packing.link_images.min(axis=0)
        size = np.bincount(orbit, minlength=len(orbit))
        per_chunk = float(packing.us_per_byte) * packing.collective.message_chunks * 1000
        self.ranks, self.orbit = topology.ranks, orbit.tolist()
        self.share = [
            len(packing.images) / int(size[o]) / float(x.bandwidth) / per_chunk
            for o, x in zip(self.orbit, topology.links, strict=True)
        ]
        self.load = [0.0] * len(orbit)
        self.looks = 0
        self.near = [[] for _ in topology.nodes]
        for i, x in enumerate(topology.links):
            src, dst = (x.dst, x.src) if backward else (x.src, x.dst)
            self.near[src].append((i, dst))

    def count(self, hops: list[Route], sign: int) -> None:
        """Add the load of a tree, or remove it."""
        for _, _, links in hops:
            for i in links:
                self.load[self.orbit[i]] += sign * self.share[i]

    def worst(self) -> float:
        """The largest load."""
        return max(self.load)

    def _price(self, link: int, eta: float) -> float:
        over = eta * (self.load[self.orbit[link]] + self.share[link] - 1)
        return self.share[link] * exp(min(over, 60.0))

    def grow(self, root: int, eta: float) -> list[Route]:
        """Return a tree by Prim's algorithm; prices rise as it grows."""
        hops: list[Route] = []
        joined = {root}
        agenda: list[tuple[float, int, int, tuple[int, ...]]] = []
        self._offer(agenda, root, eta)
        while agenda:
            noted, node, origin, links = heappop(agenda)
            if node in joined:
                continue
            now = sum(self._price(i, eta) for i in links)
            if now > noted * _STALE:
                heappush(agenda, (now, node, origin, links))
                continue
            joined.add(node)
            hops.append((origin, node, links))
            self.count(hops[-1:], 1)
            self._offer(agenda, node, eta)
        return hops

    def _offer(
        self, agenda: list[tuple[float, int, int, tuple[int, ...]]], rank: int, eta: float
    ) -> None:
        """Return the cheapest routes from a rank to all ranks, over nodes that do not store."""
        ways: list[tuple[float, int, tuple[int, ...]]] = [(0.0, rank, ())]
        done: set[int] = set()
        while ways:
            cost, node, links = heappop(ways)
            if node in done:
                continue
            done.add(node)
            if node < self.ranks and node != rank:
                heappush(agenda, (cost, node, rank, links))
                continue
            self.looks += len(self.near[node])
            for i, to in self.near[node]:
                if to not in done:
                    heappush(ways, (cost + self._price(i, eta), to, (*links, i)))

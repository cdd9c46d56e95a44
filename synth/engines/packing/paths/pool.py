"""Pool of the paths found so far, each once, and the resources that they load."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass

from .net import PathNet


@dataclass(eq=False)
class PathPool:
    """Columns found so far: paths of pairs, each once."""

    net: PathNet
    pair: Ints
    links: Ints32
    length: Ints
    seen: set[tuple[int, bytes]] = field(default_factory=set)

    @classmethod
    def empty(cls, net: PathNet) -> PathPool:
        """Return an empty pool."""
        none = np.zeros(0, np.int64)
        return cls(net, none, np.zeros((0, net.longest), np.int32), none)

    @classmethod
    def of(cls, net: PathNet, pair: Ints, links: Ints32, length: Ints) -> PathPool:
        """Return a pool of the given paths; equal ones are kept once."""
        pool = cls.empty(net)
        pool.add(pair, links, length)
        return pool

    def add(self, pair: Ints, links: Ints32, length: Ints) -> int:
        """Add paths; return the number of new ones."""
        fresh = []
        for i, (k, n) in enumerate(zip(pair.tolist(), length.tolist(), strict=True)):
            key = k, links[i, :n].tobytes()
            if n > 0 and key not in self.seen:
                self.seen.add(key)
                fresh.append(i)
        if fresh:
            self.pair = np.concatenate([self.pair, pair[fresh]])
            self.links = np.concatenate([self.links, links[fresh]])
            self.length = np.concatenate([self.length, length[fresh]])
        return len(fresh)

    def among(self, free: Bools) -> PathPool:
        """Return the paths of the marked pairs; pairs are renumbered."""
        kept = free[self.pair]
        number = np.cumsum(free) - 1
        return PathPool.of(self.net, number[self.pair[kept]], self.links[kept], self.length[kept])

    def uses(self) -> Any:
        """How often each path loads each resource orbit: a sparse matrix (resources, paths)."""
        from scipy.sparse import coo_array

        column, links = entries(self.links, self.length)
        resource_start, resources = self.net.graph[3], self.net.graph[4]
        count = resource_start[links + 1] - resource_start[links]
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        at = resources[np.repeat(resource_start[links], count) + inside]
        ones = np.ones(len(at), np.int64)
        shape = (self.net.resource_orbits, len(self.pair))
        return coo_array((ones, (at, np.repeat(column, count))), shape=shape).tocsr()


def entries(links: Ints32, length: Ints) -> tuple[Ints, Ints]:
    """Return the (path, link) pairs of all paths, in order."""
    column = np.repeat(np.arange(len(length)), length)
    inside = np.arange(len(column)) - np.repeat(np.cumsum(length) - length, length)
    return column, links[column, inside].astype(np.int64)

"""Cheapest routes at given prices of links.

Routes pass through nodes that do not store, and through the GPUs that may forward. A GPU sends as
node v and receives as node ``nodes + v``; one that forwards has a free arc between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass

from ..fabric.fabric import Fabric


@dataclass(frozen=True, eq=False)
class PricedRoutes:
    """Links with prices, for routes over some forwarders; ``backwards`` turns every link round."""

    fabric: Fabric  # the links
    price: Floats  # of each link, 0 or more
    through: Bools  # of each rank, whether it forwards
    backwards: bool = False

    @cached_property
    def _arcs(self) -> tuple[Ints, Ints, Floats, Ints]:
        """Tail, head, cost and link of each arc, the cheapest of parallel links."""
        one = self.fabric
        tail, head = (one.dst, one.src) if self.backwards else (one.src, one.dst)
        head = np.where(head < one.ranks, one.nodes + head, head)
        # Every arc costs a little more: of equal routes the shortest is taken.
        least = 1e-9 * max(1e-12, float(self.price.max(initial=0)))
        cost = self.price + least
        width = one.nodes + one.ranks
        order = np.lexsort((cost, tail * width + head))
        keys = (tail * width + head)[order]
        order = order[np.diff(keys, prepend=-1) != 0]
        open_ranks = np.flatnonzero(self.through)
        free = np.full(len(open_ranks), least)
        return (
            np.concatenate([tail[order], one.nodes + open_ranks]),
            np.concatenate([head[order], open_ranks]),
            np.concatenate([cost[order], free]),
            np.concatenate([order, np.full(len(open_ranks), -1)]),
        )

    def reach(self, sources: Sequence[int]) -> tuple[Floats, AnyArray]:
        """Return costs from each source to all nodes and the node before each, per source."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        tail, head, cost, _ = self._arcs
        size = self.fabric.nodes + self.fabric.ranks
        graph = csr_array((cost, (tail, head)), shape=(size, size))
        found = dijkstra(graph, indices=np.asarray(sources), return_predecessors=True)
        return np.asarray(found[0], float), np.asarray(found[1])

    @cached_property
    def link_between(self) -> dict[tuple[int, int], int]:
        """The link of each arc; -1 where a GPU forwards."""
        tail, head, _, link = self._arcs
        ends = zip(tail.tolist(), head.tolist(), strict=True)
        return dict(zip(ends, link.tolist(), strict=True))

    def walk(self, before: AnyArray, target: int) -> list[int]:
        """Return the links of the route to a rank, in the order of the route (of the machine)."""
        links, node = [], self.fabric.nodes + target
        while (last := int(before[node])) >= 0:
            link = self.link_between[last, node]
            if link >= 0:
                links.append(link)
            node = last
        return links if self.backwards else links[::-1]

    def spread(self, cost: Floats, wanted: Floats) -> Floats:
        """Return the load of every link where flow to each rank is shared among cheapest routes.

        ``cost`` is a row of :meth:`reach`, ``wanted`` the bytes of every rank. At every node the
        flow comes in equal parts over all arcs of cheapest routes. Followed back from the targets,
        all ranks at once, one arc in each round.
        """
        tail, head, price, link = self._arcs
        scale = max(1e-12, float(self.price.max(initial=0)))
        reached = np.flatnonzero(np.isfinite(cost[tail]))  # of these arcs both ends are
        before, after = cost[tail[reached]], cost[head[reached]]
        slack = before + price[reached] - after
        tight = reached[(slack <= 1e-7 * scale) & (before < after)]
        nodes, links = len(cost), self.fabric.links
        first, last = tail[tight], head[tight]
        # Ranks that forward are without a link: their load is the last one.
        over = np.where(link[tight] < 0, links, link[tight])
        into = np.bincount(last, minlength=nodes)[last]
        load: Floats = np.zeros(links + 1)
        flow: Floats = np.zeros(nodes)
        flow[self.fabric.nodes :] = wanted
        while (share := flow[last] / into).any():  # ends: each arc leads to a node of lower cost
            load += np.bincount(over, share, links + 1).astype(float)
            flow = np.bincount(first, share, nodes).astype(float)
        return load[:-1]

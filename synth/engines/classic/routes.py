"""Choose the path of each message: the fastest for its size; the least used one on ties."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.hops import find_hops, gpu_neighbours, route_latency
from weft.dsl.nouns.topology import Topology

from ...fabric.fabric import fabric_of
from ...time.routes import routes_of
from .effort import CLASSIC_EFFORT, ClassicEffort

Pair = tuple[int, int]
Route = tuple[int, ...]
Way = tuple[float, float, Route]


class GpuRoutes:
    """All routes from GPU to GPU of a machine, shared by all algorithms tried on it."""

    def __init__(self, topology: Topology, effort: ClassicEffort = CLASSIC_EFFORT) -> None:
        self.topology, self.effort = topology, effort
        self.near = gpu_neighbours(topology)
        fabric = fabric_of(topology)
        width = fabric.GBps.tolist()
        self._width = [min(width[r] for r in held) for held in fabric.loaded]
        self._ways: dict[Pair, tuple[Way, ...]] = {}
        inner = sum(x.src >= topology.ranks <= x.dst for x in topology.links)
        self._all = inner <= effort.listed_links
        if self._all:
            found: dict[Pair, list[Way]] = {}
            for hop in find_hops(topology).hops:
                found.setdefault((hop.src, hop.dst), []).append(self._way(hop.route))
            self._ways = {pair: tuple(ways) for pair, ways in found.items()}

    def ways(self, pairs: Iterable[Pair]) -> dict[Pair, tuple[Way, ...]]:
        """(α in µs, bandwidth in GB/s, route) of pairs that have direct ways, the quickest first.

        Direct: through switches and NICs only.

        Raises:
            BadTopology: a pair without one.
        """
        wanted = dict.fromkeys(pairs)
        missing = [pair for pair in wanted if pair not in self._ways]
        if missing:
            equal = self.effort.equal_routes
            asked = [(*pair, turn) for pair in missing for turn in range(equal)]
            routes = routes_of(self.topology, asked)  # raises where there is none
            for i, pair in enumerate(missing):
                different = dict.fromkeys(routes[i * equal : (i + 1) * equal])
                self._ways[pair] = tuple(map(self._way, different))
        return {pair: self._ways[pair] for pair in wanted}

    def _way(self, route: Route) -> Way:
        return (
            float(route_latency(self.topology, route)),
            min(self._width[i] for i in route),
            route,
        )

    def choose(self, pairs: Sequence[Pair], chunk_bytes: float = 0) -> list[Route]:
        """A route for each message of ``chunk_bytes``, one per pair of ranks.

        Raises:
            BadTopology: a pair without one.
        """
        counts = Counter(pairs)
        load = [0.0] * len(self.topology.links)
        chosen: dict[Pair, Route] = {}
        for pair, ways in self.ways(counts).items():
            times = [a + chunk_bytes / (b * BYTES_PER_US_PER_GBPS) for a, b, _ in ways]
            least = min(times) * (1 + 1e-9)
            equal = [way[2] for way, time in zip(ways, times, strict=True) if time <= least]
            route = min(equal, key=lambda r: (max(load[i] for i in r), len(r), r))
            for i in route:
                load[i] += counts[pair] / float(self.topology.links[i].bandwidth)
            chosen[pair] = route
        return [chosen[pair] for pair in pairs]


class Relays:
    """Ways over other GPUs, for pairs that have no direct one: fewest hops, the least used ones."""

    def __init__(self, near: Sequence[Sequence[int]]) -> None:
        self._near = near
        self._used: Counter[Pair] = Counter()
        self._distance: dict[int, dict[int, int]] = {}

    def path(self, src: int, dst: int) -> list[int]:
        """The ranks from ``src`` (left out) to ``dst``; empty if nothing leads there."""
        far = self._distance_to(dst)
        if src not in far:
            return []
        path, here = [], src
        while here != dst:
            nearer = [v for v in self._near[here] if far.get(v, -1) == far[here] - 1]
            there = min(nearer, key=lambda v: (self._used[here, v], v))
            self._used[here, there] += 1
            path.append(there)
            here = there
        return path

    def _distance_to(self, dst: int) -> dict[int, int]:
        """Hops from every rank that reaches ``dst``."""
        if dst not in self._distance:
            back: dict[int, list[int]] = {}
            for u, beside in enumerate(self._near):
                for v in beside:
                    back.setdefault(v, []).append(u)
            far, queue = {dst: 0}, deque([dst])
            while queue:
                v = queue.popleft()
                for u in back.get(v, ()):
                    if u not in far:
                        far[u] = far[v] + 1
                        queue.append(u)
            self._distance[dst] = far
        return self._distance[dst]

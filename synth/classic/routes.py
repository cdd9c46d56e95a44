"""The way of each message: the quickest for its size, and of equals the one least used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.dsl.errors import UserError
from weft.dsl.hops import find_hops, route_latency
from weft.dsl.topology import Topology
from weft.dsl.units import BYTES_PER_US_PER_GBPS

Pair = tuple[int, int]
Route = tuple[int, ...]


@dataclass(frozen=True)
class Routes:
    """All ways from GPU to GPU of a machine that pass no other GPU.

    ``known[src, dst]`` are (α in µs, bandwidth in GB/s, route), the quickest first.
    """

    topology: Topology
    known: dict[Pair, tuple[tuple[float, float, Route], ...]]

    @staticmethod
    def of(topology: Topology) -> Routes:
        """Those of a topology, once for all algorithms that are tried on it."""
        width = [float(x.bandwidth) for x in topology.links]
        for resource in topology.resources:
            for link in resource.links:
                width[link] = min(width[link], float(resource.bandwidth))
        known: dict[Pair, list[tuple[float, float, Route]]] = {}
        for hop in find_hops(topology).hops:
            entry = (
                float(route_latency(topology, hop.route)),
                min(width[i] for i in hop.route),
                hop.route,
            )
            known.setdefault((hop.src, hop.dst), []).append(entry)
        return Routes(topology, {pair: tuple(found) for pair, found in known.items()})

    def choose(self, pairs: Sequence[Pair], chunk_bytes: float = 0) -> list[Route]:
        """A route for each message of ``chunk_bytes``, one per pair of ranks.

        Raises:
            UserError: a pair without one.
        """
        counts: dict[Pair, int] = {}
        for pair in pairs:
            counts[pair] = counts.get(pair, 0) + 1
        load = [0.0] * len(self.topology.links)
        chosen: dict[Pair, Route] = {}
        for (src, dst), messages in counts.items():
            ways = self.known.get((src, dst))
            if not ways:
                raise UserError(
                    f"rank {src} has no direct way to rank {dst} on {self.topology.name}",
                    hint="another algorithm, or another order of the ranks",
                )
            times = [a + chunk_bytes / (b * BYTES_PER_US_PER_GBPS) for a, b, _ in ways]
            least = min(times) * (1 + 1e-9)
            equal = [
                route for (_, _, route), time in zip(ways, times, strict=True) if time <= least
            ]
            route = min(equal, key=lambda r: (max(load[i] for i in r), len(r), r))
            for i in route:
                load[i] += messages / float(self.topology.links[i].bandwidth)
            chosen[src, dst] = route
        return [chosen[pair] for pair in pairs]

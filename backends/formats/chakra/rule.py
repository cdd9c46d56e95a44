"""The rule of ASTRA-sim's congestion-aware analytical network, for replays of traces.

Every link serves whole messages, first come first served; a message of b bytes holds it for
b / bandwidth and is at the link's end latency later, where it is stored whole before it goes on.
Times are cut to whole nanoseconds at every link. A computation takes its whole microseconds, or
1 ns. Shared resources (NICs) are not known. (astra-sim/astra-network-analytical 599a047.)

Of nodes that are free at one instant any may go first: they are issued in the order of a hash set.
"""

from __future__ import annotations

from functools import cache

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route

from ..messages.model import GraphNode, MessageGraph
from ..messages.replay import Hop, ReplayRule, replayed, router

NS_PER_US = 1000
"""Nanoseconds in a µs; as many picoseconds are a nanosecond."""


def astra_sim_us(graph: MessageGraph, topology: Topology, *, mixed: bool = False) -> float:
    """Return the time of a graph in µs, its messages on their routes in the file, or the fastest.

    Nodes that are free at one instant are issued in the order of the file, or ``mixed``.

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    route_of = router(graph, topology)

    @cache
    def along(route: Route, size: int) -> tuple[Hop, ...]:
        hops = []
        for number in route:
            link = topology.links[number]
            holds = size * NS_PER_US / float(link.bandwidth * BYTES_PER_US_PER_GBPS)
            hops.append((number, int(holds), int(float(link.latency) * NS_PER_US + holds)))
        return tuple(hops)

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        return along(route_of(rank, node), node.bytes)

    def work(node: GraphNode) -> int:
        return max(1, node.ps // NS_PER_US)

    rule = ReplayRule(hops, work, on_arrival=True, mixed=mixed)
    return replayed(graph, rule) / NS_PER_US

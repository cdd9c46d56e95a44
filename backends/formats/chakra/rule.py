"""The rule of ASTRA-sim's congestion-aware analytical network, for replays of traces.

Every link serves whole messages, first come first served; a message of b bytes holds it for
b / bandwidth and is at the link's end latency later, where it is stored whole before it goes on.
Times are cut to whole nanoseconds at every link. A computation takes its whole microseconds, or
1 ns. Shared resources (NICs) are not known. (astra-sim/astra-network-analytical 599a047.)
"""

from __future__ import annotations

from functools import cache

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route, routes_of

from ..messages.model import GraphNode, GraphNodeKind, MessageGraph, key_of
from ..messages.replay import Hop, ReplayRule, replayed

NS_PER_US = 1000


def astra_sim_us(graph: MessageGraph, topology: Topology) -> float:
    """Return the time of a graph in µs, its messages on the fastest routes of a machine.

    Where parallel cables join two ranks, their messages take them in turn.

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    pairs = [
        key_of(rank, node) for rank, _, node in graph.nodes() if node.kind is GraphNodeKind.SEND
    ]
    route_of = dict(zip(pairs, routes_of(topology, pairs), strict=True))

    @cache
    def along(route: Route, size: int) -> tuple[Hop, ...]:
        hops = []
        for number in route:
            link = topology.links[number]
            holds = size * NS_PER_US / float(link.bandwidth * BYTES_PER_US_PER_GBPS)
            hops.append((number, int(holds), int(float(link.latency) * NS_PER_US + holds)))
        return tuple(hops)

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        return along(route_of[key_of(rank, node)], node.bytes)

    def work(node: GraphNode) -> int:
        return max(1, node.ps // 1000)

    return replayed(graph, ReplayRule(hops, work, on_arrival=True)) / NS_PER_US

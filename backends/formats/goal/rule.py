"""LogGOPSim's rule, as ATLAHS has it, for replays of GOAL.

A message of b bytes holds the sender's NIC for (b - 1) · G and arrives L later; receivers' NICs are
never busy. One L and one G are for all messages (spcl/atlahs 8837294; with o = g = O = 0), so that
a message on a slower route is said with more bytes: b · G(route) ÷ G. The version of
spcl/LogGOPSim holds the receiver too, one port of a rank at a time.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route

from ..messages.model import GraphNode, GraphNodeKind, Key, MessageGraph, key_of
from ..messages.replay import Hop, ReplayRule, replayed, router

PS, FS = 10**6, 10**9
"""Units of time of a µs: picoseconds, and femtoseconds for what those round too coarsely."""

COARSE = 1e-3
"""Share of G by which that of a route may differ without other bytes for its messages."""

NICS = 256

LARGEST = (1 << 31) - 1
"""Bytes of a message, and time units of L: LogGOPSim has 32 bits for them."""


@dataclass(frozen=True, slots=True)
class LogGop:
    """L and G in units of which a µs has ``units_per_us``.

    ``alpha_us``: the least and the largest α of routes. ``alike``: all routes have this G.
    """

    latency: int
    gap: int
    units_per_us: int
    alpha_us: tuple[float, float] = (0.0, 0.0)
    alike: bool = True

    @property
    def exact(self) -> bool:
        """True if L and G hold for all messages."""
        return self.alike and self.alpha_us[0] == self.alpha_us[1]

    @property
    def flags(self) -> str:
        """The flags of LogGOPSim; S keeps sends from waiting for their receivers."""
        return f"-L {self.latency} -o 0 -g 0 -O 0 -G {self.gap} -S {LARGEST}"


def loggop_of(graph: MessageGraph, topology: Topology) -> tuple[LogGop, MessageGraph]:
    """Return L and G for a graph on a machine, and the graph with bytes scaled to this G.

    L is the least α of the routes (see :func:`nearest`), G that of the widest route (or more, where
    scaled bytes were too many for LogGOPSim).

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    route_of = router(graph, topology)
    sends = [(rank, n) for rank, _, n in graph.nodes() if n.kind is GraphNodeKind.SEND]
    if not sends:
        return LogGop(0, 1, PS), graph
    largest: dict[Route, int] = {}
    for rank, node in sends:
        route = route_of(rank, node)
        largest[route] = max(largest.get(route, 0), node.bytes)
    links = topology.links
    alphas = [float(sum(links[i].latency for i in route)) for route in largest]
    alpha = min(alphas), max(alphas)
    us_per_byte = {
        route: 1 / float(min(links[i].bandwidth for i in route) * BYTES_PER_US_PER_GBPS)
        for route in largest
    }
    units = _units(min(us_per_byte.values()), alpha[1])
    gap = max(1, round(min(us_per_byte.values()) * units))
    rule = LogGop(round(alpha[0] * units), gap, units, alpha)
    if all(abs(one * units - gap) <= COARSE * gap for one in us_per_byte.values()):
        return rule, graph
    needed = max(size * us_per_byte[route] * units / LARGEST for route, size in largest.items())
    gap = max(gap, ceil(needed))
    share = {key_of(*one): us_per_byte[route_of(*one)] * units / gap for one in sends}
    return replace(rule, gap=gap, alike=False), _scaled(graph, share)


def nearest(graph: MessageGraph, rule: LogGop, planned_us: float) -> LogGop:
    """Return the rule with the least or the largest α as L, whichever comes nearer to a time."""
    rules = [replace(rule, latency=round(one * rule.units_per_us)) for one in rule.alpha_us]
    return min(rules, key=lambda one: abs(loggop_us(graph, one) - planned_us))


def _units(us_per_byte: float, alpha: float) -> int:
    """Return the units of a µs in which G is round enough, and L not too large."""
    coarse = abs(round(us_per_byte * PS) - us_per_byte * PS) > COARSE * us_per_byte * PS
    return FS if coarse and alpha * FS <= LARGEST else PS


def _scaled(graph: MessageGraph, share: dict[Key, float]) -> MessageGraph:
    """Return the graph with the bytes of both ends of each message times its share."""

    def scaled(rank: int, node: GraphNode) -> GraphNode:
        if node.local:
            return node
        return replace(node, bytes=max(1, round(node.bytes * share[key_of(rank, node)])))

    ranks = (tuple(scaled(rank, node) for node in own) for rank, own in enumerate(graph.ranks))
    return replace(graph, ranks=tuple(ranks))


def loggop_us(graph: MessageGraph, rule: LogGop) -> float:
    """Return the time of a graph, whose bytes are scaled to the rule's G, in µs."""

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        holds = (node.bytes - 1) * rule.gap
        return ((rank * NICS + node.port, holds, rule.latency + holds),)

    def work(node: GraphNode) -> int:
        return max(1, node.ps * rule.units_per_us // 10**6)

    return replayed(graph, ReplayRule(hops, work, on_arrival=False)) / rule.units_per_us

"""LogGOPSim's rule, as ATLAHS has it, for replays of GOAL.

A message of b bytes holds the sender's NIC for (b - 1) · G and arrives L later; receivers' NICs are
never busy. One L and one G are for all messages (spcl/atlahs 8837294; with o = g = O = 0).
"""

from __future__ import annotations

from collections import Counter

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import routes_of

from ..messages.model import GraphNode, GraphNodeKind, MessageGraph
from ..messages.replay import Hop, ReplayRule, replayed

PS, FS = 10**6, 10**9
"""Units of time of a µs: picoseconds, and femtoseconds for what those round too coarsely."""

COARSE = 1e-3
"""Share of G that rounding to whole picoseconds may change."""

NICS = 256


@dataclass(frozen=True, slots=True)
class LogGop:
    """L and G in units of which a µs has ``units_per_us``; ``even``: they hold for all messages."""

    latency: int
    gap: int
    units_per_us: int
    even: bool

    @property
    def flags(self) -> str:
        """The flags of LogGOPSim; S keeps sends from waiting for their receivers."""
        return f"-L {self.latency} -o 0 -g 0 -O 0 -G {self.gap} -S 2147483647"


def loggop_of(graph: MessageGraph, topology: Topology) -> LogGop:
    """Return L and G of most messages on a machine: the α of their route, its narrowest link.

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    sends = Counter(
        (rank, node.peer, 0) for rank, _, node in graph.nodes() if node.kind is GraphNodeKind.SEND
    )
    found: Counter[tuple[float, float]] = Counter()
    for number, route in zip(sends.values(), routes_of(topology, list(sends)), strict=True):
        links = [topology.links[i] for i in route]
        narrow = min(float(link.bandwidth) for link in links)
        found[sum(float(link.latency) for link in links), narrow] += number
    if not found:
        return LogGop(0, 1, PS, even=True)
    alpha, bandwidth = max(found, key=lambda one: (found[one], one[0], -one[1]))
    per_byte = 1 / (bandwidth * BYTES_PER_US_PER_GBPS)
    units = PS if abs(round(per_byte * PS) - per_byte * PS) <= COARSE * per_byte * PS else FS
    return LogGop(
        round(alpha * units), max(1, round(per_byte * units)), units, even=len(found) == 1
    )


def loggop_us(graph: MessageGraph, rule: LogGop) -> float:
    """Return the time of a graph in µs."""

    def hops(rank: int, node: GraphNode) -> tuple[Hop, ...]:
        holds = (node.bytes - 1) * rule.gap
        return ((rank * NICS + node.port, holds, rule.latency + holds),)

    def work(node: GraphNode) -> int:
        return max(1, node.ps * rule.units_per_us // 10**6)

    return replayed(graph, ReplayRule(hops, work, on_arrival=False)) / rule.units_per_us

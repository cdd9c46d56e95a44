"""The problem: a topology, a collective, perhaps a sketch, and what is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .collective import Collective
from .errors import BadTopology
from .hops import hop_distances
from .sketch import Sketch
from .topology import Topology


class Objective(StrEnum):
    """What the answer should be best at."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    TIME = "time"
    FRONTIER = "frontier"


@dataclass(frozen=True)
class Problem:
    """What an engine solves. The collective is the plain one; engines choose how often to split it.

    ``bytes`` is the message size M for the objective ``time``.

    Raises:
        BadTopology: a rank that must hear another one and cannot.
    """

    topology: Topology
    collective: Collective
    sketch: Sketch | None = None
    objective: Objective = Objective.FRONTIER
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.collective.ranks != self.topology.ranks:
            raise BadTopology(
                f"the collective is for {self.collective.ranks} ranks, "
                f"{self.topology.name} has {self.topology.ranks}",
                hint="restrict the topology to the process group first",
            )
        check_connected(self.topology, self.collective)


def check_connected(topology: Topology, collective: Collective) -> None:
    """Raise BadTopology, naming the ranks, if some rank cannot hear one that it must."""
    distance = hop_distances(topology)
    for src, dst in required_pairs(collective):
        if distance[src, dst] < 0:
            lost = [v for v in range(topology.ranks) if distance[src, v] < 0]
            raise BadTopology(
                f"{topology.name}: rank {src} cannot reach rank "
                f"{', '.join(map(str, lost[:16]))}{', …' if len(lost) > 16 else ''}, "
                f"which {collective.name or collective.kind} needs",
                hint="check the links, or leave those GPUs out of the group",
            )


def required_pairs(collective: Collective) -> tuple[tuple[int, int], ...]:
    """Ordered pairs (source, destination) of ranks such that something of the source must arrive.

    Where a chunk starts on several ranks with the same contribution, the first one stands for it
    only if it is the only one: with copies, no single source is required.
    """
    holders: dict[tuple[int, int], list[int]] = {}
    pre, post = collective.pre, collective.post
    for rank, chunk, index in zip(
        pre.ranks.tolist(), pre.chunks.tolist(), pre.sets.tolist(), strict=True
    ):
        for who in collective.contributions[index]:
            holders.setdefault((chunk, who), []).append(rank)
    pairs = set()
    for rank, chunk, index in zip(
        post.ranks.tolist(), post.chunks.tolist(), post.sets.tolist(), strict=True
    ):
        for who in collective.contributions[index]:
            sources = holders[chunk, who]
            if len(sources) == 1 and sources[0] != rank:
                pairs.add((sources[0], rank))
    return tuple(sorted(pairs))

"""Latency and steps: the farthest pair of ranks of which one needs data of the other.

Time windows of links: the α before a chunk can cross a link, and the α after it has crossed.

A chunk that crosses a link has come from a holder and goes on to destinations, so a link serves a
collective that ends at T only from its *head* to T less its *tail*. Two machines are meant at
once, and a bound must hold on both. *Store and forward*: the link is passed when the data is
there, so its head is the α on the way to it, its tail its own α and that behind it. *Cut through*
(the simulator's rule): a transfer occupies its whole route at once and arrives the route's α
later, so its head is the α to the GPU that starts the transfer, and its tail has all of the
route's α. Any other division of a route's α lies between the two.

Run backwards (reductions, on the reversed machine) a transfer's α belongs to its head.
All α are integers over one unit, rounded down; unreachable is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.shortest import distances
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.problem import cut_off
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import as_integers
from .demand import ClassDemand, is_allreduce, wanted_items


@dataclass(frozen=True, slots=True)
class Path:
    """A shortest path: its node and link indices, and its length (µs, or hops)."""

    nodes: tuple[int, ...]
    links: tuple[int, ...]
    length: Fraction


def path_certificate(topology: Topology, path: Path | None, unit: str) -> Certificate:
    """The certificate of a farthest pair; ``unit`` of its length: µs, or hops."""
    if path is None:
        nothing = {"nodes": [], "links": [], "length": "0"}
        return Certificate("path", "no rank needs anything that one other rank alone has", nothing)
    named = [topology.nodes[node].name for node in path.nodes]
    shown = named[0]
    for name, i in zip(named[1:], path.links, strict=True):
        alpha = f"-{rounded(topology.links[i].latency)}" if unit == "µs" else ""
        shown += f" {alpha}-> {name}"
    text = (
        f"{named[-1]} needs something of {named[0]}, and no path between them is shorter than "
        f"{shown} = {rounded(path.length)} {unit if path.length != 1 else unit.removesuffix('s')}"
    )
    data = {"nodes": list(path.nodes), "links": list(path.links), "length": str(path.length)}
    return Certificate("path", text, data)


def required_matrix(collective: Collective, demand: ClassDemand | None) -> Bools:
    """Required pairs: entry (s, d) if data that starts only on s must reach d; (ranks, ranks).

    The same pairs as :func:`.required_pairs`, as an array. ``demand`` is that of
    the collective, if it has one: its classes are far fewer than the items.
    """
    if demand is not None:
        return demand.needs
    if is_allreduce(collective):
        gives = np.array([bool(s) for s in collective.contributions])[collective.pre.sets]
        needs = np.zeros((collective.ranks, collective.ranks), bool)
        needs[distinct_values(collective.pre.ranks[gives])] = True
        np.fill_diagonal(needs, False)
        return needs
    _, _, holder, dest = wanted_items(collective)
    needs = np.zeros((collective.ranks, collective.ranks), bool)
    needs[holder, dest] = True
    return needs


def farthest(
    topology: Topology,
    needs: Bools,
    lengths: Ints,
    unit: Fraction,
    speakers: Ints,
) -> Path | None:
    """The required pair with the longest shortest path; None if no pair is required.

    ``lengths`` per link are integers, small enough for sums in float64 to be exact; ties go to
    paths of fewer links, then to greater nodes, the last first. ``speakers``: one rank of every
    orbit, ascending.

    Raises:
        BadTopology: a required pair without a path.
    """
    arcs, weight, base = _arcs(topology, lengths)
    sources = np.flatnonzero(needs.any(axis=1))
    if not len(sources):
        return None
    if int(needs.sum()) == topology.ranks * (topology.ranks - 1):
        sources = speakers  # everybody needs everybody: see Demand.uniform
    ends = topology.link_ends()[arcs]
    reach = distances(len(topology.nodes), ends[:, 0], ends[:, 1], weight, sources)
    needed, near = needs[sources], reach[:, : topology.ranks]
    lost = needed & np.isinf(near)
    if lost.any():
        at = int(np.flatnonzero(lost.any(axis=1))[0])
        ranks = np.flatnonzero(lost[at]).tolist()
        raise cut_off(topology, int(sources[at]), ranks[0], ranks, "the collective")
    distance = np.where(needed, np.floor(near / base), -1)
    row, dst = np.unravel_index(int(distance.argmax()), distance.shape)
    links = _back(ends, weight, reach[row], int(sources[row]), int(dst))
    path = arcs[links]
    nodes = (int(sources[row]), *topology.link_ends()[path, 1].tolist())
    return Path(nodes, tuple(path.tolist()), unit * int(lengths[path].sum()))


def _back(ends: Ints, weight: Ints, reach: Floats, src: int, dst: int) -> list[int]:
    """The arcs of a shortest path, given the distances of all nodes from its source."""
    found, node = [], dst
    while node != src:
        into = np.flatnonzero(ends[:, 1] == node)
        tight = into[reach[ends[into, 0]] + weight[into] == reach[node]]
        found.append(int(tight[ends[tight, 0].argmax()]))
        node = int(ends[found[-1], 0])
    return found[::-1]


def latency_path(topology: Topology, needs: Bools, speakers: Ints) -> Path | None:
    """The farthest pair by α, in µs."""
    room = FLOAT_EXACT // (len(topology.nodes) + 1) ** 2
    lengths, unit = floored([x.latency for x in topology.links], room)
    return farthest(topology, needs, lengths, unit, speakers)


def step_path(topology: Topology, needs: Bools, speakers: Ints) -> Path | None:
    """The farthest pair by hops: a transfer of one step ends at the first GPU it meets."""
    into_gpu = [int(topology.nodes[x.dst].stores) for x in topology.links]
    return farthest(topology, needs, np.array(into_gpu, np.int64), Fraction(1), speakers)


def floored(values: list[Fraction], room: int) -> tuple[Ints, Fraction]:
    """As :func:`whole`, but rounded down if the unit is too fine: a lower bound may be smaller."""
    sizes, unit = as_integers(values, room)
    over = [int(s) * unit > v for s, v in zip(sizes, values, strict=True)]
    return sizes - np.array(over, np.int64), unit


def _arcs(topology: Topology, lengths: Ints) -> tuple[Ints, Ints, int]:
    """Links without longer parallel ones, and ``length * base + 1``: few links win ties."""
    base = len(topology.nodes) + 1
    weight = lengths * base + 1
    link_of: dict[tuple[int, int], int] = {}
    for i in np.argsort(-weight, kind="stable").tolist():  # the shortest parallel link stays
        link_of[topology.links[i].src, topology.links[i].dst] = i
    arcs = np.array(list(link_of.values()), np.int64)
    return arcs, weight[arcs], base


@dataclass(frozen=True, eq=False)
class Lengths:
    """The α of a machine's links as integers, and shortest paths over them."""

    nodes: int
    stores: Bools
    src: Ints
    dst: Ints
    alpha: Ints
    unit: Fraction

    @staticmethod
    def of(topology: Topology) -> Lengths:
        """The α of a topology; rounded down if their common denominator is too large."""
        room = FLOAT_EXACT // (2 * len(topology.nodes) + 4) ** 2
        alpha, unit = floored([x.latency for x in topology.links], room)
        ends = topology.link_ends().T
        stores = np.array([x.stores for x in topology.nodes])
        return Lengths(len(topology.nodes), stores, ends[0], ends[1], alpha, unit)

    def least(
        self, links: Ints | Bools, starts: Sequence[int] | Ints, offset: Ints | None = None
    ) -> Ints:
        """Least α from any of the starts to every node over some links, -1 where there is none.

        ``offset`` is the cost of each start.
        """
        origin = self.nodes
        at = np.asarray(starts, np.int64)
        cost = np.zeros(len(at), np.int64) if offset is None else offset
        tail = np.concatenate([self.src[links], np.full(len(at), origin)])
        head = np.concatenate([self.dst[links], at])
        return _dijkstra(
            origin + 1, tail, head, np.concatenate([self.alpha[links], cost]), [origin]
        )[0, :origin]

    def from_each(self, links: Ints | Bools, starts: Ints) -> Ints:
        """Least α from each start to every node over some links, shape (starts, nodes)."""
        return _dijkstra(
            self.nodes, self.src[links], self.dst[links], self.alpha[links], starts.tolist()
        )

    @cached_property
    def from_gpus(self) -> Ints:
        """Least α from any GPU to every node."""
        return self.least(np.ones(len(self.alpha), bool), np.flatnonzero(self.stores))

    @cached_property
    def to_gpus(self) -> Ints:
        """Least α from every node to any GPU."""
        return self.turned().from_gpus

    def turned(self) -> Lengths:
        """The same with all links reversed."""
        return Lengths(self.nodes, self.stores, self.dst, self.src, self.alpha, self.unit)

    def before_transfers(self, starts: Ints) -> Ints:
        """Least α from any start to a GPU that can send over each node without a stop.

        A GPU's own entry is the α to itself; for a forwarding node the last stretch from a GPU
        to it is free.
        """
        n = self.nodes
        forwards = ~self.stores[self.dst]
        # Layer 0: at rest or on the way; layer 1: on the last stretch, over forwarding nodes.
        tail = np.where(self.stores[self.src], self.src, n + self.src)[forwards]
        weight = np.concatenate([self.alpha, np.zeros(len(tail), np.int64)])
        both = np.concatenate([self.src, tail]), np.concatenate([self.dst, n + self.dst[forwards]])
        origin = 2 * n
        reach = _dijkstra(
            origin + 1,
            np.concatenate([both[0], np.full(len(starts), origin)]),
            np.concatenate([both[1], starts]),
            np.concatenate([weight, np.zeros(len(starts), np.int64)]),
            [origin],
        )[0]
        return np.asarray(np.where(self.stores, reach[:n], reach[n : 2 * n]))


def _dijkstra(count: int, tail: Ints, head: Ints, length: Ints, starts: list[int]) -> Ints:
    """Shortest distances in integers; -1 without a path."""
    base = count + 1  # arcs weigh length·base + 1, so that none is free
    reach = distances(count, tail, head, length * base + 1, np.array(starts))
    return np.where(np.isinf(reach), -1, np.floor(reach / base)).astype(np.int64)

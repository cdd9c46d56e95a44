"""Lower bounds for schedules of indivisible chunks of one size: store and forward from GPU to GPU.

The bounds of :mod:`weft.synth.bounds` hold for chunks of any size. Where a sketch fixes the number
of chunks, a chunk is forwarded only when all of it has arrived, which gives larger bounds. Let k
chunks have to enter a set S of ranks (a host, a rank, all ranks outside a host). Every hop into S
occupies some resource for the whole chunk, so the last of the k enters no sooner than the
*startup*, the time until the first can begin, plus the time of k chunks on those resources. It is
then at one rank of S, and the *tail* is the path from there to the last rank that wants it; or it
enters a second time, which occupies the resource again.

Cut bound of a host under the rules of a sketch, for any sizes of chunks.

Every byte of a chunk that starts outside a host and is wanted inside enters over a hop that the
sketch allows to this chunk. Each such hop occupies all resources of its route for all its bytes;
the narrowest one is used here. So those resources together carry all these bytes, and the last
byte arrives no sooner than the hop's α after that.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.shortest import distances
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS, format_bytes
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import route_latency
from weft.dsl.nouns.topology import Hop, Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from ..fabric.hop_table import HopTable, hop_table_of


@dataclass(frozen=True, slots=True)
class WholeChunks:
    """A lower bound: no schedule in these chunks takes less than ``us`` µs."""

    us: Fraction
    certificate: Certificate


def whole_chunk_bound(
    topology: Topology, collective: Collective, chunk_bytes: Fraction, usable: Bools | None = None
) -> WholeChunks:
    """Return the best bound of paths and cuts for a copying collective in its chunks.

    ``usable``: the hops of :func:`hop_table_of` that some chunk may take, shape (hops,); or which
    each chunk may take, shape (chunks, hops), which proves more. O(sets · hops).

    Raises:
        UserError: they do not lead to every rank that wants a chunk.
    """
    m, n = hop_table_of(topology, chunk_bytes), topology.ranks
    rows = np.ones((1, m.hops), bool) if usable is None else np.atleast_2d(usable)
    kinds, kind = np.unique(rows, axis=0, return_inverse=True)
    held = np.zeros((collective.chunks, collective.ranks), bool)
    wanted = held.copy()
    held[collective.pre.chunks, collective.pre.ranks] = True
    wanted[collective.post.chunks, collective.post.ranks] = True
    field = _ChunkBounds(
        topology,
        m,
        kinds,
        np.broadcast_to(kind.reshape(-1), (collective.chunks,)),
        np.stack([distances(n, m.src[x], m.dst[x], m.arrives[x], np.arange(n)) for x in kinds]),
        held,
        wanted & ~held,
    )
    ticks, certificate = max(field.bounds(chunk_bytes), key=lambda x: x[0])
    return WholeChunks(Fraction(ticks, m.unit), certificate)


@dataclass(frozen=True, eq=False)
class _ChunkBounds:
    """Chunks come in kinds: ``usable[kind]`` are their hops, ``distance[kind]`` the ticks from rank
    to rank over these."""

    topology: Topology
    machine: HopTable
    usable: Bools
    kind: Ints
    distance: Floats
    held: Bools
    wanted: Bools

    def bounds(self, chunk_bytes: Fraction) -> Iterator[tuple[int, Certificate]]:
        """Yield the bound of one path, and that of one cut for every set of ranks."""
        yield self._path()
        size = format_bytes(round(chunk_bytes))
        for ranks in self._sets():
            found = self._cut(ranks, size)
            if found is not None:
                yield found

    def _path(self) -> tuple[int, Certificate]:
        worst, text = 0, "nothing must move"
        for chunk in range(len(self.held)):
            targets = np.flatnonzero(self.wanted[chunk])
            if not len(targets):
                continue
            way = self.distance[self.kind[chunk]][self.held[chunk]].min(axis=0)[targets]
            if np.isinf(way.max()):
                source = int(np.flatnonzero(self.held[chunk])[0])
                raise UserError(
                    f"rank {source} cannot reach rank {targets[way.argmax()]} by the hops that are "
                    "left",
                    hint="weft check SKETCH says which rules are in the way",
                )
            if int(way.max()) > worst:
                worst, last = int(way.max()), int(targets[way.argmax()])
                source = int(np.flatnonzero(self.held[chunk])[0])
                text = (
                    f"a whole chunk of rank {source} takes {self._us(worst)} µs to rank {last}, "
                    "GPU by GPU"
                )
        return worst, Certificate("chunk path", text)

    def _sets(self) -> Iterator[Bools]:
        hosts = self.topology.host_of
        for host in dict.fromkeys(hosts):
            inside = np.array([h == host for h in hosts])
            if not inside.all():
                yield inside
                yield ~inside
        yield from np.eye(self.machine.ranks, dtype=bool)

    def _cut(self, inside: Bools, size: str) -> tuple[int, Certificate] | None:
        m = self.machine
        entering = np.asarray(
            (self.wanted & inside).any(axis=1) & ~(self.held & inside).any(axis=1)
        )
        count = int(entering.sum())
        kinds = distinct_values(self.kind[entering])
        usable = self.usable[kinds].any(axis=0)
        doors = np.flatnonzero(usable & ~inside[m.src] & inside[m.dst])
        if not count or not len(doors):
            return None
        held = self._resources(doors)
        outside = self.held[entering].any(axis=0)
        distance = self.distance[kinds].min(axis=0)
        startup = int(distance[outside][:, distinct_values(m.src[doors])].min())
        busy = _shared_out(count, list(held.values()))
        alpha = int(m.alpha[doors].min())
        # Those of the set that want every chunk that must come into it.
        wanting = np.flatnonzero((self.wanted[entering] & inside).all(axis=0))
        tail, last = self._tail(distance, wanting, doors, held)
        names = ", ".join(self._resource_name(r) for r in sorted(held)[:4])
        names += ", …" if len(held) > 4 else ""
        ranks = [self.topology.nodes[v].name for v in np.flatnonzero(inside).tolist()]
        into = ", ".join(ranks[:16]) + (", …" if len(ranks) > 16 else "")
        text = (
            f"{count} whole chunks of {size} must enter {{{into}}} over {names}: "
            f"{self._us(busy)} µs"
            + (f", not before {self._us(startup)} µs" if startup else "")
            + (f"; then the α of the last, {self._us(alpha)} µs" if alpha else "")
            + (f", and {self._us(tail)} µs from there to rank {last}" if tail else "")
        )
        return startup + busy + alpha + tail, Certificate("chunk cut", text)

    def _resources(self, doors: Ints) -> dict[int, int]:
        """The resource that each hop holds longest: those resources, and for how many ticks.

        Of several the one that most hops hold: the fewer resources, the larger the bound.
        """
        m, slowest = self.machine, list[dict[int, int]]()
        for hop in doors.tolist():
            mine = slice(int(m.first[hop]), int(m.first[hop + 1]))
            most = int(m.hold[mine].max())
            every = zip(m.resource[mine].tolist(), m.hold[mine].tolist(), strict=True)
            slowest.append({r: most for r, t in every if t == most})
        shared = Counter(one for holds in slowest for one in holds)
        found: dict[int, int] = {}
        for holds in slowest:
            one = max(holds, key=lambda r: (shared[r], -r))
            found[one] = min(found.get(one, holds[one]), holds[one])
        return found

    def _tail(
        self, distance: Floats, wanting: Ints, doors: Ints, held: dict[int, int]
    ) -> tuple[int, int]:
        """Least ticks from the entry of the last chunk to its last destination, and that rank."""
        entries = distinct_values(self.machine.dst[doors])
        if not len(wanting):
            return 0, -1
        way = distance[np.ix_(entries, wanting)]
        if len(held) == 1:  # once through the door, or once more, which takes the resource again
            way = np.minimum(way, min(held.values()) + way.min(axis=0))
            k = int(way.max(axis=1).argmin())
            return int(way[k].max()), int(wanting[way[k].argmax()])
        way = way.min(axis=0)
        return int(way.max()), int(wanting[way.argmax()])

    def _us(self, ticks: int) -> str:
        return f"{self.machine.us(ticks):,.10g}"

    def _resource_name(self, resource: int) -> str:
        links, nodes = self.topology.links, self.topology.nodes
        if resource >= len(links):
            return self.topology.resources[resource - len(links)].name
        return f"{nodes[links[resource].src].name} -> {nodes[links[resource].dst].name}"


def _shared_out(count: int, holds: list[int]) -> int:
    """Ticks that ``count`` chunks take on parallel resources that each carry one at a time."""
    ends = [(hold, hold) for hold in holds]
    heapq.heapify(ends)
    end = 0
    for _ in range(count):
        end, hold = heapq.heappop(ends)
        heapq.heappush(ends, (end + hold, hold))
    return end


def ruled_cut(
    topology: Topology,
    collective: Collective,
    hops: tuple[Hop, ...],
    usable: Bools,
    message_bytes: int,
) -> tuple[Fraction, Certificate]:
    """Return the best bound of a host, in µs, for a copying collective; 0 if there is one host.

    ``usable``: the hops that each chunk may take, shape (chunks, hops). O(hosts · chunks · hops).
    """
    best = Fraction(0), Certificate("cut", "one host")
    capacities, loaded = topology.capacities(), fabric_of(topology).loaded
    hosts = np.array([str(h) for h in topology.host_of])
    held = np.zeros((collective.chunks, collective.ranks), bool)
    wanted = held.copy()
    held[collective.pre.chunks, collective.pre.ranks] = True
    wanted[collective.post.chunks, collective.post.ranks] = True
    for host in dict.fromkeys(hosts.tolist()):
        inside = hosts == host
        entering = (wanted & inside).any(axis=1) & ~(held & inside).any(axis=1)
        doors = [
            hop
            for hop, ok in zip(hops, usable[entering].any(axis=0), strict=True)
            if ok and inside[hop.dst] and not inside[hop.src]
        ]
        if not doors:
            continue
        # The narrowest resource of each hop; of several the one that most hops share.
        holds = [{row for i in hop.route for row in loaded[i]} for hop in doors]
        often = Counter(row for rows in holds for row in rows)
        rows = {min(x, key=lambda r: (capacities[r], -often[r], r)) for x in holds}
        bytes_in = Fraction(message_bytes, collective.message_chunks) * int(
            collective.grains[entering].sum()
        )
        wide = sum((capacities[row] for row in rows), Fraction(0))
        alpha = min(route_latency(topology, hop.route) for hop in doors)
        us = bytes_in / (wide * BYTES_PER_US_PER_GBPS) + alpha
        count = int(entering.sum())
        text = (
            f"{count} chunk{'s' * (count > 1)} (M is {collective.message_chunks}) must enter the "
            f"host of rank {int(inside.argmax())} by {len(doors)} hop{'s' * (len(doors) > 1)}, "
            f"{float(wide):g} GB/s together"
            + (f"; the last byte takes an α of {float(alpha):g} µs" if alpha else "")
        )
        best = max(best, (us, Certificate("cut", text)), key=lambda x: x[0])
    return best

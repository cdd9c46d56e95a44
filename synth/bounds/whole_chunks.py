"""Lower bounds for schedules of indivisible chunks of one size: store and forward from GPU to GPU.

The bounds of :mod:`weft.synth.bounds` hold for chunks of any size. Where a sketch fixes the number
of chunks, a chunk is forwarded only when all of it has arrived, which gives larger bounds. Let k
chunks have to enter a set S of ranks (a host, a rank, all ranks outside a host). Every hop into S
occupies some resource for the whole chunk, so the last of the k enters no sooner than the
*startup*, the time until the first can begin, plus the time of k chunks on those resources. It is
then at one rank of S, and the *tail* is the path from there to the last rank that wants it; or it
enters a second time, which occupies the resource again. How the last few of them are copied inside
S takes longer still (:mod:`.waves`).

Collectives that sum into one rank per chunk are bounded by their duals, turned round in time.

Cut bound of a host under the rules of a sketch, for any sizes of chunks.

Every byte of a chunk that starts outside a host and is wanted inside enters over a hop that the
sketch allows to this chunk. Each such hop occupies all resources of its route for all its bytes;
the narrowest one is used here. So those resources together carry all these bytes, and the last
byte arrives no sooner than the hop's α after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, distinct_values
from weft.dsl.base.components import strong_components
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.shortest import distances
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS, format_bytes
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops, route_latency
from weft.dsl.nouns.topology import Hop, Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from ..fabric.hop_table import ROUTES, HopTable, hop_table_of
from .demand import copying_demand, representatives
from .effort import BOUND_EFFORT, BoundEffort
from .waves import Inflow, PortTimes, WaveBound, inflow_of, ports_of, slots

CASTS, ROUTES_LEFT = "casts of switches", "slower routes"


def left_out(topology: Topology) -> tuple[str, ...]:
    """Return the ways to move whole chunks that bounds over :func:`hop_table_of` do not know, in
    words; none where they hold for every schedule of whole chunks."""
    found = [CASTS] * any(node.capabilities for node in topology.nodes)
    if len(topology.nodes) > topology.ranks:  # else each link is a hop
        found += [ROUTES_LEFT] * (not find_hops(topology, routes_per_pair=ROUTES).complete)
    return tuple(found)


def not_counted(beyond: tuple[str, ...]) -> str:
    """Return the remark on a bound that it does not know these ways; empty without any."""
    return f" ({' and '.join(beyond)} not counted)" if beyond else ""


@dataclass(frozen=True, slots=True)
class WholeChunks:
    """A lower bound: no schedule in these chunks takes less than ``us`` µs."""

    us: Fraction
    certificate: Certificate


def whole_chunk_bound(
    topology: Topology,
    collective: Collective,
    chunk_bytes: Fraction,
    usable: Bools | None = None,
    effort: BoundEffort = BOUND_EFFORT,
) -> WholeChunks:
    """Return the best bound of paths, cuts and waves for a collective in its chunks, all of one
    size: it holds for schedules of transfers over the hops of :func:`hop_table_of`.

    ``usable``: the hops that some chunk may take, shape (hops,); or which each chunk may take,
    shape (chunks, hops), which proves more. O(sets · hops). Of a collective that sums they are
    those of the reversed machine.

    Raises:
        UserError: they do not lead to every rank that wants a chunk; sums for several ranks.
    """
    before, after = collective.pre, collective.post
    if collective.combining:
        if copying_demand(collective) is None:
            raise UserError(f"{collective}: bounds of whole chunks sum for one rank per chunk")
        topology, before, after = topology.reversed(), after, before
    m, n = hop_table_of(topology, chunk_bytes, down=True), topology.ranks
    rows = np.ones((1, m.hops), bool) if usable is None else np.atleast_2d(usable)
    kinds, kind = _kinds(rows)
    held = np.zeros((collective.chunks, collective.ranks), bool)
    wanted = held.copy()
    held[before.chunks, before.ranks] = True
    wanted[after.chunks, after.ranks] = True
    field = _ChunkBounds(
        topology,
        effort,
        m,
        kinds,
        np.broadcast_to(kind, (collective.chunks,)),
        np.stack([distances(n, m.src[x], m.dst[x], m.arrives[x], np.arange(n)) for x in kinds]),
        held,
        wanted & ~held,
    )
    ticks, certificate = max(field.bounds(chunk_bytes), key=lambda x: x[0])
    if collective.combining:
        text = f"with time and links turned round, {certificate.text}"
        certificate = replace(certificate, text=text)
    return WholeChunks(Fraction(ticks, m.unit), certificate)


def _kinds(rows: Bools) -> tuple[Bools, Ints]:
    """Return the distinct rows, and which of them each row is."""
    places: dict[bytes, int] = {}
    kind = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    return rows[np.unique(kind, return_index=True)[1]], np.array(kind)


def _communities(m: HopTable) -> list[Bools]:
    """Return sets of two ranks and more that hops quicker than any between them join, but not all
    ranks; the slowest hops first."""
    found = []
    for slowest in distinct_values(m.leaves)[-2::-1]:
        fast = m.leaves <= slowest
        labels = strong_components(m.ranks, m.src[fast], m.dst[fast])
        for label in np.flatnonzero(np.bincount(labels) > 1):
            if (labels != label).any():
                found.append(labels == label)
    return found


@dataclass(frozen=True, eq=False)
class _ChunkBounds:
    """Chunks come in kinds: ``usable[kind]`` are their hops, ``distance[kind]`` the ticks from rank
    to rank over these."""

    topology: Topology
    effort: BoundEffort
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
        yield from self._waves(size)

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

    def _hosts(self) -> Iterator[Bools]:
        hosts = self.topology.host_of
        for host in dict.fromkeys(hosts):
            inside = np.array([h == host for h in hosts])
            if not inside.all():
                yield inside

    def _sets(self) -> Iterator[Bools]:
        for inside in self._hosts():
            yield inside
            yield ~inside
        yield from np.eye(self.machine.ranks, dtype=bool)

    def _waves(self, size: str) -> Iterator[tuple[int, Certificate]]:
        """Yield the best wave of each host and of all ranks but one; alike sets once."""
        tried = set[object]()
        most = self.effort.wave_receptions
        for inside in self._wave_sets():
            entering = (self.wanted & inside).any(axis=1) & ~(self.held & inside).any(axis=1)
            kinds = distinct_values(self.kind[entering])
            if not len(kinds):
                continue
            usable = np.flatnonzero(self.usable[kinds].any(axis=0))
            wants = (self.wanted[entering] & inside).sum(axis=1)
            way = self.distance[kinds].min(axis=0)
            flow = inflow_of(self.machine, usable, inside, self.held[entering], wants, way)
            if flow is None or flow.key in tried:
                continue
            tried.add(flow.key)
            waves = tuple(flow.waves(most))
            if waves:
                best = max(waves, key=lambda wave: wave.ticks)
                yield best.ticks, self._wave_certificate(inside, flow, best, size)

    def _wave_sets(self) -> Iterator[Bools]:
        """Yield every host, sets that quicker hops join than lead to others, all ranks but one."""
        if self.machine.ranks > self.effort.wave_ranks:
            return
        seen = {host.tobytes(): host for host in self._hosts()}
        for inside in _communities(self.machine):
            if len(seen) >= self.effort.wave_sets:
                break
            seen.setdefault(inside.tobytes(), inside)
        yield from seen.values()
        alike = representatives(self.topology, self.effort.few_ranks)
        for rank in alike[: self.effort.side_ranks].tolist():
            yield np.arange(self.machine.ranks) != rank

    def _wave_certificate(
        self, inside: Bools, flow: Inflow, wave: WaveBound, size: str
    ) -> Certificate:
        ranks = np.flatnonzero(inside).tolist()
        first, need = flow.entries(wave.chunks)[0], len(wave.times)
        many = wave.chunks > 1
        last = f"the last {wave.chunks} come" if many else "the last comes"
        text = (
            f"{flow.chunks} whole chunks of {size} must enter {self._listed(ranks)}; {last} in no "
            f"sooner than {self._us(first)} µs and {'have' if many else 'has'} {need} arrivals "
            "to make there, over the ports inside and from GPUs that have something to send: the "
            f"last no sooner than {self._us(wave.ticks)} µs"
        )
        return Certificate(
            "chunk waves",
            text,
            {"inside": ranks, **flow.data(wave), "unit": str(self.machine.unit)},
        )

    def _listed(self, ranks: list[int]) -> str:
        names = ", ".join(self.topology.nodes[v].name for v in ranks[:16])
        return "{" + names + (", …" if len(ranks) > 16 else "") + "}"

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
        held = {port.resource: port for _, port in ports_of(m, doors)}
        outside = self.held[entering].any(axis=0)
        distance = self.distance[kinds].min(axis=0)
        startup = int(distance[outside][:, distinct_values(m.src[doors])].min())
        alpha = min(port.rest for port in held.values())
        busy = slots([replace(port, rest=0) for port in held.values()], count)[-1]
        # Those of the set that want every chunk that must come into it.
        wanting = np.flatnonzero((self.wanted[entering] & inside).all(axis=0))
        tail, last = self._tail(distance, wanting, doors, held)
        names = ", ".join(self._resource_name(r) for r in sorted(held)[:4])
        names += ", …" if len(held) > 4 else ""
        into = self._listed(np.flatnonzero(inside).tolist())
        text = (
            f"{count} whole chunks of {size} must enter {into} over {names}: "
            f"{self._us(busy)} µs"
            + (f", not before {self._us(startup)} µs" if startup else "")
            + (f"; the last arrives {self._us(alpha)} µs later" if alpha else "")
            + (f", and {self._us(tail)} µs from there to rank {last}" if tail else "")
        )
        return startup + busy + alpha + tail, Certificate("chunk cut", text)

    def _tail(
        self, distance: Floats, wanting: Ints, doors: Ints, held: dict[int, PortTimes]
    ) -> tuple[int, int]:
        """Least ticks from the entry of the last chunk to its last destination, and that rank."""
        entries = distinct_values(self.machine.dst[doors])
        if not len(wanting):
            return 0, -1
        way = distance[np.ix_(entries, wanting)]
        if len(held) == 1:  # once through the door, or once more, which takes the resource again
            way = np.minimum(way, min(p.hold for p in held.values()) + way.min(axis=0))
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

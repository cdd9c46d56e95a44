"""Convert an algorithm to a schedule: the same messages on links, with steps instead of slots.

A schedule knows *places* (a chunk on a rank), an algorithm slots. So a place gets **versions**:
what it holds at first, then one more after every arrival. Each message reads one version of its
place and makes the next one of another. Data in scratch beside it, to be added later, is not a
version of its own: it arrives, in the schedule, when it is added.

Steps follow from four rules, solved as a longest path:

* a message that reads version v goes after the one that made v;
* the one that makes v+1 does not go before those that read v (they may share a step: transfers of
  one step read what held before it);
* arrivals at one place are in order, and share a step only if both are added.

Local copies vanish, and a message between ranks without a direct way is passed on by others.
Not expressible: a rank that sends a partial sum beside another one that it keeps.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import find_hops, gpu_neighbours, route_latency
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.slots import INPUT, NONE, Aliases
from weft.dsl.nouns.topology import Topology

from ...fabric.fabric import fabric_of
from ...fabric.occupancy import step_loads
from ...time.routes import routes_of
from .effort import CLASSIC_EFFORT, ClassicEffort

NEVER = -1
"""Sentinel: the slot holds no version of its place (yet)."""


def to_schedule(
    algorithm: Algorithm,
    topology: Topology,
    chunk_bytes: float = 0,
    routes: GpuRoutes | None = None,
) -> Schedule:
    """The schedule of an algorithm on a machine, with rounds; not verified.

    Each message takes the route that is quickest for ``chunk_bytes``; one between ranks that have
    no direct way goes over others. ``routes``: those of the machine, where they are known already.
    Of all steps that the rules leave free, those are taken that need the fewest rounds: everything
    as early as can be, or as late, or sums early and copies late.

    Raises:
        UserError: the algorithm keeps two partial sums of a chunk apart on one rank and sends one
            of them; or a sum would have to go over a rank that has a part of its own.
    """
    if algorithm.collective.ranks != topology.ranks:
        raise UserError(
            f"{algorithm.name} is for {algorithm.collective.ranks} ranks, {topology.name} has "
            f"{topology.ranks}"
        )
    routes = routes or GpuRoutes(topology)
    run = _VersionReplay(algorithm, routes)
    run.play()
    kept = [t for t in run.transfers if t.arrives != NEVER]
    before = _rules(run, kept)
    chosen = routes.choose([(t.src, t.dst) for t in kept], chunk_bytes)
    best: Schedule | None = None
    for steps in _orders(run, kept, before):
        schedule = Schedule.from_columns(
            topology,
            algorithm.collective,
            [t.chunk for t in kept],
            [t.src for t in kept],
            [t.dst for t in kept],
            steps,
            [t.reduce for t in kept],
            [len(r) for r in chosen],
            [link for route in chosen for link in route],
            provenance={"algorithm": algorithm.name},
        )
        schedule = replace(schedule, rounds=rounds_of(schedule))
        if best is None or sum(schedule.rounds) < sum(best.rounds):
            best = schedule
    assert best is not None, "as early as can be is an order"
    return best


@dataclass(slots=True)
class _VersionedTransfer:
    """A message. ``reads``: the version of its source; ``arrives``: the one it makes."""

    chunk: int
    src: int
    dst: int
    reads: int
    arrives: int = NEVER
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class _SlotValue:
    """Content of a slot: its contributions as a bit mask, and the version of its place.

    If it is not a version of a place: the numbers of the messages that were added into it.
    """

    chunk: int
    mask: int
    version: int
    parcels: tuple[int, ...] = ()


@dataclass(slots=True)
class _ChunkVersions:
    """The versions of a chunk on a rank: their masks, and the writers and readers of each."""

    masks: list[int] = field(default_factory=lambda: [0])
    makers: list[int] = field(default_factory=lambda: [NEVER])
    readers: list[list[int]] = field(default_factory=lambda: [[]])

    def add(self, mask: int, maker: int) -> int:
        self.masks.append(mask)
        self.makers.append(maker)
        self.readers.append([])
        return len(self.masks) - 1


class _VersionReplay:
    def __init__(self, algorithm: Algorithm, routes: GpuRoutes) -> None:
        self.algorithm = algorithm
        self.near = [frozenset(x) for x in routes.near]
        self.relays = Relays(routes.near)
        self.transfers: list[_VersionedTransfer] = []
        self.slots: list[dict[int, _SlotValue]] = [{} for _ in range(algorithm.collective.ranks)]
        self.places: dict[tuple[int, int], _ChunkVersions] = {}
        aliases = Aliases.of(algorithm.collective, algorithm.in_place)
        for rank, chunk, mask, offset in _initial_values(algorithm.collective):
            self.places[rank, chunk] = _ChunkVersions(masks=[mask])
            self.slots[rank][aliases.name(rank, INPUT + offset)] = _SlotValue(chunk, mask, 0)

    def play(self) -> None:
        m = self.algorithm.moves
        columns = (m.src, m.source, m.dst, m.target, m.operand)
        for src, source, dst, target, operand in zip(*(c.tolist() for c in columns), strict=True):
            value = self.slots[src][source]
            there = None if operand == NONE else self.slots[dst][operand]
            if src != dst:
                value = self._brought(src, dst, value, there)
            elif there is not None:
                value = self._sum(dst, value, there)
            self.slots[dst][target] = value

    def _place(self, rank: int, chunk: int) -> _ChunkVersions:
        return self.places.setdefault((rank, chunk), _ChunkVersions())

    def _brought(
        self, src: int, dst: int, value: _SlotValue, operand: _SlotValue | None
    ) -> _SlotValue:
        """A message, over other ranks where nothing else leads there."""
        if dst in self.near[src]:
            return self._send(src, dst, value, operand)
        path = self.relays.path(src, dst)
        if not path:
            raise UserError(f"nothing leads from rank {src} to rank {dst}")
        here = src
        for there in path:
            value = self._send(here, there, value, operand if there == dst else None)
            here = there
        return value

    def _send(
        self, src: int, dst: int, value: _SlotValue, operand: _SlotValue | None
    ) -> _SlotValue:
        """Apply a message; return the data of its target then."""
        if value.version == NEVER:
            raise self._inexpressible(src, value.chunk)
        place = self._place(dst, value.chunk)
        mask = value.mask | (operand.mask if operand else 0)
        if mask in place.masks:  # brings data that is, or was, there already
            return _SlotValue(value.chunk, mask, place.masks.index(mask))
        number = len(self.transfers)
        self.transfers.append(_VersionedTransfer(value.chunk, src, dst, value.version))
        self.places[src, value.chunk].readers[value.version].append(number)
        now = place.masks[-1]
        if operand is None:
            if mask & now == now:
                return self._arrive(place, number, mask, reduce=False)
            return _SlotValue(value.chunk, mask, NEVER, (number,))
        if operand.version == len(place.masks) - 1:
            return self._arrive(place, number, mask, reduce=True)
        if operand.version != NEVER:
            raise self._inexpressible(dst, value.chunk)
        return _SlotValue(value.chunk, mask, NEVER, (*operand.parcels, number))

    def _arrive(self, place: _ChunkVersions, number: int, mask: int, *, reduce: bool) -> _SlotValue:
        transfer = self.transfers[number]
        transfer.reduce = reduce
        transfer.arrives = place.add(mask, number)
        return _SlotValue(transfer.chunk, mask, transfer.arrives)

    def _sum(self, rank: int, value: _SlotValue, other: _SlotValue) -> _SlotValue:
        """A local sum: data that lay beside the place has arrived now."""
        place = self._place(rank, value.chunk)
        mask = value.mask | other.mask
        if mask in place.masks:
            return _SlotValue(value.chunk, mask, place.masks.index(mask))
        parcels = value.parcels + other.parcels
        versions = {v.version for v in (value, other)} - {NEVER}
        if not versions:
            return _SlotValue(value.chunk, mask, NEVER, parcels)
        if versions != {len(place.masks) - 1}:
            raise self._inexpressible(rank, value.chunk)
        result = value
        for number in parcels:
            brought = self.transfers[number]
            added = self.places[brought.src, brought.chunk].masks[brought.reads]
            result = self._arrive(place, number, place.masks[-1] | added, reduce=True)
        return result

    def _inexpressible(self, rank: int, chunk: int) -> UserError:
        return UserError(
            f"{self.algorithm.name} is not a schedule: rank {rank} keeps two partial sums of chunk "
            f"{chunk} apart",
            hint="it can be compiled as an algorithm; a schedule has one sum per rank and chunk",
        )


def _initial_values(collective: Collective) -> list[tuple[int, int, int, int]]:
    """Rows (rank, chunk, bit mask of contributions, input offset)."""
    masks = [sum(1 << r for r in who) for who in collective.contributions]
    rows = collective.pre.rows().tolist()
    return [(rank, chunk, masks[who], offset) for rank, chunk, who, offset in rows]


Rules = list[list[tuple[int, int]]]
"""For each message: (another one, by how many steps it must at least be earlier)."""


def _rules(run: _VersionReplay, kept: Sequence[_VersionedTransfer]) -> Rules:
    """Return the precedence rules between kept transfers that follow from the versions."""
    number_of = {id(t): i for i, t in enumerate(kept)}
    new = [number_of.get(id(t), NEVER) for t in run.transfers]
    before: Rules = [[] for _ in kept]
    for place in run.places.values():
        makers = [NEVER if t == NEVER else new[t] for t in place.makers]
        for version, maker in enumerate(makers):
            readers = [new[t] for t in place.readers[version] if new[t] != NEVER]
            following = makers[version + 1] if version + 1 < len(makers) else NEVER
            if maker != NEVER:
                for reader in readers:
                    before[reader].append((maker, 1))
            if following != NEVER:
                before[following] += [(reader, 0) for reader in readers]
                if maker != NEVER:
                    both = kept[maker].reduce and kept[following].reduce
                    before[following].append((maker, 0 if both else 1))
    return before


def _orders(
    run: _VersionReplay, kept: Sequence[_VersionedTransfer], before: Rules
) -> Iterator[list[int]]:
    """Steps of each message that obey the rules, in no more steps than it takes.

    Raises:
        UserError: no steps do.
    """
    early = _earliest(run, before)
    yield early
    last = max(early, default=0)
    after: Rules = [[] for _ in kept]
    for i, earlier in enumerate(before):
        for j, gap in earlier:
            after[j].append((i, gap))
    # As late as can be is as early as can be, read backwards.
    back = _earliest(run, [[(len(kept) - 1 - i, g) for i, g in x] for x in reversed(after)])
    late = [last - step for step in reversed(back)]
    if late == early:
        return
    yield late
    mixed = [first if t.reduce else then for t, first, then in zip(kept, early, late, strict=True)]
    if all(mixed[i] >= mixed[j] + g for i, earlier in enumerate(before) for j, g in earlier):
        yield mixed


def _earliest(run: _VersionReplay, before: Rules) -> list[int]:
    """The least step of each message that obeys the rules.

    Raises:
        UserError: no steps do.
    """
    steps = [0] * len(before)
    changed = True
    while changed:  # once and a look in the order of the moves, unless messages cross
        changed = False
        for i, earlier in enumerate(before):
            least = max((steps[j] + gap for j, gap in earlier), default=0)
            if least > steps[i]:
                steps[i], changed = least, True
                if least >= len(before):
                    raise UserError(
                        f"{run.algorithm.name} is not a schedule: its messages wait for each other",
                        hint="it can be compiled as an algorithm",
                    )
    return steps


def rounds_of(schedule: Schedule) -> tuple[int, ...]:
    """The rounds that each step needs: chunks over the busiest row, by its bandwidth, rounded up.

    A round is the time in which a chunk crosses a link of ``topology.round_bandwidth()``.
    """

    unit = schedule.topology.round_bandwidth()
    widths = [bandwidth / unit for bandwidth in schedule.topology.capacities()]
    rounds = np.ones(schedule.steps, np.int64).tolist()
    for step, row, load in zip(*(c.tolist() for c in step_loads(schedule)), strict=True):
        rounds[step] = max(
            rounds[step], -(-load * widths[row].denominator // widths[row].numerator)
        )
    return tuple(rounds)


# --- the path of each message: the fastest for its size, the least used one on ties --------------

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
    """Ways over other GPUs, for pairs without a direct one: fewest hops, the least used ones."""

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

"""Wave bounds: how soon the last whole chunks that enter a set of ranks can be everywhere in it.

Let n chunks have to enter a set I of ranks (a host; all ranks but one), each wanted by some ranks
of I and held by none at the start, and let a chunk go on only when all of it has arrived. All
quantities below are least times, each by an argument of counting, and the answer is the largest.

*Ports.* Give each hop of a group one resource that it holds, any. A resource carries one hop at
a time. If each holds it for at least h, cannot start before s, and brings its chunk at least r
after it is released, then at most floor((t - s - r) / h) of these hops have arrived by t: the
arrivals are, one by one, no sooner than the *slots* s + j·h + r, j = 1, 2, … Those of several
resources come, one by one, not before all their slots together, in order. (Turned round in time, a
hop holds its resource at the end instead of at the start; the count stays, with the same h and r.)

*Entries.* By this, the i-th hop into I arrives no sooner than ``slot[i]``, the slots of the doors.
Order the chunks by their first arrival in I; ``entry[k]`` bounds that of the k-th. It is
at least slot[k]. Moreover the i-th chunk to stand at some rank that a door starts from does so at
``ready[i]`` at the soonest (its path; and the slots of the hops into these ranks, for the
chunks that start elsewhere). Of the k first, k - i + 1 start through the doors no sooner than
ready[i], so entry[k] >= ready[i] + the (k - i + 1)-th slot of doors that are open from 0 on.

*The last m.* Consider the m chunks that come first into I last, and their receptions: arrivals at
ranks of I that lack the chunk. They need at least the sum of the m smallest numbers of ranks that
want a chunk. When the first of them arrives, all n - m others have: so the i-th entry of these
m, repeated ones included, is at least max(entry[n-m+1], slot[n-m+i]), and at most m·|E| entries are
receptions, E being the ranks where doors end. A reception that is not an entry is a hop inside, and
starts after entry[n-m+1]. Let time[k] bound the k-th reception. It is at least the k-th smallest of

1. the entries and the slots of the ports that hops inside arrive by (if doors end at one rank only,
   without those that arrive there: it has every chunk first);
2. the entries and, for each of the k-1 first receptions but of |I| at most, time[i] + the slots of
   the ports that hops inside leave a rank by: the i-th *rank* that has any of the m
   chunks has it no sooner than time[i], and sends no sooner (the best ports of any rank, slot by
   slot). Slots are positive, so who feeds the k-th reception is among those before it;
3. for each of the m chunks and each rank of I, entry[n-m+i] + the path from E to that rank.

Each list holds a distinct, earlier item for each of the first k receptions. So all of them have
ended no sooner than time[need]; the bound is the largest over m.

*Sums.* A sum into one rank per chunk, turned round in time, satisfies all that was used: of each
rank take the last send of a chunk that reaches the result; its receiver sends later.
*Without copies* (alltoall) the argument stays, and gives the time of the last entry and its path.

Casts are not hops: the bound is for schedules of transfers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass

from ..fabric.hop_table import HopTable


@dataclass(frozen=True, slots=True)
class PortTimes:
    """A resource that some hops hold, in ticks: each for ``hold``, not before ``start``; it brings
    a chunk ``rest`` after it is released."""

    resource: int
    hold: int
    rest: int
    start: int = 0


def ports_of(
    machine: HopTable, hops: Ints, ready: Ints | None = None, group: Ints | None = None
) -> list[tuple[int, PortTimes]]:
    """Return one resource for each hop, with the group of the hops that it is chosen for.

    Any choice gives bounds; few and slow ones large bounds. Chosen first is what the hops of a
    group that are left hold longest together (a greedy cover). ``ready``, ``group``: the least
    start of each hop, and its group; 0 by default.
    """
    if not len(hops):
        return []
    m, none = machine, np.zeros(len(hops), np.int64)
    ready, group = none if ready is None else ready, none if group is None else group
    held = m.first[hops + 1] - m.first[hops]
    hop = np.repeat(np.arange(len(hops)), held)
    entry = np.repeat(m.first[hops] - np.cumsum(held) + held, held) + np.arange(len(hop))
    keys, key = np.unique(group[hop] * m.resources + m.resource[entry], return_inverse=True)
    hold = m.hold[entry]
    chosen = _cover(hop, key, hold, keys // m.resources)
    order = chosen[np.argsort(key[chosen], kind="stable")]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    rest = m.arrives[hops][hop] - hold
    least = (np.minimum.reduceat(x[order], first).tolist() for x in (hold, rest, ready[hop]))
    which = keys[key[order[first]]]
    rows = zip((which // m.resources).tolist(), (which % m.resources).tolist(), *least, strict=True)
    return [(g, PortTimes(r, *numbers)) for g, r, *numbers in rows]


def _cover(hop: Ints, key: Ints, hold: Ints, group: Ints) -> Ints:
    """Return one of the entries (``hop`` holds ``key`` for ``hold``) of each hop; ``group``: of
    each key."""
    left = np.arange(len(hop))
    chosen = []
    while len(left):
        weight = np.bincount(key[left], hold[left], len(group))
        order = np.lexsort((-weight, group))
        best = order[np.flatnonzero(np.diff(group[order], prepend=-1))]
        taken = left[np.isin(key[left], best)]
        chosen.append(taken)
        left = left[np.isin(hop[left], hop[taken], invert=True)]
    return np.concatenate(chosen)


def slots(ports: Sequence[PortTimes], most: int) -> list[int]:
    """Return the first slots of parallel ports, ascending; all, if there are none."""
    heap = [(p.start + p.hold + p.rest, p.hold) for p in ports]
    heapq.heapify(heap)
    found: list[int] = []
    while heap and len(found) < most:
        at, hold = heap[0]
        found.append(at)
        heapq.heapreplace(heap, (at + hold, hold))
    return found


@dataclass(frozen=True, eq=False)
class Inflow:
    """Chunks that must enter a set of ranks, in ticks.

    ``feeders``: the ports into the sources of the doors; ``ready``: when the i-th of the chunks can
    stand at one of these; ``wants``: ranks of the set that want each chunk, ascending.
    """

    doors: tuple[PortTimes, ...]
    feeders: tuple[PortTimes, ...]
    ready: list[int]
    wants: list[int]
    entry_ranks: tuple[int, ...]  # E
    arriving: tuple[PortTimes, ...]  # of hops inside, by their destinations
    leaving: tuple[tuple[PortTimes, ...], ...]  # the same, of each rank
    far: list[int]  # from the nearest entry rank to each rank of the set

    @property
    def chunks(self) -> int:
        """Return n, how many must enter."""
        return len(self.wants)

    @property
    def key(self) -> tuple[Any, ...]:
        """Return all that the bound depends on: equal for hosts that are alike."""

        def times(ports: Sequence[PortTimes]) -> tuple[Any, ...]:
            return tuple(sorted((p.hold, p.rest, p.start) for p in ports))

        kinds = tuple(sorted({times(ports) for ports in self.leaving}))
        lists = (tuple(self.ready), tuple(self.wants), tuple(self.far))
        return (times(self.doors), times(self.arriving), kinds, len(self.entry_ranks), *lists)

    def data(self, wave: WaveBound) -> dict[str, Any]:
        """Return the numbers that prove a wave, in ticks; ports as rows of their four."""

        def rows(ports: Sequence[PortTimes]) -> list[list[int]]:
            return [[p.resource, p.hold, p.rest, p.start] for p in ports]

        return {
            "chunks": self.chunks,
            "last": wave.chunks,
            "doors": rows(self.doors),
            "feeders": rows(self.feeders),
            "ready": self.ready,
            "entries": self.entries(wave.chunks),
            "entry_ranks": list(self.entry_ranks),
            "arriving": rows(self.arriving),
            "leaving": [rows(ports) for ports in self.leaving],
            "far": self.far,
            "times": list(wave.times),
        }

    def entries(self, last: int) -> list[int]:
        """Return the least times of the ``last`` first arrivals of chunks. O(n · last)."""
        n, slot = self.chunks, slots(self.doors, self.chunks)
        ready = np.array(self.ready, object)
        if not ready[-1]:
            return slot[n - last :]
        opened = [PortTimes(p.resource, p.hold, p.rest) for p in self.doors]
        after = np.array(slots(opened, n), object)
        return [max(slot[k], *(ready[: k + 1] + after[k::-1])) for k in range(n - last, n)]

    def feeds(self, most: int) -> list[int]:
        """Return the slots of the best rank to send from, slot by slot."""
        alike = {tuple(sorted((p.hold, p.rest) for p in ports)): ports for ports in self.leaving}
        rows = [row for ports in alike.values() if (row := slots(ports, most))]
        return list(map(min, zip(*rows, strict=True)))

    def waves(self, most: int) -> Iterator[WaveBound]:
        """Yield the bound of the last m chunks, for all m while ``most`` receptions suffice."""
        n = self.chunks
        need = np.cumsum(self.wants).tolist()  # of the last m
        spent, tried = 0, list[int]()
        for m in (n, *range(1, n)):
            if spent + need[m - 1] <= most:
                spent += need[m - 1]
                tried.append(m)
        if not tried:
            return
        longest = need[max(tried) - 1]
        entry, slot = self.entries(max(tried)), slots(self.doors, n + longest)
        arriving, feeds = slots(self.arriving, longest), self.feeds(longest)
        for m in tried:
            first = entry[-m]
            doors = [max(first, x) for x in slot[n - m : n - m + m * len(self.entry_ranks)]]
            paths = sorted(e + far for e in entry[-m:] for far in self.far)
            ported = heapq.merge(doors, (first + x for x in arriving))
            fed = _Fed(doors, feeds)
            times = list[int]()
            for path, port in islice(zip(paths, ported, strict=False), need[m - 1]):
                start = fed.next()
                if start is None:
                    break
                times.append(max(path, port, start))
                if len(times) <= len(self.far):
                    fed.add(times[-1])
            if times:
                yield WaveBound(m, tuple(times))


class _Fed:
    """Receptions by who sends: entries, and those that ranks which have some chunk can feed."""

    __slots__ = ("feeds", "heap", "order")

    def __init__(self, doors: Sequence[int], feeds: Sequence[int]) -> None:
        self.feeds, self.order = feeds, count()
        self.heap = [(doors[0], next(self.order), iter(doors[1:]))]

    def add(self, at: int) -> None:
        """Add a rank that sends from ``at`` on."""
        self._push(at + x for x in self.feeds)

    def _push(self, times: Iterator[int]) -> None:
        at = next(times, None)
        if at is not None:
            heapq.heappush(self.heap, (at, next(self.order), times))

    def next(self) -> int | None:
        """Return the earliest that is left, and take it out; None: there are none."""
        if not self.heap:
            return None
        at, _, times = heapq.heappop(self.heap)
        self._push(times)
        return at


@dataclass(frozen=True, slots=True)
class WaveBound:
    """The last ``chunks`` that enter, and the least ticks of each of their receptions."""

    chunks: int
    times: tuple[int, ...]

    @property
    def ticks(self) -> int:
        """Return the least ticks of the last reception."""
        return self.times[-1]


def feeders_of(
    machine: HopTable, outside: Ints, opens: Any, senders: Ints
) -> tuple[PortTimes, ...]:
    """Return the ports of the hops outside the set into the sources of its doors, from elsewhere.

    ``outside``: hops; ``opens``: ticks until something that must enter can stand at each rank.
    """
    src, dst = machine.src[outside], machine.dst[outside]
    into = np.isin(src, senders, invert=True) & np.isin(dst, senders)
    starts = opens[src[into]].astype(np.int64)
    return tuple(port for _, port in ports_of(machine, outside[into], starts))


def ready_times(paths: list[int], feeders: Sequence[PortTimes]) -> list[int]:
    """Return when the i-th chunk can stand at a source of a door, at the soonest.

    ``paths``: for each chunk the ticks until it can, ascending.
    """
    late = sum(1 for x in paths if x)
    fed = slots(feeders, late) or [0] * late
    return [*paths[: len(paths) - late], *map(max, paths[len(paths) - late :], fed)]


def inside_ports(
    machine: HopTable, hops: Ints, lone_entry: int | None
) -> tuple[tuple[PortTimes, ...], tuple[tuple[PortTimes, ...], ...]]:
    """Return the ports that hops inside arrive by, and those that they leave each rank by."""
    into = hops if lone_entry is None else hops[machine.dst[hops] != lone_entry]
    merged: dict[int, PortTimes] = {}
    for _, one in ports_of(machine, into, group=machine.dst[into]):
        old = merged.get(one.resource, one)
        merged[one.resource] = PortTimes(
            one.resource, min(one.hold, old.hold), min(one.rest, old.rest)
        )
    out = dict[int, list[PortTimes]]()
    for rank, one in ports_of(machine, hops, group=machine.src[hops]):
        out.setdefault(rank, []).append(one)
    return tuple(merged.values()), tuple(map(tuple, out.values()))


def inflow_of(
    machine: HopTable, usable: Ints, inside: Any, held: Any, wants: Ints, way: Any
) -> Inflow | None:
    """Return the chunks that must enter a set, for the hops that they may take; None: no doors.

    ``inside``: mask of the ranks; ``held``: the ranks that hold each of these chunks at the start;
    ``wants``: how many ranks of the set want it.
    """
    m = machine
    opens = way[held.any(axis=0)].min(axis=0)
    usable = usable[np.isfinite(opens[m.src[usable]])]
    src, dst = inside[m.src[usable]], inside[m.dst[usable]]
    doors, within, outside = usable[~src & dst], usable[src & dst], usable[~src & ~dst]
    if not len(doors):
        return None
    senders = distinct_values(m.src[doors])
    feeders = feeders_of(m, outside, opens, senders)
    paths = sorted(int(way[row][:, senders].min()) for row in held)
    entries, ranks = distinct_values(m.dst[doors]), np.flatnonzero(inside)
    far = way[np.ix_(entries, ranks)].min(axis=0)
    if not np.isfinite(far).all():
        ranks, far = ranks[np.isfinite(far)], far[np.isfinite(far)]
    lone = int(entries[0]) if len(entries) == 1 else None
    arriving, leaving = inside_ports(m, within, lone)
    return Inflow(
        tuple(port for _, port in ports_of(m, doors, opens[m.src[doors]].astype(np.int64))),
        feeders,
        ready_times(paths, feeders),
        sorted(wants.tolist()),
        tuple(entries.tolist()),
        arriving,
        leaving,
        sorted(map(int, far.tolist())),
    )

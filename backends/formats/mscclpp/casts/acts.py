"""Acts of a plan with casts: operations of each GPU on its chunks, phase after phase.

Before::

    step 0: ranks 0 … 7 -> 0, chunk 0    step 1: rank 0 -> 0 … 7, chunk 0

After::

    phase 0: rank 0: load-reduce-store of o[0] of all

A step becomes up to three phases: copies that bring a sum's operands to one place, what crosses
GPUs, and what receivers add up. All acts of a phase read what held before it. A chunk has one
*work place*, the same on all ranks, where it lives once anything has come to it: its place in the
output, or its own in the input where that is one buffer, or scratch. A load-reduce needs all
operands at one offset, a store has one offset on all members.

A load-reduce without a store is not in plans. Where the same issuer spreads the sum over the same
group next, both are one act; elsewhere the sum goes to a group of two, the issuer and a neighbour,
in scratch: the smallest that can be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field, replace
from enum import StrEnum

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Buffer
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..lower.emit import kept_buffer

Place = tuple[Buffer, int]
"""A buffer and the first of the chunks there, in grains."""


class ActKind(StrEnum):
    """Kinds of acts."""

    SUM = "load-reduce-store"
    STORE = "multicast store"
    PUT = "put"
    ADD = "sum of own chunks"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Act:
    """One act of a GPU: ``sources`` and ``target`` are each of ``size`` grains.

    ``group``: the ranks that a load-reduce reads; ``onto``: those that are stored on (the peer of
    a put). ``loads``, ``stores``: the links over which it reads and writes; none of own chunks,
    and of a store where no link of the schedule says it.
    """

    kind: ActKind
    rank: int
    chunk: int
    sources: tuple[Place, ...]
    target: Place
    size: int
    group: tuple[int, ...] = ()
    onto: tuple[int, ...] = ()
    loads: tuple[int, ...] = ()
    stores: tuple[int, ...] = ()

    def reads(self) -> Iterator[tuple[int, Place]]:
        """Yield the ranks and places that are read."""
        for rank in self.group or (self.rank,):
            yield from ((rank, place) for place in self.sources)

    def writes(self) -> Iterator[tuple[int, Place]]:
        """Yield the ranks and places that are written."""
        for rank in self.onto or (self.rank,):
            yield rank, self.target


@dataclass(frozen=True, slots=True)
class Acts:
    """All phases, and the size of the buffers: grains of scratch per rank."""

    collective: Collective
    phases: list[list[Act]]
    scratch: list[int]


def acts_of(schedule: Schedule, in_place: bool) -> Acts:
    """Return the acts of a schedule that a plan can express.

    Raises:
        UserError: a chunk is read and overwritten in one step.
    """
    return _ActMaker(schedule, in_place).written()


@dataclass(eq=False)
class _ActMaker:
    schedule: Schedule
    in_place: bool
    phases: list[list[Act]] = field(default_factory=list)

    def __post_init__(self) -> None:
        c = self.schedule.collective
        self.collective, self.grains, ranks = c.in_grains(), c.grains, c.ranks
        self.now: dict[tuple[int, int], Place] = {}
        self.home: dict[tuple[int, int], Place] = {}
        for places, p, buffer in (
            (self.now, c.pre, Buffer.INPUT),
            (self.home, c.post, Buffer.OUTPUT),
        ):
            columns = (x.tolist() for x in (p.ranks, p.chunks, p.offsets))
            for rank, chunk, offset in zip(*columns, strict=True):
                places[chunk, rank] = self._named(rank, buffer, offset)
        self.scratch = [0] * ranks
        self.work = [self._work(chunk) for chunk in range(c.chunks)]

    def _named(self, rank: int, buffer: Buffer, offset: int) -> Place:
        """In place every grain has two names: the one by the buffer that all ranks place alike."""
        kept = kept_buffer(self.collective)
        if not self.in_place or buffer is kept:
            return buffer, offset
        shift = self.collective.in_place_shift(rank)
        return kept, offset + (shift if kept is Buffer.OUTPUT else -shift)

    def _work(self, chunk: int) -> Place:
        ranks = range(self.collective.ranks)
        for places in (self.home, self.now) if self.in_place else (self.home,):
            found = {places.get((chunk, r)) for r in ranks}
            if len(found) == 1 and (place := found.pop()):
                return place
        size = int(self.grains[chunk])
        offset = max(self.scratch)
        self.scratch = [offset + size] * len(self.scratch)
        return Buffer.SCRATCH, offset

    # --- steps ------------------------------------------------------------------------------------

    def written(self) -> Acts:
        s = self.schedule
        casts: dict[int, list[Cast]] = defaultdict(list)
        fused, gone = _fused(s)
        for i, one in enumerate(s.casts):
            if i not in gone:
                casts[one.step].append(one)
        transfers: dict[int, list[int]] = defaultdict(list)
        for i, step in enumerate(s.step.tolist()):
            transfers[step].append(i)
        for step in sorted({*casts, *transfers}):
            self._step(casts[step], transfers[step], fused)
        self.phases.append(
            [
                self._local(ActKind.COPY, rank, chunk, (self.now[chunk, rank],), home)
                for (chunk, rank), home in self.home.items()
                if (chunk, rank) in self.now and self.now[chunk, rank] != home
            ]
        )
        return Acts(self.collective, [p for p in self.phases if p], self.scratch)

    def _local(
        self, kind: ActKind, rank: int, chunk: int, sources: tuple[Place, ...], target: Place
    ) -> Act:
        return Act(kind, rank, chunk, sources, target, int(self.grains[chunk]))

    def _step(self, casts: list[Cast], transfers: list[int], fused: dict[Cast, Cast]) -> None:
        sums = [one for one in casts if len(one.sources) > 1]
        self.phases.append([act for one in sums for act in self._aligned(one)])
        acts: list[Act] = []
        after: dict[tuple[int, int], Place] = {}
        for one in casts:
            acts.append(self._cast(one, fused.get(one), after))
        landed: dict[tuple[int, int], list[Place]] = defaultdict(list)
        s = self.schedule
        for i in transfers:
            chunk, src, dst = int(s.chunk[i]), int(s.src[i]), int(s.dst[i])
            target = self.work[chunk]
            if s.reduce[i]:
                target = self._take((dst,), chunk)
                landed[chunk, dst].append(target)
            else:
                after[chunk, dst] = target
            size = int(self.grains[chunk])
            source = (self.now[chunk, src],)
            way = s.route(i)
            acts.append(Act(ActKind.PUT, src, chunk, source, target, size, onto=(dst,), stores=way))
        _refuse_overwritten(acts, s)
        self.phases.append(acts)
        self.now |= after
        adds = []
        for (chunk, rank), places in landed.items():
            sources = (self.now[chunk, rank], *places)
            adds.append(self._local(ActKind.ADD, rank, chunk, sources, self.work[chunk]))
            self.now[chunk, rank] = self.work[chunk]
        self.phases.append(adds)

    def _take(self, ranks: tuple[int, ...], chunk: int) -> Place:
        """Return new scratch at one offset of some ranks."""
        offset = max(self.scratch[r] for r in ranks)
        for r in ranks:
            self.scratch[r] = offset + int(self.grains[chunk])
        return Buffer.SCRATCH, offset

    def _aligned(self, one: Cast) -> Iterator[Act]:
        """Yield the copies after which all operands of a sum are at one place."""
        chunk, work = one.chunk, self.work[one.chunk]
        if len({self.now[chunk, r] for r in one.sources}) == 1:
            return
        for r in one.sources:
            if self.now[chunk, r] != work:
                yield self._local(ActKind.COPY, r, chunk, (self.now[chunk, r],), work)
                self.now[chunk, r] = work

    def _cast(self, one: Cast, fused: Cast | None, after: dict[tuple[int, int], Place]) -> Act:
        """Return the act of a cast; ``fused``: the copy that follows a sum and is made with it."""
        chunk, v = one.chunk, one.issuer
        size, work = int(self.grains[chunk]), self.work[chunk]
        source = (self.now[chunk, v],)
        if len(one.sources) == 1:
            onto = tuple(sorted(one.destinations))
            after |= {(chunk, r): work for r in onto}
            return Act(ActKind.STORE, v, chunk, source, work, size, onto=onto, stores=one.links)
        group = tuple(sorted(one.sources))
        ways = one.links, fused.links if fused else ()
        if fused:
            after |= {(chunk, r): work for r in group}
            return Act(ActKind.SUM, v, chunk, source, work, size, group, group, *ways)
        pair = _pair(group, v)
        target = self._take(pair, chunk)
        after[chunk, v] = target
        ways = one.links, _back(self.schedule.topology, one, pair)
        return Act(ActKind.SUM, v, chunk, source, target, size, group, pair, *ways)


def _back(topology: Topology, one: Cast, pair: tuple[int, ...]) -> tuple[int, ...]:
    """Return the links from the issuer of a sum through its switch to a pair; none if there are
    several switches."""
    ends = [(topology.links[k].src, topology.links[k].dst) for k in one.links]
    middle = {node for end in ends for node in end} - set(one.sources)
    if len(middle) != 1:
        return ()
    switch = middle.pop()
    between = {(link.src, link.dst): k for k, link in enumerate(topology.links)}
    wanted = [(one.issuer, switch), *((switch, rank) for rank in pair)]
    return tuple(between[end] for end in wanted) if all(e in between for e in wanted) else ()


def _pair(group: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return a rank and its neighbour in a group: the same pair for both, but for the last of an
    odd number."""
    k = group.index(rank)
    other = k ^ 1 if k ^ 1 < len(group) else k - 1
    return tuple(sorted((rank, group[other])))


def _fused(s: Schedule) -> tuple[dict[Cast, Cast], set[int]]:
    """Return the sums that are stored on all at once with the copies that they hold, and the
    positions of these.

    Between a sum and its copy no other cast may touch the members' data, nor write the issuer's.
    """
    touched: dict[int, list[tuple[int, int, bool, int]]] = defaultdict(list)
    for i, one in enumerate(s.casts):
        touched[one.chunk] += [(one.step, r, False, i) for r in one.sources]
        touched[one.chunk] += [(one.step, r, True, i) for r in one.destinations]
    columns = (x.tolist() for x in (s.chunk, s.step, s.src, s.dst))
    for chunk, step, src, dst in zip(*columns, strict=True):
        touched[chunk] += [(step, src, False, -1), (step, dst, True, -1)]
    copies = {
        (one.chunk, one.issuer, frozenset(one.destinations), i): one
        for i, one in enumerate(s.casts)
        if len(one.sources) == 1
    }
    sums: dict[Cast, Cast] = {}
    gone: set[int] = set()
    for i, one in enumerate(s.casts):
        if len(one.sources) == 1:
            continue
        members = frozenset(one.sources)
        later = [
            (copy.step, k)
            for (chunk, issuer, onto, k), copy in copies.items()
            if (chunk, issuer, onto) == (one.chunk, one.issuer, members) and copy.step > one.step
        ]
        if not later:
            continue
        end, k = min(later)
        between = [
            row
            for row in touched[one.chunk]
            if one.step <= row[0] <= end and row[1] in members and row[3] not in (i, k)
        ]
        if not any(r != one.issuer or writes for _, r, writes, _ in between):
            sums[one] = s.casts[k]
            gone.add(k)
    return sums, gone


def _refuse_overwritten(acts: list[Act], s: Schedule) -> None:
    """Refuse a step in which one act writes a chunk that another reads or writes."""
    cells: dict[tuple[int, Place], list[tuple[int, bool]]] = defaultdict(list)
    for k, act in enumerate(acts):
        for rank, place in act.reads():
            cells[rank, place].append((k, False))
        for rank, place in act.writes():
            cells[rank, place].append((k, True))
    for (rank, _), here in cells.items():
        writers = {k for k, writes in here if writes}
        if writers and len({k for k, _ in here}) > 1:
            act = acts[min(writers)]
            raise UserError(
                f"chunk {act.chunk} of rank {rank} is overwritten in the step in which it is read "
                "or written by another",
                where=f"{s.collective} on {s.topology.name}",
                hint="one of them a step later",
            )


def cut(acts: Acts, lanes: int) -> Iterator[list[list[Act]]]:
    """Yield the acts of each of ``lanes`` equal parts of all chunks, in parts of grains."""
    for k in range(lanes):

        def part(place: Place, size: int, k: int = k) -> Place:
            return place[0], place[1] * lanes + k * size

        yield [
            [
                replace(
                    a,
                    sources=tuple(part(x, a.size) for x in a.sources),
                    target=part(a.target, a.size),
                )
                for a in phase
            ]
            for phase in acts.phases
        ]

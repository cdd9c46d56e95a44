"""One schedule for several: their chunks, buffers and transfers side by side on the whole machine.

The merged collective is a custom one. Its grain divides all chunks; collectives of one class that
share no rank share a place in the buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.merged import MergedPart, launch_of
from weft.dsl.nouns.placement import LARGEST_OFFSET, Placement
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import DEMANDS, WorkloadOperation

from ..judge.merged import part_collective


@dataclass(frozen=True, eq=False)
class MachineShare:
    """A part of a machine."""

    topology: Topology  # the part, its ranks numbered 0, 1, …
    # ranks, links: the machine's rank and link of each of its own
    ranks: tuple[int, ...]
    links: tuple[int, ...]


def share_of(
    topology: Topology, ranks: Sequence[int], share: Floats | None = None, unused: float = 1e-7
) -> MachineShare:
    """Return the machine that some ranks see: they, and all that does not store.

    ``share``: of every resource (links, then shared ones), 0 to 1; None: all of everything. What
    has at most ``unused`` is left out.
    """
    kept = (*ranks, *range(topology.ranks, len(topology.nodes)))
    inside = set(kept)
    links = tuple(
        i
        for i, x in enumerate(topology.links)
        if x.src in inside and x.dst in inside and (share is None or share[i] > unused)
    )
    place = {node: i for i, node in enumerate(kept)}
    number = {old: new for new, old in enumerate(links)}

    def part(row: int) -> float:
        return 1.0 if share is None else float(share[row])

    resources = []
    for row, one in topology.shared_rows():
        members = tuple(number[i] for i in one.links if i in number)
        if members and part(row) > unused:
            width = _shared(one.bandwidth, part(row))
            resources.append(replace(one, links=members, bandwidth=width))
    machine = Topology(
        topology.name,
        tuple(topology.nodes[i] for i in kept),
        tuple(
            replace(
                topology.links[i],
                src=place[topology.links[i].src],
                dst=place[topology.links[i].dst],
                bandwidth=_shared(topology.links[i].bandwidth, part(i)),
            )
            for i in links
        ),
        tuple(resources),
        notes=topology.notes,
        timing=topology.timing,
        host_names=topology.host_names,
    )
    return MachineShare(machine, tuple(ranks), links)


def nameless(topology: Topology) -> Topology:
    """Return a machine without names, and without nodes that lack links: equal for alike parts.

    Ranks and links keep their numbers, hosts are numbered as they come.
    """
    linked = {v for one in topology.links for v in (one.src, one.dst)}
    kept = [v for v in range(len(topology.nodes)) if v < topology.ranks or v in linked]
    place = {old: new for new, old in enumerate(kept)}
    hosts: dict[int | None, int | None] = {None: None}
    for old in kept:
        hosts.setdefault(topology.nodes[old].host, len(hosts) - 1)
    return Topology(
        topology.name,
        tuple(
            replace(topology.nodes[old], name=f"n{new}", host=hosts[topology.nodes[old].host])
            for new, old in enumerate(kept)
        ),
        tuple(replace(one, src=place[one.src], dst=place[one.dst]) for one in topology.links),
        tuple(
            replace(one, name=f"r{i}")
            for i, one in zip(range(len(topology.resources)), topology.resources, strict=True)
        ),
        timing=topology.timing,
    )


def _shared(width: Fraction, part: float, grid: int = 1 << 20) -> Fraction:
    """Return a share of a bandwidth; a simple fraction where the share is near one."""
    if part >= 1 - 1e-7:
        return width
    simple = Fraction(part).limit_denominator(64)
    if abs(float(simple) - part) < 1e-6:
        return width * simple
    return width * Fraction(max(1, round(part * grid)), grid)


def shares(loads: Floats) -> Floats:
    """Return the share of each demand in every resource; shape of ``loads`` (demands, resources).

    A resource without load belongs to all.
    """
    total = loads.sum(axis=0)
    found: Floats = np.divide(loads, total, out=np.zeros_like(loads), where=total > 0)
    return found


@dataclass(frozen=True, eq=False)
class MergePiece:
    """The schedule of one operation, on a part of the machine."""

    operation: WorkloadOperation  # its operation of the workload
    schedule: Schedule  # on ranks 0, 1, … of that part
    # ranks, links: the machine's rank and link of each of its ranks and links
    ranks: tuple[int, ...]
    links: tuple[int, ...]
    bytes: int  # message size M of the schedule's collective

    @property
    def grain(self) -> Fraction:
        """Bytes of a grain of its collective."""
        return Fraction(self.bytes, self.schedule.collective.message_chunks)


def merged(
    topology: Topology, pieces: Sequence[MergePiece], *, priorities: Sequence[int] | None = None
) -> Schedule:
    """Return one schedule of all pieces; with ``priorities`` pieces of a smaller one go first.

    Where their sizes lack a common grain that is coarse enough, those of collectives are rounded
    up (:func:`rounded_up`): the parts say to what.

    Raises:
        NothingFound: no common grain is coarse enough.
    """
    unit = _common([piece.grain for piece in pieces])
    lanes, total = _lanes(pieces, unit)
    if total > LARGEST_OFFSET:
        pieces = rounded_up(pieces)
        unit = _common([piece.grain for piece in pieces])
        lanes, total = _lanes(pieces, unit)
    if total > LARGEST_OFFSET:
        raise NothingFound(
            "the chunks of the collectives have no common grain that is coarse enough",
            hint="round the bytes of the demands to multiples of, say, 1 KiB",
        )
    first = np.cumsum([0, *(piece.schedule.collective.chunks for piece in pieces)]).tolist()
    parts = tuple(
        MergedPart(
            piece.operation.name,
            piece.operation.class_name,
            str(piece.operation.kind),
            piece.operation.group or piece.operation.members,
            piece.bytes,
            first[i],
            first[i + 1],
            lanes[i],
            int(piece.bytes / unit),
            piece.operation.root,
            piece.operation.deliveries,
        )
        for i, piece in enumerate(pieces)
    )
    collective = _collective(topology, pieces, parts, unit)
    columns = _columns(pieces, first)
    order = _order(pieces, priorities)
    schedule = Schedule.from_columns(topology, collective, *columns, priority=order)
    size = unit * collective.message_chunks
    return replace(schedule, bytes=int(size), parts=parts, launch=launch_of(parts, topology.ranks))


def rounded_up(pieces: Sequence[MergePiece]) -> list[MergePiece]:
    """Return pieces whose collectives are a little larger, so that all have a common grain.

    Grains become multiples of a power of two of bytes, as large as makes no collective more than a
    thousandth larger, or larger where they would fill an eighth of the largest buffer; demands
    state their bytes one by one, so they stay, and the power divides theirs.
    """
    fixed = [piece.grain for piece in pieces if piece.operation.kind in DEMANDS]
    least, total = min(piece.grain for piece in pieces), sum(piece.bytes for piece in pieces)
    wanted = max(1, math.floor(least / 1000), math.ceil(Fraction(8 * total, LARGEST_OFFSET)))
    multiple = 1 << (wanted.bit_length() - 1)
    if fixed:
        multiple = math.gcd(multiple, _common(fixed).numerator)
    found = []
    for piece in pieces:
        if piece.operation.kind not in DEMANDS:
            grain = math.ceil(piece.grain / multiple) * multiple
            piece = replace(piece, bytes=grain * piece.schedule.collective.message_chunks)
        found.append(piece)
    return found


def _order(pieces: Sequence[MergePiece], priorities: Sequence[int] | None) -> Ints | None:
    """Return the priority of each transfer: that of its piece, then a demand's own stages."""
    own = [p.schedule.priority if p.operation.kind in DEMANDS else None for p in pieces]
    if priorities is None and all(one is None for one in own):
        return None
    given = [0] * len(pieces) if priorities is None else priorities
    kinds = 1 + max((int(one.max(initial=0)) for one in own if one is not None), default=0)
    columns = [
        x * kinds + (np.zeros(len(piece.schedule), np.int64) if one is None else one)
        for piece, one, x in zip(pieces, own, given, strict=True)
    ]
    return np.concatenate(columns)


def _common(grains: Sequence[Fraction]) -> Fraction:
    below = math.lcm(*(grain.denominator for grain in grains))
    return Fraction(math.gcd(*(int(grain * below) for grain in grains)), below)


def _lanes(pieces: Sequence[MergePiece], unit: Fraction) -> tuple[list[int], int]:
    """Return where the buffers of each piece begin, and the length of all, in grains."""
    found: list[int] = []
    taken: list[tuple[tuple[str, int], set[int], int]] = []
    total = 0
    for piece in pieces:
        key = (piece.operation.class_name, piece.bytes)
        own = set(piece.ranks)
        for lane, (other, ranks, begin) in enumerate(taken):
            if other == key and not ranks & own:
                taken[lane] = (key, ranks | own, begin)
                found.append(begin)
                break
        else:
            taken.append((key, own, total))
            found.append(total)
            total += int(piece.bytes / unit)
    return found, total


def _collective(
    topology: Topology, pieces: Sequence[MergePiece], parts: Sequence[MergedPart], unit: Fraction
) -> Collective:
    sets: dict[frozenset[int], int] = {}
    sizes = []
    sides: tuple[list[Ints], list[Ints]] = ([], [])
    for piece, part in zip(pieces, parts, strict=True):
        one, ranks = piece.schedule.collective, np.array(piece.ranks)
        each = int(piece.grain / unit)
        names = np.array(
            [
                sets.setdefault(frozenset(int(ranks[v]) for v in who), len(sets))
                for who in one.contributions
            ]
        )
        sizes.append(one.grains * each)
        for side, p in zip(sides, (one.pre, one.post), strict=True):
            offsets = p.offsets.astype(np.int64) * each + part.offset
            rows = (ranks[p.ranks], p.chunks + part.first, names[p.sets], offsets)
            side.append(np.stack(rows, axis=1).astype(np.int32))
    grains = np.concatenate(sizes)
    return Collective(
        Kind.CUSTOM,
        topology.ranks,
        len(grains),
        tuple(sets),
        Placement.of(np.concatenate(sides[0])),
        Placement.of(np.concatenate(sides[1])),
        name="workload",
        sizes=() if (grains == 1).all() else tuple(grains.tolist()),
    )


def _columns(pieces: Sequence[MergePiece], first: Sequence[int]) -> list[Ints]:
    table: list[list[Ints]] = [[] for _ in range(7)]
    for piece, begin in zip(pieces, first, strict=False):
        one, ranks = piece.schedule, np.array(piece.ranks)
        rows = (
            one.chunk + begin,
            ranks[one.src],
            ranks[one.dst],
            one.step,
            one.reduce,
            np.diff(one.route_start),
            np.array(piece.links)[one.route_links],
        )
        for column, values in zip(table, rows, strict=True):
            column.append(np.asarray(values))
    return [np.concatenate(column) for column in table]


def part_schedule(schedule: Schedule, part: MergedPart) -> Schedule:
    """Return one part of a merged schedule, alone, as a runtime loads it.

    On the ranks of its group, as a collective of its kind; where others forward, on the whole
    machine, as a custom one.
    """
    mine = np.flatnonzero((schedule.chunk >= part.first) & (schedule.chunk < part.last))
    collective = part_collective(schedule, part)
    inside = np.zeros(schedule.topology.ranks, bool)
    inside[list(part.group)] = True
    relayed = not (inside[schedule.src[mine]] & inside[schedule.dst[mine]]).all()
    ranks = tuple(range(schedule.topology.ranks)) if relayed else part.group
    share = share_of(schedule.topology, ranks)
    if relayed:
        collective = collective.within(part.group, schedule.topology.ranks)
    rank = np.full(schedule.topology.ranks, -1)
    rank[list(ranks)] = np.arange(len(ranks))
    link = np.full(len(schedule.topology.links), -1)
    link[list(share.links)] = np.arange(len(share.links))
    lengths = np.diff(schedule.route_start)
    rows = np.concatenate(
        [np.arange(schedule.route_start[i], schedule.route_start[i + 1]) for i in mine.tolist()]
    )
    found = Schedule.from_columns(
        share.topology,
        collective,
        schedule.chunk[mine] - part.first,
        rank[schedule.src[mine]],
        rank[schedule.dst[mine]],
        schedule.step[mine],
        schedule.reduce[mine],
        lengths[mine],
        link[schedule.route_links[rows]],
        segments=schedule.segments,
        provenance={"engine": "plan", "part": part.name},
    )
    return replace(found, bytes=part.bytes)

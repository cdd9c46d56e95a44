"""Quick repair of a schedule after failures: correct, found in little time, not optimal.

Chunks that use no failed part keep their transfers, the others are routed around (:mod:`.trees`).
A repaired schedule is the incumbent of a search, and can run until that search is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints
from weft.dsl.base.errors import BadTopology, NothingFound, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.machines.failures import Degraded
from weft.dsl.nouns.casts import Cast
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.placement import LARGEST_OFFSET
from weft.dsl.nouns.schedule import Schedule, Transfer

from ..base.effort import Effort, setting
from ..engines.packing.casts.schedule import TreeWriter, planned
from ..engines.packing.trees.quantize import largest_remainder
from ..fabric.fabric import fabric_of
from ..fabric.occupancy import us_per_byte
from ..judge.casts import cast_problems
from ..lp.congestion import Congestion
from ..reductions.allreduce import refine
from ..steiner.packing import rooted_tree
from ..time.order import LARGE
from .trees import CongestionPrices, Damage, Way, load_matrix, other_way, require_ranks


@dataclass(frozen=True, slots=True)
class RepairEffort(Effort):
    """Limits of :func:`~.mend.repairs`.

    Raises:
        UserError: a number below zero; or no routing, no piece or no grain.
    """

    idle: float = setting(
        1e-3, "least price of a link, as a part of the largest load: short routes among idle ones"
    )
    ways: int = setting(8, "routings tried for each broken chunk that is split over them")
    low: float = setting(
        0.5, "price of the longest link over the load of the busiest resource, for low trees"
    )
    high: float = setting(1e-3, "part of the least time that trees as high as the highest may cost")
    grains: int = setting(5040, "grains that a chunk is split in; best divisible by small numbers")
    pieces: int = setting(96, "pieces of equal size, at least, of which some may be left out")
    leave: float = setting(0.08, "part of the pieces that may be left out", least=0, most=1)
    regrown: int = setting(
        2, "times that each broken piece is routed, again where there is room by then"
    )
    trees: int = setting(
        600, "broken pieces that are routed in search of those to leave out", least=0
    )
    cuts: tuple[int, ...] = setting((2, 4), "pieces of a chunk that are repaired separately")
    enough: Fraction = field(
        default=Fraction(41, 40),
        metadata={
            "doc": "within this many times the load with unequal fractions chunks are not cut finer"
        },
    )
    most_cut: int = setting(70_000, "transfers of a schedule whose chunks are cut, at most")
    worth: Fraction = field(
        default=Fraction(99, 100),
        metadata={"doc": "repairs that cut chunks must have less than this many times the load"},
    )

    def __post_init__(self) -> None:
        Effort.__post_init__(self)  # super() does not know classes with slots
        for name in ("ways", "grains", "pieces", "regrown"):
            if getattr(self, name) < 1:
                raise UserError(f"effort.{name} is {getattr(self, name)}, it must be 1 or more")


REPAIR_EFFORT = RepairEffort()
"""Default limits."""


def repair(schedule: Schedule, left: Degraded, effort: RepairEffort = REPAIR_EFFORT) -> Schedule:
    """The schedule for ``left.topology``, where ``schedule`` is for ``left.whole``.

    New routes are chosen for a message of the size that the schedule was made for.

    Not verified, as everything that comes from an engine. Times and rounds are gone; slices stay,
    and where transfers have priorities, new ones inherit them. Cost: that of a few dozen array
    operations, and one run of Dijkstra's algorithm for each chunk that has to grow again.

    Raises:
        BadTopology: some rank cannot get what it wants any more.
        UserError: ranks are gone, so that it would be another collective; or a chunk is neither
            copied from where it is whole nor summed of single parts.
    """
    damage = Damage.of(schedule, left)
    size = schedule.bytes or LARGE
    prices = CongestionPrices.of(damage, ~damage.hit, size, effort.idle)
    c = schedule.collective
    ways = {
        chunk: other_way(damage, chunk, prices, int(c.grains[chunk])) for chunk in damage.chunks
    }
    every = [ways.get(i) or Way(i, damage.of_chunk(i)) for i in range(c.chunks)]
    return assembled(damage, every, c)


def assembled(damage: Damage, ways: Sequence[Way], collective: Collective) -> Schedule:
    """Return the schedule in which chunk i of ``collective`` uses ``ways[i]``, in the old order."""
    old = damage.schedule
    fresh = [(i, new) for i, way in enumerate(ways) for new in way.fresh]
    new = np.array(
        [
            (
                i,
                n.transfer.src,
                n.transfer.dst,
                n.transfer.step,
                n.transfer.reduce,
                len(n.transfer.route),
                n.heir,
            )
            for i, n in fresh
        ],
        np.int64,
    ).reshape(-1, 7)
    kept = np.concatenate([np.zeros(0, np.int64), *(way.kept for way in ways)])
    chunk = np.repeat(np.arange(len(ways)), [len(way.kept) for way in ways])
    columns = np.stack(
        [
            chunk,
            old.src[kept],
            old.dst[kept],
            old.step[kept],
            old.reduce[kept],
            np.diff(old.route_start)[kept],
            kept,
        ],
        axis=1,
    )
    table = np.concatenate([columns, new])
    links = np.concatenate(
        [
            damage.moved[rows_of(old.route_start, kept)[1]],
            np.array([i for _, n in fresh for i in n.transfer.route], np.int64),
        ]
    )
    starts = np.concatenate([[0], np.cumsum(table[:, 5])])
    order = np.argsort(table[:, 6], kind="stable")
    table = table[order]
    made = Schedule.from_columns(
        damage.left.topology,
        collective,
        table[:, 0],
        table[:, 1],
        table[:, 2],
        table[:, 3],
        table[:, 4].astype(bool),
        table[:, 5],
        links[rows_of(starts, order)[1]],
        priority=None if old.priority is None else old.priority[table[:, 6]],
        stride=old.stride,
        segments=old.segments,
        provenance={**old.provenance, "repaired": True},
    )
    return replace(made, bytes=old.bytes)


# --- repair by fractions --------------------------------------------------------------------------


_MOST = LARGEST_OFFSET // 4


def balanced(schedule: Schedule, left: Degraded, effort: RepairEffort = REPAIR_EFFORT) -> Schedule:
    """Repair as :func:`repair`, but broken chunks are split over several routings.

    Cost: ``effort.ways`` times that of a repair, and a linear program with a column per routing.

    Raises:
        UserError, BadTopology: as ``repair``; or the collective cannot be cut.
    """
    damage = Damage.of(schedule, left)
    c = schedule.collective
    if c.local_reduce or c.kind is Kind.CUSTOM:
        raise UserError(f"{c} cannot be cut in shares", hint="repair it as a whole")
    ways = _ways(damage, schedule.bytes or LARGE, effort)
    plain = c.plain()
    piece_of = (np.cumsum(c.grains) - c.grains) // c.factor  # the chunk of ``plain`` of each
    group: Ints = piece_of[[way.chunk for way in ways]]
    share = _shares(damage, ways, group, plain.chunks, effort.high)
    most = np.bincount(group[share > 0], minlength=plain.chunks).max()
    grid = max(most, min(effort.grains * most, _MOST // plain.message_chunks))
    grains = np.zeros(len(ways), np.int64)
    for chunk in range(plain.chunks):
        mine = np.flatnonzero(group == chunk)
        parts = [Fraction(x) for x in share[mine].tolist()]
        grains[mine] = largest_remainder([x / sum(parts) for x in parts], int(grid))
    kept = np.flatnonzero(grains)
    kept = kept[np.argsort(group[kept], kind="stable")]
    cut = plain.cut_in(grains[kept], np.bincount(group[kept], minlength=plain.chunks))
    return assembled(damage, [ways[i] for i in kept.tolist()], cut)


def _ways(damage: Damage, size: int, effort: RepairEffort) -> list[Way]:
    """The routing of each intact chunk, several of each broken one; every second one is low."""
    c = damage.schedule.collective
    prices = CongestionPrices.of(damage, ~damage.hit, size, effort.idle)
    low = effort.low * prices.busiest / max(max(prices.alpha, default=0.0), 1e-9)
    broken = set(damage.chunks)
    ways = [Way(i, damage.of_chunk(i)) for i in range(c.chunks) if i not in broken]
    for turn in range(effort.ways):
        prices.hop = low if turn % 2 == 0 else 1.0
        for chunk in damage.chunks:
            ways.append(other_way(damage, chunk, prices, float(c.grains[chunk]) / effort.ways))
    return ways


def _shares(damage: Damage, ways: list[Way], group: Ints, chunks: int, high: float) -> Floats:
    """The fraction of its plain chunk on each routing: the time of the busiest resource is least,
    and trees are of small depth where that costs no more than ``high`` of it."""
    loads: Any = load_matrix(damage, ways)
    rows, count = loads.shape
    scale = max(float(loads.max()), 1e-30)
    step = damage.schedule.step
    ends = ([step[x.kept].max(initial=-1), *(n.transfer.step for n in x.fresh)] for x in ways)
    tall = np.array([float(max(steps)) + 1.0 for steps in ends])
    least = float((loads.sum(axis=0) / rows).sum()) / scale * chunks / count
    cost = high * least / chunks * tall / tall.max(initial=1)
    found = Congestion(loads / scale, group, np.ones(chunks)).least(cost)
    if found.x is None:
        raise NothingFound(f"shares of ways: {found.message}")
    share: Floats = np.where(found.x[:-1] > 1e-6, found.x[:-1], 0.0)
    return share


# --- repair by fewer pieces of one size -----------------------------------------------------------


_EPS = 1e-9


def even(schedule: Schedule, left: Degraded, effort: RepairEffort = REPAIR_EFFORT) -> Schedule:
    """Repair as :func:`repair`, but with fewer pieces where that is better.

    Raises:
        UserError, BadTopology: as ``repair``; or its pieces are not all of one size, or they are of
            several chunks.
    """
    c = schedule.collective
    if len(set(c.grains.tolist())) != 1 or c.local_reduce or c.plain().chunks != 1:
        raise UserError(
            f"{c} is not made of equal pieces of one chunk", hint="repair it as a whole"
        )
    damage = Damage.of(_finer(schedule, effort.pieces), left)
    c = damage.schedule.collective
    size = schedule.bytes or LARGE
    hold = 1 / fabric_of(left.whole).GBps  # the largest load before the failure
    _, row = fabric_of(left.whole).resources_of(damage.schedule.route_links.astype(np.int64))
    before = np.bincount(row, weights=hold[row], minlength=len(hold)).max(initial=0.0)
    stay = np.ones(c.chunks, bool)
    best = now = _tried(damage, stay, size, effort)
    most = int(effort.leave * c.chunks)
    turns = max(1, min(most, effort.trees // max(1, effort.regrown * len(damage.chunks))))
    for _ in range(turns):
        left_out = _relieving(now, before, max(1, most // turns))
        if not left_out:
            break
        stay[left_out] = False
        now = _tried(damage, stay, size, effort)
        best = min(best, now, key=lambda one: one.price)
    pieces = len(best.ways)
    cut = c.plain().cut_in(np.ones(pieces, np.int64), np.array([pieces]))
    return assembled(damage, best.ways, cut)


@dataclass(frozen=True, slots=True, eq=False)
class _Try:
    """Pieces kept, their routings, and loads of a grain of each, shape (resources, routings)."""

    ways: list[Way]
    loads: Floats

    @property
    def load(self) -> Floats:
        """Load of each resource by all pieces."""
        total: Floats = self.loads.sum(axis=1)
        return total

    @property
    def price(self) -> float:
        """The time of the busiest resource for the whole message, up to a factor."""
        return float(self.load.max(initial=0.0)) / len(self.ways)


def _tried(damage: Damage, stay: Bools, size: int, effort: RepairEffort) -> _Try:
    """Damage pieces that stay, grown one by one, and again when all of them are there."""
    schedule = damage.schedule
    kept = stay[schedule.chunk] & ~damage.hit
    prices = CongestionPrices.of(damage, kept, size, effort.idle)
    prices.hop = prices.busiest / max(max(prices.alpha, default=0.0), 1e-9)
    grains = float(schedule.collective.grains[0])
    ways = {i: Way(i, damage.of_chunk(i)) for i in np.flatnonzero(stay).tolist()}
    broken_here = [i for i in damage.chunks if stay[i]]
    for again in range(effort.regrown):
        for chunk in broken_here:
            if again:  # its new hops load nothing, and those it lost are loaded again
                for new in ways[chunk].fresh:
                    prices.take(new.transfer.route, -grains)
                mine = damage.of_chunk(chunk)
                for row in () if len(ways[chunk].kept) else mine[~damage.hit[mine]].tolist():
                    prices.take(damage.route(row), grains)
            ways[chunk] = other_way(damage, chunk, prices, grains)
    listed = list(ways.values())
    return _Try(listed, load_matrix(damage, listed).toarray())


def _relieving(now: _Try, before: float, count: int) -> list[int]:
    """Pieces with the largest loads on resources that exceed ``before``."""
    over = np.maximum(now.load - before * (1 + _EPS), 0)
    open_ways = np.ones(len(now.ways), bool)
    found: list[int] = []
    while len(found) < count and over.any():
        # Not only overload counts: broken pieces move to where there is room.
        worst = int(np.where(open_ways, over @ now.loads, -1.0).argmax())
        found.append(now.ways[worst].chunk)
        open_ways[worst] = False
        over = np.maximum(over - now.loads[:, worst], 0)
    return found


def _finer(schedule: Schedule, least: int) -> Schedule:
    """Every piece cut in as many as make ``least`` of them, one after the other."""
    each = -(-least // schedule.collective.chunks)
    made = replace(refine(schedule, each), stride=schedule.stride * each)
    if made.priority is None:
        return made
    place = np.tile(np.arange(each, dtype=np.int32), len(schedule))
    return replace(made, priority=made.priority * each + place)


# --- all repairs ----------------------------------------------------------------------------------


def repairs(
    schedule: Schedule, left: Degraded, effort: RepairEffort
) -> Iterator[tuple[str, Schedule]]:
    """Yield repairs of the schedule, each with a word for its kind: by whole chunks; by fractions
    and by fewer equal pieces, if the schedule allows it; with every chunk cut into more and more
    equal pieces, where that reduces the load of the busiest resource.

    Raises:
        UserError, BadTopology: it cannot be repaired, see :func:`repair`.
    """
    if len(schedule.casts):
        yield "mended", repair_casts(schedule, left)
        return
    whole = repair(schedule, left, effort)
    yield "mended", whole
    rate = us_per_byte(whole)
    shared: Fraction | None = None
    for word, mend in (("balanced", balanced), ("even", even)):
        try:
            other = mend(schedule, left, effort)
        except UserError:
            continue
        if us_per_byte(other) < effort.worth * rate:
            shared = min(shared or rate, us_per_byte(other))
            yield word, other
    # Data of a dead NIC is dealt out to the others in whole pieces: 120 chunks to 7 of them
    # are 18 to one of them, 5 % more than a seventh; of 240 halves one has 35, 2 % more.
    for pieces in (n for n in effort.cuts if n * len(schedule) <= effort.most_cut):
        if shared is None or rate <= effort.enough * shared:
            return
        finer = repair(refine(schedule, pieces), left, effort)
        if us_per_byte(finer) < effort.worth * rate:
            rate = us_per_byte(finer)
            yield f"mended in {pieces} pieces", finer


# Quick repair of a schedule with casts: broken chunks are rebuilt as trees through the rest.
#
# A chunk that uses no failed link keeps its transfers and casts. Any other one gets the cheapest
# tree to its root, and from it, on the machine that is left (:mod:`weft.synth.steiner`): a rank
# whose link to a switch is dead drops out of the group and is served from a neighbour, and where a
# group is too small to be worth its own copy, ranks send to each other. Links cost their α and the
# time of the chunk behind all that they carry already, so the chunks spread.

INWARD = (Kind.ALLREDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
OUTWARD = (Kind.ALLREDUCE, Kind.BROADCAST, Kind.ALLGATHER)
"""Collectives whose chunks are summed at a root, and spread from one."""


def repair_casts(schedule: Schedule, left: Degraded) -> Schedule:
    """Return the schedule for ``left.topology``, where ``schedule`` is for ``left.whole``.

    Not verified. If the groups of old and new chunks are more than a switch keeps, all grow again.

    Raises:
        BadTopology: a rank cannot be reached any more. UserError: ranks are gone, it is another
            kind of collective, or a switch has too few groups for what is left.
    """
    require_ranks(left)
    kind = schedule.collective.kind
    if kind not in (*INWARD, *OUTWARD):
        raise UserError(f"chunks of {kind} have no single root", hint="synthesize it anew")
    size = schedule.bytes or LARGE
    every = set(range(schedule.collective.chunks))
    problem = ""
    for broken in (_broken(schedule, left), every):
        made = _regrown(schedule, left, broken, size)
        problem = next(cast_problems(made), "")
        if not problem:
            return made
    raise UserError(f"the degraded machine cannot do it: {problem}", hint="synthesize it anew")


def _broken(schedule: Schedule, left: Degraded) -> set[int]:
    s, casts = schedule, schedule.casts
    found: set[int] = set()
    for chunk, start, links in (
        (s.chunk, s.route_start, s.route_links),
        (casts.chunk, casts.link_start, casts.links),
    ):
        dead = left.link_image[links] < 0
        found |= set(np.repeat(chunk, np.diff(start))[dead].tolist())
    return found


def _regrown(schedule: Schedule, left: Degraded, broken: set[int], size: int) -> Schedule:
    new = left.link_image

    def moved(links: Iterable[int]) -> tuple[int, ...]:
        return tuple(new[list(links)].tolist())

    kept = [replace(t, route=moved(t.route)) for t in schedule if t.chunk not in broken]
    casts = [replace(c, links=moved(c.links)) for c in schedule.casts if c.chunk not in broken]
    limits = {c.chunk: c.GBps for c in schedule.casts}
    trees = _Regrowth(schedule, left, size)
    trees.load([i for t in kept for i in t.route], [i for c in casts for i in c.links])
    for chunk in sorted(broken):
        trees.grow(chunk)
    made = Schedule.of(
        left.topology,
        schedule.collective,
        [*kept, *trees.writer.transfers],
        casts=[*casts, *(replace(c, GBps=limits.get(c.chunk)) for c in trees.writer.casts)],
        provenance={**schedule.provenance, "repaired": True},
    )
    made = replace(made, bytes=schedule.bytes, segments=schedule.segments)
    if not schedule.planned:
        return made
    orders = schedule.priority, schedule.casts.priority
    most = max(0 if order is None else int(order.max(initial=0)) for order in orders)
    # By how much later steps stand behind earlier ones in the planned order.
    return planned(made, most // max(1, schedule.steps - 1))


@dataclass(eq=False)
class _Regrowth:
    schedule: Schedule
    left: Degraded
    size: int
    writer: TreeWriter = field(init=False)
    busy: Floats = field(init=False)

    def __post_init__(self) -> None:
        fabric = fabric_of(self.left.topology)
        self.writer, self.busy = TreeWriter(self.left.topology), np.zeros(fabric.resources)

    def load(self, *lists: list[int]) -> None:
        """Count chunks over links, as often as they are listed."""
        for links in lists:
            _, rows = fabric_of(self.left.topology).resources_of(np.array(links, np.int64))
            np.add.at(self.busy, rows, 1.0)

    def grow(self, chunk: int) -> None:
        """Write the trees of a chunk.

        Raises:
            BadTopology: no tree spans the ranks.
        """
        kind, root = self.schedule.collective.kind, root_of(self.schedule, chunk)
        trees = []
        for inward, kinds in ((True, INWARD), (False, OUTWARD)):
            found = None
            if kind in kinds:
                found = rooted_tree(self.left.topology, self._prices(), root, inward=inward)
                if found is None:
                    raise BadTopology(
                        f"rank {root} and the others cannot reach each other any more",
                        hint="--down-rank leaves out a rank that is cut off",
                    )
                self.load(found.links())
            trees.append(found)
        self.writer.write(chunk, *trees)

    def _prices(self) -> Floats:
        fabric = fabric_of(self.left.topology)
        each = self.size / self.schedule.collective.message_chunks
        prices: Floats = fabric.byte_us * each * (1.0 + self.busy)
        prices[: fabric.links] += [float(x) for x in fabric.latency]
        return prices


def root_of(schedule: Schedule, chunk: int) -> int:
    """Return a rank that has all contributions of a chunk before any other has."""
    c = schedule.collective
    if c.kind in (Kind.BROADCAST, Kind.ALLGATHER):
        return int(c.pre.ranks[c.pre.chunks == chunk][0])
    if c.kind is not Kind.ALLREDUCE:
        return int(c.post.ranks[c.post.chunks == chunk][0])
    held = {r: frozenset((r,)) for r in range(c.ranks)}
    operations: list[Transfer | Cast] = [
        *(t for t in schedule if t.chunk == chunk),
        *(x for x in schedule.casts if x.chunk == chunk),
    ]
    for step in sorted({x.step for x in operations}):
        before = dict(held)
        for one in (x for x in operations if x.step == step):
            sources = (one.src,) if isinstance(one, Transfer) else one.sources
            targets = (one.dst,) if isinstance(one, Transfer) else one.destinations
            brought = frozenset().union(*(before[r] for r in sources))
            for r in targets:
                held[r] = held[r] | brought if one.reduce else brought
        whole = [r for r, found in held.items() if len(found) == c.ranks]
        if whole:
            return min(whole)
    return 0

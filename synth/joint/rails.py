"""Alltoallv on hosts joined by rails: closed bound, and a plan quick enough for every batch.

Each GPU reaches the GPUs of its host, and those of its own number in other hosts. What one host
has for another is balanced over all its GPUs, sent along their rails, and handed on there. Hosts
send to each other one to one, in stages (:func:`stages_of`), so no NIC receives from two at
once. All steps are array operations; nothing is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import AnyArray, Floats, Ints, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.deliveries import shard_collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import LARGEST_BYTES, WorkloadOperation

from ..fabric.fabric import Fabric, fabric_of
from ..fabric.hosts import hosts_of
from .carried import whole_piece
from .merge import MergePiece


@dataclass(frozen=True, eq=False)
class RailPieces:
    """Data sent, in columns: pieces of pairs of ranks, each over one rail."""

    # source, target: ranks
    source: Ints
    target: Ints
    rail: Ints  # number of the GPU, in both hosts, whose rail it takes; -1 inside a host
    grains: Ints  # its size
    stage: Ints  # in which stage it goes


@dataclass(frozen=True, eq=False)
class RailPlan:
    """Plan by which a matrix is sent."""

    us: float  # lower bound of any way to send it, in µs
    grain: Fraction  # bytes of a grain
    stages: tuple[Stage, ...]  # one-to-one transfers between hosts, in grains of each rail
    pieces: RailPieces  # all that is sent


class RailPlanner:
    """Plans of alltoallv on a machine of rails; made once, used for every batch."""

    def __init__(self, topology: Topology, host: Ints, hop: Ints) -> None:
        """``host``: ranks of each host, shape (hosts, GPUs of a host); ``hop``: links of the route
        between two ranks, shape (ranks, ranks, 2), -1 where there is none."""
        self.topology, self._host, self._hop = topology, host, hop
        self._cuts = [*_cuts(topology, host)]
        self._place = np.argsort(host.ravel())

    def bound_us(self, matrix: Sequence[Sequence[int]] | Ints) -> float:
        """Return the largest time in µs that a host or a GPU needs for its input or output.

        It holds for every schedule: these are cuts. On rails with any forwarding it was the optimum
        in every case tried.
        """
        asked = self._asked(matrix)
        np.fill_diagonal(asked, 0)
        longest = []
        for member, out, into in self._cuts:
            between = member @ asked @ member.T
            np.fill_diagonal(between, 0)
            longest += [(between.sum(axis=1) / out).max(), (between.sum(axis=0) / into).max()]
        return float(max(longest)) / BYTES_PER_US_PER_GBPS

    def plan(self, matrix: Sequence[Sequence[int]] | Ints) -> RailPlan:
        """Return how ``matrix[i][j]`` bytes from rank i to rank j are sent.

        Raises:
            UserError: not a matrix of whole numbers from 0 on, with a row and a column a rank.
        """
        asked = self._asked(matrix)
        hosts, size = self._host.shape
        common = int(np.gcd.reduce(asked, axis=None)) or 1
        flat = self._host.ravel()
        # A host has a multiple of `common` for another: as many grains of it go over each rail.
        blocks = asked[np.ix_(flat, flat)].reshape(hosts, size, hosts, size) // common * size
        blocks = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))
        between = blocks * ~np.eye(hosts, dtype=bool)[:, :, None, None]
        quota = between.sum(axis=(2, 3)) // size
        stages = stages_of(quota, most=4096)
        sent = _staged(_balanced(between, quota), quota, stages, size)
        # Data that stays in its host comes last, since links inside are wide.
        i, _, s, d = np.nonzero((blocks - between) * ~np.eye(size, dtype=bool))
        same = np.full(len(i), -1), blocks[i, i, s, d], np.full(len(i), len(stages))
        local = [i * size + s, i * size + d, *same]
        columns = [np.concatenate(pair) for pair in zip(sent, local, strict=True)]
        columns[:2] = flat[columns[0]], flat[columns[1]]
        order = np.lexsort((columns[4], columns[1], columns[0]))
        pieces = RailPieces(*(column[order] for column in columns))
        return RailPlan(self.bound_us(asked), Fraction(common, size), tuple(stages), pieces)

    def _asked(self, matrix: Sequence[Sequence[int]] | Ints) -> Ints:
        ranks = self.topology.ranks
        wanted = f"expected {ranks} rows of {ranks} whole numbers of bytes"
        try:
            given = np.array(matrix)
        except ValueError:
            raise UserError(f"{wanted}, got rows of unlike lengths") from None
        if given.shape != (ranks, ranks) or given.dtype.kind not in "iuf":
            told = f"got an array of shape {given.shape} and type {given.dtype}"
            raise UserError(f"{wanted}, {told}")
        if not ((given >= 0) & (given < LARGEST_BYTES) & (given == np.floor(given))).all():
            raise UserError(f"{wanted}, got {given.min()} to {given.max()}")
        return given.astype(np.int64)

    def loads(self, matrix: Sequence[Sequence[int]] | Ints) -> Floats:
        """Return the part of each rank's data that takes each link, shape (ranks, links)."""
        one = self.plan(matrix).pieces
        hops = self._hops(one, np.arange(len(one.source)))
        piece = np.repeat(hops[0], hops[5])
        grains: Floats = np.bincount(one.source, one.grains, self.topology.ranks).astype(float)
        found = np.zeros((self.topology.ranks, len(self.topology.links)))
        np.add.at(found, (one.source[piece], hops[6]), one.grains[piece])
        return found / np.maximum(grains, 1)[:, None]

    def piece(self, operation: WorkloadOperation) -> MergePiece:
        """Return the schedule of an alltoallv of all ranks."""
        plan = self.plan(matrix_of(operation, self.topology.ranks))
        schedule = self._schedule(operation, plan)
        size = plan.grain * schedule.collective.message_chunks
        return whole_piece(self.topology, operation, schedule, int(size))

    def _schedule(self, operation: WorkloadOperation, plan: RailPlan) -> Schedule:
        one, shards = plan.pieces, operation.deliveries
        shard_of = np.zeros((self.topology.ranks,) * 2, np.int64)
        for number, each in enumerate(shards):
            shard_of[each.holders[0], each.receivers[0]] = number
        shard = shard_of[one.source, one.target]
        cuts: list[list[int]] = [[] for _ in shards]
        for at, grains in zip(shard.tolist(), one.grains.tolist(), strict=True):
            cuts[at].append(grains)
        for cut, each in zip(cuts, shards, strict=True):
            if not cut:  # data of a rank for itself
                cut.append(int(each.bytes / plan.grain))
        first = np.cumsum([0, *(len(cut) for cut in cuts)])
        order = np.argsort(shard, kind="stable")
        chunk = np.empty(len(shard), np.int64)
        chunk[order] = (
            first[shard[order]]
            + np.arange(len(shard))
            - np.searchsorted(shard[order], shard[order])
        )
        collective = shard_collective(self.topology.ranks, shards, cuts)
        *moves, stage = self._hops(one, chunk)
        return Schedule.from_columns(self.topology, collective, *moves, priority=stage)

    def _hops(self, one: RailPieces, chunk: Ints) -> list[AnyArray]:
        """Return chunk, src, dst, step, reduce, lengths and links of routes, and stage."""
        away = one.rail >= 0
        stops = [one.source]
        for end in (one.source, one.target):
            host = self._place[end] // self._host.shape[1]
            stops.append(np.where(away, self._host[host, one.rail], one.source))
        stops.append(one.target)
        step = np.zeros(len(chunk), np.int64)
        rows = []
        for u, v in pairwise(stops):
            moves = np.flatnonzero(u != v)
            rows.append([x[moves] for x in (chunk, u, v, step, one.stage)])
            step = step + (u != v)
        chunk, u, v, step, stage = (np.concatenate(x) for x in zip(*rows, strict=True))
        routes = self._hop[u, v]
        used = routes >= 0
        return [chunk, u, v, step, np.zeros(len(u), bool), used.sum(axis=1), routes[used], stage]


def matrix_of(operation: WorkloadOperation, ranks: int) -> Ints:
    """Return the bytes of an alltoallv between all ranks of a machine."""
    matrix = np.zeros((ranks, ranks), np.int64)
    matrix[np.ix_(operation.group, operation.group)] = operation.matrix
    return matrix


def rail_planner(topology: Topology) -> RailPlanner | None:
    """Return a planner for a machine; None unless its hosts are alike and joined by rails."""
    hosts = hosts_of(topology)
    if hosts is None or len({len(some) for some in hosts.members}) > 1:
        return None
    host = np.stack(hosts.members)
    hop = _hop_table(topology)
    same = hop[host[:, :, None], host[:, None, :], 0] >= 0
    along = hop[host[:, None, :], host[None, :, :], 0] >= 0
    size, others = host.shape[1], ~np.eye(len(host), dtype=bool)
    joined = same[:, ~np.eye(size, dtype=bool)].all() and along[others].all()
    return RailPlanner(topology, host, hop) if joined else None


def _hop_table(topology: Topology) -> Ints:
    """Return the widest route of one link, or of two through a node that does not store."""
    n = topology.ranks
    hop = np.full((n, n, 2), -1, np.int64)
    width = np.zeros((n, n))
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    GBps = fabric_of(topology).GBps
    for i, one in enumerate(topology.links):
        if one.src < n and one.dst < n:
            if GBps[i] > width[one.src, one.dst]:
                width[one.src, one.dst] = GBps[i]
                hop[one.src, one.dst] = i, -1
        elif one.src < n:
            into.setdefault(one.dst, []).append(i)
        elif one.dst < n:
            out.setdefault(one.src, []).append(i)
    ends = topology.link_ends()
    for node in sorted(into.keys() & out.keys()):
        if topology.nodes[node].stores:
            continue
        first, second = np.array(into[node]), np.array(out[node])
        at = np.ix_(ends[first, 0], ends[second, 1])
        wide = np.minimum(GBps[first][:, None], GBps[second])
        better = wide > width[at]
        width[at] = np.where(better, wide, width[at])
        routes = np.stack(np.broadcast_arrays(first[:, None], second), axis=2)
        hop[at] = np.where(better[:, :, None], routes, hop[at])
    return hop


# --- the closed bound -----------------------------------------------------------------------------


def _cuts(topology: Topology, host: Ints) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Yield ``member[group, rank]`` and GB/s out of and into each group: hosts, then GPUs."""
    fabric, ends = fabric_of(topology), topology.link_ends()
    hosts = hosts_of(topology)
    assert hosts is not None
    for label in (hosts.host, np.arange(len(topology.nodes))):
        groups = int(label[: topology.ranks].max()) + 1
        member = (label[: topology.ranks] == np.arange(groups)[:, None]).astype(np.int64)
        crossing = label[ends[:, 0]] != label[ends[:, 1]]
        sides = [
            np.array(
                [
                    _room(fabric, np.flatnonzero(crossing & (label[side] == g)))
                    for g in range(groups)
                ]
            )
            for side in ends.T
        ]
        yield member, sides[0], sides[1]


def _room(fabric: Fabric, links: Ints) -> float:
    """Return the GB/s of some links together: less where they share a resource of their own."""
    total, left = float(fabric.GBps[links].sum()), set(links.tolist())
    for row in range(fabric.links, fabric.resources):
        members = fabric.members[row]
        if left.issuperset(members):
            left -= set(members)
            total -= max(0.0, float(fabric.GBps[list(members)].sum() - fabric.GBps[row]))
    return total


# --- data of each GPU over each rail --------------------------------------------------------------


def _balanced(blocks: Ints, quota: Ints) -> list[Ints]:
    """Return source, target, rail and grains of pieces such that each rail has the quota.

    ``blocks[i, j, s, d]`` grains are for GPU d of host j, from GPU s of host i. What a GPU has for
    a host lies on a line, first that for the GPU of its own number. It keeps as much as the quota
    for its own rail; the rest of all goes, one after another, to where there is room.
    """
    hosts, _, size, _ = blocks.shape
    turn = (np.arange(size)[:, None] + np.arange(size)) % size
    items = np.take_along_axis(blocks, turn[None, None], axis=3)
    item_end = items.ravel().cumsum()
    line = items.sum(axis=3)
    keep = np.minimum(line, quota[:, :, None]).ravel()
    room_end = (quota[:, :, None] - np.minimum(line, quota[:, :, None])).ravel().cumsum()
    line_start = line.ravel().cumsum() - line.ravel()
    over = line.ravel() - keep
    over_end = over.cumsum()
    at = np.searchsorted(over_end, room_end)
    borders = line_start[at] + keep[at] + room_end - (over_end - over)[at]
    cuts = distinct_values(np.concatenate([[0], item_end, line_start + keep, borders]))
    start, grains = cuts[:-1], np.diff(cuts)
    item = np.searchsorted(item_end, start, side="right")
    row = item // size
    inside = start - line_start[row]
    spot = (over_end - over - keep)[row] + inside
    number = row % size
    rail = np.where(
        inside < keep[row], number, np.searchsorted(room_end, spot, side="right") % size
    )
    pair = row // size
    source = pair // hosts * size + number
    target = pair % hosts * size + turn[number, item % size]
    order = np.lexsort((start, number != rail, rail, pair))
    return [x[order] for x in (source, target, rail, grains)]


def _staged(sent: list[Ints], quota: Ints, stages: Sequence[Stage], size: int) -> list[Ints]:
    """Cut pieces at the borders of stages; add the column of stages.

    ``sent`` is sorted by hosts and rail, so all of a pair of hosts on a rail is one interval.
    """
    source, target, rail, grains = sent
    pair, end, stage = _borders(quota, stages)
    line_start = np.repeat(quota.ravel(), size).cumsum() - np.repeat(quota.ravel(), size)
    borders = (line_start.reshape(-1, size)[pair] + end[:, None]).ravel()
    order = np.argsort(borders)
    borders, stage = borders[order], np.repeat(stage, size)[order]
    ends = grains.cumsum()
    cuts = distinct_values(np.concatenate([[0], ends, borders]))
    piece = np.searchsorted(ends, cuts[:-1], side="right")
    when = stage[np.searchsorted(borders, cuts[:-1], side="right")]
    return [source[piece], target[piece], rail[piece], np.diff(cuts), when]


def _borders(quota: Ints, stages: Sequence[Stage]) -> tuple[Ints, Ints, Ints]:
    """Return pair of hosts, grains sent by then, and number, of each stage that a pair sends in."""
    hosts = len(quota)
    columns = np.array([one.columns for one in stages], np.int64).reshape(-1, hosts)
    amounts = np.array([one.amounts for one in stages], np.int64).reshape(-1, hosts)
    number, row = np.nonzero(amounts)
    pair = row * hosts + columns[number, row]
    left = quota.ravel() - np.bincount(pair, amounts[number, row], hosts * hosts).astype(np.int64)
    rest = np.flatnonzero(left)
    pair = np.concatenate([pair, rest])
    amount = np.concatenate([amounts[number, row], left[rest]])
    number = np.concatenate([number, np.full(len(rest), len(stages))])
    order = np.lexsort((number, pair))
    pair, amount, number = pair[order], amount[order], number[order]
    ends = amount.cumsum()
    first = np.searchsorted(pair, pair)
    return pair, ends - (ends - amount)[first], number


# --- one-to-one stages of a matrix ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stage:
    """One-to-one transfers: row i sends ``amounts[i]`` to column ``columns[i]``, at most
    ``width``."""

    columns: Ints
    amounts: Ints
    width: int


def stages_of(matrix: Ints, most: int) -> list[Stage]:
    """Return stages that move a matrix of whole amounts; their widths add up to the largest sum of
    a row or a column. ``most`` stages, at most: the rest is in none."""
    left = np.array(matrix, np.int64)
    # Filler so that all rows and columns have the largest of their sums: both lines have
    # one length, and interval i of the one overlaps interval j of the other.
    rows, columns = left.sum(axis=1), left.sum(axis=0)
    largest = int(max(rows.max(initial=0), columns.max(initial=0)))
    ends = np.cumsum(largest - rows), np.cumsum(largest - columns)
    begins = ends[0] - (largest - rows), ends[1] - (largest - columns)
    low = np.maximum(*np.meshgrid(*begins, indexing="ij"))
    high = np.minimum(*np.meshgrid(*ends, indexing="ij"))
    padded = left + np.maximum(high - low, 0)
    found: list[Stage] = []
    while len(found) < most and padded.any():
        columns = _widest(padded)
        rows = np.arange(len(columns))
        width = int(padded[rows, columns].min())
        amounts = np.minimum(left[rows, columns], width)
        padded[rows, columns] -= width
        left[rows, columns] -= amounts
        found.append(Stage(columns, amounts, width))
    return found


def _widest(matrix: Ints) -> Ints:
    from scipy.optimize import linear_sum_assignment

    values = distinct_values(matrix[matrix > 0])
    low, high = 0, len(values) - 1
    best: Ints | None = None
    while low <= high:
        middle = (low + high + 1) // 2
        _, columns = linear_sum_assignment(matrix < values[middle])
        if (matrix[np.arange(len(matrix)), columns] >= values[middle]).all():
            best, low = columns, middle + 1
        else:
            high = middle - 1
    assert best is not None  # equal sums of rows and columns: Hall's condition holds
    return best

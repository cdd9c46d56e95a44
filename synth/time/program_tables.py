"""Tables of a program for its simulation: operations, routes, and costs in ticks.

Operations and routes are made once for each way to merge chunks; a size and a protocol then only
fill in ticks. These are exact rationals brought to one unit, so equal times are equal, ties do not
depend on rounding, and a state that repeats repeats exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Bools, Floats, Ints
from weft.dsl.base.errors import BadTopology, CheckFailed
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.program import ABSENT, NOP, OPS, RECEIVES, SENDS, Op, Program, Protocol, offsets
from weft.dsl.nouns.topology import Medium, NodeKind, Topology

from ..fabric.fabric import fabric_of
from . import program_kernel
from .legs import rows_held
from .routes import Connection, Route, routes_of
from .runtime_model import SLOWNESS, Cut, RuntimeModel

_LOCAL = np.array([op in (Op.COPY, Op.REDUCE) for op in OPS])


@dataclass(frozen=True, eq=False)
class Operations:
    """Operations of a program in one turn, and the connections between its blocks.

    Blocks, and what each operation does, are those of the program's own columns.
    """

    program: Program
    connections: list[Connection]  # (source, destination, channel) of each FIFO
    sender: Ints  # block at the source of each connection; -1: there is none
    receiver: Ints  # block at its destination; -1: there is none
    out: Ints  # connection that each block sends to; -1: none
    into: Ints  # connection that each block receives from; -1: none
    first: Ints  # (blocks + 1,): the operations of block b are first[b] … first[b + 1]
    owner: Ints  # instruction of the program that each operation is a piece of
    chunks: Ints  # number of chunks that each operation moves; 0: it does nothing
    wait_start: Ints  # (operations + 1,): of waits, those of each operation
    waits: Ints  # (waits, 2): a block, and how many operations of a turn it must have done

    @property
    def blocks(self) -> int:
        """Thread blocks of all ranks."""
        return self.program.blocks

    @property
    def size(self) -> int:
        """Operations of one turn."""
        return len(self.owner)

    @cached_property
    def op(self) -> Ints:
        """Index into :data:`OPS` of each operation; an instruction of no chunks does nothing."""
        return np.where(self.program.count == 0, NOP, self.program.op)[self.owner]

    def step_of(self, operation: int) -> int:
        """The step of a block that an operation belongs to."""
        return int(self.program.index[self.owner[operation]])

    @property
    def sends(self) -> Bools:
        """True for each operation that sends."""
        return SENDS[self.op]

    @property
    def receives(self) -> Bools:
        """True for each operation that receives."""
        return RECEIVES[self.op]

    @property
    def local(self) -> Bools:
        """True for each operation that only works on its rank's memory."""
        return _LOCAL[self.op]

    def block_of(self) -> Ints:
        """The block of each operation."""
        return self.program.block[self.owner]

    def waits_of(self, operation: int) -> list[tuple[int, int]]:
        """Return the (block, operations of a turn that it must have done) that one waits for."""
        rows = self.waits[self.wait_start[operation] : self.wait_start[operation + 1]]
        return [(block, done) for block, done in rows.tolist()]

    @cached_property
    def waiting(self) -> Ints:
        """The operation that waits, for each row of ``waits``."""
        return np.repeat(np.arange(self.size), np.diff(self.wait_start))

    @cached_property
    def awaited(self) -> list[tuple[int, int]]:
        """Pairs of blocks of which the first waits for the second."""
        pairs = np.stack([self.block_of()[self.waiting], self.waits[:, 0]], axis=1)
        return [(a, b) for a, b in np.unique(pairs, axis=0).tolist()]

    def describe(self, operation: int) -> str:
        """``rank 3 tb 1 step 4 (rcs)``, as the checker names it."""
        block = self.program.describe_block(int(self.program.block[self.owner[operation]]))
        return f"{block} step {self.step_of(operation)} ({OPS[self.op[operation]]})"


def operations_of(program: Program, merge: int) -> Operations:
    """The operations of a program, at most ``merge`` chunks in one.

    Raises:
        CheckFailed: two blocks share an end of a connection, a message lacks a way out of its
            block, or something waited for does not exist.
    """
    pieces = np.where(program.op == NOP, 1, np.maximum(-(-program.count // merge), 1))
    begin = offsets(pieces)
    owner = np.repeat(np.arange(program.instructions), pieces)
    done = (np.arange(len(owner)) - begin[owner]) * merge
    found = Operations(
        program,
        *_ends(program),
        begin[program.block_start],
        owner,
        np.minimum(merge, program.count[owner] - done),
        *_waits(program, begin),
    )
    block = found.block_of()
    for does, side, word in (
        (found.sends, found.out, "sends"),
        (found.receives, found.into, "receives"),
    ):
        mute = np.flatnonzero(does & (side[block] < 0))
        if len(mute):
            name = found.describe(int(mute[0]))
            raise CheckFailed(
                f"{name} {word}: expected a {word[:-1]} peer of its thread block, got none"
            )
    return found


def _ends(program: Program) -> tuple[list[Connection], Ints, Ints, Ints, Ints]:
    """Number the connections; the blocks at their ends, and those that blocks send to and receive
    from, as :class:`Operations` has them."""
    number: dict[Connection, int] = {}
    ends: tuple[list[int], list[int]] = ([], [])
    sides: tuple[list[int], list[int]] = ([], [])
    heads = (program.block_rank, program.block_send, program.block_recv, program.block_channel)
    heads_of = zip(*(column.tolist() for column in heads), strict=True)
    for block, (rank, send, recv, channel) in enumerate(heads_of):
        both = ((send, (rank, send, channel)), (recv, (recv, rank, channel)))
        for end, side, (peer, connection) in zip(ends, sides, both, strict=True):
            if peer == ABSENT:
                side.append(-1)
                continue
            at = number.setdefault(connection, len(number))
            if at == len(end):
                ends[0].append(-1)
                ends[1].append(-1)
            if end[at] >= 0:
                a, b, channel = connection
                raise CheckFailed(
                    f"{program.describe_block(block)} uses the connection from rank {a} to rank "
                    f"{b} on channel {channel}, as another thread block of that rank does",
                    hint="`weft check` tells all that is wrong with the program",
                )
            end[at] = block
            side.append(at)
    sender, receiver, out, into = (np.array(x, np.int64) for x in (*ends, *sides))
    return list(number), sender, receiver, out, into


def _waits(program: Program, begin: Ints) -> tuple[Ints, Ints]:
    """CSR of the last operations of the instructions that the first of an instruction waits for."""
    block, at = program.wait_block, program.wait_flag
    bad = (block == ABSENT) | (at < 0)
    bad[~bad] = at[~bad] >= program.lengths[block[~bad]]
    if bad.any():
        i = int(np.argmax(bad))
        row = int(program.waiting[i])
        raise CheckFailed(
            f"{program.describe_block(int(program.block[row]))} step {program.index[row]} waits "
            f"for step {at[i]} of tb {program.wait_id[i]}, which does not exist"
        )
    start = program.block_start[block]
    counts = np.zeros(int(begin[-1]), np.int64)
    counts[begin[:-1]] = np.diff(program.wait_start)
    return offsets(counts), np.stack([block, begin[start + at + 1] - begin[start]], axis=1)


FITS = 1 << 61
"""Runs that take fewer ticks, all operations one after the other, fit 64 bits with all sums."""

_UNIT_BITS = 192  # a finer common unit than 2^-192 µs is not worth its price
_COARSE_UNIT = 1 << 60


# --- ticks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticks:
    """Costs of one chunk in whole ticks (Python's integers); pairs: a full and the last turn."""

    unit: int  # ticks in a µs
    row: tuple[AnyArray, AnyArray]  # for which a chunk holds each resource
    alpha: AnyArray  # latency of each link
    slowness: Ints  # of each link, as SLOWNESS numbers media
    medium: AnyArray  # what a message whose slowest link is of each medium takes more (or less)
    block: tuple[int, int]  # for which a thread block sends a chunk at least
    message: AnyArray  # for which a message holds each resource at least
    local: tuple[int, int]  # copying or adding a chunk
    overhead: int  # of any operation


def ticks_of(
    topology: Topology, cut: Cut, model: RuntimeModel, protocol: Protocol, unit: int = 0
) -> Ticks:
    """Everything in the coarsest unit in which it is exact, or in a given one, rounded."""
    how, fabric = model.protocol(protocol), fabric_of(topology)
    media = media_rows(topology, model)
    (bandwidths, of_row), (latencies, of_link) = fabric.bandwidths, fabric.latencies
    kinds, of_row = np.unique(np.stack([of_row, media.row]), axis=1, return_inverse=True)
    speed = how.efficiency * BYTES_PER_US_PER_GBPS
    speeds = [bandwidths[b] * media.reach[m] * speed for b, m in kinds.T.tolist()]
    full, last = ([size / x for x in speeds] for size in (cut.piece, cut.last))
    alpha = [x * how.alpha for x in latencies]
    medium = [how.alpha_us.get(one, Fraction(0)) if one else Fraction(0) for one in SLOWNESS]
    local, block = _each(cut, model.local_GBps), _each(cut, how.send_GBps)
    more = (Fraction(model.overhead_us), how.message_us)
    if not unit:
        times = {*full, *last, *alpha, *medium, *local, *block, *more}
        unit = math.lcm(*{x.denominator for x in times})
        if unit.bit_length() > _UNIT_BITS:
            unit = _COARSE_UNIT
    one, other = (
        np.array([max(1, round(x * unit)) for x in times], object)[of_row.ravel()]
        for times in (full, last)
    )
    return Ticks(
        unit,
        (one, other),
        np.array([round(x * unit) for x in alpha], object)[of_link],
        media.link,
        np.array([round(x * unit) for x in medium], object),
        (round(block[0] * unit), round(block[1] * unit)),
        np.array([0, round(how.message_us * unit)], object)[media.port.astype(np.int64)],
        (round(local[0] * unit), round(local[1] * unit)),
        round(more[0] * unit),
    )


def reached_bandwidth(
    topology: Topology, model: RuntimeModel, protocols: Iterable[Protocol]
) -> tuple[Fraction, ...]:
    """GB/s of payload through each link and shared resource at most, under any of the
    protocols."""
    media, most = (
        media_rows(topology, model),
        max(model.protocol(one).efficiency for one in protocols),
    )
    rows = zip(fabric_of(topology).bandwidth, media.row.tolist(), strict=True)
    return tuple(bandwidth * media.reach[medium] * most for bandwidth, medium in rows)


def _each(cut: Cut, GBps: Fraction | float) -> tuple[Fraction, Fraction]:
    """µs of one chunk's piece at a bandwidth, in a full and in the last turn."""
    if GBps == math.inf:
        return Fraction(0), Fraction(0)
    speed = Fraction(GBps) * BYTES_PER_US_PER_GBPS
    return cut.piece / speed, cut.last / speed


@dataclass(frozen=True, slots=True)
class MediaRows:
    """Media of links and of resources, by their places in :data:`.SLOWNESS`.

    ``reach``: share of the bandwidth of each medium. ``port``: resources that are ports of NICs.
    """

    link: Ints
    row: Ints
    reach: tuple[Fraction, ...]
    port: Bools


def media_rows(topology: Topology, model: RuntimeModel) -> MediaRows:
    """Return the media of the links and resources of a machine, as a model knows them."""
    fabric = fabric_of(topology)
    link = np.zeros(fabric.links, np.int64)
    if model.media is None:
        row = np.zeros(fabric.resources, np.int64)
        return MediaRows(link, row, (Fraction(1),), np.zeros(fabric.resources, bool))
    link[:] = [SLOWNESS.index(medium) for medium in model.media.links]
    pcie = SLOWNESS.index(Medium.PCIE)  # what messages share that leave the host and that do not
    found = [{int(link[i]) for i in members} for members in fabric.members]
    row = np.array([pcie if pcie in one else max(one) for one in found], np.int64)
    ends = (NodeKind.GPU, NodeKind.NIC)
    near = np.array([node.kind in ends for node in topology.nodes], bool)
    touches = near[fabric.src] | near[fabric.dst]
    port = np.array([any(touches[i] for i in members) for members in fabric.members], bool)
    known = model.media.reach
    reach = tuple(known.get(one, Fraction(1)) if one else Fraction(1) for one in SLOWNESS)
    return MediaRows(link, row, reach, port & (row == SLOWNESS.index(Medium.NETWORK)))


# --- operations and their legs --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Layout:
    """Columns of a turn of the loop, and its distinct legs without their ticks.

    A *leg* is a connection and a number of chunks.
    """

    operations: Operations
    leg: Ints  # of each operation; -1: it does not send
    leg_chunks: Ints  # chunks of each leg
    hold_begin: Ints  # (legs + 1,): the holds of each leg
    hold_row: Ints  # resource of each hold: links, then shared ones
    hold_chunks: Ints  # chunks for whose time it is held
    alpha_leg: Ints  # pairs of a leg …
    alpha_link: Ints  # … and a link of its route
    start: Ints  # (operations + 1,): of after, the successors of each operation
    after: Ints  # operations that come after one within a turn
    meets: Ints  # operation that receives the message of each; -1: none
    order: Ints  # each after what it needs; those that wait for themselves are not there
    by_far: Ints  # operations, those first whose messages go farthest round the ranks

    @staticmethod
    def of(operations: Operations, topology: Topology, routes: list[Route]) -> Layout:
        """The layout of operations on routes of a topology."""
        leg, connection, chunks = _legs(operations)
        lengths = np.array([len(x) for x in routes], np.int64)[connection]
        links = np.fromiter((i for c in connection.tolist() for i in routes[c]), np.int64)
        begin, rows, times = rows_held(topology, np.concatenate([[0], np.cumsum(lengths)]), links)
        meets = np.array(meeting(operations), np.int64)
        start, after = successors(operations, meets)
        return Layout(
            operations,
            leg,
            chunks,
            begin,
            rows,
            times * np.repeat(chunks, np.diff(begin)),
            np.repeat(np.arange(len(lengths)), lengths),
            links,
            start,
            after,
            meets,
            _in_order(start, after),
            _by_far(operations, topology.ranks),
        )

    def longest(self, ticks: Ticks, turns: int) -> float:
        """Return an upper bound, in ticks, on the time of a run and on the load of any resource."""
        alpha = self.latency(ticks, float)
        each = self.operations.size * float(ticks.overhead)
        each += float(max(ticks.local)) * float(self.local_chunks.sum())
        rows = np.maximum(*(row.astype(float) for row in ticks.row))
        holds = rows[self.hold_row] * self.hold_chunks + ticks.message.astype(float)[self.hold_row]
        leaves = np.add.reduceat(holds, self.hold_begin[:-1]) if len(holds) else holds
        leaves = leaves + float(max(ticks.block)) * self.leg_chunks
        return turns * (each + float(np.dot(leaves + alpha, self.times_sent)))

    @cached_property
    def times_sent(self) -> Ints:
        """Return how many operations of a turn send each leg; shape (legs,)."""
        return np.bincount(self.leg[self.leg >= 0], minlength=len(self.leg_chunks))

    @cached_property
    def local_chunks(self) -> Ints:
        """Return the chunks that each operation copies or adds in a GPU; shape (operations,)."""
        return np.where(self.operations.local, self.operations.chunks, 0)

    def latency(self, ticks: Ticks, kind: Any) -> AnyArray:
        """Ticks of each leg beside those that its bytes take."""
        count = len(self.leg_chunks)
        alpha, slowest = np.zeros(count, kind), np.zeros(count, np.int64)
        np.add.at(alpha, self.alpha_leg, ticks.alpha.astype(kind)[self.alpha_link])
        np.maximum.at(slowest, self.alpha_leg, ticks.slowness[self.alpha_link])
        found: AnyArray = np.maximum(alpha + ticks.medium.astype(kind)[slowest], 0)
        return found


def _in_order(start: Ints, after: Ints) -> Ints:
    """Operations, each after those that it needs; those that wait for themselves are left out."""
    missing = np.bincount(after, minlength=len(start) - 1)
    order = np.zeros(len(missing), np.int64)
    return order[: fast(program_kernel).in_order(start, after, missing, order)]


def _legs(operations: Operations) -> tuple[Ints, Ints, Ints]:
    """The leg of each operation, and the connection and chunks of each leg."""
    sends = np.flatnonzero(operations.sends)
    connection = operations.out[operations.block_of()[sends]]
    most = int(operations.chunks.max(initial=0)) + 1
    keys, which = np.unique(connection * most + operations.chunks[sends], return_inverse=True)
    leg = np.full(operations.size, -1, np.int64)
    leg[sends] = which
    return leg, keys // most, keys % most


def _by_far(operations: Operations, ranks: int) -> Ints:
    ends = np.array(operations.connections, np.int64).reshape(-1, 3)
    far = np.append((ends[:, 1] - ends[:, 0]) % ranks, 0)[operations.out[operations.block_of()]]
    return np.argsort(-far, kind="stable")


def meeting(operations: Operations) -> list[int]:
    """Within a turn, for each operation that sends: the one that receives its message; -1: none."""
    block = operations.block_of()
    meets = np.full(operations.size, -1, np.int64)
    sends, receives = np.flatnonzero(operations.sends), np.flatnonzero(operations.receives)
    key = _ordinals(operations.out[block[sends]], operations.size)
    other = _ordinals(operations.into[block[receives]], operations.size)
    _, at, where = np.intersect1d(key, other, assume_unique=True, return_indices=True)
    meets[sends[at]] = receives[where]
    return meets.tolist()


def _ordinals(connection: Ints, width: int) -> Ints:
    """connection · width + how many of that connection come before, for each in the column."""
    order = np.argsort(connection, kind="stable")
    among = connection[order]
    keys = np.empty(len(connection), np.int64)
    keys[order] = among * width + np.arange(len(among)) - np.searchsorted(among, among)
    return keys


def successors(operations: Operations, meets: Ints) -> tuple[Ints, Ints]:
    """CSR of the successors of each operation within a turn; ``meets``: as in a layout."""
    block = operations.block_of()
    program = np.flatnonzero(block[1:] == block[:-1])
    sends = np.flatnonzero(meets >= 0)
    other, done = operations.waits.T
    source = np.concatenate([program, sends, operations.first[other] + done - 1])
    target = np.concatenate([program + 1, meets[sends], operations.waiting])
    order = np.argsort(source, kind="stable")
    start = np.searchsorted(source[order], np.arange(operations.size + 1))
    return start, target[order]


# --- all of a program -----------------------------------------------------------------------------


class PreparedProgram:
    """Operations, routes and layouts, each made once and only if it is used.

    Raises:
        BadTopology: another number of ranks.
    """

    def __init__(self, program: Program, topology: Topology, model: RuntimeModel) -> None:
        ranks = program.rank_count
        if topology.ranks != ranks:
            raise BadTopology(
                f"the program is for {ranks} ranks, and {topology.name} has {topology.ranks}",
                hint="name the process group" if topology.ranks > ranks else "",
            )
        self.program, self.topology, self.model = program, topology, model
        self._programs = {program.protocol: program}
        self._layouts: dict[int, Layout] = {}
        self._routes: list[Route] | None = None

    def cut(self, message_bytes: int, protocol: Protocol) -> Cut:
        """Return the cut of a message under a protocol."""
        if protocol not in self._programs:
            self._programs[protocol] = replace(self.program, protocol=protocol)
        return self.model.cut(self._programs[protocol], message_bytes)

    def operations(self, cut: Cut) -> Operations:
        """The operations of a turn; the same for cuts that merge all there is to merge."""
        return self.layout(cut).operations

    def layout(self, cut: Cut) -> Layout:
        """The columns of these operations."""
        merge = min(cut.merge, self._most)
        if merge not in self._layouts:
            operations = operations_of(self.program, merge)
            if self._routes is None:  # which do not depend on what is merged
                self._routes = routes_of(self.topology, operations.connections)
            self._layouts[merge] = Layout.of(operations, self.topology, self._routes)
        return self._layouts[merge]

    def ticks(self, cut: Cut, protocol: Protocol, unit: int = 0) -> Ticks:
        """Return the costs of a chunk; exact, or in a given unit."""
        return ticks_of(self.topology, cut, self.model, protocol, unit)

    @cached_property
    def _most(self) -> int:
        """The chunks of the longest instruction: more are never merged."""
        return max(1, int(self.program.count.max(initial=1)))


def bytes_moved(prepared: PreparedProgram, cut: Cut) -> Floats:
    """Payload through each link and shared resource, of the whole message."""
    layout = prepared.layout(cut)
    chunks = np.repeat(layout.times_sent, np.diff(layout.hold_begin)) * layout.hold_chunks
    rows = fabric_of(prepared.topology).resources
    moved = np.bincount(layout.hold_row, chunks, minlength=rows)
    return np.asarray(moved * float(cut.chunk), np.float64)

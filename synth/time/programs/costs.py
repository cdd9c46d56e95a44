"""What each operation costs, in ticks: exact rationals brought to one unit.

So equal times are equal, ties do not depend on rounding, and a state that repeats repeats exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import Topology

from ...fabric.fabric import fabric_of
from .model import Cut, RuntimeModel
from .operations import Operations
from .routes import Route, routes_of

_UNIT_BITS = 192  # a finer common unit than 2^-192 µs is not worth its price
_COARSE_UNIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Leg:
    """A message on its way: ticks each row is held, until it has left (the longest of them),
    and until it has arrived."""

    rows: tuple[int, ...]
    holds: tuple[int, ...]
    leaves: int
    arrives: int


@dataclass(frozen=True, eq=False)
class Costs:
    """Ticks of everything; two turns of the loop cost differently, the last one and the others.

    Attributes:
        unit: ticks in a µs. ``rows``: links and shared resources.
        legs: the distinct legs. ``leg``: per operation, one for a full turn; -1: it does not send.
        last_leg: the same for the last turn.
        extra, last_extra: ticks an operation holds its block before it sends or is done.
    """

    unit: int
    rows: int
    legs: list[Leg]
    leg: list[int]
    last_leg: list[int]
    extra: list[int]
    last_extra: list[int]


@dataclass(frozen=True, slots=True)
class Rates:
    """What a machine's links and resources take, each distinct number once.

    Attributes:
        capacity: distinct bandwidths in GB/s; ``of_row``: the one of each row.
        latency: distinct latencies in µs; ``of_link``: the one of each link.
    """

    capacity: tuple[Fraction, ...]
    of_row: list[int]
    latency: tuple[Fraction, ...]
    of_link: list[int]

    @staticmethod
    def of(topology: Topology) -> Rates:
        """The rates of a topology."""
        capacity: dict[Fraction, int] = {}
        latency: dict[Fraction, int] = {}
        row = [capacity.setdefault(x, len(capacity)) for x in topology.capacities()]
        link = [latency.setdefault(x.latency, len(latency)) for x in topology.links]
        return Rates(tuple(capacity), row, tuple(latency), link)


@dataclass(frozen=True, slots=True)
class Ticks:
    """What one chunk takes, in ticks; pairs are for a full turn and for the last one.

    Attributes:
        unit: ticks in a µs.
        row: how long a chunk holds each row. ``alpha``: the latency of each link.
        local: copying or adding a chunk. ``overhead``: of any operation.
    """

    unit: int
    row: tuple[list[int], list[int]]
    alpha: list[int]
    local: tuple[int, int]
    overhead: int


def ticks_of(
    rates: Rates, cut: Cut, model: RuntimeModel, protocol: Protocol, unit: int = 0
) -> Ticks:
    """Everything in the coarsest unit in which it is exact, or in a given one, rounded."""
    how = model.protocol(protocol)
    speed = how.efficiency * BYTES_PER_US_PER_GBPS
    full, last = ([size / (x * speed) for x in rates.capacity] for size in (cut.piece, cut.last))
    alpha = [x * how.alpha for x in rates.latency]
    local = _local(cut, model)
    overhead = Fraction(model.overhead_us)
    if not unit:
        unit = math.lcm(*{x.denominator for x in (*full, *last, *alpha, *local, overhead)})
        if unit.bit_length() > _UNIT_BITS:
            unit = _COARSE_UNIT
    one, other = ([max(1, round(x * unit)) for x in times] for times in (full, last))
    latency = [round(x * unit) for x in alpha]
    return Ticks(
        unit,
        ([one[i] for i in rates.of_row], [other[i] for i in rates.of_row]),
        [latency[i] for i in rates.of_link],
        (round(local[0] * unit), round(local[1] * unit)),
        round(overhead * unit),
    )


def costs_of(
    operations: Operations, topology: Topology, cut: Cut, model: RuntimeModel, protocol: Protocol
) -> Costs:
    """The costs of the operations of a program on a machine.

    Raises:
        BadTopology: no way between two ranks that a block connects.
    """
    routes = routes_of(topology, operations.connections)
    ticks = ticks_of(Rates.of(topology), cut, model, protocol)
    return costs_in_ticks(operations, topology, routes, ticks)


def costs_in_ticks(
    operations: Operations, topology: Topology, routes: list[Route], ticks: Ticks
) -> Costs:
    """The costs of operations whose routes are known."""
    maker = _Legs(topology, routes, ticks.alpha)
    chunks = np.where(operations.local, operations.chunks, 0).tolist()
    leg, last_leg = (maker.column(operations, row) for row in ticks.row)
    extra, last_extra = ([ticks.overhead + n * each for n in chunks] for each in ticks.local)
    return Costs(ticks.unit, maker.fabric.resources, maker.legs, leg, last_leg, extra, last_extra)


def _local(cut: Cut, model: RuntimeModel) -> tuple[Fraction, Fraction]:
    """µs of copying or adding one chunk's piece, in a full and in the last turn."""
    if model.local_GBps == math.inf:
        return Fraction(0), Fraction(0)
    speed = Fraction(model.local_GBps) * BYTES_PER_US_PER_GBPS
    return cut.piece / speed, cut.last / speed


class _Legs:
    """Makes each distinct leg once."""

    def __init__(self, topology: Topology, routes: list[Route], alphas: list[int]) -> None:
        self.routes, self.alphas = routes, alphas
        self.legs: list[Leg] = []
        self.fabric = fabric_of(topology)

    def column(self, operations: Operations, row: list[int]) -> list[int]:
        """The leg of each operation that sends, where a chunk holds row i for ``row[i]``."""
        made: dict[tuple[int, int], int] = {}
        column = [-1] * operations.size
        sends = np.flatnonzero(operations.sends)
        connection = operations.out[operations.block_of()[sends]].tolist()
        chunks = operations.chunks[sends].tolist()
        for i, key in zip(sends.tolist(), zip(connection, chunks, strict=True), strict=True):
            if key not in made:
                made[key] = len(self.legs)
                self.legs.append(self._leg(self.routes[key[0]], key[1], row))
            column[i] = made[key]
        return column

    def _leg(self, route: Route, chunks: int, row: list[int]) -> Leg:
        times = self.fabric.times_held(route)
        holds = {held: n * row[held] * chunks for held, n in times.items()}
        leaves = max(holds.values())
        alpha = sum(self.alphas[i] for i in route)
        return Leg(tuple(holds), tuple(holds.values()), leaves, leaves + alpha)

"""What each operation costs, in ticks: exact rationals brought to one unit.

So equal times are equal, ties do not depend on rounding, and a state that repeats repeats exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl.program import Protocol
from weft.dsl.topology import Topology
from weft.dsl.units import BYTES_PER_US_PER_GBPS

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


def costs_of(
    operations: Operations, topology: Topology, cut: Cut, model: RuntimeModel, protocol: Protocol
) -> Costs:
    """The costs of the operations of a program on a machine.

    Raises:
        BadTopology: no way between two ranks that a block connects.
    """
    routes = routes_of(topology, operations.connections)
    how = model.protocol(protocol)
    speed = how.efficiency * BYTES_PER_US_PER_GBPS
    times = [[size / (x * speed) for x in topology.capacities()] for size in (cut.piece, cut.last)]
    alphas = [x.latency * how.alpha for x in topology.links]
    local = _local(cut, model)
    overhead = Fraction(model.overhead_us)
    unit = math.lcm(*{x.denominator for x in (*times[0], *times[1], *alphas, *local, overhead)})
    if unit.bit_length() > _UNIT_BITS:
        unit = _COARSE_UNIT
    maker = _Legs(topology, routes, [round(x * unit) for x in alphas])
    columns = []
    for turn in range(2):
        row = [max(1, round(x * unit)) for x in times[turn]]
        leg = maker.column(operations, row)
        chunks = np.where(operations.local, operations.chunks, 0).tolist()
        each, fixed = round(local[turn] * unit), round(overhead * unit)
        columns.append((leg, [fixed + n * each for n in chunks]))
    (leg, extra), (last_leg, last_extra) = columns
    return Costs(unit, maker.rows, maker.legs, leg, last_leg, extra, last_extra)


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
        self.rows = len(topology.links) + len(topology.resources)
        self.legs: list[Leg] = []
        self.shared: dict[int, list[int]] = {}
        for row, resource in enumerate(topology.resources, len(topology.links)):
            for i in resource.links:
                self.shared.setdefault(i, []).append(row)

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
        holds: dict[int, int] = {}
        for i in route:
            for held in (i, *self.shared.get(i, ())):
                holds[held] = holds.get(held, 0) + row[held] * chunks
        leaves = max(holds.values())
        alpha = sum(self.alphas[i] for i in route)
        return Leg(tuple(holds), tuple(holds.values()), leaves, leaves + alpha)

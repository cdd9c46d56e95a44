"""Hierarchical classics as programs, and the machines that they are made for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from classics import SIZES, planes

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.dsl.author.builder import Builder
from weft.dsl.catalogue import topology
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import ROOTED, make
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic.grid import NestedPartitions, RankGrid, plain_grid
from weft.synth.engines.classic.hierarchical import (
    HIERARCHICAL,
    Hierarchical,
    MachineStructure,
    Shape,
)
from weft.synth.engines.classic.model import HockneyCost
from weft.synth.engines.classic.schedule import GpuRoutes
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL

CABLED = (MachineStructure.TORUS, MachineStructure.PRODUCT)
"""Structures that machines of the catalogue have in one host: rings or cliques along each axis."""


@dataclass(frozen=True)
class Case:
    """One program of one algorithm on one hierarchy."""

    one: Hierarchical
    shape: Shape
    in_place: bool = False
    instances: int = 1
    protocol: Protocol = Protocol.SIMPLE
    chunks: int = 1

    def algorithm(self, root: int = 0) -> Algorithm:
        """Written for ranks in their order."""
        roots = (root,) if self.one.kind in ROOTED else ()
        factor = self.one.parts(self.shape) * self.chunks
        p = Builder(
            make(self.one.kind, prod(self.shape), chunks=factor, roots=roots),
            name=self.one.name,
            in_place=self.in_place,
            instances=self.instances,
            protocol=self.protocol,
        )
        grid = plain_grid(self.shape)
        where = levels_of(grid) if self.one.structure is MachineStructure.LEVELS else grid
        self.one.write(p, where)
        return p.algorithm()

    def program(self) -> Program:
        """Compiled for MSCCL."""
        return lower_algorithm(self.algorithm(), CompileOptions(in_place=self.in_place))


def named(name: str, kind: str) -> Hierarchical:
    """The algorithm of this name for a collective."""
    return next(one for one in HIERARCHICAL if (one.name, one.kind) == (name, kind))


def levels_of(grid: RankGrid) -> NestedPartitions:
    """The boxes of a grid as the only level."""
    return NestedPartitions(len(grid.ranks), (tuple(grid.lines(0)),))


def machine(one: Hierarchical, shape: Shape) -> Topology:
    """A torus, or the first GPUs of boxes of eight with a NIC for each GPU."""
    if one.structure in CABLED:
        return topology(one.topology(shape))
    boxes = prod(shape[1:])
    whole = topology(one.topology((8, boxes)))
    return whole.restricted_to([b * 8 + g for b in range(boxes) for g in range(shape[0])])


def off_by(case: Case, program: Program | None = None) -> float:
    """Simulated time ÷ formula - 1, with α and B of each level as the machine has them."""
    plain = machine(case.one, case.shape)
    routes = GpuRoutes(plain)
    grid = plain_grid(case.shape)
    efficiency = float(MSCCL.protocol(case.protocol).efficiency)
    per_level = []
    for axis in grid.axes:
        line = next(grid.lines(axis))
        (way, *_) = (
            routes.ways([(line[0], line[1])])[line[0], line[1]] if len(line) > 1 else [(0, 1)]
        )
        per_level.append((way[0], way[1] * efficiency))
    # A later flag that serves two waits counts steps, not bytes: parts of different sizes suffer.
    program = program or case.program()
    size = SIZES[case.protocol] // program.message_chunks * program.message_chunks
    found = simulate_program(program, planes(plain, case.instances), size, MSCCL).time_us
    return found / total_us(case.one.cost(case.shape, case.chunks), size, per_level) - 1


def total_us(
    costs: Sequence[HockneyCost], message_bytes: float, levels: Sequence[tuple[float, float]]
) -> float:
    """Time in µs of a message of M bytes; ``levels`` are (α in µs, B in GB/s), innermost first."""
    return sum(
        cost.us(message_bytes, alpha, bandwidth)
        for cost, (alpha, bandwidth) in zip(costs, levels, strict=True)
    )


def shapes(one: Hierarchical, most: int = 17) -> Iterator[Shape]:
    """Hierarchies of two levels, and some of three, on which it is defined.

    Those of three have up to half as many ranks again as ``most``.
    """
    two = [(g, m) for m in range(1, most + 1) for g in range(1, 9) if 2 <= g * m <= most]
    three = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 4)]
    for shape in [*two, *three]:
        if one.defined(shape) or (one.structure is MachineStructure.LEVELS and len(shape) > 2):
            continue
        if prod(shape) > most * 3 // 2:
            continue
        if one.structure in CABLED and min(shape) < 2:
            continue
        if one.structure is MachineStructure.PRODUCT and max(shape) > 3:
            continue  # no torus has it
        yield shape


def exact(case: Case) -> bool:
    """Whether the formula is claimed to 1 %.

    With boxes that are no power of two, halving makes some wait for others. What arrives from
    several at one place comes in pieces of a FIFO's slots (Simple: two). Parts of a multiport torus
    share the planes of several instances unevenly. A pipeline hides latency.
    """
    g, m = case.shape[0], case.shape[-1]
    if case.one.name == "hybrid" and m & (m - 1):
        return False
    if case.one.name == "two_level" and case.one.kind != "allgather" and g > 2 and m > 2:
        return False
    if case.one.name == "multiport_torus" and (case.instances > 1 or len(set(case.shape)) > 1):
        return False
    return case.chunks == 1

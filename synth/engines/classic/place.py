"""A classic algorithm on a machine: found by name, mapped to its ranks, written.

>>> from weft.dsl.catalogue import topology
>>> site = Site(topology("dgx-a100:nodes=2"))
>>> site.algorithm("two_level", "allreduce").collective.chunks
16
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from weft.dsl.author.builder import Builder
from weft.dsl.base.errors import BadTopology, UnknownName, UserError, WeftError
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import ROOTED, Kind, make
from weft.dsl.nouns.topology import Topology

from ...base.meter import Meter
from ...steiner.switch_trees import SwitchRoutes
from .effort import CLASSIC_EFFORT, ClassicEffort
from .flat import FLAT, classic_algorithm
from .grid import NestedPartitions, RankGrid, plain_grid
from .hierarchical import HIERARCHICAL, Hierarchical, MachineStructure, Shape
from .hierarchy import host_grid, levels, product_grid, torus
from .in_network import IN_NETWORK, CastSite, InNetwork, SlotPool
from .lanes import LANED, Laned, LaneStructure, Ring, host_paths, lane_rings, rail_rings
from .mapping import ring_order, tree_order
from .model import Flat
from .schedule import GpuRoutes

ClassicAlgorithm = Flat | Hierarchical | Laned | InNetwork

ALONG_RINGS = frozenset({"ring", "biring", "chain", "swing"})
"""Flat algorithms whose ranks stand along a ring; the others number them as trees do."""


def all_algorithms() -> tuple[ClassicAlgorithm, ...]:
    """All classic algorithms: flat, hierarchical, in lanes, and in switches."""
    return (*FLAT, *HIERARCHICAL, *LANED, *IN_NETWORK)


def find_algorithm(name: str, kind: str | Kind) -> ClassicAlgorithm:
    """The algorithm of a name for a collective.

    Raises:
        UnknownName: no such name. UserError: it is for other collectives.
    """
    kinds = kinds_of(name)
    if str(kind) not in kinds:
        raise UserError(
            f"{name} is not an algorithm for {kind}",
            hint=f"it is for {', '.join(kinds)}; weft list algorithms",
        )
    return next(one for one in all_algorithms() if (one.name, one.kind) == (name, str(kind)))


def kinds_of(name: str) -> tuple[str, ...]:
    """The collectives that an algorithm is for.

    Raises:
        UnknownName: no such name.
    """
    found = tuple(str(one.kind) for one in all_algorithms() if one.name == name)
    if not found:
        raise UnknownName(
            "classic algorithm", name, dict.fromkeys(one.name for one in all_algorithms())
        )
    return found


def names_for(kind: str | Kind) -> tuple[str, ...]:
    """The names of all algorithms for a collective."""
    return tuple(one.name for one in all_algorithms() if one.kind == str(kind))


def has_levels(one: ClassicAlgorithm) -> bool:
    """Return True if an algorithm can use the levels of a machine, or a shape."""
    if isinstance(one, Laned):
        return one.structure is LaneStructure.RAILS
    return isinstance(one, Hierarchical)


class Site:
    """Structures of a machine for classic algorithms: rings, tree orders, levels.

    ``shape``: sizes of the levels to use instead of the machine's own, innermost first; ranks
    fill them in their order. ``grid``: these levels, where ranks fill them otherwise. Everything
    is found at its first use; ``meter`` counts the searches for rings. ``pool``: slots of
    switches that keep packets until their sum is complete.
    """

    def __init__(
        self,
        topology: Topology,
        shape: Shape = (),
        grid: RankGrid | None = None,
        effort: ClassicEffort = CLASSIC_EFFORT,
        meter: Meter | None = None,
        pool: SlotPool | None = None,
    ) -> None:
        self.topology = topology
        self.pool = pool or SlotPool()
        self.effort = effort
        self.meter = meter
        self.given = plain_grid(shape) if shape else grid

    @cached_property
    def routes(self) -> GpuRoutes:
        """The routes between GPUs."""
        return GpuRoutes(self.topology, self.effort)

    @cached_property
    def ring(self) -> tuple[int, ...]:
        """The ranks along the best ring; in their own order where there is none."""
        try:
            return ring_order(self.topology, self.effort, self.meter)
        except BadTopology:
            return tuple(range(self.topology.ranks))

    @cached_property
    def rings(self) -> tuple[Ring, ...]:
        """NCCL's rings: between hosts one for each rail, in a host as many as share no cable.

        One ring without those, or on a machine without rails.
        """
        if self.topology.hosts > 1:
            try:
                grid = self.two_levels
            except WeftError:
                return (self.ring,)
            rails = len(grid.shape) == 2 and min(grid.shape) > 1
            return rail_rings(grid, self.host_paths) if rails else (self.ring,)
        return lane_rings(self.topology, self.effort.lane_hops, self.meter) or (self.ring,)

    @cached_property
    def host_paths(self) -> tuple[Ring, ...]:
        """Paths over cables through hosts whose GPUs are not all joined; none for other hosts.

        Raises:
            WeftError: the machine lacks two levels.
        """
        return host_paths(self.topology, self.two_levels, self.effort.lane_hops, self.meter)

    @cached_property
    def tree(self) -> tuple[int, ...]:
        """The ranks, near ones with near numbers."""
        return tree_order(self.topology)

    @cached_property
    def torus(self) -> RankGrid | None:
        """The machine as a torus, if it is one."""
        return self.given or torus(self.topology, self.effort)

    @cached_property
    def product(self) -> RankGrid | None:
        """The machine as a product of complete graphs, if it is one."""
        return self.given or product_grid(self.topology, self.effort)

    @cached_property
    def levels(self) -> NestedPartitions:
        """Nested groups."""
        if self.given is None:
            return levels(self.topology)
        ranks, size, partitions = self.given.ranks, 1, []
        for side in self.given.shape[:-1]:
            size *= side
            starts = range(0, len(ranks), size)
            partitions.append(tuple(ranks[at : at + size] for at in starts))
        return NestedPartitions(len(ranks), tuple(partitions))

    @cached_property
    def host_grid(self) -> RankGrid:
        """The levels as a grid.

        Raises:
            UserError: there are none, or they are uneven.
        """
        return self.given or host_grid(self.topology, effort=self.effort, meter=self.meter)

    @cached_property
    def two_levels(self) -> RankGrid:
        """Local ranks and hosts."""
        return self.given or host_grid(self.topology, 1, self.effort, self.meter)

    @cached_property
    def switches(self) -> CastSite:
        """The ways through switches that sum and copy."""
        routes = SwitchRoutes(self.topology)
        return CastSite(routes, lambda: self.two_levels, self.pool)

    def parts(self, one: ClassicAlgorithm) -> int:
        """Return into how many chunks an algorithm cuts each unit of its collective here.

        Raises:
            UserError: the machine lacks the structure.
        """
        if isinstance(one, Flat):
            return one.parts(self.topology.ranks)
        return self.topology.ranks if isinstance(one, InNetwork) else self._written_for(one)[1]

    def algorithm(
        self,
        name: str,
        kind: str | Kind,
        *,
        chunks: int = 1,
        root: int = 0,
        in_place: bool = False,
        own_order: bool = False,
        **builder: Any,
    ) -> Algorithm:
        """A classic algorithm on this machine.

        Args:
            name, kind: which one, for which collective.
            chunks: pieces of a pipeline, or of every block.
            root: of a rooted collective.
            in_place: input and output are one buffer.
            own_order: flat algorithms take the ranks in their own order, not the one that fits.
            builder: ``instances`` and ``protocol``, as :class:`.Builder` has them.

        Raises:
            UnknownName, UserError: no such algorithm, or not on this machine.
        """
        one = find_algorithm(name, kind)
        if isinstance(one, Hierarchical | Laned):
            where, parts = self._written_for(one)
            roots = (root,) if one.kind in ROOTED else ()
            factor = parts * max(1, chunks)
            collective = make(one.kind, self.topology.ranks, chunks=factor, roots=roots)
            p = Builder(collective, name=f"{one.name}_{one.kind}", in_place=in_place, **builder)
            one.write(p, where)
            return p.algorithm()
        if isinstance(one, InNetwork):
            raise UserError(
                f"{name} sums and copies in switches, which no program of sends and receives says",
                hint=f"weft synth -e 'classic{{algorithm={name}}}' writes its schedule",
            )
        order = self.ring if name in ALONG_RINGS else self.tree
        return classic_algorithm(
            name,
            kind,
            self.topology.ranks,
            order=None if own_order else order,
            chunks=chunks,
            root=root,
            in_place=in_place,
            **builder,
        )

    def _written_for(self, one: Hierarchical | Laned) -> tuple[Any, int]:
        """Return the structure that an algorithm is written for here, and into how many chunks it
        cuts a unit.

        Raises:
            UserError: the machine lacks the structure or rails, or has one ring only.
        """
        if isinstance(one, Hierarchical):
            where, shape = self._structure(one.structure)
            if reason := one.defined(shape):
                raise UserError(
                    f"{one.name} {one.kind} does not fit {self.topology.name}: {reason}",
                    hint="name the levels, innermost first: shape=8+2",
                )
            held = where.ranks if isinstance(where, RankGrid) else self.ring
            if self.topology.ranks != len(held):
                raise UserError(
                    f"levels of {'x'.join(map(str, shape))} do not hold {self.topology.ranks} "
                    "ranks",
                    hint="their sizes multiply to the number of ranks",
                )
            return where, one.parts(shape)
        lanes = self.rings if one.structure is LaneStructure.RINGS else self.two_levels
        if isinstance(lanes, RankGrid):
            if len(lanes.shape) != 2 or min(lanes.shape) < 2:
                raise UserError(
                    f"{one.name} needs several hosts of several ranks each, not "
                    f"{'x'.join(map(str, lanes.shape))}",
                    hint="the algorithm double_tree needs none",
                )
        elif len(lanes) < 2:
            raise UserError(
                f"{self.topology.name} has one ring, not several with cables or rails of their own",
                hint="the algorithm ring has one",
            )
        return lanes, one.parts(self.topology.ranks, lanes)

    def _structure(self, wanted: MachineStructure) -> tuple[RankGrid | NestedPartitions, Shape]:
        """Return a structure of the machine, and the sizes of its levels, or of the groups that
        communicate on each, the largest where they differ.

        Raises:
            UserError: the machine lacks the structure.
        """
        if wanted is MachineStructure.LEVELS:
            return self.levels, tuple(max(map(len, x)) for x in self.levels.talking())
        if wanted is MachineStructure.TORUS:
            if self.torus is None:
                raise UserError(f"expected a torus, got {self.topology.name}", hint="shape=4+4")
            return self.torus, self.torus.shape
        if wanted is MachineStructure.PRODUCT:
            if self.product is None:
                raise UserError(
                    f"the cables of {self.topology.name} form no product of cliques",
                    hint="shape=4+2 makes it one",
                )
            return self.product, self.product.shape
        grid = self.two_levels if wanted is MachineStructure.HOSTS else self.host_grid
        return grid, grid.shape

    def defined(self, kind: str | Kind) -> Iterator[ClassicAlgorithm]:
        """The algorithms for a collective that fit this machine, as far as can be decided cheaply.

        Those in lanes are left out: their structure is found by a search; and those of slots, which
        only limit what others do.
        """
        for one in all_algorithms():
            if one.kind != str(kind) or isinstance(one, Laned):
                continue
            if isinstance(one, InNetwork):
                if computes(self.topology) and not one.pooled:
                    yield one
                continue
            if isinstance(one, Flat):
                if not one.defined(self.topology.ranks):
                    yield one
                continue
            try:
                _, shape = self._structure(one.structure)
            except WeftError:
                continue
            if not one.defined(shape):
                yield one


def computes(topology: Topology) -> bool:
    """Return True if some switch of a machine sums or copies."""
    return any(node.computes for node in topology.nodes)

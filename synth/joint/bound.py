"""The least time in which a machine serves several collectives at once, with its proof.

    min T:   sum of loads of all collectives <= b_r · T in every resource r,

where each collective chooses among trees and paths over the ranks that may forward for it. Solved
by column generation: the master (:mod:`..lp.congestion`) chooses among the trees and flows that
are known, its prices lead to cheaper ones (:mod:`.pricing`), and prices give a lower bound whatever
they are. Rows are orbits of the symmetries that map the workload to itself.

At the end the prices are rounded to integers, and what they prove is computed anew by
:mod:`..prices.joint_prices`: that is the bound, nothing else is trusted. The optimum is approached
in the limit of small slices (all collectives at constant rates), so it is a bound and a goal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Floats, Ints, Ints32
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import WorkKind
from weft.dsl.symmetry.orbits import orbits_of

from ..fabric.fabric import fabric_of
from ..lp.certified import common_denominator
from ..lp.congestion import Congestion
from ..prices.joint_prices import PricedBound, PricedDemand, joint_prices
from .demands import CollectiveDemand, FlowPart, Part, SumPart, TreePart
from .pricing import JOINT_EFFORT, DemandPricing, JointEffort, PricedColumn
from .rails import matrix_of, rail_planner

_DIRECTED = (WorkKind.ALLTOALLV, WorkKind.MULTICAST, WorkKind.TRANSFER, Kind.ALLTONEXT)


@dataclass(frozen=True, eq=False)
class WorkloadSymmetry:
    """The symmetries and the orbits."""

    # images, rows: images of nodes (order, nodes) and of resources (order, resources)
    images: Ints32
    rows: Ints32
    row_orbit: Ints  # the orbit of every resource
    parts: tuple[tuple[int, int], ...]  # (demand, part) of each part
    part_images: Ints  # shape (order, parts)
    part_orbit: Ints  # the lowest part of each one's orbit


def symmetry_of(topology: Topology, demands: Sequence[CollectiveDemand]) -> WorkloadSymmetry:
    """Return the symmetries that keep a workload; the identity is one."""
    machine = orbits_of(topology)
    parts = tuple((k, p) for k, one in enumerate(demands) for p in range(len(one.parts)))
    moves = _PartMoves(demands, parts)
    images = np.asarray(machine.images)
    keeps = np.ones(len(images), bool)
    for members in moves.groups:
        keeps &= moves.kept(images, members)
    chosen = np.flatnonzero(keeps)
    found = [moves.image(images[at]) for at in chosen.tolist()]
    fits = [at for at, image in zip(chosen.tolist(), found, strict=True) if image is not None]
    table = np.array([image for image in found if image is not None], np.int64)
    part_images = table.reshape(len(fits), len(parts))
    return WorkloadSymmetry(
        machine.images[fits],
        machine.row_images[fits],
        np.unique(machine.row_images[fits].min(axis=0), return_inverse=True)[1],
        parts,
        part_images,
        part_images.min(axis=0) if parts else np.zeros(0, np.int64),
    )


class _PartMoves:
    """Images of the parts of a workload under an image of the nodes."""

    def __init__(self, demands: Sequence[CollectiveDemand], parts: Sequence[tuple[int, int]]):
        self.demands = demands
        self.number = {part: i for i, part in enumerate(parts)}
        self.flows = _flow_tables(demands)
        self.at: dict[object, list[int]] = {}
        for k in range(len(demands)):
            self.at.setdefault(self._key(k, None), []).append(k)
        by_kind: dict[object, list[int]] = {}
        for k, one in enumerate(demands):
            by_kind.setdefault(one.key, []).append(k)
        # Columns of the groups of all alike collectives: they are tested at once.
        self.groups = [
            np.array([sorted(demands[k].operation.members) for k in some], np.int64)
            for some in by_kind.values()
        ]
        self.roots = [
            {_identity(one, part): p for p, part in enumerate(one.parts)} for one in demands
        ]

    def kept(self, images: Ints32, groups: Ints) -> Bools:
        """Return for each image whether it maps the groups of one kind to each other."""
        there = {row.tobytes() for row in groups.astype(np.int32)}
        moved = np.sort(images[:, groups], axis=2).astype(np.int32)
        flat = moved.reshape(-1, groups.shape[1])
        inside = np.fromiter((row.tobytes() in there for row in flat), bool, len(flat))
        table = inside.reshape(moved.shape[:2])
        return np.array([bool(row.all()) for row in table], bool)

    def image(self, image: Ints32) -> list[int] | None:
        """Return the image of every part, or None if some demand has none."""
        where = image.tolist()
        taken: dict[object, int] = {}
        found = [0] * len(self.number)
        for k, one in enumerate(self.demands):
            key = self._key(k, where)
            turn = taken[key] = taken.get(key, -1) + 1
            same = self.at.get(key, ())
            if turn >= len(same):
                return None
            there = same[turn]
            for p, part in enumerate(one.parts):
                at = self.roots[there].get(_identity(one, part, where))
                if at is None:
                    return None
                found[self.number[k, p]] = self.number[there, at]
        return found

    def _key(self, k: int, where: Sequence[int] | None) -> object:
        """Return all that the traffic of a demand depends on, moved."""
        one = self.demands[k]
        go = (lambda v: v) if where is None else where.__getitem__
        members = tuple(sorted(map(go, one.operation.members)))
        forwarders = tuple(sorted(map(go, one.forwarders))) if one.relayed else ()
        root = one.operation.root
        detail: object = None if root is None else go(root)
        if k in self.flows:
            source, target, amount = self.flows[k]  # their ends moved, in the order of the new ones
            if where is not None:
                images = np.asarray(where)
                source, target = images[source], images[target]
            order = np.lexsort((amount, target, source))
            detail = np.stack([source, target, amount])[:, order].astype(np.int64).tobytes()
        elif one.operation.kind in _DIRECTED:
            detail = tuple(
                sorted((_identity(one, part, where), _amounts(part, where)) for part in one.parts)
            )
        return (one.key, members, forwarders, detail)


def _flow_tables(demands: Sequence[CollectiveDemand]) -> dict[int, Ints]:
    """Return source, target and number of the amount of all flows, of each demand of flows alone.

    Matrices have many entries, and are compared once for each symmetry of the machine.
    """
    number: dict[Fraction, int] = {}
    found = {}
    for k, one in enumerate(demands):
        flows = [part for part in one.parts if isinstance(part, FlowPart)]
        if one.operation.kind in _DIRECTED and len(flows) == len(one.parts):
            rows = [
                (part.source, target, number.setdefault(amount, len(number)))
                for part in flows
                for target, amount in part.pairs()
            ]
            found[k] = np.array(rows, np.int64).reshape(-1, 3).T
    return found


def _identity(
    one: CollectiveDemand, part: Part, where: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Key of a part within its demand, its ranks mapped by ``where``."""
    go = (lambda v: v) if where is None else where.__getitem__
    if isinstance(part, FlowPart):
        return (go(part.source),)
    if not isinstance(part, TreePart):
        return ()
    if one.operation.kind != WorkKind.MULTICAST:
        return (go(part.holders[0]),)
    return (*sorted(map(go, part.holders)), -1, *sorted(map(go, part.receivers)))


def _amounts(part: Part, where: Sequence[int] | None) -> object:
    go = (lambda v: v) if where is None else where.__getitem__
    if isinstance(part, TreePart):
        return (part.amount, tuple(sorted(map(go, part.receivers))))
    assert not isinstance(part, FlowPart), "flows are compared as tables"
    return part.amount


@dataclass(frozen=True, eq=False)
class ChosenColumn:
    """A way to serve part ``part`` of demand ``demand``, and the bytes that take it."""

    demand: int
    part: int
    amount: float
    column: PricedColumn


@dataclass(frozen=True, eq=False)
class JointBound:
    """The least time of some demands together."""

    demands: tuple[CollectiveDemand, ...]  # those of the collectives
    us: Fraction  # proved lower bound in µs
    value_us: float  # time of the fluid solution in µs; the bound is this or just below
    prices: tuple[int, ...]  # an integer per resource: the proof
    proof: PricedBound  # the bound that they prove
    loads: Floats  # bytes that each demand puts on each resource in the solution
    # The trees and flows of one demand of each orbit, from which the loads follow
    chosen: tuple[ChosenColumn, ...]
    symmetry: WorkloadSymmetry  # the symmetries by which it was solved
    rounds: int  # of pricing

    @property
    def exact(self) -> bool:
        """Return True if the bound is the optimum, up to the rounding of floats."""
        return float(self.us) >= self.value_us * (1 - 1e-7)


def joint_bound(
    topology: Topology, demands: Sequence[CollectiveDemand], effort: JointEffort = JOINT_EFFORT
) -> JointBound:
    """Return the least time of some demands that start together.

    Raises:
        UserError: nothing is to be moved, a rank is not reached, or switches copy or sum: what they
            save is in no tree or path, so prices of these prove nothing there.
    """
    if any(node.computes for node in topology.nodes):
        raise UserError(
            f"switches of {topology.name} copy or sum, which joint bounds cannot count",
            hint="nvls=off and sharp=off, or Topology.without_capabilities()",
        )
    if not any(one.parts for one in demands):
        raise UserError(
            "the workload moves nothing: no rank has bytes for another",
            hint="a group of two ranks or more, and bytes off the diagonal of a matrix",
        )
    search = _ColumnSearch(topology, tuple(demands), effort)
    search.run()
    search.save()
    prices, proof = search.proved()
    return JointBound(
        tuple(demands),
        proof.us,
        search.value * search.unit_us,
        prices,
        proof,
        search.loads(),
        search.chosen(),
        search.symmetry,
        search.rounds,
    )


def priced(demand: CollectiveDemand) -> PricedDemand:
    """Return a demand as the checker of bounds takes it."""
    trees, sums, flows = [], [], []
    for part in demand.parts:
        if isinstance(part, TreePart):
            trees.append((part.holders, part.receivers, part.amount, part.backwards))
        elif isinstance(part, SumPart):
            sums.append((part.members, part.amount))
        else:
            flows.append((part.source, part.targets, part.amounts))
    return PricedDemand(demand.forwarders, tuple(trees), tuple(sums), tuple(flows))


def part_bytes(part: Part) -> Fraction:
    """Return the bytes of a part: all that its source sends, or the amount of its tree."""
    if isinstance(part, FlowPart):
        return sum((x for v, x in part.pairs() if v != part.source), Fraction(0))
    return part.amount


@dataclass(eq=False)
class _ColumnSearch:
    topology: Topology
    demands: tuple[CollectiveDemand, ...]
    effort: JointEffort
    value: float = np.inf
    rounds: int = 0

    def __post_init__(self) -> None:
        self.fabric = fabric_of(self.topology)
        self.symmetry = symmetry_of(self.topology, self.demands)
        orbit = self.symmetry.row_orbit
        self.orbits = int(orbit.max()) + 1
        self.scale = float(self.fabric.GBps.max())
        width = np.bincount(orbit, self.fabric.GBps / self.scale, self.orbits)
        self.width: Floats = width.astype(float)
        sizes = np.bincount(self.symmetry.part_orbit, minlength=len(self.symmetry.parts))
        self.families = np.flatnonzero(sizes).tolist()
        amounts = [
            part_bytes(self.demands[k].parts[part]) * int(sizes[p])
            for p in self.families
            for k, part in [self.symmetry.parts[p]]
        ]
        self.unit = max(amounts)
        self.wanted = np.array([float(x / self.unit) for x in amounts])
        self.many = [int(sizes[p]) for p in self.families]
        self.family_of = {self.symmetry.parts[p]: f for f, p in enumerate(self.families)}
        self.parts_of: dict[int, list[int]] = {}
        for p in self.families:
            k, part = self.symmetry.parts[p]
            self.parts_of.setdefault(k, []).append(part)
        self.unit_us = float(self.unit) / self.scale / BYTES_PER_US_PER_GBPS
        self.columns: list[tuple[int, PricedColumn]] = []
        self.rows: list[tuple[Ints, Floats]] = []
        self.seen: set[tuple[int, bytes]] = set()
        self.weights = np.zeros(0)
        self.best_prices = np.zeros(self.orbits)
        self.best_bound = 0.0

    # --- rounds -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Price and solve until the bound is met, or nothing new is found."""
        for k, parts in self.parts_of.items():
            free = np.zeros(self.fabric.links)
            DemandPricing(self.fabric, self.demands[k], free, self.effort).require_reached(parts)
            for column in known_columns(self.topology, self.demands[k], parts):
                self._add(self.family_of[k, column.part], column)
        self._price(1 / (self.width * self.orbits))
        while self.rounds < self.effort.rounds:
            self.rounds += 1
            prices = self._solve()
            new = self._price(prices)
            if self.best_bound >= self.value * (1 - self.effort.met):
                return
            middle = (prices + self.best_prices) / 2
            if not self._price(middle) and not new:
                return
            if self.best_bound >= self.value * (1 - self.effort.met):
                return
            self._forget()

    def save(self) -> None:
        """Of all solutions of this time take one of least total load: shortest trees and paths."""
        is_link = np.zeros(self.orbits)
        is_link[self.symmetry.row_orbit[: self.fabric.links]] = 1.0
        time = self.value * (1 + self.effort.met)
        for _ in range(self.effort.saving_rounds):
            cost = np.array([float(load @ is_link[rows]) for rows, load in self.rows])
            found = self._master().least(cost, fixed=time)
            if found.x is None:
                return
            self.weights = np.asarray(found.x[: len(self.columns)])
            if not self._price(is_link + np.maximum(-found.ub_prices, 0)):
                return

    def _price(self, prices: Floats) -> int:
        """Add columns that are cheapest at prices of orbits; return how many are new."""
        per_row = prices[self.symmetry.row_orbit]
        resource, link = self.fabric.pairs
        price: Floats = np.bincount(link, per_row[resource], self.fabric.links).astype(float)
        cheapest = np.full(len(self.families), np.inf)
        new = 0
        for k, parts in self.parts_of.items():
            pricing = DemandPricing(self.fabric, self.demands[k], price, self.effort)
            for column in pricing.columns(parts):
                family = self.family_of[k, column.part]
                cheapest[family] = min(cheapest[family], column.cost)
                new += self._add(family, column)
        bound = float(cheapest @ self.wanted) / float(prices @ self.width)
        if bound > self.best_bound:
            self.best_bound, self.best_prices = bound, prices / float(prices @ self.width)
        return new

    def _add(self, family: int, column: PricedColumn) -> int:
        key = (family, column.key())
        if key in self.seen:
            return 0
        self.seen.add(key)
        position, resource = self.fabric.resources_of(column.links)
        orbit = self.symmetry.row_orbit[resource]
        load: Floats = np.bincount(orbit, column.load[position], self.orbits).astype(float)
        rows: Ints = np.flatnonzero(load).astype(np.int64)
        self.columns.append((family, column))
        self.rows.append((rows, load[rows]))
        return 1

    def _solve(self) -> Floats:
        """Solve the master; return the prices of orbits."""
        found = self._master().least()
        if found.x is None:
            raise UserError(f"the joint bound was not solved: {found.message}")
        self.value = float(found.value)
        self.weights = np.asarray(found.x[: len(self.columns)])
        prices: Floats = np.maximum(-found.ub_prices, 0)
        return prices / max(1e-300, float(prices @ self.width))

    def _master(self) -> Congestion:
        sizes = [len(rows) for rows, _ in self.rows]
        loads = SparseMatrix.of(
            (self.orbits, len(self.columns)),
            np.concatenate([rows for rows, _ in self.rows]),
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([load for _, load in self.rows]),
        )
        family = np.array([f for f, _ in self.columns])
        return Congestion(loads, family, self.wanted, width=self.width)

    def _forget(self) -> None:
        """Drop columns that are not used, the oldest first, where there are too many."""
        if len(self.columns) <= self.effort.columns:
            return
        count = len(self.weights)
        young = np.arange(len(self.columns)) >= len(self.columns) - self.effort.columns // 2
        used = np.concatenate([self.weights > 0, np.ones(len(self.columns) - count, bool)])
        kept = np.flatnonzero(young | used).tolist()
        self.columns = [self.columns[i] for i in kept]
        self.rows = [self.rows[i] for i in kept]
        self.seen = {(f, column.key()) for f, column in self.columns}

    # --- the answer -------------------------------------------------------------------------------

    def proved(self) -> tuple[tuple[int, ...], PricedBound]:
        """Return integer prices and their bound, the best of several roundings."""
        asked = [priced(one) for one in self.demands]
        best: tuple[tuple[int, ...], PricedBound] | None = None
        for orbit_prices in _roundings(self.best_prices):
            prices = tuple(orbit_prices[self.symmetry.row_orbit].tolist())
            found = joint_prices(self.topology, asked, prices)
            if best is None or found.us > best[1].us:
                best = prices, found
            if float(found.us) >= self.value * self.unit_us * (1 - self.effort.met):
                break
        assert best is not None
        return best

    def chosen(self) -> tuple[ChosenColumn, ...]:
        """Return the columns that the solution uses, for one part of each orbit."""
        found = []
        for (family, column), weight in zip(self.columns, self.weights.tolist(), strict=False):
            if weight > 1e-12:
                k, part = self.symmetry.parts[self.families[family]]
                amount = weight * float(self.unit) / self.many[family]
                found.append(ChosenColumn(k, part, amount, column))
        return tuple(found)

    def loads(self) -> Floats:
        """Return the bytes of each demand on each resource, averaged over the symmetries."""
        one = self.symmetry
        total = np.zeros((len(self.demands), self.fabric.resources))
        own: dict[int, Floats] = {}
        for choice in self.chosen():
            p = self.families[self.family_of[choice.demand, choice.part]]
            load = own.setdefault(p, np.zeros(self.fabric.resources))
            position, resource = self.fabric.resources_of(choice.column.links)
            np.add.at(load, resource, choice.column.load[position] * choice.amount)
        demand_of = np.array([k for k, _ in one.parts])
        for p, load in own.items():
            share = self.many[self.family_of[one.parts[p]]] / len(one.images)
            for image, rows in zip(one.part_images[:, p], one.rows, strict=True):
                total[demand_of[image], rows] += load * share
        return total


def _roundings(prices: Floats) -> list[Ints]:
    """Return integer prices near some floats, the simplest first."""
    largest = float(prices.max(initial=0)) or 1.0
    values = prices / largest
    values[values < 1e-9] = 0
    found = []
    for scaled in (values, values / values[values > 0].min()):
        for error in (1e-7, 1e-9):
            denominator = common_denominator(scaled, error)
            if denominator is not None and denominator < 1 << 24:
                found.append(np.rint(scaled * denominator).astype(np.int64))
    found += [np.rint(values * grid).astype(np.int64) for grid in (1 << 20, 1 << 32)]
    return found


# --- columns known in closed form -----------------------------------------------------------------


def known_columns(
    topology: Topology, demand: CollectiveDemand, parts: Sequence[int]
) -> Iterator[PricedColumn]:
    """Yield how some parts of a demand are served by the plans that need no search."""
    everyone = len(demand.forwarders) == topology.ranks
    if demand.operation.kind != WorkKind.ALLTOALLV or not everyone:
        return
    planner = rail_planner(topology)
    if planner is None:
        return
    loads = planner.loads(matrix_of(demand.operation, topology.ranks))
    for at in parts:
        part = demand.parts[at]
        assert isinstance(part, FlowPart)
        load = loads[part.source]
        links = np.flatnonzero(load)
        yield PricedColumn(at, 0.0, links, load[links])

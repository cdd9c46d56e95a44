"""The search for trees and weights: pools by multiplicative weights, programs, pricing, rationals.

Multiplicative weights fill a pool, a linear program over the pool (and a few pricing rounds)
picks the weights, an exact solver makes them rational. (Garg and Könemann 2007 for the weights,
Edmonds 1967 and 1973 for trees and packings, Bérczi and Frank 2010 for unequal reach.)

Fewer and lower trees: the same rate with fewer, or slightly less rate with far fewer.

*Unequal* weights: a vertex of the program at a fixed congestion, trees priced by height, and
cheaper the more they carry (reweighted L1, Candès, Wakin and Boyd 2008). *Equal* weights: a fixed
number of trees per root, ripped up one by one and re-routed at exponential prices.

Candidate trees: found by multiplicative weights and by pricing, kept once each.

A *family* is the set of trees of one representative in one direction: family k has the out-trees
of representative k, family k + (number of representatives) the in-trees of a reduction. The
weights of a family sum to one share.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, distinct_values
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meets import MET
from ....base.meter import Meter
from ....lp.columns import generate
from ....lp.congestion import Congestion
from ....lp.exact_finish import FamilyProgram, finish, rounded
from ....lp.highs import OPTIMAL
from .machine import TREE_EFFORT, TreeEffort, TreeMachine, TreeTask


@dataclass(frozen=True, eq=False)
class Batch:
    """Trees of one direction as the kernels leave them."""

    arcs: Ints  # the arc into every rank, -1 at the root, shape (trees, ranks)
    # The route of that arc in the frame of its cell, -1 after its end, shape (trees, ranks, width)
    links: Ints
    loads: Ints  # how often each resource orbit is used, shape (trees, resource orbits)

    @staticmethod
    def empty(machine: TreeMachine, trees: int, resources: int) -> Batch:
        """Room for ``trees`` trees."""
        n, width = machine.net.ranks, machine.net.width
        return Batch(
            np.full((trees, n), -1),
            np.full((trees, n, width), -1),
            np.zeros((trees, resources), np.int64),
        )

    def take(self, index: Any) -> Batch:
        """Some of the trees."""
        return Batch(self.arcs[index], self.links[index], self.loads[index])

    def depths(self, machine: TreeMachine) -> Ints:
        """Hops from the root to each rank, shape (trees, ranks)."""
        tail = np.append(machine.net.arc_tail, 0)
        trees, n = self.arcs.shape
        parent = np.where(self.arcs >= 0, tail[self.arcs], np.arange(n))
        depth = np.zeros((trees, n), np.int64)
        at = np.broadcast_to(np.arange(n), (trees, n))
        while True:
            up = np.take_along_axis(parent, at, axis=1)
            if (up == at).all():
                return depth
            depth += up != at
            at = up

    def heights(self, machine: TreeMachine) -> Ints:
        """Hops from the root to the farthest rank, per tree."""
        return np.asarray(self.depths(machine).max(axis=1))


class TreePool:
    """Columns of the master program, each load vector of a family once (the lowest tree)."""

    def __init__(self, machines: tuple[TreeMachine, ...], resources: int) -> None:
        self.machines = machines
        self.resources = resources
        self._batches: list[Batch] = []
        self._family: list[Ints] = []
        self._height: list[Ints] = []
        self._seen: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def representatives(self) -> int:
        """Number of rank orbits: families from here on reduce."""
        return len(self.machines[0].net.sources)

    def machine_of(self, family: int) -> TreeMachine:
        """The machine (forwards or turned) that the trees of a family grow on."""
        return self.machines[family // self.representatives]

    def add(self, batch: Batch, family: Ints) -> int:
        """Add trees of one direction; return the number of new ones."""
        if not len(family):
            return 0
        height = batch.heights(self.machine_of(int(family[0])))
        loads = batch.loads.astype(np.int32)
        fresh = []
        for t in np.argsort(height, kind="stable").tolist():
            key = int(family[t]).to_bytes(4, "little") + loads[t].tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(t)
        if fresh:
            self._batches.append(batch.take(fresh))
            self._family.append(family[fresh])
            self._height.append(height[fresh])
        return len(fresh)

    def columns(self) -> Columns:
        """All trees so far, in order of insertion."""
        if len(self._batches) > 1:
            whole = [
                np.concatenate([getattr(b, name) for b in self._batches])
                for name in ("arcs", "links", "loads")
            ]
            self._batches = [Batch(*whole)]
            self._family = [np.concatenate(self._family)]
            self._height = [np.concatenate(self._height)]
        return Columns(self._batches[0], self._family[0], self._height[0])


@dataclass(frozen=True, eq=False)
class Columns:
    """Trees with their families and heights."""

    trees: Batch
    family: Ints
    height: Ints

    def __len__(self) -> int:
        return len(self.family)

    def take(self, index: Any) -> Columns:
        """Some of the columns."""
        return Columns(self.trees.take(index), self.family[index], self.height[index])


@dataclass(frozen=True, eq=False)
class Weights:
    """A float solution: weights of the columns, congestion, prices of resources and families."""

    x: Floats
    congestion: float
    prices: Floats
    worth: Floats


@dataclass(frozen=True, eq=False)
class Master:
    """The master program of trees (:mod:`weft.synth.lp.congestion`), in units of the bound.

    For allreduce the shares w of the roots are variables: both families of a root carry w, all w
    sum to 1.
    """

    families: Ints  # the families that are served; allreduce: both halves, equally many
    joint: bool  # the shares are free
    inc: Floats  # congestion per use of each resource orbit
    meter: Meter  # counts the work of solving

    def best(self, columns: Columns, meter: Meter | None = None) -> Weights:
        """The least congestion that these trees attain; prices of resources sum to 1.

        Without a ``meter`` the work is counted and not limited.

        Raises:
            NothingFound: the solver gave up, or a family lacks a tree.
        """
        meter = meter or Meter(sys.maxsize, self.meter.stopped, self.meter)
        found = self._program(columns).least(method="highs-ds", meter=meter)
        if found.status != OPTIMAL or found.x is None:
            raise NothingFound(f"packing trees: the linear program was not solved: {found.message}")
        prices = np.maximum(-found.ub_prices, 0)
        order = distinct_values(self.families)
        worth = np.zeros(int(order.max()) + 1)
        worth[order] = found.eq_prices[: len(order)]
        return Weights(found.x[: len(columns)], found.value, prices / prices.sum(), worth)

    def cheapest(self, columns: Columns, cost: Floats, congestion: float) -> Floats | None:
        """Weights of the least total cost within a congestion, a vertex; None if there are none,
        or if they take more work than is left."""
        found = self._program(columns).cheapest(cost, congestion, self.meter)
        if found.status != OPTIMAL or found.x is None:
            return None
        return found.x[: len(columns)]

    def _program(self, columns: Columns) -> Congestion:
        used = columns.trees.loads.T * self.inc[:, None]
        order = distinct_values(self.families)
        family = np.searchsorted(order, columns.family)
        if self.joint:
            share = np.arange(len(order)) % (len(order) // 2)
            return Congestion(used, family, np.zeros(len(order)), share=share)
        return Congestion(used, family, np.bincount(self.families)[order].astype(float))


STEPS_PER_TREE, LOOKS_PER_STEP = 3, 150
"""Work of growing a tree: of any, and for the arcs, links and ranks that it looks at."""


@dataclass(frozen=True, eq=False)
class WeightedTrees:
    """Trees of at most some height, and float weights for them.

    ``vertex``: the weights are best for these trees, so that they solve equations.
    """

    limit: int
    columns: Columns
    weights: Weights
    vertex: bool = True

    @property
    def met(self) -> bool:
        """True if the weights meet the bound within the float tolerance."""
        return self.weights.congestion <= 1 + MET

    def scaled(self, factor: float) -> WeightedTrees:
        """Return a copy with the congestion in units of another bound."""
        return replace(
            self, weights=replace(self.weights, congestion=self.weights.congestion * factor)
        )


@dataclass(eq=False)
class TreeSearch:
    """State of one search: the task, its programs, its meter, its limits."""

    task: TreeTask
    meter: Meter
    seed: int
    effort: TreeEffort = TREE_EFFORT
    master: Master = field(init=False)
    shape: FamilyProgram = field(init=False)

    def __post_init__(self) -> None:
        task = self.task
        self.master = Master(task.families, task.joint, task.increments, self.meter)
        self.shape = FamilyProgram(task.room, task.families, task.joint)

    @property
    def late(self) -> bool:
        """True if the work is done."""
        return self.meter.over()

    @property
    def steps_per_tree(self) -> int:
        """Estimated cost of growing one tree: routes, arcs, choices."""
        net = self.task.machines[0].net
        return int(len(net.sources) * len(net.out_start) + net.ranks**2 + len(net.arc_head))

    def spend(self, trees: int) -> None:
        """Count the work of growing trees."""
        each = STEPS_PER_TREE * LOOKS_PER_STEP + self.steps_per_tree
        self.meter.spend(trees * each // LOOKS_PER_STEP)

    def weigh(self, limit: int, *, last: bool = True) -> WeightedTrees:
        """A pool of trees of at most this height, and the best weights for them.

        Unless this is the ``last`` try, not much is spent on a limit that is clearly too low.
        """
        pool = TreePool(self.task.machines, len(self.task.resources.size))
        fill = self._fill_pairs if self.task.joint else self._fill
        for share in (self.effort.first_part, 1.0):
            fill(pool, limit, share)
            found = WeightedTrees(limit, pool.columns(), self.master.best(pool.columns()))
            hopeless = not last and found.weights.congestion > self.effort.hopeless
            if found.met or hopeless or self.late:
                return found

        def better() -> WeightedTrees | None:
            with suppress(NothingFound):  # it takes more work than is left
                columns = pool.columns()
                return WeightedTrees(limit, columns, self.master.best(columns, self.meter))
            return None

        last_found = generate(
            found,
            better,
            lambda one: self._price(pool, one.weights, limit),
            lambda one: one.met or self.late,
            self.effort.rounds,
        )
        return last_found or found

    def exact(self, found: WeightedTrees) -> tuple[Columns, list[Fraction]]:
        """Return the trees of non-zero weight, with rational weights near the floats.

        They attain the bound where the floats do, and else what the floats attain, exactly that
        of the vertex if it can be solved for; at worst a millionth more.
        """
        task, columns, x = self.task, found.columns, found.weights.x
        target = task.bound if found.met else None
        weights = None
        if found.vertex:
            weights = finish(self.shape, columns.trees.loads, columns.family, x, target)
        if weights is None:
            weights = rounded(self.shape, columns.family, x)
        used = [t for t, w in enumerate(weights) if w]
        return columns.take(used), [weights[t] for t in used]

    def _fill(self, pool: TreePool, limit: int, share: float) -> None:
        from .kernels import fill

        task, machine = self.task, self.task.machines[0]
        roots = task.roots_of(task.families)
        step = min(1.0, len(roots) / self.effort.steps)
        phases = max(round(self._phases(len(roots)) * share), 2)
        batch = Batch.empty(machine, phases * len(roots), pool.resources)
        fill(
            machine.net,
            roots,
            limit,
            self.effort.steepness,
            self.seed + phases,
            task.increments * step,
            batch.arcs,
            batch.links,
            batch.loads,
        )
        self.spend(phases * len(roots))
        pool.add(batch, task.orbits.rank_orbit[batch.arcs.argmin(axis=1)])

    def _fill_pairs(self, pool: TreePool, limit: int, share: float) -> None:
        from .branchings import fill_pairs

        forth, back = self.task.machines
        steps = max(round(self._phases(1) * share), 8)
        out, into = (Batch.empty(m, steps, pool.resources) for m in (forth, back))
        roots = forth.net.sources
        chosen = fill_pairs(
            forth.net,
            back.net,
            roots,
            limit,
            self.effort.steepness,
            self.task.increments / self.effort.steps,
            out.arcs,
            out.links,
            out.loads,
            into.arcs,
            into.links,
            into.loads,
        )
        # Every step looks for the cheapest trees of all roots, both ways.
        self.spend(2 * steps * (1 + min(len(roots), forth.net.ranks)))
        pool.add(out, chosen)
        pool.add(into, chosen + len(roots))

    def _phases(self, roots: int) -> int:
        effort = self.effort
        phases = max(effort.phases, effort.phases * effort.steps // roots)
        affordable = effort.first_work // (roots * self.steps_per_tree)
        return int(min(phases, max(affordable, 3)))

    def _price(self, pool: TreePool, weights: Weights, limit: int) -> int:
        """Add trees of negative reduced cost; return the number of new ones.

        Most prices are zero, and free resources are used at random: every resource gets a floor.
        """
        inc = self.task.increments
        families = distinct_values(self.task.families)
        half = len(self.task.orbits.representatives)
        most = self.effort.variants
        variants = int(np.clip(most // len(families), 2, most // 2))
        rng = np.random.default_rng(self.seed)
        new = 0
        for i in range(variants):
            if new and self.late:
                break
            floor = (1e-3, 1e-6, 3e-2)[i % 3]
            length = (weights.prices + floor * weights.prices.mean()) * inc
            if i > 1:
                length *= 1 + rng.random(len(length)) * i / variants
            for d, machine in enumerate(self.task.machines):
                mine = families[families // half == d] if self.task.joint else families
                for batch in self._trees_at(machine, mine, limit, length):
                    cost = batch.loads @ (weights.prices * inc)
                    good = np.flatnonzero(cost < weights.worth[mine] - MET * 0.1)
                    new += pool.add(batch.take(good), mine[good])
        return new

    def _trees_at(
        self, machine: TreeMachine, families: Ints, limit: int, length: Floats
    ) -> list[Batch]:
        """One cheap tree per family, and where height is free a cheapest one."""
        from .branchings import edmonds
        from .kernels import plant_all

        roots = self.task.roots_of(families)
        batches = [Batch.empty(machine, len(roots), len(length))]
        self.spend(1 + len(roots))
        low = batches[0]
        plant_all(
            machine.net, roots, limit, 0.02 * length.mean(), length, low.arcs, low.links, low.loads
        )
        if limit >= machine.net.ranks - 1:
            best = Batch.empty(machine, len(roots), len(length))
            edmonds(machine.net, roots, self.task.anchor, length, best.arcs, best.links, best.loads)
            batches.append(best)
        return batches


def sparser(search: TreeSearch, found: WeightedTrees, slack: float) -> WeightedTrees:
    """Weights on as few and low trees as the program finds, within a congestion."""
    limit = max(found.weights.congestion, 1.0) * (1 + slack)
    columns = found.columns
    low = 1 + 0.02 * columns.height
    x = found.weights.x
    best, fewest = x, int((x > MET).sum())
    mean = 1 / max(len(columns), 1)
    few = columns.trees.loads.size > search.effort.large
    rounds = 2 if few else search.effort.reweightings
    for i in range(rounds):
        eps = mean * 10 ** (1 - 2 * i / rounds)
        cost = low / (x + eps)
        vertex = search.master.cheapest(columns, cost / cost.min(), limit * (1 + 1e-12))
        if vertex is None or search.late:
            break
        x = np.where(vertex > MET, vertex, 0.0)
        if int((x > 0).sum()) < fewest:
            best, fewest = x, int((x > 0).sum())
    congestion = limit if slack else found.weights.congestion
    used = np.flatnonzero(best > 0)
    weights = replace(found.weights, x=best[used], congestion=congestion)
    return WeightedTrees(found.limit, columns.take(used), weights, vertex=not slack)


def natural_copies(search: TreeSearch, weights: Weights) -> int:
    """Equal trees per root that can meet the bound: the room in full resources is whole."""
    tight = np.flatnonzero(weights.prices > 1e-7)
    room = search.shape.room
    return lcm(*((room[o] * search.task.bound).denominator for o in tight.tolist()))


def least_congestion(search: TreeSearch, weights: Weights, copies: int) -> float:
    """Lower bound on the congestion of ``copies`` equal trees per root.

    A resource carries whole trees. At the prices of the program every packing needs the room that
    they give to one of congestion 1, so the congestion is at least that at which the whole trees
    that fit make up for it.
    """
    tight = np.flatnonzero(weights.prices > 1e-7)
    price, inc = weights.prices[tight], increments(search, copies)[tight]
    most = 2.0
    steps = distinct_values(
        np.concatenate([[1.0], *(np.arange(1, most / x + 1) * x for x in inc.tolist())])
    )
    for congestion in steps[(steps >= 1) & (steps <= most)].tolist():
        if price @ (inc * np.floor(congestion / inc * (1 + MET))) >= price.sum() * (1 - MET):
            return float(congestion)
    return most


def increments(search: TreeSearch, copies: int) -> Floats:
    """The part of each resource that one of ``copies`` equal trees per root takes up."""
    task = search.task
    half = len(task.orbits.representatives)
    return task.increments * float(Fraction(1, copies * (half if task.joint else 1)))


@dataclass(frozen=True, eq=False)
class Equal:
    """Trees of one weight, equally many for every root and direction."""

    columns: Columns
    weight: Fraction
    congestion: float

    def weights(self) -> list[Fraction]:
        """Weight of each tree."""
        return [self.weight] * len(self.columns)


def rounds_of(search: TreeSearch, copies: int) -> int:
    """Return the number of rounds affordable to one run of :func:`equal_trees`."""
    trees = copies * len(search.task.families)
    return min(search.effort.run // (trees * search.steps_per_tree), search.effort.most_rounds)


def equal_trees(search: TreeSearch, copies: int, limit: int, rounds: int = 0) -> Equal:
    """``copies`` trees per root, at most ``limit`` high, the busiest resource as free as possible.

    ``rounds`` of ripping up per run; 0: as many as can be afforded on any machine.

    Resources carry whole trees, so first the room of each resource is rounded down to whole trees:
    what fits into that meets the bound. Failing that, the largest congestion is made small.
    """
    from .kernels import reroute

    task = search.task
    half = len(task.orbits.representatives)
    families = np.repeat(task.families, copies)
    roots = task.roots_of(families)
    turned = families // half if task.joint else np.zeros_like(families)
    weight = Fraction(1, copies * (half if task.joint else 1))
    inc = increments(search, copies)
    whole = np.floor(1 / inc * (1 + MET))
    capped = np.where(whole > 0, 1 / np.maximum(whole, 1), 2.0)
    rounds = rounds or max(rounds_of(search, copies), search.effort.least_rounds)
    runs = [
        (steep, increment, mu)
        for steep in zip(search.effort.first_steepness, search.effort.last_steepness, strict=True)
        for increment, mu in ((capped, 0.02), (inc, 0.02), (capped, 0.0))
    ]
    best: Equal | None = None
    for steep, increment, mu in runs:
        batch = Batch.empty(max(task.machines, key=lambda m: m.net.width), len(roots), len(inc))
        done = reroute(
            tuple(m.net for m in task.machines),
            turned,
            roots,
            limit,
            mu,
            np.array(steep),
            rounds,
            search.seed,
            increment,
            batch.arcs,
            batch.links,
            batch.loads,
        )
        search.spend(done * len(roots))
        worst = float((batch.loads.sum(axis=0) * inc).max())
        if best is None or worst < best.congestion * (1 - MET):
            height = np.empty_like(families)
            for d, machine in enumerate(task.machines):
                height[turned == d] = batch.take(turned == d).heights(machine)
            best = Equal(Columns(batch, families, height), weight, worst)
        if best.congestion <= 1 + MET or search.late:
            break
    assert best is not None
    return best

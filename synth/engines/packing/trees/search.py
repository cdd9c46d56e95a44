"""The search for trees and weights: pools by multiplicative weights, programs, pricing, rationals.

Multiplicative weights fill a pool, a linear program over the pool (and a few pricing rounds)
picks the weights, an exact solver makes them rational. (Garg and Könemann 2007 for the weights,
Edmonds 1967 and 1973 for trees and packings, Bérczi and Frank 2010 for unequal reach.)
"""

from __future__ import annotations

import time as clock
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints

from ....base.effort import Effort, setting
from ....lp.exact_finish import FamilyProgram, finish, rounded
from .machine import TreeMachine
from .pool import Batch, Columns, Master, TreePool, Weights
from .task import TreeTask

MET = 1e-9
"""Tolerance: a congestion this close to 1 is taken for 1, then checked in rationals."""


@dataclass(frozen=True, slots=True)
class TreeEffort(Effort):
    """Limits of the search for trees; a step of work looks at one arc, link or rank."""

    phases: int = setting(
        15,
        "times that multiplicative weights serve the demand at first; time grows with it",
    )
    steps: int = setting(
        16,
        "trees of all roots together that serve it once, at least: few roots take small steps",
    )
    first_work: int = setting(
        200_000_000,
        "steps of growing the first trees, about; fewer phases where it would be more",
    )
    first_part: float = setting(
        0.25,
        "the part of the first trees after which it is seen whether they suffice",
    )
    steepness: float = setting(
        8.0,
        "how fast the price of a row grows with its congestion meanwhile",
    )
    rounds: int = setting(60, "pricing rounds, at most; each solves a linear program")
    variants: int = setting(
        24,
        "trees that a pricing round grows, about; few roots are priced with noise, several times",
    )
    hopeless: float = setting(
        2.0,
        "trees so low that they take this many times the bound are not improved",
    )
    reweightings: int = setting(10, "programs solved to find a sparse answer")
    large: int = setting(
        300_000,
        "entries (trees times row orbits) of a program that is not solved again and again",
    )
    run: int = setting(
        1_500_000,
        "steps of one run of ripping up equal trees, about: rounds are cut to fit",
    )
    least_rounds: int = setting(
        6,
        "rounds of ripping up, at least: machines that cannot afford them get no equal trees",
    )
    most_rounds: int = setting(60, "rounds of ripping up, at most")
    first_steepness: tuple[float, ...] = setting(
        (3.0, 10.0, 20.0),
        "steepness of the prices in the first round of each run; which one works depends on the "
        "machine",
    )
    last_steepness: tuple[float, ...] = setting(
        (15.0, 60.0, 200.0),
        "steepness of the prices in the last round of each run",
    )
    slacks: tuple[float, ...] = setting(
        (0.002, 0.015, 0.03),
        "parts of the rate given up for fewer trees",
    )
    useful: float = setting(3.0, "lower trees are kept up to this many times the best time")
    equal: int = setting(
        4,
        "equal trees per root are tried up to this number, and at the number that fits the bound",
    )
    most_equal: int = setting(8, "the largest number of equal trees per root that is tried")
    taller: tuple[int, ...] = setting(
        (0, 1, 4),
        "hops that equal trees may have more than those of the best rate",
    )
    alone_ranks: int = setting(64, "ranks up to which limits are also kept without symmetry")
    alone_trees: int = setting(
        2,
        "equal trees per root up to which limits are also kept without symmetry",
    )
    alone_rounds: int = setting(120, "rounds of ripping up where limits are kept without symmetry")


TREE_EFFORT = TreeEffort()
"""Default limits."""


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

    def with_weights(self, x: Floats, congestion: float, vertex: bool) -> WeightedTrees:
        """The trees that other weights use, with these."""
        used = np.flatnonzero(x > 0)
        weights = Weights(x[used], congestion, self.weights.prices, self.weights.worth)
        return WeightedTrees(self.limit, self.columns.take(used), weights, vertex)


@dataclass(eq=False)
class TreeSearch:
    """State of one search: the task, its programs, its deadline, its limits."""

    task: TreeTask
    deadline: float
    seed: int
    effort: TreeEffort = TREE_EFFORT
    master: Master = field(init=False)
    shape: FamilyProgram = field(init=False)

    def __post_init__(self) -> None:
        task = self.task
        self.master = Master(task.families, task.joint, task.increments)
        self.shape = FamilyProgram(task.room, task.families, task.joint)

    @property
    def late(self) -> bool:
        """True if the deadline has passed."""
        return clock.monotonic() > self.deadline

    @property
    def steps_per_tree(self) -> int:
        """Estimated cost of growing one tree: routes, arcs, choices."""
        net = self.task.machines[0].net
        return int(len(net.sources) * len(net.out_start) + net.ranks**2 + len(net.arc_head))

    def weigh(self, limit: int, *, last: bool = True) -> WeightedTrees:
        """A pool of trees of at most this height, and the best weights for them.

        Unless this is the ``last`` try, not much is spent on a limit that is clearly too low.
        """
        pool = TreePool(self.task.machines, len(self.task.rows.size))
        fill = self._fill_pairs if self.task.joint else self._fill
        for share in (self.effort.first_part, 1.0):
            fill(pool, limit, share)
            found = WeightedTrees(limit, pool.columns(), self.master.best(pool.columns()))
            hopeless = not last and found.weights.congestion > self.effort.hopeless
            if found.met or hopeless or self.late:
                return found
        for _ in range(self.effort.rounds):
            if not self._price(pool, found.weights, limit):
                break
            found = WeightedTrees(limit, pool.columns(), self.master.best(pool.columns()))
            if found.met or self.late:
                break
        return found

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
        batch = Batch.empty(machine, phases * len(roots), pool.rows)
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
        pool.add(batch, task.orbits.rank_orbit[batch.arcs.argmin(axis=1)])

    def _fill_pairs(self, pool: TreePool, limit: int, share: float) -> None:
        from .branchings import fill_pairs

        forth, back = self.task.machines
        steps = max(round(self._phases(1) * share), 8)
        out, into = (Batch.empty(m, steps, pool.rows) for m in (forth, back))
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
        pool.add(out, chosen)
        pool.add(into, chosen + len(roots))

    def _phases(self, roots: int) -> int:
        """Return the number of trees per root to start with."""
        effort = self.effort
        phases = max(effort.phases, effort.phases * effort.steps // roots)
        affordable = effort.first_work // (roots * self.steps_per_tree)
        return int(min(phases, max(affordable, 3)))

    def _price(self, pool: TreePool, weights: Weights, limit: int) -> int:
        """Add trees of negative reduced cost; return the number of new ones.

        Most prices are zero, and what is free is used at random: every row gets a floor.
        """
        inc = self.task.increments
        families = np.unique(self.task.families)
        half = len(self.task.orbits.representatives)
        most = self.effort.variants
        variants = int(np.clip(most // len(families), 2, most // 2))
        rng = np.random.default_rng(self.seed)
        new = 0
        for i in range(variants):
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
        low = batches[0]
        plant_all(
            machine.net, roots, limit, 0.02 * length.mean(), length, low.arcs, low.links, low.loads
        )
        if limit >= machine.net.ranks - 1:
            best = Batch.empty(machine, len(roots), len(length))
            edmonds(machine.net, roots, self.task.anchor, length, best.arcs, best.links, best.loads)
            batches.append(best)
        return batches

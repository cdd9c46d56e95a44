"""Fewer and lower trees: the same rate with fewer, or slightly less rate with far fewer.

*Unequal* weights: a vertex of the program at a fixed congestion, trees priced by height, and
cheaper the more they carry (reweighted L1, Candès, Wakin and Boyd 2008). *Equal* weights: a fixed
number of trees per root, ripped up one by one and re-routed at exponential prices.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Floats, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meets import MET
from .pool import Batch, Columns, Weights
from .search import TreeSearch, WeightedTrees


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
    return found.with_weights(best, congestion, vertex=not slack)


def natural_copies(search: TreeSearch, weights: Weights) -> int:
    """Equal trees per root that can meet the bound: the room in full resources is whole."""
    tight = np.flatnonzero(weights.prices > 1e-7)
    room = search.shape.room
    return lcm(*((room[o] * search.task.bound).denominator for o in tight.tolist()))


def least_congestion(search: TreeSearch, weights: Weights, copies: int) -> float:
    """Lower bound on the congestion of so many equal trees per root.

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
    """The part of each resource that one of so many equal trees per root takes up."""
    task = search.task
    half = len(task.orbits.representatives)
    return task.increments * float(Fraction(1, copies * (half if task.joint else 1)))


@dataclass(frozen=True, eq=False)
class Equal:
    """Trees of one weight, so many for every root and direction."""

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

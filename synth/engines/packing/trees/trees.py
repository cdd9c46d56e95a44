"""Packings of trees: the exact optimum first, then lower and fewer trees at less than its rate.

The height limit rises from the least possible one until the bound is met. The packings returned
are Pareto-optimal among each other in rate, trees and height. Where no cut bounds the rate of
trees, the prices of the master program do: they are rounded to integers, and the bound that they
prove is evaluated exactly by :func:`weft.synth.bounds.tree_prices`.

Convert weighted columns to :class:`PackedTree` objects, and recompute their rate from these.

Allreduce from trees of an allgather: sums climb each tree first, over the opposite links.

Where cables are as wide in both directions that loads no resource more than a reduce_scatter and an
allgather. So where the bound of the allreduce is theirs together nothing is lost, and one direction
is searched instead of two at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import gcd, inf, lcm

import numpy as np

from weft.dsl.base.arrays import Ints32, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective, Kind, make
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import orbits_of

from ....base.engine import Observer, Silent
from ....base.meets import MET
from ....base.meter import STEPS, Meter
from ....bounds import tree_prices
from ....bounds.bounds import bandwidth_bound
from ....bounds.effort import BOUND_EFFORT
from ....lp.certified import common_denominator
from ....lp.exact_finish import overlay
from .machine import TREE_EFFORT, TreeEffort, TreeTask, Under
from .model import PackedTree, Packing, tree_limits, trees_per_root, unequal
from .search import (
    Columns,
    Equal,
    TreeSearch,
    WeightedTrees,
    equal_trees,
    least_congestion,
    natural_copies,
    rounds_of,
    sparser,
)


def packing_of(task: TreeTask, columns: Columns, weights: list[Fraction]) -> Packing:
    """The packing that some columns with exact weights are.

    Trees of a family lie side by side on the interval of its share; what cuts the interval (the
    next chunk of the same root; allreduce: the next tree of the other direction) cuts trees.
    """
    half = len(task.orbits.representatives)
    order = np.argsort(columns.family, kind="stable").tolist()
    trees: list[PackedTree] = []
    for k in distinct_values(task.families).tolist():
        mine = [(t, weights[t]) for t in order if int(columns.family[t]) == k]
        if not task.joint:
            chunks = [(int(c), Fraction(1)) for c in task.chunks[task.families == k]]
            trees += [tree_of(task, columns, t, c, w) for t, c, w in overlay(mine, chunks)]
        elif k < half:
            back = [(t, weights[t]) for t in order if int(columns.family[t]) == k + half]
            trees += [
                pair(
                    tree_of(task, columns, into), tree_of(task, columns, out), w / task.orbits.order
                )
                for into, out, w in overlay(back, mine)
            ]
    return Packing(
        task.topology,
        task.collective,
        tuple(trees),
        task.orbits.images.astype(np.int32),
        task.orbits.link_images.astype(np.int32),
        Fraction(0),
        task.us_per_byte(task.bound),
        task.certificate,
    ).rated()


def pair(into: PackedTree, out: PackedTree, weight: Fraction) -> PackedTree:
    """A tree of an allreduce: sums go to the root, then results from it."""
    columns = ("src", "dst", "reduce", "lengths", "route_links")
    both = (np.concatenate([getattr(one, x) for one in (into, out)]) for x in columns)
    return PackedTree.of(0, weight, *both)


def tree_of(
    task: TreeTask, columns: Columns, t: int, chunk: int = 0, weight: Fraction = Fraction(1)
) -> PackedTree:
    """A tree in the kernels' form as hops, root first; a reducing one leaves first."""
    machine = task.machines[int(columns.family[t]) // len(task.orbits.representatives)]
    net, orbits = machine.net, machine.orbits
    depth = columns.trees.take([t]).depths(machine)[0]
    order = np.argsort(depth, kind="stable")
    order = order[depth[order] > 0]
    arcs, links = columns.trees.arcs[t], columns.trees.links[t][:, : net.width]
    src, dst = net.arc_tail[arcs[order]], order
    routes = links[order]
    element = orbits.element_of[src]
    used = routes >= 0
    routes = np.where(used, orbits.link_images[element[:, None], routes], -1)
    if machine.turned:
        src, dst, routes = dst[::-1], src[::-1], routes[::-1, ::-1]
        used = used[::-1, ::-1]
    reduce = np.full(len(src), machine.turned)
    return PackedTree.of(chunk, weight, src, dst, reduce, used.sum(axis=1), routes[used])


def mirrored(packing: Packing, collective: Collective) -> Packing | None:
    """The packing of an allreduce, shares of all roots equal; None if a link lacks an opposite.

    ``packing``: of the allgather of the same ranks, under the symmetries of the machine.
    """
    topology = packing.topology
    opposite = _opposite_links(topology)
    if opposite is None:
        return None
    share = Fraction(1, topology.ranks)
    trees = tuple(pair(_turned(t, opposite), t, share * t.weight) for t in packing.trees)
    found = bandwidth_bound(topology, collective, BOUND_EFFORT)
    return replace(
        packing,
        collective=collective,
        trees=trees,
        bound=found.us_per_byte,
        certificate=found.certificate,
    ).rated()


def _opposite_links(topology: Topology) -> Ints32 | None:
    """The link back of each link; of parallel ones in the order of their numbers."""
    between: dict[tuple[int, int], list[int]] = {}
    for i, link in enumerate(topology.links):
        between.setdefault((link.src, link.dst), []).append(i)
    back = np.empty(len(topology.links), np.int32)
    for (u, v), links in between.items():
        others = between.get((v, u), [])
        if len(others) != len(links):
            return None
        back[links] = others
    return back


def _turned(tree: PackedTree, opposite: Ints32) -> PackedTree:
    """The tree that brings sums to its root, over the opposite links: leaves first."""
    start = tree.route_start
    return replace(
        tree,
        src=tree.dst[::-1],
        dst=tree.src[::-1],
        reduce=np.ones(len(tree), bool),
        route_start=np.concatenate([[0], np.cumsum(np.diff(start)[::-1])]).astype(np.int32),
        route_links=opposite[tree.route_links[start[0] : start[-1]]][::-1],
    )


def pack(
    problem_topology: Topology,
    collective: Collective,
    *,
    trees: int = 0,
    height: int = 0,
    peers: int = 0,
    under: Under | None = None,
    meter: Meter | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    effort: TreeEffort = TREE_EFFORT,
) -> list[Packing]:
    """Return packings of trees for a plain collective, the best rate first.

    The first attains the bound exactly wherever the search can; the others have fewer or lower
    trees, and their ``remark`` says what that costs. ``trees`` (for each chunk; allreduce: for
    each root, up to symmetry), ``height`` (hops from a root to a leaf) and ``peers`` (ranks that
    one sends to, or receives from, over all trees) are budgets, 0 is none: what is returned keeps
    them, which may be nothing. ``under`` is what a sketch leaves. One rank alone needs nothing.
    Where ``meter`` is over the search takes its best trees; None: 30 units of effort.

    Raises:
        BadTopology: ranks that cannot reach each other.
        NothingFound: a linear program was not solved.
        UserError: too few peers, or a height too low to reach all ranks.
    """
    if problem_topology.ranks < 2:
        return []
    observer, meter = observer or Silent(), meter or Meter(30 * STEPS)
    free = not (trees or height or peers or under)
    both_ways = collective.kind is Kind.ALLREDUCE and collective.ranks >= effort.one_way
    if free and both_ways and len(orbits_of(problem_topology).representatives) > 1:
        # Each step would grow the trees of all roots that no symmetry maps to each other.
        gather = make(Kind.ALLGATHER, collective.ranks)
        found = pack(
            problem_topology, gather, meter=meter, seed=seed, observer=observer, effort=effort
        )
        both = _undominated([p for one in found if (p := mirrored(one, collective)) is not None])
        if both and (both[0].optimal or meter.over()):
            return both
    observer.stage("bounds")
    task = TreeTask.of(problem_topology, collective, peers, under=under, effort=effort)
    observer.stage("trees")
    search = TreeSearch(task, meter, seed, effort)
    rungs = []
    for rung in _ladder(search, height):
        rungs.append(rung)
        if observer.cancelled():
            break
    if not rungs:
        return []
    best = min(rungs, key=lambda f: (round(f.weights.congestion, 9), f.limit))
    free = not height and not task.narrowed
    if free and not best.met and not task.joint:
        search, rungs, best = _with_proof(search, rungs, best)
    packings = [_exactly(search, best)]
    if free and task.joint and not search.late and not packings[0].optimal:
        value = float(packings[0].us_per_byte * 10**6)
        solved = f"trees attain {value:.6g} ps per byte at best (linear program)"
        packings = [replace(packings[0], remark=f"{solved}; {packings[0].remark}")]
    for one in _alternatives(search, rungs, best, trees):
        packings.append(one)
        if search.late or observer.cancelled():
            break
    kept = [p for p in packings if not trees or trees_per_root(p)[0] <= trees]
    return _undominated(kept)


def _with_proof(
    search: TreeSearch, rungs: list[WeightedTrees], best: WeightedTrees
) -> tuple[TreeSearch, list[WeightedTrees], WeightedTrees]:
    """Return the same with the bound from prices, if that is tighter."""
    task = with_proven_bound(search.task, rungs[-1])
    scale = float(search.task.bound / task.bound)
    if scale == 1:
        return search, rungs, best
    better = [one.scaled(scale) for one in rungs]
    return (
        TreeSearch(task, search.meter, search.seed, search.effort),
        better,
        better[rungs.index(best)],
    )


def _ladder(search: TreeSearch, height: int) -> Iterator[WeightedTrees]:
    """Weights for higher and higher trees, until the bound is met or height is free."""
    task = search.task
    tallest = max(task.machines[0].net.ranks - 1, 1)
    least = int(max(m.eccentricity.max() for m in task.machines))
    limits = [*(least + s for s in (0, 1, 2, 3, 5, 8, 12) if least + s < tallest), tallest]
    if height and height < least:
        raise UserError(
            f"packing: no tree of {height} hop{'s' * (height > 1)} reaches all ranks: "
            f"the farthest is {least} hops away",
            hint=f"height={least} or more",
        )
    if height:
        limits = sorted({min(x, height) for x in limits})
    for limit in limits:
        found = search.weigh(limit, last=limit == limits[-1])
        yield found
        if found.met or search.late:
            break


def _exactly(search: TreeSearch, found: WeightedTrees) -> Packing:
    """The sparsest exact answer at the rate of these trees."""
    answers = []
    for one in (sparser(search, found, 0.0), found):
        answers.append(_with_loss(search, *search.exact(one)))
        if answers[-1].optimal:
            break
    return min(answers, key=lambda p: (p.us_per_byte, len(p.trees)))


def _alternatives(
    search: TreeSearch, rungs: list[WeightedTrees], best: WeightedTrees, trees: int
) -> Iterator[Packing]:
    # The shares of an allreduce's roots are free, so that no number of trees is natural.
    fitting = 1 if search.task.joint else natural_copies(search, best.weights)
    effort = search.effort
    numbers = {*range(1, effort.equal + 1), fitting, *range(1, trees + 1)}
    worst = inf
    for copies in range(1, effort.most_equal + 1):
        # In whole trees: more of them may fit better where links are of odd widths.
        least = least_congestion(search, best.weights, copies)
        odd = copies > effort.equal and least <= worst * (1 - effort.fits)
        if not odd and copies not in numbers:
            continue
        for found in _equal(search, copies, best.limit, least):
            worst = min(worst, found.congestion)
            yield _with_loss(search, found.columns, found.weights())
    if trees and not search.task.narrowed:
        for copies in range(1, min(trees, effort.alone_trees) + 1):
            yield from _without_symmetry(search, copies, best.limit)
    if best.columns.trees.loads.size > effort.large:
        return
    least = best.weights.congestion
    for rung in rungs:
        if rung.weights.congestion <= effort.useful * least:
            slacks = [s for s in effort.slacks if rung.weights.congestion <= least * (1 + s)]
            for slack in slacks or effort.slacks[:1]:
                yield _with_loss(search, *search.exact(sparser(search, rung, slack)))
    slack = 0.06
    while trees and slack < effort.useful:
        thin = _with_loss(search, *search.exact(sparser(search, best, slack)))
        yield thin
        if trees_per_root(thin)[0] <= trees:
            break
        slack *= 2


def _equal(search: TreeSearch, copies: int, limit: int, least: float) -> Iterator[Equal]:
    """``copies`` equal trees per root, if the machine is small enough to try; higher ones as well
    while their congestion is above the least possible."""
    if rounds_of(search, copies) < search.effort.least_rounds:
        return
    tallest = search.task.machines[0].net.ranks - 1
    for height in sorted({min(limit + more, tallest) for more in search.effort.taller}):
        found = equal_trees(search, copies, height)
        yield found
        if found.congestion <= max(1, least) * (1 + MET):
            break


def _without_symmetry(search: TreeSearch, copies: int, limit: int) -> Iterator[Packing]:
    """``copies`` equal trees per root, each of its own shape, for links that carry whole trees.

    On two boxes of MI250 a NIC carries two trees or one; a symmetry would make all NICs alike.
    """
    task = search.task
    if task.orbits.order == 1 or task.topology.ranks > search.effort.alone_ranks:
        return
    apart = TreeTask.of(task.topology, task.collective, alike=False, effort=search.effort)
    lone = TreeSearch(apart, search.meter, search.seed, search.effort)
    tallest = task.machines[0].net.ranks - 1
    for height in sorted({min(x, tallest) for x in (limit, limit + 4, 2 * limit)}):
        if lone.late:
            return
        found = equal_trees(lone, copies, height, rounds=search.effort.alone_rounds)
        yield _with_loss(lone, found.columns, found.weights())


def _with_loss(search: TreeSearch, columns: Columns, weights: list[Fraction]) -> Packing:
    made = packing_of(search.task, columns, weights)
    if made.optimal:
        return made
    kept = float(made.bound / made.us_per_byte)
    return replace(made, remark=f"{kept:.2%} of the bound's rate, with {tree_limits(made)}")


def _undominated(packings: list[Packing]) -> list[Packing]:
    """Return the Pareto front in rate, number and height of trees, and whether these are unequal.

    Messages of unequal lengths hold each other up: where all ports are full, the best order of 22
    unequal trees at the bound was 23 % over it, that of 112 equal ones at 1.8 % over the bound 4 %.
    """
    keys = [
        (
            p.us_per_byte,
            (trees_per_root(p)[0], max(p.heights, default=0), len(p.trees), unequal(p)),
        )
        for p in packings
    ]
    kept: list[int] = []
    for i in sorted(range(len(packings)), key=lambda i: keys[i]):
        few = keys[i][1]
        if not any(all(a <= b for a, b in zip(keys[j][1], few, strict=True)) for j in kept):
            kept.append(i)
    return [packings[i] for i in kept]


# --- a bound from the prices of the master program ------------------------------------------------

PRICE_GRID = 1 << 24
"""Prices that are not small fractions are rounded to multiples of one over this."""


def with_proven_bound(task: TreeTask, found: WeightedTrees) -> TreeTask:
    """Return the task with the bound that the prices prove, if that is tighter."""
    shares = found.weights.prices
    top = float(shares.max())
    for unit in {common_denominator(shares / top): None, PRICE_GRID: None}:
        if unit is None:
            continue
        whole = [int(n) for n in np.rint(shares / top * unit)]
        try:
            bound, certificate = tree_prices(task.topology, task.collective, _per_row(task, whole))
        except UserError:
            return task
        time = bound / task.us_per_byte(Fraction(1))
        if time > task.bound:
            task = replace(task, bound=time, certificate=certificate)
    return task


def _per_row(task: TreeTask, shares: list[int]) -> list[int]:
    """Integer prices of a use of every resource; an orbit has its share of the whole price."""
    resources = task.resources
    prices = [
        s / (int(n) * b)
        for s, n, b in zip(shares, resources.size, resources.bandwidth, strict=True)
    ]
    unit = lcm(*(p.denominator for p in prices))
    whole = [int(p * unit) for p in prices]
    common = gcd(*whole) or 1
    return [whole[o] // common for o in task.orbits.row_orbit.tolist()]

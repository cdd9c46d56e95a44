"""Fractional paths by column generation: a linear program over paths, priced by Dijkstra.

The program minimises the excess of resources over their capacity, then α, over the paths in the
pool; its prices name the path to add (Ford and Fulkerson 1958, "A suggested computation for maximal
multi-commodity network flows"). A basic solution splits at most as many pairs as there are full
resources;  :mod:`weft.synth.lp.exact_finish` turns into rationals.

Paths as trees without branching: shares of chunks, hops from GPU to GPU, exact loads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass

from ....lp import columns
from ....lp.congestion import Congestion
from ....lp.exact_finish import SplitProgram, exact_weights, overlay
from ....lp.highs import OPTIMAL
from ..trees.demands import PairDemand
from ..trees.model import PackedTree, busiest
from .net import PathNet, entries
from .route import PathJob, PathPrices, Split

_SETTLED = 1e-9
_UNIT = float(1 << 40)


@dataclass(frozen=True, eq=False)
class SplitTask:
    """Pairs to be split within ``room`` per orbit, or at the best rate.

    ``scale`` is the time (chunks per GB/s) that resources are measured in.
    """

    job: PathJob
    room: Sequence[Fraction] | None
    scale: Fraction

    def capacity(self) -> Floats:
        """Return the number of uses that fit into each resource orbit within ``scale``."""
        return np.array([float(w * self.scale) for w in self.job.net.width])


@dataclass(frozen=True, eq=False)
class PathOptimum:
    """A float optimum: weights, prices of pairs and resources, excess load (or U / scale)."""

    x: Floats
    pair_price: Floats
    resource_price: Floats
    excess: float


def split(task: SplitTask) -> tuple[Split, Fraction | None, PathPrices] | None:
    """Return the best weights; None if capacity, effort or exactness does not suffice.

    Where ``room`` is None, also the exact rate that they reach, in chunks per GB/s.
    """
    pool, effort = task.job.pool, task.job.effort
    answer = generate(task, None, effort.rounds)
    if answer is None:
        return None
    prices = PathPrices(answer.resource_price / task.capacity(), answer.excess * float(task.scale))
    if task.room is not None:
        if answer.excess > _SETTLED:
            return None
        answer = generate(task, 1e-9, effort.later_rounds)
        if answer is None:
            return None
    uses = pool.uses()
    load = uses @ answer.x
    capacity = task.capacity()
    room = (
        capacity * answer.excess if task.room is None else np.array([float(r) for r in task.room])
    )
    program = SplitProgram(uses, pool.pair, task.job.count, task.job.net.width, task.room)
    found = exact_weights(program, answer.x, (room - load) / capacity)
    if found is None:
        return None
    kept = [i for i, w in enumerate(found[: len(pool.pair)]) if w]
    weights = tuple(found[i] for i in kept)
    rate = found[-1] if task.room is None else None
    return Split(pool.pair[kept], pool.links[kept], pool.length[kept], weights), rate, prices


def generate(task: SplitTask, excess: float | None, rounds: int) -> PathOptimum | None:
    """Alternate solving and pricing; with ``excess`` given, minimise α at that excess.

    None where not even the first program was solved.
    """
    rng = np.random.default_rng(task.job.seed)
    # The cost of each link: α in units of the mean link, or a tiny constant.
    mean = float(task.job.net.delay.mean()) or 1.0
    cost = np.asarray(task.job.net.delay / mean * (1.0 if excess is not None else 1e-7))
    settled = excess is None and task.room is not None
    return columns.generate(
        _solve(task, excess, cost),
        lambda: _solve(task, excess, cost),
        lambda answer: _price(task, answer, cost, rng),
        lambda answer: (settled and answer.excess <= _SETTLED / 2) or task.job.meter.over(),
        rounds,
    )


def _solve(task: SplitTask, excess: float | None, cost: Floats) -> PathOptimum | None:
    pool, meter = task.job.pool, task.job.meter
    n = len(pool.pair)
    column, links = entries(pool.links, pool.length)
    alpha = np.asarray(np.bincount(column, cost[links], n), np.float64)
    scale = 1.0 / task.capacity()
    room = None
    if task.room is not None:
        room = np.array([float(r) for r in task.room]) * scale
    program = Congestion(
        pool.uses().scaled(scale),
        pool.pair,
        task.job.count.astype(float),
        room=room,
    )
    if excess is None:
        found = program.least(alpha, meter=meter)
    else:
        over = excess if task.room is None else 0.0
        found = program.least(alpha, price=0.0, fixed=over, meter=meter)
    if found.x is None or found.status != OPTIMAL:
        return None
    return PathOptimum(found.x[:n], found.eq_prices, -found.ub_prices, float(found.x[n]))


def _price(task: SplitTask, answer: PathOptimum, cost: Floats, rng: np.random.Generator) -> int:
    """Add paths of negative reduced cost; ties are broken differently in each copy."""
    from .kernels import search_steps, trees

    job, net = task.job, task.job.net
    toll = answer.resource_price / task.capacity()
    resource_start, resources = net.graph[3], net.graph[4]
    full = cost + np.add.reduceat(toll[resources], resource_start[:-1])
    largest = float(full.max())
    if not np.isfinite(largest) or largest <= 0:
        return 0
    unit = _UNIT / largest
    nothing = np.zeros(len(net.tail), np.int64)
    no_price = np.zeros(net.resource_orbits, np.int64)
    added = 0
    for copy in range(job.effort.copies):
        noise = 1.0 if not copy else 1.0 + job.effort.noise * rng.random(len(full))
        soft = np.rint(full * noise * unit).astype(np.int64) + 1
        links, length, work = trees(
            net.graph, net.tail, nothing, soft, no_price, job.src, job.dst, net.longest
        )
        job.meter.spend(search_steps(work) + len(job.src))
        column, at = entries(links, np.maximum(length, 0))
        paid = np.bincount(column, full[at], len(length))
        missing = paid < answer.pair_price - 1e-9 * (1.0 + np.abs(answer.pair_price))
        where = np.flatnonzero(missing & (length > 0))
        added += job.pool.add(where, links[where], length[where])
        if not copy and not len(where):
            break
    return added


Path = tuple[int, ...]


def trees_of(net: PathNet, pairs: PairDemand, way: Split) -> tuple[PackedTree, ...]:
    """One tree for every share of a chunk: the shares of a pair fill its chunks one by one."""
    shares: dict[int, dict[Path, Fraction]] = defaultdict(dict)
    for k, row, n, weight in zip(
        way.pair.tolist(), way.links, way.length.tolist(), way.weight, strict=True
    ):
        path = tuple(row[:n].tolist())
        shares[k][path] = shares[k].get(path, Fraction(0)) + weight
    made = []
    for k in sorted(shares):
        chunks = pairs.chunks[pairs.start[k] : pairs.start[k + 1]].tolist()
        laid = sorted(shares[k].items(), key=lambda x: (-x[1], x[0]))  # the heaviest first
        for path, chunk, weight in overlay(laid, [(c, Fraction(1)) for c in chunks]):
            made.append(_tree(net, chunk, path, weight))
    return tuple(made)


def _tree(net: PathNet, chunk: int, path: Path, weight: Fraction) -> PackedTree:
    """Cut a path into hops at every GPU on it."""
    links = net.topology.links
    ranks = len(net.orbits.rank_orbit)
    ends = [i + 1 for i, link in enumerate(path) if links[link].dst < ranks]
    start = [0, *ends]
    src, dst = [links[path[i]].src for i in start[:-1]], [links[path[i - 1]].dst for i in ends]
    return PackedTree.of(chunk, weight, src, dst, np.zeros(len(ends)), np.diff(start), path)


def figures(net: PathNet, way: Split) -> tuple[Fraction, Fraction]:
    """Chunks per GB/s of the busiest resource, and Σ fraction · α (µs) of the templates.

    Exact, recomputed on the whole machine over all images of all paths.
    """
    scale = math.lcm(*(w.denominator for w in way.weight))
    numbers = np.array([int(w * scale) for w in way.weight], object)
    column, links = entries(way.links, way.length)
    uses = np.zeros(len(net.tail), object)
    np.add.at(uses, links, numbers[column])
    time = busiest(net.topology, net.orbits.link_images, uses) / scale
    slow: dict[Fraction, int] = defaultdict(int)
    for count, link in zip(uses.tolist(), net.topology.links, strict=True):
        slow[link.latency] += count
    return time, sum((Fraction(n, scale) * x for x, n in slow.items()), Fraction(0))

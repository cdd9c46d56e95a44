"""A target rate where the optimum is unknown: prices by multiplicative weights.

The prices of resources that many cheapest paths use rise, phase after phase; every phase's prices
prove a bound (Plotkin, Shmoys and Tardos, "Fast approximation algorithms for fractional packing and
covering problems", 1995). One search per source and phase, so that any number of pairs is cheap.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass

from ....base.meter import Meter
from .effort import PATH_EFFORT, PathEffort
from .net import PathNet
from .pool import PathPool, entries

_UNIT = float(1 << 30)


@dataclass(frozen=True, eq=False)
class PathPrices:
    """Float prices of resource orbits, and the time (chunks per GB/s) that they prove necessary."""

    resources: Floats
    time: float


def prices_by_weights(
    net: PathNet,
    src: Ints,
    dst: Ints,
    count: Ints,
    pool: PathPool | None,
    *,
    meter: Meter,
    effort: PathEffort = PATH_EFFORT,
) -> PathPrices:
    """Return the best prices of some phases; their time is a bound up to float rounding.

    The paths of the last phases, which are spread well, come into the pool, if there is one.
    """
    width = np.array([float(w) for w in net.width])
    total = np.zeros(net.resource_orbits)
    best = PathPrices(1.0 / width, 0.0)
    phases, (first, last) = effort.phases, effort.steepness
    for phase in range(phases):
        steep = first * (last / first) ** (phase / phases)
        use = total / width
        toll = np.exp(steep * (use / max(float(use.max()), 1e-300) - 1.0)) / width
        links, length, paid = _all_cheapest(net, src, dst, count, toll, meter)
        if paid / float(width @ toll) > best.time:
            best = PathPrices(toll, paid / float(width @ toll))
        total += load_of(net, links, length, count)
        if pool is not None and phase >= phases - effort.kept_phases:
            pool.add(np.arange(len(src)), links, length)
        if meter.over():
            break
    return best


def _all_cheapest(
    net: PathNet, src: Ints, dst: Ints, count: Ints, toll: Floats, meter: Meter
) -> tuple[Ints32, Ints, float]:
    """Return a cheapest path per pair, and their total price."""
    from .kernels import search_steps, trees

    resource_start, resources = net.graph[3], net.graph[4]
    full = np.add.reduceat(toll[resources], resource_start[:-1])
    soft = np.rint(full * (_UNIT / float(full.max()))).astype(np.int64) + 1
    none, free = np.zeros(len(net.tail), np.int64), np.zeros(net.resource_orbits, np.int64)
    links, length, work = trees(net.graph, net.tail, none, soft, free, src, dst, net.longest)
    meter.spend(search_steps(work) + len(src))
    column, at = entries(links, np.maximum(length, 0))
    return links, length, float(full[at] @ count[column])


def load_of(net: PathNet, links: Ints32, length: Ints, count: Ints) -> Floats:
    """Return the uses of the resources by paths that carry so many chunks each."""
    column, at = entries(links, np.maximum(length, 0))
    uses = np.bincount(at, count[column].astype(float), len(net.tail))
    resource_start, resources = net.graph[3], net.graph[4]
    load = np.bincount(resources, np.repeat(uses, np.diff(resource_start)), net.resource_orbits)
    return load.astype(np.float64)

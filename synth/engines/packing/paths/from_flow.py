"""Whole paths from a fractional flow: the flow that proves the best rate says where data goes.

Every chunk takes the path of one tree of its source, drawn by the trees' shares (Raghavan and
Thompson, "Randomized rounding", 1987). The draws of a source are spread evenly, so that each tree
gets its share of the destinations up to one. Then chunks move, in turn, to the tree that is the
cheapest, at prices that grow ever steeper with the use of a resource; re-routing (:mod:`.route`)
mends the rest.
"""

from __future__ import annotations

import numpy as np

from weft.dsl.base.arrays import Floats, Ints, Ints32

from ....base.meter import Meter
from ....bounds.orbit_prices import TreeFlow
from .effort import PATH_EFFORT, PathEffort
from .net import PathNet
from .prices import load_of
from .route import Routing


def rounded(
    net: PathNet,
    src: Ints,
    dst: Ints,
    count: Ints,
    flow: TreeFlow,
    *,
    seed: int,
    meter: Meter,
    effort: PathEffort = PATH_EFFORT,
) -> Routing:
    """Return a path for every chunk of the pairs, along the trees of a flow without symmetry."""
    from .kernels import search_steps, settle

    pair = np.repeat(np.arange(len(src)), count)
    begin, end = src[pair], dst[pair]
    source = np.searchsorted(flow.machine.source, begin)
    tree = _drawn(flow, source, seed)
    best = _along(net, pair, begin, end, source, tree, flow)
    width = np.array([float(w) for w in net.width])
    load, rng = best.load.copy(), np.random.default_rng(seed)
    for turn, steep in enumerate(effort.settling):
        if turn >= effort.least_settling and meter.over():
            break
        full = width * float((load / width).max())
        order = rng.permutation(len(pair))
        looked = settle(
            net.graph, net.tail, flow.into, source, begin, end, tree, load, full, order, steep
        )
        meter.spend(search_steps(looked) + len(pair) // 4)
        if (load / width).max() < (best.load / width).max():
            best = _along(net, pair, begin, end, source, tree, flow)
    return best


def _along(
    net: PathNet, pair: Ints, src: Ints, dst: Ints, source: Ints, tree: Ints, flow: TreeFlow
) -> Routing:
    """The paths of chunks along their trees."""
    back = np.zeros((len(pair), net.longest), np.int32)
    length = np.zeros(len(pair), np.int64)
    node, left = dst.copy(), np.arange(len(pair))
    while len(left):  # from the destinations towards the sources
        link = flow.into[tree[left], source[left], node[left]]
        back[left, length[left]] = link
        length[left] += 1
        node[left] = net.tail[link]
        left = left[node[left] != src[left]]
    links = _turned(back, length)
    load = load_of(net, links, length, np.ones(len(pair), np.int64))
    return Routing(1, pair, links, length, load.astype(np.int64))


def _drawn(flow: TreeFlow, source: Ints, seed: int) -> Ints:
    """The tree that each chunk takes, by its source (ascending)."""
    rng = np.random.default_rng(seed)
    total: Floats = np.cumsum(np.maximum(flow.share, 0.0), axis=0)
    share = total / total[-1]
    order = np.lexsort((rng.random(len(source)), source))
    size = np.bincount(source, minlength=share.shape[1])
    place = np.empty(len(source), np.int64)
    place[order] = np.arange(len(source)) - np.repeat(np.cumsum(size) - size, size)
    even = (place + rng.random(share.shape[1])[source]) / size[source]
    # The sums of floats may end below the last draw.
    return np.asarray(np.minimum((share[:, source] < even).sum(axis=0), len(share) - 1))


def _turned(back: Ints32, length: Ints) -> Ints32:
    """Paths that were written from their ends, from their beginnings."""
    at = length[:, None] - 1 - np.arange(back.shape[1])
    return np.where(at >= 0, np.take_along_axis(back, np.maximum(at, 0), axis=1), 0)

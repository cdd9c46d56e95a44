"""Paths as trees without branching: shares of chunks, hops from GPU to GPU, exact loads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass

from ..trees.demands import PairDemand
from ..trees.model import PackedTree
from .columns import Split
from .net import PathNet
from .pool import entries

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
        for chunk, path, weight in _fill_chunks(chunks, shares[k]):
            made.append(_tree(net, chunk, path, weight))
    return tuple(made)


def _fill_chunks(
    chunks: list[int], shares: dict[Path, Fraction]
) -> Iterator[tuple[int, Path, Fraction]]:
    """(chunk, path, share of the chunk): paths laid end to end over the chunks, heaviest first."""
    at = Fraction(0)
    for path, weight in sorted(shares.items(), key=lambda x: (-x[1], x[0])):
        end = at + weight
        while at < end:
            index = at.numerator // at.denominator
            stop = min(end, Fraction(index + 1))
            yield chunks[index], path, stop - at
            at = stop


def _tree(net: PathNet, chunk: int, path: Path, weight: Fraction) -> PackedTree:
    """Cut a path into hops at every GPU on it."""
    links = net.topology.links
    ranks = len(net.orbits.rank_orbit)
    ends = [i + 1 for i, link in enumerate(path) if links[link].dst < ranks]
    start = [0, *ends]
    return PackedTree(
        chunk,
        weight,
        np.array([links[path[i]].src for i in start[:-1]], np.int32),
        np.array([links[path[i - 1]].dst for i in ends], np.int32),
        np.zeros(len(ends), np.bool_),
        np.array(start, np.int32),
        np.array(path, np.int32),
    )


@dataclass(frozen=True, slots=True)
class PathCost:
    """Cost of paths: chunks per GB/s of the busiest resource, and Σ fraction · α (µs)."""

    time: Fraction
    alpha: Fraction


def figures(net: PathNet, way: Split) -> PathCost:
    """Return exact figures, recomputed on the whole machine over all images of all paths."""
    topology = net.topology
    scale = math.lcm(*(w.denominator for w in way.weight))
    numbers = np.array([int(w * scale) for w in way.weight], object)
    column, links = entries(way.links, way.length)
    uses = np.zeros(len(net.tail), object)
    np.add.at(uses, links, numbers[column])
    load = _uses_of_images(net, uses)
    resources = np.array([*load, *(sum(load[list(r.links)]) for r in topology.resources)], object)
    busiest = _largest(resources.tolist(), topology.capacities())
    time = max((Fraction(x, scale) / b for b, x in busiest.items()), default=Fraction(0))
    slow: dict[Fraction, int] = defaultdict(int)
    for count, link in zip(uses.tolist(), topology.links, strict=True):
        slow[link.latency] += count
    return PathCost(time, sum((Fraction(n, scale) * x for x, n in slow.items()), Fraction(0)))


def _uses_of_images(net: PathNet, uses: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Uses of every link by all images, from those by the templates."""
    used = np.flatnonzero(uses)
    images = net.orbits.link_images[:, used]
    if int(uses.sum()) * net.orbits.order < FLOAT_EXACT:
        repeated = np.broadcast_to(uses[used].astype(float), images.shape)
        load = np.bincount(images.ravel(), repeated.ravel(), len(uses))
        return load.astype(np.int64).astype(object)
    total = np.zeros(len(uses), object)
    for image in images:
        total[image] += uses[used]
    return total


def _largest(values: list[int], kinds: tuple[Fraction, ...]) -> dict[Fraction, int]:
    """Return the largest value per kind: comparing integers is far faster than dividing them."""
    found: dict[Fraction, int] = defaultdict(int)
    for value, kind in zip(values, kinds, strict=True):
        if value > found[kind]:
            found[kind] = value
    return found

"""Model of a packing: trees (or paths), the fraction of the data on each, and symmetry.

The model covers all collectives. A *tree* lists the hops of a fraction of one chunk of the plain
collective, each hop after those that it depends on.

* allgather, broadcast: an out-tree from the chunk's owner;
* reduce_scatter, reduce: an in-tree (every hop reduces);
* allreduce: an in-tree to a root, then an out-tree from it;
* alltoall, scatter, gather: a path from owner to destination.

Where the machine is symmetric, trees are *templates*: each stands for its images under the group.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Bools, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ....base.engine import Certificate, Point
from ....fabric.fabric import fabric_of


@dataclass(frozen=True, eq=False)
class PackedTree:
    """A share of one chunk of the plain collective, and the hops that it makes."""

    chunk: int  # which chunk of the plain collective (allgather: its owner; alltoall: s * N + d)
    weight: Fraction  # the share of that chunk, in (0, 1]
    # src, dst: ranks of each hop, shape (hops,); a hop comes after those it depends on: after the
    # one that brought the data to its source, and in the reducing part after all that came in to
    # its source
    src: Ints32
    dst: Ints32
    reduce: Bools  # the destination adds the arrival, shape (hops,)
    # (hops + 1,): of route_links, those of each hop, over nodes that do not store
    route_start: Ints32
    route_links: Ints32

    @staticmethod
    def of(
        chunk: int,
        weight: Fraction,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        reduce: npt.ArrayLike,
        lengths: npt.ArrayLike,
        links: npt.ArrayLike,
    ) -> PackedTree:
        """A tree from columns of its hops, and the links of all routes, one after the other."""
        start = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int32))])
        narrow = (np.asarray(x, np.int32) for x in (src, dst, start, links))
        src, dst, start, links = narrow
        return PackedTree(chunk, weight, src, dst, np.asarray(reduce, bool), start, links)

    def __len__(self) -> int:
        return len(self.src)

    @property
    def lengths(self) -> Ints32:
        """Links of each hop, shape (hops,)."""
        return np.diff(self.route_start)


def point_of(
    schedule: Schedule,
    plain: Collective,
    rate: Fraction,
    bound: Fraction,
    certificate: Certificate,
    size: int,
    words: str = "",
) -> Point:
    """A schedule of the ``plain`` collective, its rate and the bound (µs per byte of M) in rounds;
    best at ``size`` bytes."""
    unit = BYTES_PER_US_PER_GBPS * plain.message_chunks * schedule.topology.round_bandwidth()
    return Point(
        schedule,
        schedule.steps,
        0,
        schedule.collective.factor,
        bound * unit,
        certificate,
        bandwidth_optimal=rate == bound,
        rate=rate * unit,
        words=words,
        sizes=(size,),
    )


@dataclass(frozen=True, eq=False)
class Packing:
    """Trees that together implement a plain collective, with their rate and its bound."""

    # topology, collective: the machine and the plain collective (factor 1)
    topology: Topology
    collective: Collective
    # The templates. The weights of the images of all templates of one chunk sum to 1.
    trees: tuple[PackedTree, ...]
    # A group of automorphisms as images of all nodes, shape (elements, nodes), the identity first;
    # no other element fixes a rank. One row without symmetry.
    images: Ints32
    link_images: Ints32  # the same for links, shape (elements, links)
    # µs per byte of M that the busiest resource is occupied: the rate, exactly
    us_per_byte: Fraction
    # A proved lower bound on that, for any schedule or (see certificate) any packing
    bound: Fraction
    certificate: Certificate  # why the bound holds
    remark: str = ""  # loss of the packing by few or low trees, in words; empty if none

    @property
    def optimal(self) -> bool:
        """True if the rate equals the bound, as rationals."""
        return self.us_per_byte == self.bound

    def rated(self) -> Packing:
        """The same with the rate that its trees have."""
        unit = lcm(*(t.weight.denominator for t in self.trees))
        uses = np.zeros(len(self.topology.links), np.int64 if unit < 1 << 42 else object)
        for tree in self.trees:
            used = np.bincount(tree.route_links, minlength=len(uses))
            uses += used.astype(uses.dtype) * int(tree.weight * unit)
        per_chunk = self.collective.message_chunks * BYTES_PER_US_PER_GBPS
        time = busiest(self.topology, self.link_images, uses)
        return replace(self, us_per_byte=time / (unit * per_chunk))

    @property
    def heights(self) -> tuple[int, ...]:
        """Longest chain of dependent hops of each template."""
        return tuple(map(height, self.trees))


def busiest(topology: Topology, link_images: Ints32, uses: AnyArray) -> Fraction:
    """Time of the busiest resource, exactly: uses per GB/s.

    ``uses``: of each link by the templates, integers of any size. Their images load all links of an
    orbit alike.
    """
    fabric, orbit = fabric_of(topology), link_images.min(axis=0)
    total = np.zeros(fabric.links, uses.dtype)
    np.add.at(total, orbit, uses)
    size = np.bincount(orbit, minlength=fabric.links)
    each = (total * (len(link_images) // np.maximum(size, 1)))[orbit]
    load = np.zeros(fabric.resources, uses.dtype)
    np.add.at(load, fabric.pairs[0], each[fabric.pairs[1]])
    most: dict[Fraction, int] = {}  # of each width: to compare integers is far quicker
    for used, width in zip(load.tolist(), fabric.bandwidth, strict=True):
        if used > most.get(width, 0):
            most[width] = used
    return max((Fraction(used) / width for width, used in most.items()), default=Fraction(0))


def height(tree: PackedTree) -> int:
    """Return the hops on the longest chain: root to farthest leaf, or leaf to leaf."""
    depth: dict[int, int] = {}
    for src, dst in zip(tree.src.tolist(), tree.dst.tolist(), strict=True):
        depth[dst] = max(depth.get(dst, 0), depth.get(src, 0) + 1)
    return max(depth.values(), default=0)


def root(tree: PackedTree) -> int:
    """Return the rank at which an out-tree starts or an in-tree ends (of a pair: both)."""
    reducing = int(tree.reduce.sum())
    if reducing:
        return int(tree.dst[reducing - 1])
    return int(tree.src[0])


def unequal(packing: Packing) -> bool:
    """Return True if some trees carry more than others."""
    return len({tree.weight for tree in packing.trees if len(tree)}) > 1


def trees_per_root(packing: Packing) -> tuple[int, int]:
    """Return the largest and smallest number of templates of one chunk and root."""
    many = Counter((t.chunk, root(t)) for t in packing.trees).values()
    return max(many, default=0), min(many, default=0)


def tree_limits(packing: Packing) -> str:
    """``at most 7 trees per root, 5 hops``."""
    most, least = trees_per_root(packing)
    bound = "" if most == least else "at most "
    return f"{bound}{count(most, 'tree')} per root, {count(tree_depth(packing), 'hop')}"


def tree_depth(packing: Packing) -> int:
    """Return the hops between a root and its farthest leaf, which height limits refer to.

    In allreduce sums go up a tree and results go down one; each of the two is limited.
    """
    if packing.collective.kind is not Kind.ALLREDUCE:
        return max(packing.heights, default=0)
    return max((max(halves(t)) for t in packing.trees), default=0)


def halves(tree: PackedTree) -> tuple[int, int]:
    """Return the heights of the reducing part and of the broadcasting part."""
    sums = int(np.count_nonzero(tree.reduce))
    return height(_hops(tree, slice(0, sums))), height(_hops(tree, slice(sums, None)))


def _hops(tree: PackedTree, part: slice) -> PackedTree:
    return replace(tree, src=tree.src[part], dst=tree.dst[part])

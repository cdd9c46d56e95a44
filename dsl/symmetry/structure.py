"""Topologies as arrays for symmetry tests: equality classes, without names and hosts.

Links are compared with bandwidth, latency, lanes and the sizes and bandwidths of the resources
that hold them. The action of a node permutation on links and resources is found by sorting, so
that thousands of candidates can be tested on thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from ..base.arrays import Ints, Ints32, Words, scrambled
from ..base.kept import kept
from ..base.lazy_dataclass import Frozen
from ..nouns.topology import Topology


class Structure(Frozen, eq=False):
    """Nodes, links and resources with a class number each, equal for equal kinds."""

    ranks: int  # nodes 0 … ranks - 1
    node_class: Ints  # (nodes,): kind, capabilities and limits
    ends: Ints  # (links, 2): source and destination, nodes
    link_class: Ints  # (links,): bandwidth, latency, lanes, and the classes of what holds it
    held: Ints  # (pairs, 2): resource and link, one row for each link of each resource
    resource_class: Ints  # (resources,): bandwidth and number of links
    order: Ints  # (links,): sorts the links by ends and class, stably

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of nodes, links and resources."""
        return len(self.node_class), len(self.link_class), len(self.resource_class)

    def keys(self, ends: Ints) -> Ints:
        """Return one number per link for its ends and class, equal for parallel equal links."""
        classes = int(self.link_class.max(initial=0)) + 1
        return (ends[:, 0] * len(self.node_class) + ends[:, 1]) * classes + self.link_class

    def act(self, image: Ints) -> Ints32 | None:
        """Return the image of all points under an image of the nodes; None if no automorphism.

        Parallel equal links are mapped in order, as are equal resources on equal links: therefore
        the results compose as the images do.
        """
        nodes, links, _ = self.sizes
        if not np.array_equal(self.node_class[image], self.node_class):
            return None
        moved = self.link_image(image)
        if moved is None:
            return None
        lifted = self._resource_image(moved)
        if lifted is None:
            return None
        return np.concatenate((image, nodes + moved, nodes + links + lifted)).astype(np.int32)

    def link_image(self, image: Ints) -> Ints | None:
        """Return the image of every link, or None if some link has none."""
        moved = self.keys(image[self.ends])
        order = np.argsort(moved, kind="stable")
        if not np.array_equal(self.keys(self.ends)[self.order], moved[order]):
            return None
        result = np.empty(len(order), np.int64)
        result[order] = self.order
        return result

    def _resource_image(self, moved: Ints) -> Ints | None:
        count, links = len(self.resource_class), len(self.link_class)
        result = np.arange(count)
        if not count:
            return result
        owner, link = self.held[:, 0], self.held[:, 1]
        before, after = (_set_hash(owner, each, count) for each in (link, moved[link]))
        here = np.lexsort((before, self.resource_class))
        there = np.lexsort((after, self.resource_class))
        result[there] = here  # equal hashes of one class are paired, in order
        # Hashes only propose candidates; the sets are then compared member by member.
        same_class = np.array_equal(self.resource_class[result], self.resource_class)
        pairs = np.sort(owner * links + link)
        same_sets = np.array_equal(np.sort(result[owner] * links + moved[link]), pairs)
        return result if same_class and same_sets else None


@kept(most=16)
def structure_of(topology: Topology) -> Structure:
    """Return the arrays of a topology. Cost O(links · log links)."""
    ends = topology.link_ends()
    resources = topology.resources
    owner = np.repeat(np.arange(len(resources)), [len(r.links) for r in resources])
    members = np.fromiter((i for r in resources for i in r.links), np.int64, len(owner))
    held = np.stack((owner, members), axis=1).astype(np.int64)
    resource_class = _numbered((r.bandwidth, len(r.links)) for r in resources)
    link_class = _link_classes(topology)
    if resources:
        above: list[list[int]] = [[] for _ in topology.links]
        for i, kind in zip(members.tolist(), resource_class[owner].tolist(), strict=True):
            above[i].append(kind)
        link_class = _numbered(
            (kind, *sorted(a)) for kind, a in zip(link_class.tolist(), above, strict=True)
        )
    order = np.lexsort((link_class, ends[:, 1], ends[:, 0]))
    node_class = _numbered((n.kind, *n.capabilities, n.limits) for n in topology.nodes)
    return Structure(topology.ranks, node_class, ends, link_class, held, resource_class, order)


def permutation(image: Sequence[int] | Ints, size: int) -> Ints | None:
    """Return the image as an array, or None if it is not a permutation of 0 … size-1."""
    if len(image) != size:
        return None
    where = np.asarray(image, np.int64)
    if size and (where.min() < 0 or where.max() >= size):
        return None
    return where if (np.bincount(where, minlength=size) == 1).all() else None


def _set_hash(owner: Ints, members: Ints, count: int) -> Words:
    sums = np.zeros(count, np.uint64)
    np.add.at(sums, owner, scrambled(members.astype(np.uint64) + np.uint64(1)))
    return sums


def _link_classes(topology: Topology) -> Ints:
    """Return one class number per link: equal for equal bandwidth, latency and lanes."""
    # Hashing a fraction takes a modular inverse, so objects shared by links are hashed once.
    seen: dict[tuple[int, int, int], int] = {}
    known: dict[tuple[object, ...], int] = {}
    result = []
    for x in topology.links:
        same = (id(x.bandwidth), id(x.latency), x.lanes)
        if same not in seen:
            seen[same] = known.setdefault((x.bandwidth, x.latency, x.lanes), len(known))
        result.append(seen[same])
    return np.array(result, np.int64)


def _numbered(keys: Iterable[Hashable]) -> Ints:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)

"""Convert a packing to a schedule: all images of all templates, steps, sizes in grains.

A *hop* here is a hop of a template; its *images* under the group are the transfers. All tables are
columns: a thousand roots with a thousand hops each are a million transfers, and no Python
statement runs once per transfer.

The step of a hop is the number of hops that must precede it (a chunk's longest chain). No transfer
waits for a step to end in the simulator, so these steps add no dependences to those of the trees.
Inside a step hops are ordered by priority and the images of one hop are adjacent: on a symmetric
machine they start together and the state stays symmetric, so that images do not contend for a
resource unless templates do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Bools, Ints, Ints32
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule

from ..trees.model import PackedTree, Packing, root
from ..trees.shares import TemplateShares, shares

_BLOCK = 1 << 20  # transfers whose routes are made at a time, for the sake of memory


@dataclass(frozen=True, eq=False)
class TemplateHops:
    """Columns of the hops of all templates, one template after the other.

    Attributes:
        tree: the template of each hop, shape (hops,).
        src, dst, reduce: as in :class:`PackedTree`.
        level: hops on the longest chain that must come before.
        start, links: the route of hop i is ``links[start[i]:start[i + 1]]``.
    """

    tree: Ints
    src: Ints
    dst: Ints
    reduce: Bools
    level: Ints
    start: Ints
    links: Ints

    def __len__(self) -> int:
        return len(self.tree)

    @property
    def lengths(self) -> Ints:
        """Links of each route, shape (hops,)."""
        return np.diff(self.start)

    @staticmethod
    def of(trees: tuple[PackedTree, ...], ranks: int) -> TemplateHops:
        """The columns of some trees. Cost: O(hops · height) array work."""
        counts = [len(t) for t in trees]
        tree = np.repeat(np.arange(len(trees)), counts)
        src, dst = (_concatenate([getattr(t, name) for t in trees]) for name in ("src", "dst"))
        reduce = _concatenate([t.reduce for t in trees]).astype(bool)
        lengths = _concatenate([np.diff(t.route_start) for t in trees])
        start = np.concatenate([[0], np.cumsum(lengths)])
        links = _concatenate([t.route_links[t.route_start[0] : t.route_start[-1]] for t in trees])
        level = _levels(tree * ranks + src, tree * ranks + dst, reduce, len(trees) * ranks)
        return TemplateHops(tree, src, dst, reduce, level, start, links)


def _concatenate(columns: list[Any]) -> Ints:
    if not columns:
        return np.zeros(0, np.int64)
    return np.concatenate([np.asarray(x, np.int64) for x in columns])


def _levels(source: Ints, target: Ints, reduce: Bools, places: int) -> Ints:
    """Hops on the longest chain before each hop.

    What is reduced waits for the sums at its source, what is copied for the copy that came there,
    or, at the root, for the sums.
    """
    level = np.zeros(len(source), np.int64)
    while True:
        summed, copied = np.zeros(places, np.int64), np.zeros(places, np.int64)
        np.maximum.at(summed, target[reduce], level[reduce] + 1)
        np.maximum.at(copied, target[~reduce], level[~reduce] + 1)
        new = np.where(reduce, summed[source], np.maximum(summed, copied)[source])
        if np.array_equal(new, level):
            return level
        if new.max() > len(source):
            raise AssertionError("hops of a tree wait for each other")
        level = new


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """A packing prepared for schedules: its transfers, without their order.

    Attributes:
        packing: what it was made from.
        hops: the hops of its templates.
        shares: grains of each template, and whether they are exact.
        collective: the plain collective, cut into the pieces that the trees carry.
        piece: chunk of ``collective`` that image g of template t carries, shape (templates,
            elements).
    """

    packing: Packing
    hops: TemplateHops
    shares: TemplateShares
    collective: Collective
    piece: Ints

    @staticmethod
    def of(packing: Packing, grains: int = 0) -> PackingPlan:
        """The plan of a packing whose shares make up every chunk; with ``grains``, rounded to so
        many of the message.

        Raises:
            UserError: the shares do not make up every chunk.
        """
        given = shares(packing, plain_chunks(packing), grains)
        carried = given.plain.ravel()
        # A chunk that no tree carries stays where it is (alltoall: what a rank sends to itself).
        idle = np.setdiff1d(np.arange(packing.collective.chunks), carried)
        everything = np.concatenate([carried, idle])
        nearby = np.concatenate([_slots(packing, given.kept).ravel(), np.zeros_like(idle)])
        order = np.lexsort((nearby, everything))
        piece = np.empty(len(order), np.int64)
        piece[order] = np.arange(len(order))
        each = np.repeat(given.grains, given.plain.shape[1])
        pieces = np.concatenate([each, np.full(len(idle), given.factor)])[order]
        count = np.bincount(everything, minlength=packing.collective.chunks)
        collective = packing.collective.cut_in(pieces, count)
        kept = tuple(packing.trees[i] for i in given.kept)
        hops = TemplateHops.of(kept, packing.topology.ranks)
        return PackingPlan(
            packing, hops, given, collective, piece[: carried.size].reshape(-1, len(packing.images))
        )

    @cached_property
    def transfers(self) -> int:
        """Transfers of a schedule, without segments."""
        return len(self.hops) * len(self.packing.images)

    def schedule(
        self,
        priority: npt.ArrayLike | None = None,
        stride: int = 0,
        segments: int = 1,
        provenance: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """The schedule in which hop i has priority ``priority[i]`` (by default its level).

        O(transfers), in array operations.
        """
        hops, packing = self.hops, self.packing
        urgency = np.asarray(hops.level if priority is None else priority, np.int64)
        order = np.lexsort((urgency, hops.level))
        elements = len(packing.images)
        images = np.ascontiguousarray(packing.images.T, np.int32)
        return Schedule.from_columns(
            packing.topology,
            self.collective,
            self.piece.astype(np.int32)[hops.tree[order]].reshape(-1),
            images[hops.src[order]].reshape(-1),
            images[hops.dst[order]].reshape(-1),
            np.repeat(hops.level[order].astype(np.int32), elements),
            np.repeat(hops.reduce[order], elements),
            np.repeat(hops.lengths[order], elements),
            self._links(order),
            priority=np.repeat(urgency[order], elements),
            stride=stride,
            segments=segments,
            provenance=provenance,
        )

    def _links(self, order: Ints) -> Ints32:
        """The routes of the images of hops, one after the other; some hops at a time."""
        hops, elements = self.hops, len(self.packing.images)
        images = np.ascontiguousarray(self.packing.link_images.T, np.int32)
        begin = np.concatenate([[0], np.cumsum(hops.lengths[order])])
        found = np.empty(begin[-1] * elements, np.int32)
        some = max(1, _BLOCK // elements)
        for first in range(0, len(order), some):
            which = order[first : first + some]
            start, at = rows_of(hops.start, which)
            length = np.diff(start)
            # Link j of element g of a hop is at start * elements + g * length + j.
            hop = np.repeat(np.arange(len(which)), length)
            place = np.arange(len(at)) + start[hop] * (elements - 1)
            all_places = place[:, None] + length[hop][:, None] * np.arange(elements)
            found[begin[first] * elements + all_places] = images[hops.links[at]]
        return found


def _slots(packing: Packing, kept: tuple[int, ...]) -> Ints:
    """Return the position of each piece of a chunk, shape (templates, elements).

    Pieces whose roots have the same slot in their hosts are adjacent: on rails these travel
    together inside a host, and become one message when they are lowered.
    """
    hosts = packing.topology.host_of
    seen: dict[int | None, int] = {}
    slot = np.zeros(len(hosts), np.int64)
    for rank, host in enumerate(hosts):
        slot[rank] = seen.setdefault(host, 0)
        seen[host] += 1
    roots = [root(packing.trees[t]) if len(packing.trees[t]) else 0 for t in kept]
    found: Ints = slot[packing.images[:, roots].T.astype(np.int64)].reshape(len(kept), -1)
    return found


def plain_chunks(packing: Packing) -> Ints:
    """The chunk of the plain collective that each image of each template carries, shape
    (templates, elements)."""
    collective, images = packing.collective, packing.images.astype(np.int64)
    chunk = np.array([t.chunk for t in packing.trees], np.int64)
    if len(images) == 1 or collective.kind is Kind.ALLREDUCE:
        return np.repeat(chunk[:, None], len(images), axis=1)
    if collective.kind in (Kind.ALLGATHER, Kind.REDUCE_SCATTER):
        return images[:, chunk].T
    if collective.kind is Kind.ALLTOALL:
        n = collective.ranks
        return (images[:, chunk // n] * n + images[:, chunk % n]).T
    raise AssertionError(f"{collective.kind} has no symmetry that moves every rank")

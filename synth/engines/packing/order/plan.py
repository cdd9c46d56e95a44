"""Convert a packing to a schedule: all images of all templates, steps, sizes in grains.

A *hop* here is a hop of a template; its *images* under the group are the transfers. All tables are
columns: a thousand roots with a thousand hops each are a million transfers, and no Python
statement runs once per transfer.

The step of a hop is the number of hops that must precede it (a chunk's longest chain). No transfer
waits for a step to end in the simulator, so these steps add no dependences to those of the trees.
Inside a step hops are ordered by priority and the images of one hop are adjacent: on a symmetric
machine they start together and the state stays symmetric, so that images do not contend for a
resource unless templates do.

Time of a packing from its templates alone: one resource is simulated per orbit of resources.

A hop of a template stands for its images, one per element of the group. If these start together,
all resources of an orbit do the same at the same time, so one of them is simulated. Where an orbit
has fewer resources than the group has elements, several images share each resource: there one hop
occupies the resource that many times longer. Without symmetry this is the schedule itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Bools, Floats, Ints, Ints32
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ....fabric.fabric import fabric_of
from ..trees.model import PackedTree, Packing, root, unequal
from ..trees.quantize import TemplateShares, shares
from . import plan_kernel
from .plan_kernel import FOREVER, SliceWork

_BLOCK = 1 << 20  # transfers whose routes are made at a time, for the sake of memory


@dataclass(frozen=True, eq=False)
class TemplateHops:
    """Columns of the hops of all templates, one template after the other."""

    tree: Ints  # template of each hop
    src: Ints  # rank, in the frame of the template
    dst: Ints  # rank, likewise
    reduce: Bools  # what comes is added to what is there
    level: Ints  # hops on the longest chain that must come before
    start: Ints  # (hops + 1,): of links, the route of each hop
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
    """A packing prepared for schedules: its transfers, without their order."""

    packing: Packing
    hops: TemplateHops
    shares: TemplateShares  # grains of each template, and whether they are exact
    collective: Collective  # the plain one, cut into the pieces that the trees carry
    piece: Ints  # (templates, elements): chunk of the collective that an image carries

    @staticmethod
    def of(packing: Packing, grains: int = 0) -> PackingPlan:
        """The plan of a packing whose shares make up every chunk; with ``grains``, rounded to that
        many grains of the message.

        Raises:
            UserError: the shares do not make up every chunk.
        """
        given = shares(packing, plain_chunks(packing), grains)
        carried = given.plain.ravel()
        # A chunk that no tree carries stays where it is (alltoall: what a rank sends to itself).
        idle = np.setdiff1d(np.arange(packing.collective.chunks), carried)
        everything = np.concatenate([carried, idle])
        nearby = np.concatenate([_slots(packing, given.kept).ravel(), np.zeros_like(idle)])
        order = np.lexsort((nearby, everything))  # pieces by chunk, in it by slot
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
        # of each hop, in the order of the templates
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
    raise AssertionError(f"{collective.kind} lacks a symmetry that moves every rank")


_LONGEST = float(1 << 55)  # ticks of one hop at most, so that sums along a chain fit 64 bits
_FINE = 40  # the busiest resource is held for 2^40 ticks or more: α is rounded to under 1e-12 of it
_ALL = 1 << 60  # ticks that the costs of all messages of one resource add, at most
_COARSE = 54  # and for at most 2^54, that nothing overflows


def unfolded(packing: Packing) -> Packing:
    """Return the packing with every image as a separate tree, and no group."""
    images, moved = packing.images, packing.link_images
    plain = plain_chunks(packing)
    trees = tuple(
        replace(
            tree,
            chunk=int(chunk),
            src=node[tree.src],
            dst=node[tree.dst],
            route_links=link[tree.route_links],
        )
        for tree, chunks in zip(packing.trees, plain, strict=True)
        for node, link, chunk in zip(images, moved, chunks, strict=True)
    )
    return replace(packing, trees=trees, images=images[:1], link_images=moved[:1])


@dataclass(frozen=True, eq=False)
class PlanQuotient:
    """The hops of a plan on orbits of resources. Holds are in ticks that shrink with the message.

    In ``work`` a place is (template, rank, whether sums or copies come there), a resource an orbit
    of them; ``leaves`` are the longest holds, and ``lasts`` leave out α.
    """

    plan: PackingPlan
    work: SliceWork
    alpha: Floats  # µs of each route
    tick: Fraction  # µs per byte of a slice that a tick is
    exact: bool  # no two images of a hop meet at a resource: the full schedule takes as long
    met: Ints  # messages of each hold: images of its hop that come to one resource
    loads: Ints  # ticks that each resource is held for one slice
    messages: Ints  # and by how many messages

    @staticmethod
    def of(plan: PackingPlan) -> PlanQuotient:
        """The quotient of a plan. O(links of all templates)."""
        hops, packing = plan.hops, plan.packing
        ranks = packing.topology.ranks
        # A rank that gets a copy sends that on; one that gets only sums sends those.
        here, there = hops.tree * ranks + hops.src, hops.tree * ranks + hops.dst
        copied = np.zeros((int(hops.tree.max(initial=0)) + 1) * ranks, bool)
        copied[there[~hops.reduce]] = True
        reads, writes = 2 * here + (~hops.reduce & copied[here]), 2 * there + ~hops.reduce
        orbit, size, x, unit = _rows(packing.topology, packing.link_images)
        position, held = fabric_of(packing.topology).resources_of(hops.links)
        hop = np.repeat(np.arange(len(hops)), hops.lengths)[position]
        keys, uses = np.unique(hop * len(size) + orbit[held], return_counts=True)
        hop, resource = keys // len(size), keys % len(size)
        # images of a hop that share one resource of the orbit
        met = uses * len(packing.images) // size[resource]
        holds = plan.shares.grains[hops.tree[hop]].astype(object) * x[resource] * met
        unit /= plan.collective.message_chunks
        holds, unit = _scale(holds, resource, len(size), unit)
        alpha = np.array([float(link.latency) for link in packing.topology.links])
        sums = np.add.reduceat(alpha[hops.links], hops.start[:-1]) if len(hops) else alpha[:0]
        first = np.searchsorted(hop, np.arange(len(hops) + 1))
        leaves = np.maximum.reduceat(holds, first[:-1]) if len(hops) else holds
        load, messages = np.zeros((2, len(size)), np.int64)
        np.add.at(load, resource, holds)
        np.add.at(messages, resource, met)
        work = work_of(reads, writes, (first, resource, holds, leaves, leaves, len(size)))
        exact = bool((met == 1).all())
        return PlanQuotient(plan, work, sums, unit, exact, met, load, messages)

    @property
    def busiest(self) -> int:
        """Return the ticks that the busiest resource is held for one slice."""
        return int(self.loads.max(initial=0))

    def floor_us(self, message_bytes: int, segments: int, message_us: float) -> float:
        """Return a lower bound in µs on all orders, where each message takes ``message_us`` more:
        what the busiest resource is held, or the longest chain of α."""
        one = self.loads * self.slice_us(message_bytes, segments) + self.messages * message_us
        return max(segments * float(one.max(initial=0.0)), self.chain_us)

    @property
    def unequal(self) -> bool:
        """Return True if its trees carry different shares."""
        return unequal(self.plan.packing)

    @cached_property
    def chain_us(self) -> float:
        """The longest sum of α of hops that wait for each other."""
        level, work = self.plan.hops.level, self.work
        ready = np.zeros(len(work.arrivals))
        for step in range(int(level.max(initial=-1)) + 1):
            now = np.flatnonzero(level == step)
            np.maximum.at(ready, work.target[now], ready[work.source[now]] + self.alpha[now])
        return float(ready.max(initial=0.0))

    def slice_us(self, message_bytes: int, segments: int) -> float:
        """µs per tick, where the message is sent in ``segments`` slices."""
        return float(self.tick * message_bytes / segments)

    def lasts(self, message_bytes: int, segments: int) -> Ints:
        """Return the ticks from the start of each hop to its arrival, for one slice."""
        # α beyond all holds: what it is exactly does not matter, that it fits does.
        alpha = np.rint(np.minimum(self.alpha / self.slice_us(message_bytes, segments), _LONGEST))
        return self.work.leaves + alpha.astype(np.int64)

    def _charged(self, message_bytes: int, segments: int, message_us: float) -> SliceWork:
        """Return the hops of one slice, with ``message_us`` more for each message."""
        lasts = self.lasts(message_bytes, segments)
        if not (message_us and len(self.met)):
            return self.work._replace(lasts=lasts)
        most = _ALL // max(1, segments * int(self.messages.max(initial=0)))
        more = round(min(message_us / self.slice_us(message_bytes, segments), most))
        holds = self.work.holds + more * self.met
        leaves = np.maximum.reduceat(holds, self.work.first_resource[:-1])
        lasts = lasts - self.work.leaves + leaves
        return self.work._replace(holds=holds, leaves=leaves, lasts=lasts)

    def tails(self, message_bytes: int, segments: int) -> Ints:
        """Return the ticks from the start of each hop until all its dependents have arrived."""
        work = self.work._replace(lasts=self.lasts(message_bytes, segments))
        return tails(work, np.argsort(self.plan.hops.level, kind="stable"))

    def time_us(
        self,
        message_bytes: int,
        segments: int,
        priority: Ints,
        stride: int,
        limit_us: float = float("inf"),
    ) -> float:
        """Return the µs of a run in this order; infinite if it exceeds the limit.

        O(hops · segments · log), less than a µs each.
        """
        return self.run(message_bytes, segments, priority, stride, limit_us)[0]

    def run(
        self,
        message_bytes: int,
        segments: int,
        priority: Ints,
        stride: int,
        limit_us: float,
        message_us: float = 0,
    ) -> tuple[float, int]:
        """As :meth:`time_us`, and how often a slice of a hop was looked at: before it starts it
        waits for each of its resources. Each message holds them for ``message_us`` more."""
        work = self._charged(message_bytes, segments, message_us)
        us = self.slice_us(message_bytes, segments)
        limit = int(min(limit_us / us, float(FOREVER)))
        looks = np.zeros(1, np.int64)
        ticks = fast(plan_kernel).makespan(
            work, segments, priority, stride, limit, np.zeros(0, np.int64), looks
        )
        took = float("inf") if ticks == FOREVER else ticks * us
        return took, int(looks[0])


Held = tuple[Ints, Ints, Ints, Ints, Ints, int]
"""Resources that hops hold: the columns of :class:`SliceWork` from ``first_resource`` on."""


def work_of(reads: Ints, writes: Ints, held: Held) -> SliceWork:
    """Hops that read and write places, which have any distinct numbers and are numbered here."""
    known, number = np.unique(np.concatenate([reads, writes]), return_inverse=True)
    source, target = number[: len(reads)], number[len(reads) :]
    readers = np.argsort(source, kind="stable")
    arrivals = np.bincount(target, minlength=len(known))
    first = np.searchsorted(source[readers], np.arange(len(known) + 1))
    return SliceWork(source, target, arrivals, first, readers, *held)


def tails(work: SliceWork, order: Ints) -> Ints:
    """The ticks from the start of each hop until all its dependents have arrived; ``order``: hops
    behind those that they wait for."""
    longest = np.zeros(len(work.arrivals), np.int64)
    found = fast(plan_kernel).tails(order, work.source, work.target, work.lasts, longest)
    return cast(Ints, found)


def _rows(
    topology: Topology, link_images: Ints32
) -> tuple[Ints, Ints, npt.NDArray[np.object_], Fraction]:
    """Orbit of each resource, resources per orbit, time per grain of a resource of each orbit in
    whole units, and that unit in µs per byte."""
    labels = [link_images.min(axis=0).astype(np.int64), _resource_labels(topology, link_images)]
    label = np.concatenate([labels[0], labels[1] + len(labels[0])])
    _, orbit = np.unique(label, return_inverse=True)
    size = np.bincount(orbit)
    common = lcm(*(b.numerator for b in topology.capacities()))
    x = np.zeros(len(size), object)
    for resource, bandwidth in zip(orbit.tolist(), topology.capacities(), strict=True):
        x[resource] = bandwidth.denominator * (common // bandwidth.numerator)
    return orbit, size, x, Fraction(1, common * BYTES_PER_US_PER_GBPS)


def _resource_labels(topology: Topology, link_images: Ints32) -> Ints:
    """Shared resources of one orbit get one number: the least fingerprint of their images."""
    if not topology.resources:
        return np.zeros(0, np.int64)
    rng = np.random.default_rng(0)
    mark = rng.integers(1 << 40, size=len(topology.links))
    sizes = np.array([len(r.links) for r in topology.resources])
    links = np.array([i for r in topology.resources for i in r.links])
    kinds = np.array([hash(r.bandwidth) % (1 << 40) for r in topology.resources])
    start = np.cumsum(sizes) - sizes
    least = np.full(len(sizes), np.iinfo(np.int64).max)
    for image in link_images:
        least = np.minimum(least, np.add.reduceat(mark[image[links]], start) + kinds)
    return np.unique(least, return_inverse=True)[1].astype(np.int64)


def _scale(
    holds: npt.NDArray[np.object_], resources: Ints, count: int, unit: Fraction
) -> tuple[Ints, Fraction]:
    """The same in ticks that are fine enough for α, and coarse enough for 64 bits."""
    load = [0] * count
    for resource, hold in zip(resources.tolist(), holds.tolist(), strict=True):
        load[resource] += hold
    busiest = max(load, default=1)
    if busiest.bit_length() > _COARSE:
        coarse = 1 << (busiest.bit_length() - _COARSE)
        return np.array(
            [max(1, round(Fraction(h, coarse))) for h in holds], np.int64
        ), unit * coarse
    finer = 1 << max(0, _FINE - busiest.bit_length())
    return (holds * finer).astype(np.int64), unit / finer

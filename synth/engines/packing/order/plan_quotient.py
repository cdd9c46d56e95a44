"""Time of a packing from its templates alone: one resource is simulated per orbit of resources.

A hop of a template stands for its images, one per element of the group. If these start together,
all resources of an orbit do the same at the same time, so one of them is simulated. Where an orbit
has fewer resources than the group has elements, several images share each resource: there one hop
occupies the resource that many times longer. Without symmetry this is the schedule itself.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import cast

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Floats, Ints, Ints32
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology

from ....fabric.fabric import fabric_of
from ..trees.model import Packing, unequal
from . import plan_kernel
from .plan import PackingPlan, TemplateHops, plain_chunks
from .plan_kernel import FOREVER, SliceWork

_LONGEST = float(1 << 55)  # ticks of one hop at most, so that sums along a chain fit 64 bits
_FINE = 40  # the busiest resource is held for 2^40 ticks or more: α is rounded to under 1e-12 of it
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

    Attributes:
        plan: what it was made from.
        source, target: the place that each hop reads and writes: (template, rank, whether sums or
            copies come there), numbered.
        arrivals: hops that bring something to each place.
        first_reader, readers: ``readers[first_reader[p]:first_reader[p + 1]]`` read place p.
        first_resource, resources, holds: resources of hop h are
            ``resources[first_resource[h]:first_resource[h + 1]]``, each held for ``holds`` ticks.
        leaves: the longest of its holds, for each hop.
        resource_count: number of orbits.
        alpha: µs of each route.
        tick: µs per byte of a slice that a tick is.
        exact: no two images of a hop meet at a resource, so the full schedule takes as long.
        busiest: ticks that the busiest resource is held for one slice.
    """

    plan: PackingPlan
    source: Ints
    target: Ints
    arrivals: Ints
    first_reader: Ints
    readers: Ints
    first_resource: Ints
    resources: Ints
    holds: Ints
    leaves: Ints
    resource_count: int
    alpha: Floats
    tick: Fraction
    exact: bool
    busiest: int

    @staticmethod
    def of(plan: PackingPlan) -> PlanQuotient:
        """The quotient of a plan. O(links of all templates)."""
        hops, packing = plan.hops, plan.packing
        source, target, arrivals = _places(hops, packing.topology.ranks)
        order = np.argsort(source, kind="stable")
        first_reader = np.searchsorted(source[order], np.arange(len(arrivals) + 1))
        orbit, size, x, unit = _rows(packing.topology, packing.link_images)
        hop, resource, uses = _holds(hops, packing.topology, orbit)
        met = uses * len(packing.images) // size[resource]
        holds = plan.shares.grains[hops.tree[hop]].astype(object) * x[resource] * met
        unit /= plan.collective.message_chunks
        holds, unit = _scale(holds, resource, len(size), unit)
        alpha = np.array([float(link.latency) for link in packing.topology.links])
        sums = np.add.reduceat(alpha[hops.links], hops.start[:-1]) if len(hops) else alpha[:0]
        first_resource = np.searchsorted(hop, np.arange(len(hops) + 1))
        leaves = np.maximum.reduceat(holds, first_resource[:-1]) if len(hops) else holds
        return PlanQuotient(
            plan,
            source,
            target,
            arrivals,
            first_reader,
            order,
            first_resource,
            resource,
            holds,
            leaves,
            len(size),
            sums,
            unit,
            bool((met == 1).all()),
            _busiest(resource, holds, len(size)),
        )

    @property
    def unequal(self) -> bool:
        """Return True if its trees carry different shares."""
        return unequal(self.plan.packing)

    @cached_property
    def chain_us(self) -> float:
        """The longest sum of α of hops that wait for each other."""
        level, ready = self.plan.hops.level, np.zeros(len(self.arrivals))
        for step in range(int(level.max(initial=-1)) + 1):
            now = np.flatnonzero(level == step)
            np.maximum.at(ready, self.target[now], ready[self.source[now]] + self.alpha[now])
        return float(ready.max(initial=0.0))

    def slice_us(self, message_bytes: int, segments: int) -> float:
        """µs per tick, where the message is sent in so many slices."""
        return float(self.tick * message_bytes / segments)

    def lasts(self, message_bytes: int, segments: int) -> Ints:
        """Return the ticks from the start of each hop to its arrival, for one slice."""
        # α beyond all holds: what it is exactly does not matter, that it fits does.
        alpha = np.rint(np.minimum(self.alpha / self.slice_us(message_bytes, segments), _LONGEST))
        return self.leaves + alpha.astype(np.int64)

    def tails(self, message_bytes: int, segments: int) -> Ints:
        """Return the ticks from the start of each hop until all its dependents have arrived."""
        order = np.argsort(self.plan.hops.level, kind="stable")
        longest = np.zeros(len(self.arrivals), np.int64)
        last = self.lasts(message_bytes, segments)
        return cast(Ints, fast(plan_kernel).tails(order, self.source, self.target, last, longest))

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
        self, message_bytes: int, segments: int, priority: Ints, stride: int, limit_us: float
    ) -> tuple[float, int]:
        """As :meth:`time_us`, and how often a slice of a hop was looked at: before it starts it
        waits for each of its resources."""
        work = SliceWork(
            self.source,
            self.target,
            self.arrivals,
            self.first_reader,
            self.readers,
            self.first_resource,
            self.resources,
            self.holds,
            self.leaves,
            self.lasts(message_bytes, segments),
            self.resource_count,
        )
        us = self.slice_us(message_bytes, segments)
        limit = int(min(limit_us / us, float(FOREVER)))
        looks = np.zeros(1, np.int64)
        ticks = fast(plan_kernel).makespan(
            work, segments, priority, stride, limit, np.zeros(0, np.int64), looks
        )
        took = float("inf") if ticks == FOREVER else ticks * us
        return took, int(looks[0])


def _busiest(resources: Ints, holds: Ints, count: int) -> int:
    load = np.zeros(count, np.int64)
    np.add.at(load, resources, holds)
    return int(load.max(initial=0))


def _places(hops: TemplateHops, ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return the place that each hop reads and writes, and the arrivals of each place.

    A rank that gets a copy sends that on; one that gets only sums sends those.
    """
    here, there = hops.tree * ranks + hops.src, hops.tree * ranks + hops.dst
    copied = np.zeros((int(hops.tree.max(initial=0)) + 1) * ranks, bool)
    copied[there[~hops.reduce]] = True
    source = 2 * here + (~hops.reduce & copied[here])
    target = 2 * there + ~hops.reduce
    known, number = np.unique(np.concatenate([source, target]), return_inverse=True)
    source, target = number[: len(here)], number[len(here) :]
    return source, target, np.bincount(target, minlength=len(known))


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


def _holds(hops: TemplateHops, topology: Topology, orbit: Ints) -> tuple[Ints, Ints, Ints]:
    """Columns (hop, orbit, how many of its resources the hop uses), by hop."""
    position, resources = fabric_of(topology).resources_of(hops.links)
    hop = np.repeat(np.arange(len(hops)), hops.lengths)[position]
    width = int(orbit.max(initial=0)) + 1
    keys, uses = np.unique(hop * width + orbit[resources], return_counts=True)
    return keys // width, keys % width, uses


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

"""Loads of schedules: the links and shared resources that transfers occupy.

Resources are numbered as in :class:`~.fabric.Fabric`: links first, then shared resources.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.kept import kept
from weft.dsl.base.unique_rows import in_blocks
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from .fabric import Fabric, fabric_of


def transfer_of_link(schedule: Schedule) -> Ints:
    """For every entry of ``route_links``: the transfer it belongs to."""
    return np.repeat(np.arange(len(schedule)), np.diff(schedule.route_start))


def step_runs(schedule: Schedule) -> list[tuple[int, int]]:
    """(begin, end) of the transfers of each step that has any, in order."""
    if not len(schedule):
        return []
    cuts = np.flatnonzero(np.diff(schedule.step)) + 1
    return list(pairwise([0, *cuts.tolist(), len(schedule)]))


def step_loads(schedule: Schedule, fabric: Fabric | None = None) -> tuple[Ints, Ints, Ints]:
    """Load of each resource in each step: columns (step, resource, grains), loads > 0 only.

    A resource that holds two links of one route is loaded twice by it; a cast loads each of its
    links once. O(links of all routes).
    """
    fabric = fabric or fabric_of(schedule.topology)
    links, step, chunk = links_used(schedule)
    position, rows = fabric.resources_of(links)
    width = fabric.resources
    keys = step[position] * width + rows
    order = np.argsort(keys, kind="stable")
    keys, grains = keys[order], schedule.collective.grains[chunk[position[order]]]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    sums = np.add.reduceat(grains, first) if len(first) else grains
    return keys[first] // width, keys[first] % width, sums


def links_used(schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Return all links that transfers and casts use, with the step and the chunk of each."""
    casts, of_transfer = schedule.casts, transfer_of_link(schedule)
    cast = np.repeat(np.arange(len(casts)), np.diff(casts.link_start))
    links = np.concatenate((schedule.route_links, casts.links))
    step = np.concatenate((schedule.step[of_transfer], casts.step[cast]))
    chunk = np.concatenate((schedule.chunk[of_transfer], casts.chunk[cast]))
    return links.astype(np.int64), step.astype(np.int64), chunk.astype(np.int64)


@kept()
def us_per_byte(schedule: Schedule, bandwidth: tuple[Fraction, ...] = ()) -> Fraction:
    """µs per byte of M that the busiest resource is occupied: the schedule's time in the limit of
    many segments (no α), and the least time of any way to run it; or that a switch lets a cast
    through, if that is longer. O(links of all routes).

    ``bandwidth``: GB/s of each link and shared resource, if other than the topology's."""
    fabric = fabric_of(schedule.topology)
    load = np.zeros(fabric.resources, np.int64)
    for block in in_blocks(len(schedule)):
        start = schedule.route_start[block.start : block.stop + 1]
        links = schedule.route_links[start[0] : start[-1]].astype(np.int64)
        grains = schedule.collective.grains[schedule.chunk[block]]
        position, rows = fabric.resources_of(links)
        np.add.at(load, rows, np.repeat(grains, np.diff(start))[position])
    if len(casts := schedule.casts):
        position, rows = fabric.resources_of(casts.links.astype(np.int64))
        grains = np.repeat(schedule.collective.grains[casts.chunk], np.diff(casts.link_start))
        np.add.at(load, rows, grains[position])
    loads = zip(load.tolist(), bandwidth or fabric.bandwidth, strict=True)
    busiest = max((Fraction(x) / b for x, b in loads), default=Fraction(0))
    if casts.GBps:
        each = zip(schedule.collective.grains[casts.chunk].tolist(), casts.GBps, strict=True)
        busiest = max([busiest, *(g / limit for g, limit in each if limit is not None)])
    return busiest / (schedule.collective.message_chunks * BYTES_PER_US_PER_GBPS)


def rounds_per_chunk(schedule: Schedule) -> Fraction:
    """The load of the busiest resource, in rounds per chunk of the plain collective."""
    plain = Fraction(schedule.collective.message_chunks, schedule.collective.factor)
    per_chunk = us_per_byte(schedule) * BYTES_PER_US_PER_GBPS * plain
    return per_chunk * schedule.topology.round_bandwidth()


def resource_name(topology: Topology, resource: int) -> str:
    """Name of a link or shared resource: ``link gpu0 -> gpu1`` or ``resource nic0``."""
    if resource >= len(topology.links):
        return f"resource {topology.resources[resource - len(topology.links)].name}"
    one = topology.links[resource]
    return f"link {resource} ({topology.nodes[one.src].name} -> {topology.nodes[one.dst].name})"


def transfer_name(schedule: Schedule, i: int) -> str:
    """Name of a transfer: ``transfer 3 (chunk 0, rank 1 -> 2, step 4)``."""
    return (
        f"transfer {i} (chunk {schedule.chunk[i]}, rank {schedule.src[i]} -> {schedule.dst[i]}, "
        f"step {schedule.step[i]})"
    )

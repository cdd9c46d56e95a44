"""A problem in the arrays of the search: hops that the sketch allows, and one job per chunk.

Where the sketch demands symmetry there is one job per orbit of chunks, and the resources of one
orbit are one resource, which is occupied for as long as all images of a hop occupy it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits

from ...fabric.allowed import chunk_images, held_and_wanted
from ...fabric.hop_table import HopTable, hop_table_of
from ...judge.allowed_pairs import off_relays, orbits_for
from ..greedy.plan import TransferPlan, schedule_of
from .effort import SKETCHED_EFFORT, SketchedEffort
from .limits import UNLIMITED, beyond_peers, fixed_sends, hops_down, limits_of
from .search_kernel import ChunkJobs, Placements
from .timeline_kernel import SearchHops


@dataclass(frozen=True, eq=False)
class SearchInstance:
    """Input of the search, for chunks of one size."""

    # topology, collective: the machine, and the collective in chunks
    topology: Topology
    collective: Collective
    machine: HopTable  # every hop, with the resources of the machine (links, then shared ones)
    hops: SearchHops  # the same hops for the search; resources are orbits
    resources: int  # number of orbits of resources
    jobs: ChunkJobs  # one job per orbit of chunks
    chunks: Ints  # image g of job j is chunk chunks[j, g]; moved[g, h] the image of hop h
    moved: Ints

    @staticmethod
    def of(
        problem: Problem,
        collective: Collective,
        bytes_of_chunk: Fraction,
        effort: SketchedEffort = SKETCHED_EFFORT,
    ) -> SearchInstance:
        """The field of a problem whose collective is cut into these chunks.

        Raises:
            UserError: the symmetry of the sketch leaves a chunk where it is.
        """
        topology, sketch = problem.topology, problem.sketch or Sketch("")
        machine = hop_table_of(topology, bytes_of_chunk)
        orbits = orbits_for(topology, sketch)
        moved = _hop_images(machine, orbits)
        images = _chunk_images(collective, orbits)
        chosen = np.flatnonzero(images.min(axis=0) == np.arange(collective.chunks))
        hops, resources = _quotient(machine, orbits)
        alike = (np.array(orbits.images, np.int64), images[:, chosen], moved)
        jobs = _jobs(topology, collective, sketch, machine, alike, effort)
        return SearchInstance(
            topology, collective, machine, hops, resources, jobs, images[:, chosen].T, moved
        )

    @property
    def usable(self) -> Bools:
        """Mask of the hops that each chunk may take, shape (chunks, hops)."""
        found = np.zeros((self.collective.chunks, self.machine.hops), bool)
        for job, kind in zip(self.chunks, self.jobs.kind, strict=True):
            hops = np.flatnonzero(self.jobs.allowed[kind])
            found[job[:, None], self.moved[:, hops]] = True
        return found

    def plan(self, placed: Placements) -> TransferPlan:
        """Return all images of the placed transfers, by start."""
        parts = []
        for j in range(len(placed.length)):
            hop, start = placed.hop[j, : placed.length[j]], placed.start[j, : placed.length[j]]
            adds = np.arange(len(hop)) < placed.sums[j]
            for g, chunk in enumerate(self.chunks[j].tolist()):
                parts.append((self.moved[g, hop], np.full(len(hop), chunk), start, adds))
        hop, chunk, start, adds = (np.concatenate(x) for x in zip(*parts, strict=True))
        order = np.lexsort((chunk, ~adds, start))
        return TransferPlan(self.machine, hop[order], chunk[order], start[order], adds[order])

    def schedule(self, placed: Placements) -> Schedule:
        """Return the schedule of the placed transfers; its planned order is that of the starts."""
        return schedule_of(self.plan(placed), self.topology, self.collective)


# --- symmetry -------------------------------------------------------------------------------------


def _hop_images(machine: HopTable, orbits: Orbits) -> Ints:
    routes = [hop.route for hop in machine.each_hop()]
    place = {route: h for h, route in enumerate(routes)}
    by_pair: dict[tuple[int, int], int] = {}
    for h in reversed(range(machine.hops)):
        by_pair[int(machine.src[h]), int(machine.dst[h])] = h
    found = np.empty((orbits.order, machine.hops), np.int64)
    for g, (node, link) in enumerate(zip(orbits.images, orbits.link_images, strict=True)):
        for h, route in enumerate(routes):
            image = place.get(tuple(link[list(route)].tolist()))
            if image is None:  # of many routes of one pair some were left out
                image = by_pair[int(node[machine.src[h]]), int(node[machine.dst[h]])]
            found[g, h] = image
    return found


def _chunk_images(collective: Collective, orbits: Orbits) -> Ints:
    """The image of every chunk, shape (elements, chunks): that which starts and ends at images of
    the ranks, in the same place among those that do. Pieces of a sum are moved as the ranks are
    that gather them.

    Raises:
        UserError: there is none, or it is the chunk itself.
    """
    if collective.kind is Kind.ALLREDUCE and collective.combining:
        return _sum_images(collective, orbits)
    holds, wants = held_and_wanted(collective)
    ranks = collective.ranks
    found = [chunk_images(holds, wants, np.array(image[:ranks])) for image in orbits.images]
    images = [one for one in found if one is not None]
    if len(images) < len(found):
        raise UserError("the symmetry of the sketch is none of the collective")
    return _free(np.array(images))


def _sum_images(collective: Collective, orbits: Orbits) -> Ints:
    chunk = np.arange(collective.chunks)
    first, ranks = chunk - _roots(collective), collective.ranks
    if orbits.order > 1 and collective.chunks % ranks:
        raise UserError(
            f"the symmetry of the sketch moves every rank, and the root of every sum with it: an "
            f"allreduce takes one piece for each of {ranks} ranks, or a multiple, not "
            f"{collective.chunks}",
            hint=f"chunks {ranks}, or a multiple of it, or no line chunks at all",
        )
    return _free(np.array([first + image[chunk - first] for image in orbits.images]))


def _free(images: Ints) -> Ints:
    if (images[1:] == images[0]).any():
        raise UserError("a move of the sketch's symmetry leaves a chunk where it is")
    return images


def _roots(collective: Collective) -> Ints:
    """The rank that gathers each piece of a sum."""
    return np.arange(collective.chunks) % collective.ranks


def _quotient(machine: HopTable, orbits: Orbits) -> tuple[SearchHops, int]:
    """Hops over orbits of resources: the time that all images hold one of them, one by one."""
    size = np.bincount(orbits.row_orbit)
    first, resource, hold = [0], [], []
    arrives = machine.arrives.copy()
    for h in range(machine.hops):
        held: dict[int, int] = {}
        for k in range(machine.first[h], machine.first[h + 1]):
            orbit = int(orbits.row_orbit[machine.resource[k]])
            held[orbit] = held.get(orbit, 0) + int(machine.hold[k])
        for orbit, ticks in held.items():
            resource.append(orbit)
            hold.append(-(-ticks * orbits.order // int(size[orbit])))
        first.append(len(resource))
        arrives[h] = max(arrives[h], machine.alpha[h] + max(hold[first[-2] :], default=0))

    def grouped(ends: Ints) -> tuple[Ints, Ints]:
        counts = np.bincount(ends, minlength=machine.ranks)
        return np.concatenate([[0], np.cumsum(counts)]), np.argsort(ends, kind="stable")

    (out, outs), (into, ins) = grouped(machine.src), grouped(machine.dst)
    held_first, held_resource, held_for = (np.array(x, np.int64) for x in (first, resource, hold))
    hops = SearchHops(
        machine.src,
        machine.dst,
        arrives,
        held_first,
        held_resource,
        held_for,
        out,
        outs,
        into,
        ins,
        (machine.dst - machine.src) % machine.ranks,
    )
    return hops, len(size)


# --- jobs -----------------------------------------------------------------------------------------


def _jobs(
    topology: Topology,
    collective: Collective,
    sketch: Sketch,
    machine: HopTable,
    images: tuple[Ints, Ints, Ints],
    effort: SketchedEffort,
) -> ChunkJobs:
    nodes, chunks, moved = images
    ranks = collective.ranks
    holds, wants = held_and_wanted(collective)
    chosen = chunks[0]
    sums = collective.kind is Kind.ALLREDUCE and collective.combining
    root = _roots(collective)[chosen] if sums else np.full(len(chosen), -1)
    usable = np.array([sketch.allows(hop) for hop in machine.each_hop()])
    usable &= ~beyond_peers(topology, sketch, machine, moved, effort.most_peer_sets)
    kinds, kind = np.unique(holds[chosen], axis=0, return_inverse=True)
    barred = [off_relays(topology, sketch, row)[machine.src, machine.dst] for row in kinds]
    allowed, kind = usable & ~np.array(barred), kind.reshape(-1).astype(np.int64)
    fixed = fixed_sends(collective, sketch, holds, wants, machine)
    if fixed is not None:  # all chunks of an orbit are alike
        open_for, through = fixed
        mine = np.array([open_for[row][:, moved[g]] for g, row in enumerate(chunks)])
        allowed, kind = allowed[kind] & mine.all(axis=0), np.arange(len(chosen))
        passed = np.array([through[row][:, nodes[g, :ranks]] for g, row in enumerate(chunks)])
        wants[chosen] |= passed.any(axis=0)
    length, most = limits_of(topology, sketch, machine, holds[chosen])
    up = np.full(len(chosen), UNLIMITED)
    if sums and len(most):
        up = most[0, :, 0] - hops_down(machine, allowed[kind], root)
    reached = np.asarray((holds | wants)[chosen].all(axis=1), bool)
    return ChunkJobs(
        holds[chosen],
        wants[chosen],
        root.astype(np.int64),
        kind,
        reached,
        allowed,
        length,
        most,
        up,
    )

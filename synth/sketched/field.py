"""A problem in the arrays of the search: hops that the sketch allows, and one job per chunk.

Where the sketch demands symmetry there is one job per orbit of chunks, and rows that are moved to
each other are one row, which is held for as long as all images hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl import symmetry
from weft.dsl.collective import Collective, Kind
from weft.dsl.errors import UserError
from weft.dsl.problem import Problem
from weft.dsl.schedule import Schedule
from weft.dsl.sketch import MaxHops, Relay, Sketch, Symmetry
from weft.dsl.topology import Hop, Topology

from ..greedy.machine import Ints, Machine, machine_of
from ..greedy.plan import Plan, schedule_of
from .search_kernel import Jobs, Placed
from .timeline_kernel import Hops

UNLIMITED = 1 << 30


@dataclass(frozen=True, eq=False)
class Field:
    """What is to be moved where, for chunks of one size.

    Attributes:
        topology, collective: the machine, and the collective in its chunks.
        machine: every hop, with real rows.
        hops: the same hops for the search; rows are orbits.
        rows: how many orbits of rows there are.
        jobs: one for each orbit of chunks.
        chunks: image g of job j is chunk ``chunks[j, g]``; ``moved[g, h]`` the image of hop h.
    """

    topology: Topology
    collective: Collective
    machine: Machine
    hops: Hops
    rows: int
    jobs: Jobs
    chunks: Ints
    moved: Ints

    @staticmethod
    def of(problem: Problem, collective: Collective, bytes_of_chunk: Fraction) -> Field:
        """The field of a problem whose collective is cut into these chunks.

        Raises:
            UserError: the symmetry of the sketch leaves a chunk where it is.
        """
        topology, sketch = problem.topology, problem.sketch or Sketch("")
        machine = machine_of(topology, bytes_of_chunk)
        elements = _elements(topology, sketch)
        moved = _hop_images(topology, machine, elements)
        images = _chunk_images(collective, elements)
        chosen = np.flatnonzero(images.min(axis=0) == np.arange(collective.chunks))
        hops, rows = _quotient(topology, machine, elements)
        jobs = _jobs(topology, collective, sketch, machine, chosen)
        return Field(topology, collective, machine, hops, rows, jobs, images[:, chosen].T, moved)

    def plan(self, placed: Placed) -> Plan:
        """All images of what was placed, by their start."""
        parts = []
        for j in range(len(placed.count)):
            hop, start = placed.hop[j, : placed.count[j]], placed.start[j, : placed.count[j]]
            adds = np.arange(len(hop)) < placed.sums[j]
            for g, chunk in enumerate(self.chunks[j].tolist()):
                parts.append((self.moved[g, hop], np.full(len(hop), chunk), start, adds))
        hop, chunk, start, adds = (np.concatenate(x) for x in zip(*parts, strict=True))
        order = np.lexsort((chunk, ~adds, start))
        return Plan(self.machine, hop[order], chunk[order], start[order], adds[order])

    def schedule(self, placed: Placed) -> Schedule:
        """The schedule of what was placed; its planned order is that of the starts."""
        return schedule_of(self.plan(placed), self.topology, self.collective)


# --- symmetry -------------------------------------------------------------------------------------


def _elements(topology: Topology, sketch: Sketch) -> Ints:
    """The group that the sketch demands, as images of all nodes; the identity comes first.

    Raises:
        UserError: it is too large, or moves some ranks only.
    """
    rules = [r for r in sketch.rules if isinstance(r, Symmetry)]
    identity = tuple(range(len(topology.nodes)))
    images = [symmetry.extend(topology, rule.image) for rule in rules]
    found = symmetry.generate([image for image in images if image is not None])
    elements = sorted({identity, *(found or ())}, key=lambda e: e != identity)
    if any(image is None for image in images) or found is None:
        raise UserError("the symmetry of the sketch is none of the machine, or is too large")
    ranks = [e[: topology.ranks] for e in elements[1:]]
    if not symmetry.is_semiregular([identity[: topology.ranks], *ranks], topology.ranks):
        raise UserError(
            "some move of the sketch's symmetry leaves ranks where they are",
            hint="moves that move every rank, such as rotations",
        )
    return np.array(elements, np.int64)


def _hop_images(topology: Topology, machine: Machine, elements: Ints) -> Ints:
    """The image of every hop, shape (elements, hops)."""
    routes = [
        tuple(machine.links[machine.route[h] : machine.route[h + 1]].tolist())
        for h in range(machine.hops)
    ]
    place = {route: h for h, route in enumerate(routes)}
    by_pair: dict[tuple[int, int], list[int]] = {}
    for h in range(machine.hops):
        by_pair.setdefault((int(machine.src[h]), int(machine.dst[h])), []).append(h)
    found = np.empty((len(elements), machine.hops), np.int64)
    for g, element in enumerate(elements):
        link = symmetry.link_image(topology, element)
        for h, route in enumerate(routes):
            image = place.get(tuple(link[i] for i in route))
            if image is None:  # of many routes of one pair some were left out
                pair = int(element[machine.src[h]]), int(element[machine.dst[h]])
                image = by_pair[pair][0]
            found[g, h] = image
    return found


def _chunk_images(collective: Collective, elements: Ints) -> Ints:
    """The image of every chunk, shape (elements, chunks): what starts and ends at the images of
    the ranks, in the same place among those that do.

    Raises:
        UserError: there is none.
    """
    ends = [_ends(collective, c) for c in range(collective.chunks)]
    alike: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    turn = []
    for c, key in enumerate(ends):
        alike.setdefault(key, []).append(c)
        turn.append(len(alike[key]) - 1)
    found = np.empty((len(elements), collective.chunks), np.int64)
    for g, element in enumerate(elements):
        for c, (starts, wants) in enumerate(ends):
            image = tuple(frozenset(int(element[v]) for v in side) for side in (starts, wants))
            others = alike.get(image, [])  # type: ignore[call-overload]
            if turn[c] >= len(others):
                raise UserError("the symmetry of the sketch is none of the collective")
            found[g, c] = others[turn[c]]
    if collective.kind is not Kind.ALLREDUCE and (found[1:] == found[0]).any():
        raise UserError("a move of the sketch's symmetry leaves a chunk where it is")
    return found


def _ends(collective: Collective, chunk: int) -> tuple[frozenset[int], frozenset[int]]:
    pre, post = collective.pre, collective.post
    return (
        frozenset(pre.ranks[pre.chunks == chunk].tolist()),
        frozenset(post.ranks[post.chunks == chunk].tolist()),
    )


def _quotient(topology: Topology, machine: Machine, elements: Ints) -> tuple[Hops, int]:
    """Hops over orbits of rows: what all images hold of one of them, one after the other."""
    row_orbit = _row_orbits(topology, elements)
    size = np.bincount(row_orbit)
    first, row, hold = [0], [], []
    arrives = machine.arrives.copy()
    for h in range(machine.hops):
        held: dict[int, int] = {}
        for k in range(machine.first[h], machine.first[h + 1]):
            orbit = int(row_orbit[machine.row[k]])
            held[orbit] = held.get(orbit, 0) + int(machine.hold[k])
        for orbit, ticks in held.items():
            row.append(orbit)
            hold.append(-(-ticks * len(elements) // int(size[orbit])))
        first.append(len(row))
        arrives[h] = max(arrives[h], machine.alpha[h] + max(hold[first[-2] :], default=0))

    def grouped(ends: Ints) -> tuple[Ints, Ints]:
        counts = np.bincount(ends, minlength=machine.ranks)
        return np.concatenate([[0], np.cumsum(counts)]), np.argsort(ends, kind="stable")

    columns = [np.array(x, np.int64) for x in (first, row, hold)]
    hops = Hops(
        machine.src, machine.dst, arrives, *columns, *grouped(machine.src), *grouped(machine.dst)
    )
    return hops, len(size)


def _row_orbits(topology: Topology, elements: Ints) -> Ints:
    """The orbit of every link and shared resource."""
    links = len(topology.links)
    place = {resource.links: links + k for k, resource in enumerate(topology.resources)}
    least = np.arange(links + len(topology.resources))
    for element in elements:
        link = symmetry.link_image(topology, element)
        image = [*link]
        for resource in topology.resources:
            image.append(place[tuple(sorted(link[i] for i in resource.links))])
        np.minimum.at(least, np.array(image), least.copy())
    # Elements form a group, so one look at all images finds the least of each orbit.
    return np.unique(least, return_inverse=True)[1].reshape(-1)


# --- jobs -----------------------------------------------------------------------------------------


def _jobs(
    topology: Topology, collective: Collective, sketch: Sketch, machine: Machine, chosen: Ints
) -> Jobs:
    ranks = collective.ranks
    holds = np.zeros((collective.chunks, ranks), bool)
    wants = np.zeros((collective.chunks, ranks), bool)
    holds[collective.pre.chunks, collective.pre.ranks] = True
    wants[collective.post.chunks, collective.post.ranks] = True
    sums = collective.kind is Kind.ALLREDUCE and collective.combining
    root = np.arange(collective.chunks) % ranks if sums else np.full(collective.chunks, -1)
    usable = np.array([sketch.allows(hop) for hop in _hop_list(machine)])
    kinds, kind = np.unique(holds[chosen], axis=0, return_inverse=True)
    allowed = np.array([usable & ~_off_relays(topology, sketch, machine, row) for row in kinds])
    most = min([r.count for r in sketch.rules if isinstance(r, MaxHops)], default=UNLIMITED)
    reached = (holds | wants)[chosen].all(axis=1)
    return Jobs(
        holds[chosen], wants[chosen], root[chosen].astype(np.int64),
        kind.reshape(-1).astype(np.int64), reached, allowed, most,
    )  # fmt: skip


def _hop_list(machine: Machine) -> Iterator[Hop]:
    for h in range(machine.hops):
        route = tuple(machine.links[machine.route[h] : machine.route[h + 1]].tolist())
        yield Hop(int(machine.src[h]), int(machine.dst[h]), route)


def _off_relays(topology: Topology, sketch: Sketch, machine: Machine, starts: Ints) -> Ints:
    """Hops that a chunk from these ranks may not take, for relays stand elsewhere."""
    host = np.unique(np.array([str(h) for h in topology.host_of]), return_inverse=True)[1]
    bad = np.zeros(machine.hops, bool)
    for rule in sketch.rules:
        if isinstance(rule, Relay):
            homes = {int(host[s]) for s in rule.sources if starts[s]}
            leaves = np.isin(host[machine.src], list(homes))
            leaves &= host[machine.src] != host[machine.dst]
            through = np.array([u * topology.ranks + v for u, v in rule.through])
            bad |= leaves & ~np.isin(machine.src * topology.ranks + machine.dst, through)
    return bad


"""Cost of single failures: every cable, direction and NIC of a machine, by the new lower bound.

Failures that a symmetry of the machine maps to each other cost the same, so one of each orbit is
computed. Nothing is synthesized: bounds are compared, which for copying collectives and for
allreduce are mostly known to be attained.

>>> from weft.dsl.catalogue import topology
>>> from weft.dsl.nouns.collective import make
>>> found = what_if(topology("dgx1"), make("allgather", 8))
>>> worst = found.losses[0]
>>> worst.down.name, worst.count, worst.ratio
('gpu0-gpu1', 4, Fraction(3, 2))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.failures import Degraded, Down, cut_off, degraded
from weft.dsl.machines.nics import nics_of
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.structure import structure_of
from weft.dsl.symmetry.symmetry import automorphisms

from ..bounds.bounds import Bounds, bounds, lower_bound_us
from ..fabric.fabric import fabric_of

ALIKE = frozenset({Kind.ALLGATHER, Kind.ALLREDUCE, Kind.REDUCE_SCATTER, Kind.ALLTOALL})
"""Collectives that every renumbering of the ranks takes to themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class FailureLoss:
    """Cost of one failure."""

    down: Down  # the failure that represents its orbit; others are the rest of the orbit
    others: tuple[Down, ...]
    left: Degraded  # the machine without it
    bound: Bounds | None  # lower bound of the collective there; None if ranks are cut off
    lost: tuple[int, ...]  # the ranks that are cut off, by their numbers in the whole machine
    # The new bound over the old one, for large messages or at a size; None if ranks are cut off or
    # nothing moves
    ratio: Fraction | None

    @property
    def count(self) -> int:
        """Number of failures with this cost."""
        return 1 + len(self.others)


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The bound of the whole machine, and the cost of each failure, the worst first."""

    before: Bounds
    losses: tuple[FailureLoss, ...]


def what_if(
    topology: Topology,
    collective: Collective,
    *,
    message_bytes: int | None = None,
    directions: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """Return every single failure of a machine, ranked by the new bound: for large messages, or
    for one size in bytes.

    ``directions``: links one by one instead of cables. One failure of each orbit represents all, so
    the cost is one bound per orbit. ``tell`` is called with (done, total).

    Raises:
        BadTopology: ranks that cannot reach each other even now.
    """
    before = bounds(topology, collective)
    single = singles(topology, directions=directions)
    groups = _orbits(topology, collective, single)
    losses = []
    for done, group in enumerate(groups):
        losses.append(_loss(topology, collective, group, before, message_bytes))
        if tell is not None:
            tell(done + 1, len(groups))
    # Failures that cut off ranks first, then by loss, then by the size of the orbit.
    losses.sort(key=lambda one: (not one.lost, -(one.ratio or Fraction(1)), -one.count))
    return WhatIf(before, tuple(losses))


def singles(topology: Topology, *, directions: bool = False) -> tuple[Down, ...]:
    """Every NIC and every cable (or link, with ``directions``) that is not all of a NIC."""
    nics = [Down(nic.name, nic.links) for nic in nics_of(topology)]
    known = {frozenset(down.links) for down in nics}
    whole = plain_machine(topology)
    named = _between(whole.machine, directions)
    cables = (replace(down, links=whole.spread(down.links)) for down in named)
    return (*nics, *(down for down in cables if frozenset(down.links) not in known))


def _between(topology: Topology, directions: bool) -> Iterator[Down]:
    """The k-th link each way between two nodes are one cable; with ``directions``, each is one."""
    between: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for i, link in enumerate(topology.links):
        ends = link.src, link.dst
        one, other = ends if directions else sorted(ends)
        between.setdefault((one, other), ([], []))[link.src == other].append(i)
    for (one, other), ways in between.items():
        arrow = "->" if directions else "-"
        name = f"{topology.nodes[one].name}{arrow}{topology.nodes[other].name}"
        most = max(map(len, ways))
        for k in range(most):
            mark = f"#{k + 1}" if most > 1 else ""
            yield Down(name + mark, tuple(sorted(i for way in ways for i in way[k : k + 1])))


# --- orbits of failures ---------------------------------------------------------------------------


def _orbits(topology: Topology, collective: Collective, downs: Sequence[Down]) -> list[list[Down]]:
    number = {frozenset(down.links): i for i, down in enumerate(downs)}
    label = list(range(len(downs)))

    def first(i: int) -> int:
        while label[i] != i:
            i = label[i]
        return i

    for image in _moves(topology, collective):
        for links, i in number.items():
            moved = number.get(frozenset(image[list(links)].tolist()))
            if moved is not None:
                low, high = sorted((first(i), first(moved)))
                label[high] = low
    groups: dict[int, list[Down]] = defaultdict(list)
    for i, down in enumerate(downs):
        groups[first(i)].append(down)
    return list(groups.values())


def _moves(topology: Topology, collective: Collective) -> Iterator[Ints]:
    """Yield link images under symmetries of machine and collective, and swaps of equal links."""
    made = structure_of(topology)
    roots = _roots(collective)
    if roots is not None:
        for image in automorphisms(made):
            if all(int(image[r]) == r for r in roots):
                links = made.link_image(image)
                if links is not None:
                    yield links
    yield from _twins(topology)


def _roots(collective: Collective) -> tuple[int, ...] | None:
    """The ranks that a symmetry must leave where they are; None: all of them."""
    if collective.kind in ALIKE:
        return ()
    if collective.kind is Kind.CUSTOM or collective.kind is Kind.ALLTONEXT:
        return None
    ends = collective.post if collective.kind in (Kind.REDUCE, Kind.GATHER) else collective.pre
    return tuple(sorted(set(ends.ranks.tolist())))


def _twins(topology: Topology) -> Iterator[Ints]:
    """Yield exchanges of equal parallel links, together with those of the reverse links."""
    loaded = fabric_of(topology).loaded
    same: dict[tuple[int, int, object], list[int]] = defaultdict(list)
    for i, link in enumerate(topology.links):
        kind: object = (link.bandwidth, link.latency, link.lanes, loaded[i][1:])
        same[link.src, link.dst, kind].append(i)
    for (src, dst, kind), links in same.items():
        back = same.get((dst, src, kind), [])
        for k in range(len(links) - 1):
            image = np.arange(len(topology.links))
            for pair in (links[k : k + 2], back[k : k + 2] if len(back) == len(links) else []):
                if pair:
                    image[pair] = pair[::-1]
            yield image


# --- costs ----------------------------------------------------------------------------------------


def _loss(
    topology: Topology,
    collective: Collective,
    group: list[Down],
    before: Bounds,
    message_bytes: int | None,
) -> FailureLoss:
    down, *others = group
    left = degraded(topology, [down])
    lost = cut_off(left.topology, collective)
    after = None if lost else bounds(left.topology, collective)
    ratio = None
    if after is not None:
        new, old = (_cost(x, message_bytes) for x in (after, before))
        ratio = new / old if old else None
    return FailureLoss(down, tuple(others), left, after, lost, ratio)


def _cost(bound: Bounds, message_bytes: int | None) -> Fraction:
    """µs per byte of large messages, or µs at a size."""
    return bound.us_per_byte if message_bytes is None else lower_bound_us(bound, message_bytes)

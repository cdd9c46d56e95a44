"""The share of the machine that each collective gets, as a machine of its own.

A link or shared resource of bandwidth b that the joint solution loads with ``load_k`` for
collective k is, for that collective, one of bandwidth b · load_k / sum of all loads; what it does
not load is left out. Schedules for the shares fit together, since their loads do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology


@dataclass(frozen=True, eq=False)
class MachineShare:
    """A part of a machine.

    Attributes:
        topology: the part, its ranks numbered 0, 1, ….
        ranks, links: the machine's rank and link of each of its own.
    """

    topology: Topology
    ranks: tuple[int, ...]
    links: tuple[int, ...]


def share_of(
    topology: Topology, ranks: Sequence[int], share: Floats | None = None, unused: float = 1e-7
) -> MachineShare:
    """Return the machine that some ranks see: they, and all that does not store.

    ``share``: of every resource (links, then shared ones), 0 to 1; None: all of everything. What
    has at most ``unused`` is left out.
    """
    kept = (*ranks, *range(topology.ranks, len(topology.nodes)))
    inside = set(kept)
    links = tuple(
        i
        for i, x in enumerate(topology.links)
        if x.src in inside and x.dst in inside and (share is None or share[i] > unused)
    )
    place = {node: i for i, node in enumerate(kept)}
    number = {old: new for new, old in enumerate(links)}

    def part(row: int) -> float:
        return 1.0 if share is None else float(share[row])

    resources = []
    for row, one in topology.shared_rows():
        members = tuple(number[i] for i in one.links if i in number)
        if members and part(row) > unused:
            width = _shared(one.bandwidth, part(row))
            resources.append(replace(one, links=members, bandwidth=width))
    machine = Topology(
        topology.name,
        tuple(topology.nodes[i] for i in kept),
        tuple(
            replace(
                topology.links[i],
                src=place[topology.links[i].src],
                dst=place[topology.links[i].dst],
                bandwidth=_shared(topology.links[i].bandwidth, part(i)),
            )
            for i in links
        ),
        tuple(resources),
        notes=topology.notes,
        timing=topology.timing,
        host_names=topology.host_names,
    )
    return MachineShare(machine, tuple(ranks), links)


def nameless(topology: Topology) -> Topology:
    """Return a machine without names, and without nodes that have no link: equal for alike parts.

    Ranks and links keep their numbers, hosts are numbered as they come.
    """
    linked = {v for one in topology.links for v in (one.src, one.dst)}
    kept = [v for v in range(len(topology.nodes)) if v < topology.ranks or v in linked]
    place = {old: new for new, old in enumerate(kept)}
    hosts: dict[int | None, int | None] = {None: None}
    for old in kept:
        hosts.setdefault(topology.nodes[old].host, len(hosts) - 1)
    return Topology(
        topology.name,
        tuple(
            replace(topology.nodes[old], name=f"n{new}", host=hosts[topology.nodes[old].host])
            for new, old in enumerate(kept)
        ),
        tuple(replace(one, src=place[one.src], dst=place[one.dst]) for one in topology.links),
        tuple(replace(one, name=f"r{i}") for i, one in enumerate(topology.resources)),
        timing=topology.timing,
    )


def _shared(width: Fraction, part: float, grid: int = 1 << 20) -> Fraction:
    """Return a share of a bandwidth; a simple fraction where the share is near one."""
    if part >= 1 - 1e-7:
        return width
    simple = Fraction(part).limit_denominator(64)
    if abs(float(simple) - part) < 1e-6:
        return width * simple
    return width * Fraction(max(1, round(part * grid)), grid)


def shares(loads: Floats) -> Floats:
    """Return the share of each demand in every resource; shape of ``loads`` (demands, resources).

    What nobody loads is everybody's.
    """
    total = loads.sum(axis=0)
    found: Floats = np.divide(loads, total, out=np.zeros_like(loads), where=total > 0)
    return found

"""The share of the machine that each collective gets, as a machine of its own.

A link or shared resource of bandwidth b that the joint solution loads with ``load_k`` for
collective k is, for that collective, one of bandwidth b · load_k / sum of all loads; what it does
not load is left out. Schedules for the shares fit together, since their loads do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats
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
    topology: Topology,
    ranks: Sequence[int],
    share: Floats | None = None,
    unused: float = 1e-7,
) -> MachineShare:
    """Return the machine that some ranks see: they, and all that does not store.

    ``share``: of every resource (links, then shared ones), 0 to 1; None: all of everything. What
    has at most ``unused`` is left out.
    """
    kept = (*ranks, *range(topology.ranks, len(topology.nodes)))
    place = {node: i for i, node in enumerate(kept)}
    part = np.ones(len(topology.links) + len(topology.resources)) if share is None else share
    links = [
        i
        for i, x in enumerate(topology.links)
        if x.src in place and x.dst in place and part[i] > unused
    ]
    number = {old: new for new, old in enumerate(links)}
    resources = []
    for row, one in topology.shared_rows():
        members = tuple(number[i] for i in one.links if i in number)
        if members and part[row] > unused:
            width = _shared(one.bandwidth, float(part[row]))
            resources.append(replace(one, links=members, bandwidth=width))
    found = Topology(
        topology.name,
        tuple(topology.nodes[i] for i in kept),
        tuple(
            replace(
                topology.links[i],
                src=place[topology.links[i].src],
                dst=place[topology.links[i].dst],
                bandwidth=_shared(topology.links[i].bandwidth, float(part[i])),
            )
            for i in links
        ),
        tuple(resources),
        notes=topology.notes,
        timing=topology.timing,
        host_names=topology.host_names,
    )
    return MachineShare(found, tuple(ranks), tuple(links))


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

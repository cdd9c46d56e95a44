"""The topology of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.topology import Link, Node, Resource, Topology

from .locality import classes
from .model import Flow, Line, Shared

ALIKE = 0.2
"""Links whose α and β differ by less are of one kind: the noise of a good measurement."""

DIGITS = 2
"""Significant digits that a measurement has."""

GB_PER_S = 1e-3
"""GB/s that one byte per µs is."""


def topology_of(
    name: str, groups: Sequence[Sequence[int]], found: Mapping[Flow, Line],
    shared: Sequence[Shared], notes: Sequence[str],
) -> Topology:  # fmt: skip
    """A link for every direction that was measured, with hosts for groups, and what is shared.

    Numbers that differ by less than they are known are made equal: equal links are what symmetry
    is made of. The residuals are in the notes.
    """
    flows = sorted(found)
    alpha = classes(np.array([found[f].alpha for f in flows]), ALIKE)
    rate = classes(np.array([1 / found[f].beta for f in flows]), ALIKE)
    host = {rank: number for number, group in enumerate(groups) for rank in group}
    ranks = len(host)
    nodes = tuple(Node(f"rank{r}", host=host[r] if len(groups) > 1 else None) for r in range(ranks))
    links = tuple(
        Link(a, b, rounded(bandwidth * GB_PER_S), rounded(latency))
        for (a, b), bandwidth, latency in zip(flows, rate.tolist(), alpha.tolist(), strict=True)
    )
    place = {flow: i for i, flow in enumerate(flows)}
    resources = []
    limits = classes(np.array([s.rate for s in shared]), ALIKE) if shared else np.zeros(0)
    for one, limit in zip(shared, limits.tolist(), strict=True):
        members = tuple(sorted(place[f] for f in one.flows))
        resources.append(Resource(one.name, members, rounded(limit * GB_PER_S)))
    return Topology(name, nodes, links, tuple(resources), notes=(*_residuals(found), *notes))


def _residuals(found: Mapping[Flow, Line]) -> list[str]:
    """How well the lines fit, in words."""
    residual = np.array([line.residual for line in found.values()])
    worst = max(found, key=lambda flow: found[flow].residual)
    return [
        f"α + β·bytes is off by {np.median(residual):.0%} in the median of {len(found)} "
        f"directions, at most by {residual.max():.0%} (rank {worst[0]} to {worst[1]})",
        "the two directions of a pair were given half of their α each: without a common clock "
        "only the sum can be measured",
    ]


def rounded(value: float) -> Fraction:
    """The value in :data:`DIGITS` significant digits."""
    return Fraction(f"{value:.{DIGITS - 1}e}")

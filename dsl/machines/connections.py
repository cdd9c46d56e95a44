"""Hosts connected GPU to GPU, by pairs of local ranks and shared resources."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations, product

from ..nouns.topology import Link, Resource, Topology
from .hosts import Host, with_symmetries
from .spec import MachineSpec, check_size

Pairs = tuple[tuple[int, int], ...]
"""Pairs (sender, receiver) of local ranks."""


def connect(
    inner: Topology,
    host: Host,
    spec: MachineSpec,
    pairs: Pairs,
    link: tuple[Fraction, Fraction],
    share: Callable[[int], str] | None = None,
) -> Topology:
    """Return hosts with a link (GB/s, µs) for each pair, from every host to every other.

    ``share`` names the port of a rank: the links of one name share the bandwidth of one link,
    separately for outgoing and incoming links.

    Raises:
        UserError: too many links.
    """
    nodes = inner.ranks // host.gpus
    check_size(spec, inner.ranks, nodes * (nodes - 1) * len(pairs))
    ends = [
        (i * host.gpus + s, j * host.gpus + r)
        for (i, j), (s, r) in product(permutations(range(nodes), 2), pairs)
    ]
    groups: dict[str, list[int]] = {}
    for index, (src, dst) in enumerate(ends, len(inner.links)):
        if share is not None:
            groups.setdefault(f"{share(src)} out", []).append(index)
            groups.setdefault(f"{share(dst)} in", []).append(index)
    links = tuple(Link(src, dst, *link) for src, dst in ends)
    shared = tuple(Resource(n, tuple(held), link[0]) for n, held in groups.items() if held[1:])
    joined = Topology(inner.name, inner.nodes, inner.links + links, shared, (), inner.notes)
    return with_symmetries(joined, host, nodes)

"""Checks path packings from the definitions, sharing no code with what makes them.

Every image of every template is walked, link by link, in Fractions.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from weft.synth.engines.packing.trees.model import PackedTree, Packing


def check_paths(packing: Packing) -> None:
    """Legal routes, whole demands, and exactly the rate that is stated."""
    topology, n = packing.topology, packing.topology.ranks
    wanted = _wanted(packing)
    carried: dict[int, Fraction] = defaultdict(Fraction)
    load: dict[int, Fraction] = defaultdict(Fraction)
    assert packing.images[0].tolist() == list(range(len(topology.nodes)))
    for nodes, links in zip(packing.images.tolist(), packing.link_images.tolist(), strict=True):
        for tree in packing.trees:
            chunk = tree.chunk
            if len(packing.images) > 1:  # alltoall: chunk s * n + d goes to its image
                chunk = nodes[chunk // n] * n + nodes[chunk % n]
            assert _ends(packing, tree, nodes, links) == wanted[chunk]
            carried[chunk] += tree.weight
            for i in tree.route_links.tolist():
                load[links[i]] += tree.weight
    assert all(carried[chunk] == 1 for chunk in wanted)
    assert set(carried) == set(wanted)
    for row, resource in enumerate(topology.resources, len(topology.links)):
        load[row] = sum((load[i] for i in resource.links), Fraction(0))
    capacity = topology.capacities()
    busiest = max((x / capacity[row] for row, x in load.items()), default=Fraction(0))
    assert packing.us_per_byte == busiest / (1000 * packing.collective.message_chunks)
    assert packing.bound <= packing.us_per_byte


def _wanted(packing: Packing) -> dict[int, tuple[int, int]]:
    """Source and destination of every chunk that must move."""
    held = {chunk: rank for rank, chunk, _, _ in packing.collective.pre.rows().tolist()}
    ends = {chunk: (held[chunk], r) for r, chunk, _, _ in packing.collective.post.rows().tolist()}
    return {chunk: pair for chunk, pair in ends.items() if pair[0] != pair[1]}


def _ends(
    packing: Packing, tree: PackedTree, nodes: list[int], links: list[int]
) -> tuple[int, int]:
    """Where the image of a path begins and ends, after walking it."""
    topology = packing.topology
    assert 0 < tree.weight <= 1
    assert not tree.reduce.any()
    at = first = nodes[int(tree.src[0])]
    for hop in range(len(tree)):
        assert nodes[int(tree.src[hop])] == at
        route = [
            links[i] for i in tree.route_links[tree.route_start[hop] : tree.route_start[hop + 1]]
        ]
        assert route
        for place, i in enumerate(route):
            assert topology.links[i].src == at
            at = topology.links[i].dst
            assert topology.nodes[at].stores == (place == len(route) - 1)
        assert at == nodes[int(tree.dst[hop])]
    return first, at

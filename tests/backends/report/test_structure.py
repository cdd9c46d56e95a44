"""Structure of machines: what splits them, by removing each part; machines that they are like."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from weft.backends.report.structure import renaming, structure, structure_text
from weft.dsl.catalogue import topology
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import Topology


def relabelled(machine: Topology, seed: int, factor: Fraction = Fraction(1)) -> Topology:
    """The machine with its GPUs in another order, other names, and all bandwidths by a factor."""
    rng = random.Random(seed)
    order = [*range(machine.ranks)]
    rng.shuffle(order)
    moved = machine.on_nodes((*order, *range(machine.ranks, len(machine.nodes))), "moved")
    nodes = [replace(x, name=f"part{i}", names=()) for i, x in enumerate(moved.nodes)]
    links = [replace(x, bandwidth=x.bandwidth * factor, names=()) for x in moved.links]
    shared = [replace(x, bandwidth=x.bandwidth * factor) for x in moved.resources]
    if not shared:  # else by their numbers
        rng.shuffle(links)
    return Topology("moved", tuple(nodes), tuple(links), tuple(shared))


def sides(machine: Topology, without: int) -> list[frozenset[str]]:
    """The GPUs of each part of a machine without a node."""
    ends = [(x.src, x.dst) for x in machine.links if without not in (x.src, x.dst)]
    n = len(machine.nodes)
    graph = csr_array(([1] * len(ends), tuple(zip(*ends, strict=True)) or ([], [])), shape=(n, n))
    part = connected_components(graph, directed=False)[1]
    ranks = [v for v in range(machine.ranks) if v != without]
    found = {p: frozenset(machine.nodes[v].name for v in ranks if part[v] == p) for p in part}
    return [side for side in found.values() if side]


@pytest.mark.parametrize("name", ["ndv2:nodes=2", "star:5", "line:4", "dgx1", "fat-tree:k=4"])
def test_nodes_that_split_a_machine_are_those_whose_removal_does(name: str) -> None:
    machine = plain_machine(topology(name)).machine
    found = {x.node: set(map(frozenset, x.sides)) for x in structure(machine).splits}
    parts = {node.name: sides(machine, i) for i, node in enumerate(machine.nodes)}
    assert found == {node: set(some) for node, some in parts.items() if len(some) > 1}


@pytest.mark.parametrize(
    ("name", "bridges"),
    [("line:4", 3), ("ring:4", 0), ("ndv2:nodes=2", 2), ("hub:3", 3), ("dgx1", 0)],
)
def test_bridges(name: str, bridges: int) -> None:
    found = structure(topology(name))
    assert len(found.bridges) == bridges


ALIKE = [
    "dgx1",
    "ndv2:nodes=2",
    "torus:4x4x4",
    "twisted:4x8",
    "fat-tree:k=4",
    "hypercube:3",
    "amd4",
]


@pytest.mark.parametrize("name", ALIKE)
def test_relabelled_machines_are_recognized(name: str) -> None:
    other = relabelled(topology(name), 7, Fraction(1, 2))
    like = {one.name: one for one in structure(other).like}
    assert name in like
    assert (like[name].scale, like[name].lacks) == (Fraction(1, 2), ())


def test_parts_of_machines_are_told_by_what_they_lack() -> None:
    half = structure(topology("dgx1").restricted_to(range(4, 8)))
    assert "this is    dgx1 without gpu0…gpu3" in structure_text(half)
    (one,) = (x for x in structure(topology("dgx1:dead=0-4")).like if x.name == "dgx1")
    assert one.cut == ("gpu0 -> gpu4", "gpu4 -> gpu0")
    assert not one.lacks
    hidden = relabelled(topology("dgx1").restricted_to(range(4, 8)), 3)
    assert [len(x.lacks) for x in structure(hidden).like if x.name == "dgx1"] == [4]


def test_a_machine_like_no_other() -> None:
    chain = topology("line:7")
    widths = {pair: k + 1 for k, pair in enumerate(pairwise(range(7)))}
    links = [
        replace(x, bandwidth=Fraction(widths[min(x.src, x.dst), max(x.src, x.dst)]))
        for x in chain.links
    ]
    assert not structure(replace(chain, links=tuple(links))).like


def test_two_machines_are_the_same_up_to_names() -> None:
    machine = topology("ndv2:nodes=2")
    moved = relabelled(machine, 5)
    pairs = renaming(machine, moved)
    assert pairs is not None
    assert len(pairs) == len(machine.nodes)
    assert renaming(machine, relabelled(machine, 5, Fraction(9, 10))) is None
    assert renaming(machine, topology("dgx1")) is None


def test_machines_that_differ_in_hosts_or_switches_are_not_the_same() -> None:
    hub = topology("hub:4")

    def hosted(*hosts: int) -> Topology:
        own = [replace(node, host=h) for node, h in zip(hub.nodes, hosts, strict=False)]
        return replace(hub, nodes=(*own, *hub.nodes[len(own) :]), symmetries=())

    turned = replace(hub, nodes=(*hub.nodes[:-1], replace(hub.nodes[-1], multicast=True)))
    assert renaming(hub, turned) is None
    assert renaming(turned, turned) is not None
    assert renaming(hosted(0, 0, 1, 1), hosted(0, 1, 0, 1)) is not None
    assert renaming(hosted(0, 0, 1, 1), hosted(0, 0, 0, 1)) is None
    assert renaming(hosted(0, 0, 1, 1), hub) is None


def test_machines_in_parts_have_a_structure() -> None:
    line = topology("line:4")
    for links in ((), line.links[:2]):
        text = structure_text(structure(replace(line, links=links)))
        assert "links do not join all of it" in text
        assert "GPUs stay joined" not in text

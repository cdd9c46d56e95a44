"""Boxes times fabric: right on every cluster, and as good as the remark says."""

from fractions import Fraction
from functools import cache
from math import prod

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import to_schedule

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Link, Node, NodeKind, Topology, both_ways
from weft.synth.base.meter import STEPS, Meter
from weft.synth.bounds import bounds
from weft.synth.engines.packing.hosts.hosts import pack_hosts
from weft.synth.engines.packing.trees.model import PackedTree, Packing
from weft.synth.engines.packing.trees.trees import pack
from weft.synth.fabric.hosts import hosts_of
from weft.synth.judge.verify import verify

IRREGULAR = "dgx-a100:nodes=3,nics=8,4,2"
KINDS = ("allgather", "reduce_scatter", "broadcast", "reduce", "allreduce")


def packed(machine: Topology, kind: str) -> Packing:
    roots = [1] if kind in ("broadcast", "reduce") else []
    found = pack_hosts(machine, make(kind, machine.ranks, roots=roots))
    assert found is not None
    return found


@cache
def named(name: str, kind: str) -> Packing:
    """As :func:`packed`, of a machine that several tests look at."""
    return packed(topology(name), kind)


def legal(machine: Topology, tree: PackedTree) -> None:
    """Routes lead from GPU to GPU; what copies reaches every rank once, parents first."""
    for i, (src, dst) in enumerate(zip(tree.src.tolist(), tree.dst.tolist(), strict=True)):
        at = src
        for k in tree.route_links[tree.route_start[i] : tree.route_start[i + 1]].tolist():
            assert machine.links[k].src == at
            at = machine.links[k].dst
            assert at == dst or not machine.nodes[at].stores
        assert at == dst
    copies = ~tree.reduce
    if copies.any():
        grown(tree.src[copies], tree.dst[copies], machine.ranks)
    if tree.reduce.any():
        grown(tree.dst[tree.reduce][::-1], tree.src[tree.reduce][::-1], machine.ranks)


def grown(src: np.ndarray, dst: np.ndarray, ranks: int) -> None:
    reached = {int(src[0])}
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        assert a in reached
        assert b not in reached
        reached.add(b)
    assert len(reached) == ranks


def exact(packing: Packing) -> None:
    """Everything that a packing says of itself, counted again."""
    weights: dict[int, Fraction] = {}
    for tree in packing.trees:
        legal(packing.topology, tree)
        weights[tree.chunk] = weights.get(tree.chunk, Fraction(0)) + tree.weight
    assert weights == dict.fromkeys(range(packing.collective.chunks), Fraction(1))
    assert packing.rated().us_per_byte == packing.us_per_byte
    known = bounds(packing.topology, packing.collective)
    assert packing.bound == known.us_per_byte <= packing.us_per_byte
    loss = float(100 * (packing.us_per_byte / known.us_per_byte - 1))
    assert packing.remark == f"boxes × fabric: {loss:.2g} % above the bound"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [IRREGULAR, "mi250:nodes=2"])
def test_small_clusters(name: str, kind: str) -> None:
    packing = named(name, kind)
    exact(packing)
    assert packing.us_per_byte <= packing.bound * Fraction(11, 10)
    assert packing.optimal or name != IRREGULAR, "few NICs lose nothing"


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_schedules_of_it_are_right(kind: str) -> None:
    machine = topology("dgx-a100:nodes=2,nics=1")
    verdict = verify(to_schedule(packed(machine, kind)))
    assert verdict.ok, verdict.problems


def joined(boxes: list[tuple[int, int]], nic: int, *, named: bool) -> Topology:
    """Boxes of (GPUs, NVSwitch port in GB/s), a NIC for each GPU, one network."""
    gpus = [b for b, (size, _) in enumerate(boxes) for _ in range(size)]
    n = len(gpus)
    nodes = [Node(f"gpu{i}", NodeKind.GPU, b if named else None) for i, b in enumerate(gpus)]
    nodes += [Node(f"hub{b}", NodeKind.SWITCH, b if named else None) for b in range(len(boxes))]
    nodes.append(Node("network", NodeKind.SWITCH))
    links: list[Link] = []
    for i, b in enumerate(gpus):
        links += both_ways(i, n + b, boxes[b][1], "0.35")
        links += both_ways(i, n + len(boxes), nic, "1.25")
    return Topology("joined", tuple(nodes), tuple(links))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "allreduce"])
def test_boxes_of_two_kinds(kind: str, named: bool) -> None:
    machine = joined([(8, 300), (8, 450), (4, 450)], 25, named=named)
    packing = packed(machine, kind)
    exact(packing)
    assert packing.us_per_byte <= packing.bound * Fraction(102, 100)


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter"])
def test_as_good_as_trees_on_the_whole_machine(kind: str) -> None:
    machine = joined([(3, 300), (2, 450)], 25, named=True)
    whole = pack(machine, make(kind, machine.ranks), meter=Meter(5 * STEPS))[0]
    boxed = packed(machine, kind)
    assert whole.bound == boxed.bound
    assert boxed.us_per_byte <= whole.us_per_byte * Fraction(105, 100)


def test_wide_links_make_boxes_where_hosts_have_no_names() -> None:
    named = hosts_of(joined([(3, 300), (2, 450)], 25, named=True))
    found = hosts_of(joined([(3, 300), (2, 450)], 25, named=False))
    assert named is not None
    assert found is not None
    assert [m.tolist() for m in found.members] == [m.tolist() for m in named.members]
    assert found.host.tolist() == named.host.tolist()


@pytest.mark.parametrize("name", ["ring:8", "dgx1", "torus:4x4"])
def test_machines_without_boxes_and_collectives_without_trees(name: str) -> None:
    machine = topology(name)
    assert pack_hosts(machine, make("allgather", machine.ranks)) is None
    assert pack_hosts(topology(IRREGULAR), make("alltoall", 24)) is None


@st.composite
def clusters(draw: st.DrawFn) -> Topology:
    """Boxes of a ring or a switch each, with some NICs on rails or on one network."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=2, max_size=4))
    ranks, rails = sum(sizes), draw(st.sampled_from([1, 2]))
    nodes = [
        Node(f"gpu{i}", NodeKind.GPU, b)
        for i, b in enumerate(np.repeat(range(len(sizes)), sizes).tolist())
    ]
    nodes += [Node(f"hub{b}", NodeKind.SWITCH, b) for b in range(len(sizes))]
    nodes += [Node(f"rail{k}", NodeKind.SWITCH) for k in range(rails)]
    links: list[Link] = []
    for b, size in enumerate(sizes):
        first, wide = sum(sizes[:b]), draw(st.sampled_from([40, 100, 300]))
        ring = draw(st.booleans()) and size > 2
        for i in range(size):
            to = first + (i + 1) % size if ring else ranks + b
            links += both_ways(first + i, to, wide)
        for i in sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)) | {0, 1}):
            links += both_ways(
                first + i, ranks + len(sizes) + i % rails, draw(st.sampled_from([10, 25]))
            )
    return Topology("cluster", tuple(nodes), tuple(links))


@settings(max_examples=examples(6, 25), deadline=None)
@given(clusters(), st.sampled_from(KINDS))
def test_random_clusters(machine: Topology, kind: str) -> None:
    exact(packed(machine, kind))


def test_a_broken_nic_in_one_of_many_boxes() -> None:
    packing = packed(topology("dgx-h100:nodes=12,dead=1-rail1"), "allgather")
    assert len(packing.images) == 1
    assert packing.us_per_byte <= packing.bound * Fraction(1005, 1000)
    assert packing.rated().us_per_byte == packing.us_per_byte
    assert prod([len(t) for t in packing.trees[:3]]) == 95**3

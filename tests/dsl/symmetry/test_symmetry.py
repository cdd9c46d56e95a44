"""Automorphisms: random machines relabelled, products of known groups, things that must fail."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Link, Node, NodeKind, Resource, Topology
from weft.dsl.symmetry.structure import structure_of
from weft.dsl.symmetry.symmetry import (
    automorphisms,
    extend,
    generate,
    guess,
    is_automorphism,
    is_semiregular,
    link_image,
    orbits,
    verified,
)


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Small machines with switches, parallel links and shared resources."""
    gpus = draw(st.integers(1, 5))
    others = draw(st.lists(st.sampled_from([NodeKind.SWITCH, NodeKind.NIC]), max_size=3))
    size = gpus + len(others)
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    pairs = draw(st.lists(ends.filter(lambda e: e[0] != e[1]), max_size=14))
    links = tuple(
        Link(a, b, Fraction(draw(st.sampled_from([1, 2]))), Fraction(0)) for a, b in pairs
    )
    resources = []
    for i in range(draw(st.integers(0, 2)) if links else 0):
        members = draw(st.sets(st.integers(0, len(links) - 1), min_size=1))
        resources.append(Resource(f"r{i}", tuple(sorted(members)), Fraction(1)))
    nodes = [Node(f"g{i}") for i in range(gpus)]
    nodes += [Node(f"s{i}", kind, multicast=draw(st.booleans())) for i, kind in enumerate(others)]
    return Topology("random", tuple(nodes), links, tuple(resources))


def described(made: Topology, move: tuple[int, ...]) -> tuple[object, ...]:
    """The machine with node i called move[i], in no order: what an automorphism leaves alone."""
    nodes = sorted((move[i], n.kind, n.multicast, n.reduces) for i, n in enumerate(made.nodes))
    links = sorted((move[x.src], move[x.dst], x.bandwidth, x.latency, x.lanes) for x in made.links)
    return nodes, links


@given(machines())
def test_small_machines_agree_with_the_definition(made: Topology) -> None:
    simple = replace(made, resources=())
    gpus, size = simple.ranks, len(simple.nodes)
    for image in permutations(range(gpus)):
        for rest in permutations(range(gpus, size)):
            whole = (*image, *rest)
            same = described(simple, whole) == described(simple, tuple(range(size)))
            assert is_automorphism(simple, whole) == same


@settings(max_examples=examples(15))
@given(machines())
def test_generators_generate_every_automorphism(made: Topology) -> None:
    gpus, size = made.ranks, len(made.nodes)
    every = {
        (*image, *rest)
        for image in permutations(range(gpus))
        for rest in permutations(range(gpus, size))
        if is_automorphism(made, (*image, *rest))
    }
    found = automorphisms(structure_of(made))
    assert set(generate(found, limit=len(every)) or [tuple(range(size))]) == every


@settings(max_examples=examples(15))
@given(machines())
def test_a_link_image_moves_links_to_equal_links_and_resources_to_equal_ones(
    made: Topology,
) -> None:
    for image in permutations(range(made.ranks)):
        whole = (*image, *range(made.ranks, len(made.nodes)))
        if not is_automorphism(made, whole):
            continue
        moved = link_image(made, whole)
        assert sorted(moved) == list(range(len(made.links)))
        for i, x in enumerate(made.links):
            assert made.links[moved[i]] == replace(x, src=whole[x.src], dst=whole[x.dst])
        here = sorted(sorted(r.links) for r in made.resources)
        assert here == sorted(sorted(moved[i] for i in r.links) for r in made.resources)


@settings(max_examples=examples(12))
@given(machines())
def test_extend_finds_a_way_exactly_when_there_is_one(made: Topology) -> None:
    plain = replace(made, resources=())
    gpus, size = plain.ranks, len(plain.nodes)
    for image in permutations(range(gpus)):
        found = extend(plain, image)
        exists = any(
            is_automorphism(plain, (*image, *rest)) for rest in permutations(range(gpus, size))
        )
        assert (found is not None) == exists
        if found is not None:
            assert found[:gpus] == image
            assert is_automorphism(plain, found)


def test_a_shared_resource_breaks_a_symmetry() -> None:
    square = topology("ring:4")
    first = next(i for i, x in enumerate(square.links) if (x.src, x.dst) == (0, 1))
    bound = replace(square, resources=(Resource("nic", (first,), Fraction(1)),))
    assert verified(square)
    assert not verified(bound)


def test_bad_images_are_no_automorphisms() -> None:
    ring = topology("ring:4")
    for image in [(0, 1, 2), (0, 0, 1, 2), (1, 0, 2, 3), (0, 1, 2, 4)]:
        assert not is_automorphism(ring, image)
    with pytest.raises(ValueError, match="automorphism"):
        link_image(ring, (1, 0, 2, 3))


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("ring:6", 6),
        ("torus:3x4", 12),
        ("hypercube:5", 32),
        ("fat-tree:k=4", 16),
        ("dgx1:nodes=2", 8),
        ("mi250", 4),
    ],
)
def test_declared_generators_make_groups_of_the_known_order(text: str, order: int) -> None:
    made = topology(text)
    group = generate(made.symmetries)
    assert group is not None
    assert len(group) == order
    assert group[0] == tuple(range(len(made.nodes)))
    assert is_semiregular(group, made.ranks)
    assert len(set(orbits(made.symmetries, made.ranks).tolist())) == made.ranks // order


def test_a_group_larger_than_the_limit_is_refused() -> None:
    assert generate([(1, 2, 3, 4, 0), (1, 0, 2, 3, 4)], limit=math.factorial(5) - 1) is None
    full = generate([(1, 2, 3, 4, 0), (1, 0, 2, 3, 4)])
    assert full is not None
    assert len(full) == math.factorial(5)
    assert not is_semiregular(full, 5)


@pytest.mark.parametrize(
    "text", ["ring:8", "torus:4x4", "hypercube:4", "dgx-a100:nodes=4", "full:5"]
)
def test_guess_finds_a_transitive_group_where_there_is_one(text: str) -> None:
    made = replace(topology(text), symmetries=())
    found = guess(made)
    assert all(is_automorphism(made, image) for image in found)
    group = generate(found)
    assert group is not None
    assert is_semiregular(group, made.ranks)
    assert len(group) == made.ranks


def test_a_thousand_ranks_are_verified_in_no_time() -> None:
    made = topology("dgx-h100:nodes=128")
    assert len(verified(made)) == 2
    group = generate(made.symmetries)
    assert group is not None
    assert len(group) == made.ranks == 1024

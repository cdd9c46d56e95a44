"""Orbits: machines made with a known symmetry, catalogue machines, broken ones, relabelled ones."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.arrays import Ints
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Link, Node, NodeKind, Resource, Topology
from weft.dsl.symmetry.detect import surviving
from weft.dsl.symmetry.orbits import Orbits, orbits_of, without_symmetry


@st.composite
def rotating(draw: st.DrawFn) -> tuple[int, Topology]:
    """A few equal blocks in a circle, and a machine that turning the circle leaves alone."""
    blocks, gpus = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    inner = draw(st.integers(0, 2))
    shared = draw(st.integers(0, 1))
    first = blocks * (gpus + inner)

    def place(block: int, i: int) -> int:
        block %= blocks
        if i < gpus:
            return block * gpus + i
        return blocks * gpus + block * inner + i - gpus if i < gpus + inner else first

    one = st.integers(0, gpus + inner + shared - 1)
    wires = draw(
        st.lists(st.tuples(one, one, st.integers(0, blocks - 1), st.integers(1, 2)), max_size=8)
    )
    links, members = [], []
    for src, dst, shift, width in wires:
        made = [(place(b, src), place(b + shift, dst)) for b in range(blocks)]
        if any(a == b for a, b in made):
            continue
        members.append(range(len(links), len(links) + blocks))
        links += [Link(a, b, Fraction(width)) for a, b in made]
    held = draw(st.sets(st.integers(0, len(members) - 1))) if members else set()
    resources = [
        Resource(f"r{b}", tuple(members[w][b] for w in sorted(held)), Fraction(1))
        for b in range(blocks if held else 0)
    ]
    kinds = [NodeKind.NIC] * (blocks * inner) + [NodeKind.SWITCH] * shared
    nodes = [Node(f"g{i}") for i in range(blocks * gpus)]
    nodes += [Node(f"s{i}", kind) for i, kind in enumerate(kinds)]
    turn = [place(b + 1, i) for b in range(blocks) for i in range(gpus)]
    turn += [place(b + 1, gpus + i) for b in range(blocks) for i in range(inner)]
    turn += [first] * shared
    return blocks, Topology("circle", tuple(nodes), tuple(links), tuple(resources), (tuple(turn),))


def relabelled(made: Topology, seed: int) -> Topology:
    """Ranks and other nodes in another order, nothing declared."""
    mixed = np.random.default_rng(seed)
    ranks, size = made.ranks, len(made.nodes)
    move = [*mixed.permutation(ranks).tolist(), *(ranks + mixed.permutation(size - ranks)).tolist()]
    back = np.argsort(move).tolist()
    links = tuple(replace(x, src=move[x.src], dst=move[x.dst]) for x in made.links)
    return Topology("mixed", tuple(made.nodes[i] for i in back), links, made.resources)


def sound(made: Topology, found: Orbits) -> None:
    """All that the class promises, by its definition."""
    links, ranks = len(made.links), made.ranks
    assert found.images.shape == (found.order, len(made.nodes))
    assert found.row_images.shape == (found.order, links + len(made.resources))
    assert found.images[0].tolist() == list(range(len(made.nodes)))
    for image, rows in zip(found.images.tolist(), found.row_images.tolist(), strict=True):
        assert sorted(image) == list(range(len(made.nodes)))
        assert sorted(rows) == list(range(len(rows)))
        for i, one in enumerate(made.nodes):
            twin = made.nodes[image[i]]
            assert (one.kind, one.multicast, one.reduces) == (
                twin.kind,
                twin.multicast,
                twin.reduces,
            )
        for i, x in enumerate(made.links):
            assert made.links[rows[i]] == replace(x, src=image[x.src], dst=image[x.dst])
        for i, r in enumerate(made.resources):
            other = made.resources[rows[links + i] - links]
            assert other.bandwidth == r.bandwidth
            assert sorted(other.links) == sorted(rows[j] for j in r.links)
    assert not (found.images[1:, :ranks] == np.arange(ranks)).any()
    assert np.bincount(found.rank_orbit).tolist() == [found.order] * len(found.representatives)
    for rank in range(ranks):
        first = found.representatives[found.rank_orbit[rank]]
        assert found.images[found.element_of[rank], first] == rank
        assert first <= rank
    for row, orbit in enumerate(found.row_orbit):
        members = np.flatnonzero(found.row_orbit == orbit)
        assert members.tolist() == sorted(set(found.row_images[:, row].tolist()))


def products(found: Orbits, left: Ints, right: Ints) -> Ints:
    """The elements that apply ``right``, then ``left``."""
    first = found.representatives[0]
    return found.element_of[found.images[left, found.images[right, first]]]


def closed(found: Orbits) -> None:
    """Elements compose, on nodes as on rows, and have inverses."""
    left, right = (x.ravel() for x in np.indices((found.order, found.order)))
    both = products(found, left, right)
    for images in (found.images, found.row_images):
        assert np.array_equal(images[both], np.take_along_axis(images[left], images[right], 1))
    every = np.arange(found.order)
    assert not products(found, found.inverses(), every).any()
    assert not products(found, every, found.inverses()).any()


@given(rotating())
def test_declared_rotations_are_in_the_group(case: tuple[int, Topology]) -> None:
    blocks, made = case
    found = orbits_of(made)
    sound(made, found)
    closed(found)
    assert found.order % blocks == 0


@settings(max_examples=examples(22))
@given(rotating(), st.integers(0, 5))
def test_what_is_found_without_declarations_is_sound(case: tuple[int, Topology], seed: int) -> None:
    made = relabelled(case[1], seed)
    found = orbits_of(made)
    sound(made, found)
    closed(found)


@given(rotating())
def test_a_wrong_declaration_does_no_harm(case: tuple[int, Topology]) -> None:
    made = case[1]
    size, ranks = len(made.nodes), made.ranks
    wrong = ((*np.roll(range(ranks), 1).tolist(), *range(ranks, size)), tuple(range(size)))
    sound(made, orbits_of(replace(made, symmetries=wrong)))


@given(rotating(), st.data())
def test_a_broken_link_is_never_overlooked(case: tuple[int, Topology], data: st.DataObject) -> None:
    blocks, made = case
    if not made.links:
        return
    dead = data.draw(st.sets(st.integers(0, len(made.links) - 1), min_size=1))
    left = made.without_links(dead)
    kept = surviving(made, left, dead)
    sound(left, orbits_of(replace(left, symmetries=kept)))
    # Of the turns of the circle, those remain that map the dead links to dead ones.
    turns = [tuple(range(len(made.nodes)))]
    for _ in range(1, blocks):
        turns.append(tuple(made.symmetries[0][i] for i in turns[-1]))

    def gone(turn: tuple[int, ...]) -> list[tuple[object, ...]]:
        each = (made.links[i] for i in dead)
        return sorted((turn[x.src], turn[x.dst], x.bandwidth) for x in each)

    if not made.resources:
        expected = sum(gone(turn) == gone(turns[0]) for turn in turns)
        assert orbits_of(replace(left, symmetries=kept)).order % expected == 0


def semiregular(made: Topology, image: tuple[int, ...]) -> bool:
    """Whether no power but the identity fixes a rank."""
    power, still = image, tuple(range(len(image)))
    while power != still:
        if any(power[r] == r for r in range(made.ranks)):
            return False
        power = tuple(image[i] for i in power)
    return True


@given(rotating().filter(lambda case: case[1].ranks <= 4 and len(case[1].nodes) <= 6))
def test_a_small_machine_with_a_symmetry_is_seen_to_have_one(case: tuple[int, Topology]) -> None:
    made = replace(case[1], resources=(), symmetries=())
    ranks, size = made.ranks, len(made.nodes)

    def described(move: tuple[int, ...]) -> tuple[object, ...]:
        kinds = sorted((move[i], n.kind) for i, n in enumerate(made.nodes))
        return kinds, sorted((move[x.src], move[x.dst], x.bandwidth) for x in made.links)

    one = described(tuple(range(size)))
    moves = ((*a, *b) for a in permutations(range(ranks)) for b in permutations(range(ranks, size)))
    still = tuple(range(size))
    exists = any(
        move != still and semiregular(made, move) and described(move) == one for move in moves
    )
    assert (orbits_of(made).order > 1) == exists


ORDERS = {
    "ring:8": 8,
    "full:8": 8,
    "line:8": 2,
    "line:9": 1,
    "star:5": 1,
    "hub:6": 6,
    "mesh:4x6": 4,
    "torus:8x8": 64,
    "torus:3x4x2": 24,
    "hypercube:6": 64,
    "fat-tree:k=4": 16,
    "dragonfly:p=2,a=4,h=2": 36,
    "dgx1": 4,
    "ndv2": 4,
    "ndv2:nodes=2": 8,
    "mi250": 4,
    "mi250:nodes=2": 8,
    "amd4": 4,
    "mi300x": 8,
    "gb200-nvl72": 72,
    "dgx2:nodes=2": 32,
    "dgx-a100:nodes=4,fabric=rails": 32,
    "dgx-a100:nodes=4,fabric=pods:2": 32,
    "dgx-a100:nodes=4,fabric=planes:2": 32,
    "dgx-a100:nodes=4,nics=4": 16,
    "dgx-a100:nodes=4,nics=8,8,4,4": 8,
}


@pytest.mark.parametrize("bare", [False, True], ids=["declared", "bare"])
@pytest.mark.parametrize("text", ORDERS)
def test_catalogue_machines_have_groups_of_known_orders(text: str, bare: bool) -> None:
    made = topology(text)
    found = orbits_of(replace(made, symmetries=()) if bare else made)
    assert found.order == ORDERS[text]
    sound(made, found)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("ring:12", 12),
        ("torus:4x4", 16),
        ("torus:6x6", 36),
        ("hypercube:5", 32),
        ("fat-tree:k=4", 16),
        ("ndv2:nodes=2", 8),
        ("mi250:nodes=2", 8),
        ("dgx-a100:nodes=4,fabric=rails", 32),
        ("dgx-a100:nodes=4,fabric=star", 32),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_machine_is_recognised_whatever_its_numbers(text: str, order: int, seed: int) -> None:
    made = relabelled(topology(text), seed)
    found = orbits_of(made)
    assert found.order == order
    sound(made, found)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("ring:16,dead=0-1", 2),
        ("ring:16,dead=0-1,8-9", 4),
        ("torus:4x4,dead=0-1,5-9", 2),
        ("torus:16x16,dead=0-1,5-6,100-101", 1),
        ("dgx-a100:nodes=4,fabric=rails,dead=0-nvswitch0", 1),
        ("dgx1:nodes=2,dead=0-1,8-9", 2),
    ],
)
def test_dead_cables_leave_smaller_groups(text: str, order: int) -> None:
    made = topology(text)
    found = orbits_of(made)
    assert found.order == order
    sound(made, found)


def test_without_symmetry_every_row_is_alone() -> None:
    made = topology("torus:4x4")
    found = without_symmetry(made)
    assert found.order == 1
    assert found.row_orbit.tolist() == list(range(len(made.links)))
    assert found.representatives.tolist() == list(range(16))


def test_a_limit_leaves_a_subgroup() -> None:
    made = topology("torus:6x6")
    found = orbits_of(made, limit=20)
    assert found.order in {12, 18}
    sound(made, found)
    assert orbits_of(made).order == 36


@pytest.mark.parametrize(
    ("text", "order"), [("dgx-a100:nodes=128,fabric=rails", 1024), ("mi250:nodes=64", 256)]
)
def test_a_thousand_ranks_have_few_orbits(text: str, order: int) -> None:
    found = orbits_of(topology(text))
    assert found.order == order
    assert int(found.row_orbit.max()) < 22


def test_the_same_machine_has_the_same_orbits() -> None:
    made = relabelled(topology("torus:6x6"), 3)
    one, other = orbits_of(made), orbits_of(made)
    assert np.array_equal(one.images, other.images)
    assert np.array_equal(one.row_images, other.row_images)

"""Colour refinement: never splits an orbit, and numbers what it cannot tell apart alike."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Resource
from weft.dsl.symmetry.refine import kinds, numbering, refine, stable
from weft.dsl.symmetry.structure import structure_of

MACHINES = ["torus:3x4", "mesh:4x4", "fat-tree:k=4", "mi250", "dgx1:nodes=2", "dgx2:nodes=2"]


@pytest.mark.parametrize("text", MACHINES)
def test_nodes_of_an_orbit_have_one_colour(text: str) -> None:
    made = topology(text)
    colours = stable(structure_of(made))
    for image in made.symmetries:
        assert np.array_equal(colours[list(image)], colours[: len(image)])


def test_colours_are_as_fine_as_distances_in_a_line() -> None:
    colours = stable(structure_of(topology("line:9")))
    assert len(set(colours.tolist())) == 5
    assert np.array_equal(colours, colours[::-1])


def test_a_shared_resource_tells_ranks_apart() -> None:
    ring = topology("ring:6")
    first = next(i for i, x in enumerate(ring.links) if (x.src, x.dst) == (0, 1))
    bound = replace(ring, resources=(Resource("nic", (first,), Fraction(1)),))
    assert len(set(stable(structure_of(ring)).tolist())) == 1
    assert len(set(stable(structure_of(bound)).tolist())) == 7


@given(st.integers(0, 8), st.integers(0, 8))
def test_two_copies_agree_where_an_image_exists(one: int, other: int) -> None:
    made = structure_of(topology("line:9"))
    colours = np.stack([kinds(made)] * 2)
    colours[0, one] = colours[1, other] = 1
    assert (refine(made, colours) is not None) == (other in (one, 8 - one))


@pytest.mark.parametrize(
    "text", ["dgx-a100:nodes=12,fabric=rails", "dgx-a100:nodes=12,fabric=star"]
)
def test_numbering_finds_the_boxes_and_counts_alike_in_all(text: str) -> None:
    made = topology(text)
    order = numbering(structure_of(made))
    assert sorted(order.tolist()) == list(range(made.ranks))
    boxes = [{made.nodes[r].host for r in order[i : i + 8].tolist()} for i in range(0, 96, 8)]
    assert all(len(box) == 1 for box in boxes)
    if "rails" in text:
        assert (order.reshape(12, 8) % 8 == order[:8] % 8).all()

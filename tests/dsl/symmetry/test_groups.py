"""Groups of permutations against their definition: closures by hand on a few points."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.arrays import Ints32
from weft.dsl.symmetry.groups import (
    cycle_lengths,
    divisors,
    grow,
    multiple,
    power,
    semiregular_powers,
    spread,
    trivial,
)


def closure(images: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """All products, by definition."""
    found = {tuple(range(len(images[0])))}
    while True:
        more = {tuple(a[i] for i in b) for a in images for b in found} | found
        if more == found:
            return found
        found = more


def points(image: tuple[int, ...]) -> Ints32:
    return np.array(image, np.int32)


images = st.permutations(range(6)).map(tuple)


@given(st.lists(images, min_size=1, max_size=2), st.integers(1, 6))
def test_spread_accepts_exactly_the_semiregular_groups(
    moves: list[tuple[int, ...]], ranks: int
) -> None:
    moves = [m for m in moves if set(m[:ranks]) == set(range(ranks))] or [tuple(range(6))]
    whole = closure(moves)
    still = tuple(range(6))
    fits = all(e == still or all(e[r] != r for r in range(ranks)) for e in whole)
    found = spread([points(m) for m in moves], ranks, 100)
    assert (found is not None) == fits
    if found is not None:
        assert {tuple(e) for e in found.elements.tolist()} == whole
        assert found.order == len(whole)
        assert found.elements[0].tolist() == list(still)
        assert spread([points(m) for m in moves], ranks, len(whole)) is not None
        assert len(whole) == 1 or spread([points(m) for m in moves], ranks, len(whole) - 1) is None


@given(images)
def test_powers_are_as_long_as_they_can_be(image: tuple[int, ...]) -> None:
    lengths = cycle_lengths(points(image)).tolist()
    order = math.lcm(*lengths)
    assert power(points(image), order).tolist() == list(range(6))
    found = list(semiregular_powers(points(image), 6, 6))
    orders = [math.lcm(*cycle_lengths(p).tolist()) for p in found]
    assert orders == sorted(set(orders), reverse=True)
    for each in found:
        assert len(cycle_lengths(each)) == 1
    every = {tuple(power(points(image), d).tolist()) for d in range(1, order)}
    fitting = [e for e in every if len(cycle_lengths(points(e))) == 1]
    assert len({math.lcm(*cycle_lengths(points(e)).tolist()) for e in fitting}) == len(found)


@given(st.lists(images, max_size=4))
def test_growing_never_leaves_the_closure(moves: list[tuple[int, ...]]) -> None:
    group = trivial(6, 6)
    for move in moves:
        larger = grow(group, points(move), 6, 6)
        assert larger.order % group.order == 0
        assert all(element in larger for element in group.elements)
        group = larger
    if moves:
        assert {tuple(e) for e in group.elements.tolist()} <= closure(moves)


def test_a_limit_takes_a_power() -> None:
    turn = points(tuple((i + 1) % 12 for i in range(12)))
    assert [grow(trivial(12, 12), turn, 12, limit).order for limit in (12, 11, 5, 3, 1)] == [
        12,
        6,
        4,
        3,
        1,
    ]


def test_orders_divide_the_sizes_of_classes() -> None:
    assert multiple(np.array([0, 0, 0, 0, 1, 1])) == 2
    assert multiple(np.array([0, 0, 1])) == 1
    assert divisors(12) == (12, 6, 4, 3, 2, 1)


def test_a_group_without_generators_is_refused() -> None:
    with pytest.raises(ValueError, match="generators"):
        spread([], 4, 4)

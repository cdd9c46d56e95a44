"""Few plans for all sizes: against all choices there are, and crossings to the byte."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from weft.backends.tune.choose import Stretch, few, limits, rounded, stretches
from weft.backends.tune.effort import EFFORT


def runs(path: tuple[int, ...]) -> int:
    return 1 + sum(a != b for a, b in pairwise(path))


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 5)),
        elements=st.floats(1, 9).map(lambda x: round(x, 1)),
    ),
    st.sampled_from((0.0, 0.1, 0.5)),
)
def test_no_choice_has_fewer_plans_or_is_as_short_and_quicker(
    times: np.ndarray, within: float
) -> None:
    count, sizes = times.shape
    limit = limits(times, np.full(sizes, np.inf), within, np.zeros(count, bool))
    path = tuple(few(times, limit, np.ones(count)))

    def cost(one: tuple[int, ...]) -> tuple[int, float]:
        return runs(one), round(sum(np.log(times[c, i]) for i, c in enumerate(one)), 9)

    allowed = [
        one
        for one in product(range(count), repeat=sizes)
        if all(times[c, i] <= limit[c, i] for i, c in enumerate(one))
    ]
    assert path in allowed
    assert cost(path) == min(map(cost, allowed))


def test_a_plan_may_lose_a_little_to_the_best_but_nothing_to_the_baseline() -> None:
    times = np.array([[1.00, 1.00, 1.04], [1.02, 1.02, 1.00]])
    found = np.array([False, True])
    free = limits(times, np.full(3, np.inf), 0.05, found)
    assert few(times, free, np.ones(2)) in ([0, 0, 0], [1, 1, 1])
    # The second is the baseline: the first is slower than it at the last size.
    held = limits(times, times[1], 0.05, found)
    assert times[0, 2] > held[0, 2]
    assert few(times, held, np.ones(2)) == [1, 1, 1]
    strict = limits(times, times[1], 0.0, found)
    assert few(times, strict, np.ones(2)) == [0, 0, 1]


def test_forms_of_a_baseline_that_take_turns_by_less_than_a_percent_are_one_plan() -> None:
    times = np.array([[1.0, 1.008, 1.0, 1.008], [1.008, 1.0, 1.008, 1.0], [2.0, 2.0, 2.0, 1.012]])
    limit = limits(times, times.min(axis=0), 0.05, np.array([True, True, True]))
    assert runs(few(times, limit, np.ones(3))) == 1
    assert times[2, 3] > limit[2, 3]
    found = limits(times, times.min(axis=0), 0.05, np.zeros(3, bool))
    assert runs(few(times, found, np.ones(3))) == 4


def test_of_equals_the_cheaper_one() -> None:
    times = np.array([[1.0, 1.0], [1.001, 1.001]])
    assert few(
        times, limits(times, np.full(2, np.inf), 0.03, np.zeros(2, bool)), np.array([1.01, 1.0])
    ) == [1, 1]


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 10**6))
def test_a_plan_gives_way_where_the_next_is_no_slower(start: int, width: int, at: int) -> None:
    low, high = start, start + width + 1
    change = low + 1 + at % (width + 1)  # in (low, high]

    def us(place: int, size: int) -> float:
        return 10.0 if place == 0 else (11.0 if size < change else 9.0)

    first, second = stretches([0, 1], [low, high], us)
    assert (first.low, first.high, second.high) == (low, second.low - 1, high)
    assert 0 <= second.low - change < max(1, second.low // EFFORT.change_parts)


def test_where_two_lines_cross_takes_few_looks() -> None:
    """Each is a simulation; halving would take two dozen."""
    asked = []

    def us(place: int, size: int) -> float:
        asked.append((place, size))
        return 10.0 + 3e-6 * size if place == 0 else 14.0 + 1.1e-6 * size

    second = stretches([0, 1], [1 << 20, 1 << 22], us)[1]
    assert 0 <= second.low - 4.0 / 1.9e-6 < second.low / EFFORT.change_parts
    assert len(set(asked)) == 18


def test_where_times_cross_more_than_once_the_size_that_loses_most_loses_least() -> None:
    """The first is 3 % behind between two ends at which it is a little quicker."""

    def us(place: int, size: int) -> float:
        return 103.0 if place == 0 and 110 < size < 190 else 100.0 if place == 0 else 100.5

    assert 110 < stretches([0, 1], [100, 200], us)[1].low <= 118


def test_where_neither_has_a_time_the_next_one_begins() -> None:
    assert stretches([0, 1], [10, 20], lambda place, _: math.inf)[1].low == 11


def test_stretches_leave_no_gap_whatever_the_times_say() -> None:
    grid = [10, 20, 40, 80]
    for better in (True, False):
        found = stretches([0, 1, 1, 2], grid, lambda place, _, b=better: -place if b else place)
        assert [s.place for s in found] == [0, 1, 2]
        assert found[0].low == 10
        assert found[-1].high == 80
        assert all(b.low == a.high + 1 for a, b in pairwise(found))
    assert stretches([0, 1], [10, 20], lambda place, _: -place)[1].low == 11
    assert stretches([0, 1], [10, 20], lambda place, _: place)[1].low == 20


@pytest.mark.parametrize(
    ("change", "slope", "low"),
    [
        (1000, 0.0, 1024),  # equal anywhere: the nearer power of two
        (700, 0.0, 512),
        (700, 1e-5, 512),  # 0.2 % is lost
        (700, 1e-3, 700),  # 19 %
        (1000, 3e-4, 1024),
        (512, 1.0, 512),
        (100, 0.0, 100),  # no power of two is in reach of both
    ],
)
def test_a_change_moves_to_a_power_of_two_where_that_costs_little(
    change: int, slope: float, low: int
) -> None:
    def us(place: int, size: int) -> float:
        return 1.0 if place == 0 else 1.0 - slope * (size - change)

    grid = [90, 110] if change == 100 else [90, 600, 1500]
    found = [Stretch(0, grid[0], change - 1), Stretch(1, change, grid[-1])]
    first, second = rounded(found, grid, lambda *_: True, us)
    assert (first.high, second.low) == (low - 1, low)


def test_no_change_moves_over_a_size_where_the_other_may_not_be_used() -> None:
    found = [Stretch(0, 90, 699), Stretch(1, 700, 1500)]
    told = rounded(found, [90, 600, 1500], lambda place, at: (place, at) != (1, 1), lambda *_: 1.0)
    assert told[1].low == 1024

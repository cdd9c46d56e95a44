"""Times at the sizes of a library, from those of whole elements."""

import pytest

from weft.backends.tune.measure import _column


def test_what_was_measured_stays_and_the_rest_lies_around_it() -> None:
    column = _column([996, 1992, 3000], [10.0, 20.0, 40.0], [500, 1000, 1992, 3000, 6000])
    assert column[0] == 10.0
    assert 10.0 < column[1] < 10.1
    assert column[2:4] == (20.0, 40.0)
    assert column[4] == pytest.approx(80.0)


def test_sizes_below_one_element_take_as_long_as_one() -> None:
    assert _column([4], [7.0], [1, 2]) == (7.0, 7.0)

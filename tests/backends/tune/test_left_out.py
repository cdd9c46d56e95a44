"""Numbers fitted without a machine, on tables that the model itself made."""

import pytest
from left_out import leave_out
from measured_runs import baselines_of
from measured_tables import MeasuredRow, MeasuredTable

from weft.backends.tune.baselines import best_of

SIZES = tuple(1 << k for k in (10, 17, 18, 19, 20, 26))


def made(name: str, **facts: object) -> MeasuredTable:
    given = {"topology": "dgx-h100", "gpu": "H100", "ranks": 8, "collective": "allgather", **facts}
    empty = MeasuredTable(name, given, ())
    options = baselines_of(empty)
    times = [best_of(options, size) for size in SIZES]
    rows = [MeasuredRow(n, one.us) for n, one in zip(SIZES, times, strict=True) if one is not None]
    return MeasuredTable(name, given, tuple(rows))


def test_numbers_that_another_machine_tells_are_found_again() -> None:
    tables = [made("one-ag"), made("one-rs", collective="reduce_scatter"), made("two-ag")]
    one, two = leave_out(tables)
    assert (one.name, two.name) == ("one", "two")
    assert [table.name for table in one.tables] == ["one-ag", "one-rs"]
    for found, told in ((one, ("two-ag",)), (two, ("one-ag", "one-rs"))):
        keys = {number.key: number for number in found.numbers}
        assert {"factor.nvlink", "efficiency.LL"} <= set(keys)
        for number in keys.values():
            assert number.told == told
            assert number.value == pytest.approx(number.shipped, rel=0.05)


def test_numbers_that_no_other_machine_tells_are_the_default() -> None:
    one, _ = leave_out([made("a100-ag", gpu="A100", topology="dgx-a100"), made("h100-ag")])
    values = {number.key: (number.value, number.told) for number in one.numbers}
    assert values["factor.nvlink"] == (pytest.approx(1), ())

"""Numbers of the runtime model: each in the range of its key."""

from fractions import Fraction

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.timing import MachineTiming, TimingNumber


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("start.Simple", Fraction(10) ** 400, "1e400 or so"),
        ("start.LL", Fraction(-1), "-1, which is negative"),
        ("alpha.nvlink.LL", Fraction(10**7), "1e\\+07"),
        ("reach.nvlink", Fraction(0), "is 0"),
        ("reach.nvlink", Fraction(2), "is 2"),
        ("cap.send", Fraction(0), "is 0"),
        ("factor.nvlink", Fraction(1, 10**300), "1e-300"),
        ("channels", Fraction(0), "is 0"),
    ],
)
def test_a_number_out_of_the_range_of_its_key_is_refused(
    key: str, value: Fraction, told: str
) -> None:
    with pytest.raises(UserError, match=told) as caught:
        TimingNumber(key, value, "given")
    assert "a number from" in (caught.value.hint or "")


def test_a_number_out_of_range_in_a_file_is_told_with_its_place() -> None:
    with pytest.raises(BadFile, match="is 1000") as found:
        MachineTiming.from_json({"numbers": [["reach.nvlink", "1000", ""]]}, "box.json: timing")
    assert found.value.where == "box.json: timing.numbers[0]"


def test_a_number_in_range_is_kept() -> None:
    for key, value in (("start.LL", 0), ("reach.xgmi", 1), ("cap.LL128", 24), ("channels", 24)):
        assert TimingNumber(key, Fraction(value), "given").value == value

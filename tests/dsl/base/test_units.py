"""Quantities are exact, spelled one way, and refused in words."""

from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.base.units import (
    exact,
    format_bytes,
    parse_bandwidth,
    parse_bytes,
    parse_microseconds,
    parse_size_range,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("64B", 64), ("1KB", 1000), ("1KiB", 1024), ("1.5KiB", 1536), ("2GiB", 2 << 30)],
)
def test_sizes_are_whole_bytes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["1", "-1KiB", "0B", "0.3B", "1XB", "KiB", "", "nanB", "1e999999B"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(UserError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1K", "1KiB (1KB is 1000)"),
        ("4m", "4MiB (4MB is 4000000)"),
        ("1.5G", "1.5GiB (1.5GB is 1500000000)"),
        ("8x", "known: B, "),
    ],
)
def test_a_letter_alone_means_a_power_of_two_to_nccl_tests(text, hint):
    with pytest.raises(UserError) as error:
        parse_bytes(text)
    assert (error.value.hint or "").startswith(hint)


def test_times_and_bandwidths_are_exact():
    assert parse_microseconds("0.7us") == F(7, 10)
    assert parse_microseconds("700ns") == F(7, 10)
    assert parse_microseconds("60s") == 60_000_000
    assert parse_bandwidth("200Gb/s") == 25 == parse_bandwidth("25GB/s")


def test_a_bandwidth_of_zero_is_no_link():
    with pytest.raises(UserError, match="zero"):
        parse_bandwidth("0GB/s")


def test_numbers_of_files_mean_the_decimal_that_was_written():
    assert exact(0.7, "α") == F(7, 10)
    assert exact("7/6", "α") == F(7, 6)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), True, None, "1/0", "1e99999", "9" * 99]
)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(UserError):
        exact(value, "α")


def test_a_range_is_walked_by_doubling_and_ends_where_it_says():
    assert parse_size_range("1KiB:4KiB").powers() == (1024, 2048, 4096)
    assert parse_size_range("1KB..3KB").powers() == (1000, 2000, 3000)
    assert parse_size_range("8B").powers() == (8,)
    with pytest.raises(UserError, match="empty"):
        parse_size_range("4KiB:1KiB")


@pytest.mark.parametrize("text", ["1KiB:", "1KiB..", ":1KiB", ":", "1KiB:2KiB:", "1KiB:2KiB:3KiB"])
def test_half_a_range_is_none(text):
    with pytest.raises(UserError, match="size"):
        parse_size_range(text)


def test_a_range_with_a_dash_is_told_how_it_is_written():
    with pytest.raises(UserError) as caught:
        parse_size_range("1KB-1GB")
    assert caught.value.hint == "a range is written 1KB:1GB"


@given(st.integers(0, 1 << 12), st.sampled_from(["B", "KB", "KiB", "MB", "MiB", "GB", "GiB"]))
def test_a_short_size_is_read_back_as_it_was_shown(number, unit):
    value = parse_bytes(f"{number + 1}{unit}")
    shown = format_bytes(value)
    if "." not in shown:
        assert parse_bytes(shown) == value

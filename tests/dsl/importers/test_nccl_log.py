"""Debug logs of NCCL: damaged numbers are no choices, and nothing is raised."""

import pytest

from weft.dsl.importers.nccl_log import read_log

LINE = (
    "node-0:1:2 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..{}}}"
)


@pytest.mark.parametrize(
    ("size", "algorithm", "protocol"),
    [("9" * 5000, "RING", "LL"), ("64", "9" * 5000, "LL"), ("64", "RING", "9" * 5000)],
)
def test_malformed_numbers_are_passed_over(size: str, algorithm: str, protocol: str) -> None:
    assert not read_log(LINE.format(size, algorithm, protocol, 7)).choices
    (one,) = read_log(LINE.format(64, "RING", "LL", 7)).choices
    assert (one.bytes, one.algorithm, one.protocol, one.channels) == (64, "ring", "ll", 8)


def test_channels_that_are_no_number_are_not_told() -> None:
    (one,) = read_log(LINE.format(64, "\u00b2", "LL", "9" * 4000)).choices
    assert (one.algorithm, one.channels) == ("\u00b2", None)

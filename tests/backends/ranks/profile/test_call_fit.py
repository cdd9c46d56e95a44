"""Numbers from times of calls: planted ones come back, and what is not told is said."""

from __future__ import annotations

import random

import pytest

from weft.backends.ranks.profile.machine import CallNumbers, call_numbers
from weft.backends.ranks.profile.model import CallPath, CallStep, CallTime
from weft.dsl.nouns.parts import Medium

PLANTED = {"LL": (6.6, 0.7), "LL128": (14.0, 2.2), "Simple": (8.4, 3.9)}
NVLINK = {CallPath.INSIDE: Medium.NVLINK, CallPath.BETWEEN: Medium.NETWORK}


def ring(
    ranks: int, us: float, protocol: str = "Simple", way: CallPath = CallPath.INSIDE
) -> CallTime:
    return CallTime(CallStep.RING, way, protocol, ranks, 8, us)


def fan(ranks: int, us: float) -> CallTime:
    return CallTime(CallStep.FAN, CallPath.BETWEEN, "Simple", ranks, 8, us)


def values(found: CallNumbers) -> dict[str, float]:
    return {one.key: one.value for one in found.told}


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_planted_starts_and_alphas_come_back_by_protocol_and_way(noise: float) -> None:
    rng = random.Random(1)
    times = [
        ring(k, (start + 2 * (k - 1) * step) * rng.uniform(1 - noise, 1 + noise), protocol, way)
        for way, factor in ((CallPath.INSIDE, 1), (CallPath.BETWEEN, 4))
        for protocol, (start, alpha) in PLANTED.items()
        for step in [alpha * factor]
        for k in range(2, 9)
    ]
    times += [CallTime(CallStep.EMPTY, CallPath.NONE, "Simple", 1, 0, 4.5)]
    times += [fan(n, 20 + 1.5 * n) for n in (1, 2, 4, 8)]
    found = call_numbers(times, NVLINK, {CallPath.INSIDE: 7.5})
    expected = {"host.per_gpu": 4.5, "message.Simple": 1.5, "nominal.nvlink": 7.5}
    for protocol, (start, alpha) in PLANTED.items():
        expected |= {
            f"start.{protocol}": start,
            f"alpha.nvlink.{protocol}": alpha,
            f"alpha.network.{protocol}": 4 * alpha,
        }
    assert values(found) == pytest.approx(expected, rel=4 * noise + 1e-9)
    assert not found.remarks
    lines = [one.worst for one in found.told if one.worst is not None]
    assert len(lines) == 10
    assert max(lines) <= 2 * noise + 1e-9
    assert all(one.given().source.startswith("measured: ") for one in found.told)


def test_one_ring_parts_nothing() -> None:
    found = call_numbers([ring(2, 12.0)], NVLINK, {})
    assert not found.told
    assert "a third rank" in found.remarks[0]
    assert "message" not in found.remarks[0]


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ([ring(2, 10), ring(3, 8), ring(4, 6.5)], "a step takes -0.8"),
        ([ring(2, 10), ring(3, 40), ring(4, 70)], "the start takes -"),
        ([ring(2, 10), ring(3, 100), ring(4, 20)], "off a straight line"),
    ],
)
def test_times_that_make_no_sense_tell_nothing_and_it_is_said(times, why) -> None:
    found = call_numbers(times, NVLINK, {})
    assert not found.told
    assert why in found.remarks[0]
    assert "start.Simple keeps its default" in found.remarks[0]


def test_without_a_class_of_links_only_the_start_is_told() -> None:
    found = call_numbers([ring(2, 12), ring(3, 16), ring(4, 20)], {}, {CallPath.INSIDE: 2.5})
    assert values(found) == pytest.approx({"start.Simple": 8})
    assert "no class of link is known" in found.remarks[0]
    assert "2 µs a step" in found.remarks[0]


def test_a_fan_that_is_quicker_with_more_ranks_tells_nothing() -> None:
    found = call_numbers([fan(1, 9), fan(2, 8.5), fan(4, 7.5)], {}, {})
    assert not found.told
    assert "message.Simple keeps its default" in found.remarks[0]


def large(us: float, channels: int = 0) -> CallTime:
    return CallTime(CallStep.LARGE, CallPath.INSIDE, "Simple", 2, 64 << 20, us, channels)


def test_a_large_message_tells_what_is_reached_and_what_a_channel_sends() -> None:
    net = (64 << 20) / 200_000  # µs at 200 GB/s
    times = [ring(2, 12.0), large(net + 12), large(10 * net + 12, channels=1)]
    found = call_numbers(times, NVLINK, {}, {CallPath.INSIDE: 250_000.0})
    assert values(found) == pytest.approx({"reach.nvlink": 0.8, "cap.send": 20.0})
    assert "200 of 250 GB/s" in found.told[0].of


def test_a_large_message_as_quick_as_a_small_one_tells_nothing() -> None:
    found = call_numbers([ring(2, 12.0), large(11.0)], NVLINK, {}, {CallPath.INSIDE: 250_000.0})
    assert [one.of for one in found.told] == ["bandwidths of the links are measured ones"]
    assert any("no bandwidth is told" in one for one in found.remarks)


def test_more_than_the_links_have_is_all_of_it() -> None:
    found = call_numbers([ring(2, 1.0), large(10.0)], NVLINK, {}, {CallPath.INSIDE: 1000.0})
    assert values(found) == {"reach.nvlink": 1.0}


def test_one_channel_that_fills_the_link_tells_no_cap() -> None:
    times = [ring(2, 1.0), large(3000.0), large(3100.0, channels=1)]
    found = call_numbers(times, NVLINK, {}, {})
    assert not found.told
    assert any("cap.send keeps its default" in one for one in found.remarks)


def test_links_that_were_measured_have_no_share_of_a_data_sheet() -> None:
    """A ring that is no line left the family's nominal and reach: α and bandwidth counted twice."""
    times = [ring(2, 10), ring(3, 40), ring(4, 70)]
    found = call_numbers(times, NVLINK, {CallPath.INSIDE: 48.6}, {CallPath.INSIDE: 16_000.0})
    assert values(found) == pytest.approx({"nominal.nvlink": 48.6, "reach.nvlink": 1.0})

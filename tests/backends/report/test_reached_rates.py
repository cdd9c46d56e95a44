"""Predicted bus bandwidth of NVLS beside published measurements; the page has the same rows."""

from pathlib import Path

import pytest

from weft.backends.report.reached_rates import ReachedRates, reached_rates
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make

PAGE = Path(__file__).parents[3] / "docs" / "how-good.md"
H100, H800 = "dgx-h100:nvls=on", "dgx-h100:nvls=on,bw=200GB/s,family=h800"
B300 = "hub:8,bw=900GB/s,family=b300,capable=hub:multicast+reduces+issuer_in_group"

# Machine, its name on the page, GPUs, and the least and largest published busbw in GB/s:
# NVIDIA/nccl issues 1455, 1374 and 2140, NVIDIA/nccl-tests issues 212 and 272.
PUBLISHED = [
    (H100, "H100", 8, 475, 480),
    (H100, "H100", 7, 460, 460),
    (H100, "H100", 6, 440, 440),
    (H100, "H100", 5, 420, 420),
    (H100, "H100", 4, 365, 370),
    (H100, "H100", 3, 365, 370),
    (H100, "H100", 2, 365, 370),
    (H800, "H800", 8, 215, 215),
    (B300, "B300", 8, 845, 845),
]


def rates(text: str, ranks: int) -> ReachedRates:
    machine = topology(text).restricted_to(range(ranks))
    found = reached_rates(machine, make("allreduce", ranks))
    assert found is not None
    return found


@pytest.mark.parametrize(("text", "name", "ranks", "low", "high"), PUBLISHED)
def test_predicted_bus_bandwidth_meets_what_was_measured(
    text: str, name: str, ranks: int, low: int, high: int
):
    found = rates(text, ranks)
    assert 0.97 * low <= found.busbw <= 1.03 * high
    assert (found.busbw_casts > found.busbw_sends) == (ranks >= 4)
    span = f"{low}–{high}" if low < high else f"{low}"
    assert f"| {name} | {ranks} | {found.busbw:.0f} | {span} |" in PAGE.read_text()


def test_a_port_has_two_bandwidths():
    found = rates(H100, 8)
    assert (found.port, round(found.sends, 1), round(found.casts, 1)) == (450, 370.8, 315.2)
    assert "NVLS 315.2" in found.words


def test_where_nothing_was_published_nothing_is_expected():
    plain = make("allreduce", 8)
    assert reached_rates(topology("dgx-h100"), plain) is None
    assert reached_rates(topology("dgx-h100:nvls=on,family=a100"), plain) is None
    assert reached_rates(topology("dgx-h100:nvls=on"), make("allgather", 8)) is None

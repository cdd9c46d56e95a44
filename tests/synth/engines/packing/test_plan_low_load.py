"""Trees that load little: right, and they leave room inside."""

from fractions import Fraction

import pytest
from packings import named, to_schedule

from weft.synth.base.meter import STEPS, Meter
from weft.synth.engines.packing.order.plan_quick import low_load_packing
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter"])
def test_they_cross_a_fabric_once_per_side(kind: str, symmetric: bool) -> None:
    packing = named("fat-tree:k=4", kind, symmetric=symmetric)
    low = low_load_packing(packing, 24, Meter(STEPS))
    assert low is not None
    schedule = to_schedule(low)
    assert verify(schedule).ok
    assert us_per_byte(schedule) == low.us_per_byte
    assert low.us_per_byte <= packing.bound * Fraction(11, 10)
    crossed = sum(len(t.route_links) for t in low.trees)
    assert crossed < sum(len(t.route_links) for t in packing.trees)


def test_they_are_for_what_goes_to_all() -> None:
    assert low_load_packing(named("dgx-a100", "alltoall"), 24, Meter(STEPS)) is None

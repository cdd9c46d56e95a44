"""What engines are asked for a library."""

from fractions import Fraction

import pytest

from weft.backends.tune.asks import Named, asks, fitting_sketches
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.time.calibrated import calibrated_model


def test_schedules_of_few_messages_are_asked_for_where_messages_hold_a_nic() -> None:
    """At the ends of the sizes latencies and bytes decide."""
    machine, cost = topology("dgx-h100:nodes=2"), Fraction(1)
    sizes = SizeRange(1 << 10, 1 << 30)
    found = asks(machine, make("allgather", 16), sizes, message_us=cost)
    few = [q for q in found if q.message_us == cost]
    assert [q.size for q in few] == [1 << 14, 1 << 18, 1 << 22, 1 << 26]
    assert found[: -len(few)] == asks(machine, make("allgather", 16), sizes)
    assert calibrated_model(machine, "executor").nic_message_us() == cost
    assert calibrated_model(topology("dgx1"), "msccl").nic_message_us() is None


SKETCH = Named("mine", "sketch mine {}")


@pytest.mark.parametrize("high", [1 << 10, 1 << 12, 1 << 20, 1 << 30])
def test_sketches_are_asked_however_few_sizes_there_are(high: int) -> None:
    machine = topology("dgx1")
    wanted = make("allgather", 8)
    shelf = fitting_sketches(machine, wanted)
    assert shelf
    found = asks(machine, wanted, SizeRange(1 << 10, high), (SKETCH, *shelf))
    assert {q.sketch for q in found if q.sketch} == {SKETCH, *shelf}
    assert len({q.name for q in found}) == len(found)

"""What engines are asked for a library."""

import pytest

from weft.backends.tune.asks import Named, asks, fitting_sketches
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make

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

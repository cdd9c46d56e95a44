"""Shapes ranked by a workload: known alltoalls, and no better one left out."""

from fractions import Fraction

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.workload import Workload, WorkloadOperation
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of
from weft.synth.joint.shapes import ranked_shapes


def alltoall(ranks: int) -> Workload:
    """An alltoall of 1 GB."""
    one = WorkloadOperation("a", "alltoall", group=tuple(range(ranks)), bytes=10**9)
    return Workload("alltoall", (one,), size=ranks)


@pytest.mark.parametrize(
    ("shape", "us"),
    [
        ("torus:4x16", 40000),
        ("torus:4x4x4", 10000),
        ("twisted:4x4x8", Fraction(137500, 12)),
        ("circulant:64,steps=2,9", Fraction(167500, 9)),
    ],
)
def test_known_alltoalls(shape: str, us: Fraction) -> None:
    machine = topology(f"{shape},bw=50GB/s")
    found = joint_bound(machine, demands_of(alltoall(machine.ranks), machine.ranks))
    assert found.us == us
    assert found.exact


def test_the_best_circulant_of_sixteen() -> None:
    few = ranked_shapes(alltoall(16), 16, 4, options="bw=50GB/s", top=1)
    assert few.shapes[0].us == Fraction(18125, 2)
    assert few.shapes[0].name.startswith("circulant:16,steps=1,6")
    every = ranked_shapes(alltoall(16), 16, 4, options="bw=50GB/s", top=100)
    assert len(every.shapes) == every.looked_at == few.looked_at
    assert every.least_us is None
    assert every.shapes[0] == few.shapes[0]
    assert few.least_us is not None
    assert few.shapes[0].us < few.least_us <= every.shapes[1].us
    assert "torus:4x4,bw=50GB/s" in [one.name for one in every.shapes]


def test_every_gpu_of_a_shape_has_its_cables() -> None:
    for degree in (3, 4, 5):
        for one in ranked_shapes(alltoall(8), 8, degree, top=100).shapes:
            ends = [x.src for x in topology(one.name).links]
            assert {ends.count(v) for v in range(8)} == {degree}, one.name


def test_shapes_that_are_not_there() -> None:
    with pytest.raises(UserError, match="no shape of 7 GPUs has 3 cables"):
        ranked_shapes(alltoall(7), 7, 3)
    with pytest.raises(UserError, match="even longest axis"):
        topology("twisted:4x4")
    with pytest.raises(UserError, match="without a common divisor"):
        topology("circulant:8,steps=2,4")

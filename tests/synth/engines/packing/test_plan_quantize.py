"""Unequal shares on a grid: right, as few grains as asked for, the loss told exactly."""

from dataclasses import replace
from fractions import Fraction

import pytest
from packings import mixed, named, to_schedule

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.schedule import Schedule
from weft.synth.engines.packing.trees.quantize import quantize
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify


def two_packings(kind: str, seed: int) -> Schedule:
    """A torus's trees with and without its symmetry, in odd shares."""
    one = named("torus:4x4", kind, symmetric=False)
    return to_schedule(mixed([one, one, one], seed, most=1000))


@pytest.mark.parametrize("grains", [16, 100, 1024])
@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "alltoall"])
def test_a_grid_has_as_many_grains_as_asked_for(kind: str, grains: int) -> None:
    schedule = two_packings(kind, seed=grains)
    made, loss = quantize(schedule, grains)
    assert verify(made).ok
    assert made.collective.message_chunks <= grains
    assert us_per_byte(made) == us_per_byte(schedule) * (1 + loss)
    assert loss >= 0
    if grains == 16:  # one grain a chunk: all but one of its trees are dropped
        assert made.collective.chunks == made.collective.plain().chunks


def test_equal_shares_find_the_grid_that_fits_them() -> None:
    schedule = to_schedule(named("torus:4x4", "allreduce"))
    assert schedule.collective.message_chunks == 16
    made, loss = quantize(schedule, 18)
    assert made is schedule
    assert loss == 0
    odd = two_packings("allreduce", seed=1)
    made, loss = quantize(odd, 64)
    assert 0 <= loss < Fraction(1, 5)
    assert verify(made).ok


def test_too_few_grains_are_refused() -> None:
    schedule = two_packings("allgather", seed=2)
    with pytest.raises(UserError, match="15 grains are too few"):
        quantize(schedule, 15)


def test_pieces_of_a_custom_collective_are_kept_and_that_is_said() -> None:
    schedule = two_packings("alltoall", seed=3)
    kept = replace(schedule.collective, kind=Kind.CUSTOM, name="both")
    with pytest.raises(UserError, match=r"both: its pieces are .* not rounded") as told:
        quantize(replace(schedule, collective=kept), 15)
    assert "--to program" in told.value.hint

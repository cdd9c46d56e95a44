"""The limits of the search for bounds: less effort finds weaker bounds, never wrong ones."""

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.bounds.effort import BOUND_EFFORT, BoundEffort

LEAST = BoundEffort(
    flow_columns=0,
    tree_columns=0,
    mix_links=0,
    price_sources=0,
    cut_ranks=0,
    cut_pairs=0,
    level_sources=0,
    side_ranks=0,
    entries=0,
    heads=1,
)


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "allreduce", "alltoall", "gather"])
@pytest.mark.parametrize("name", ["torus:4x3", "dgx1", "dgx-a100:nodes=2"])
def test_less_effort_gives_no_larger_bound(name: str, kind: str) -> None:
    machine = topology(name)
    collective = make(kind, machine.ranks, roots=[0] if kind == "gather" else [])
    most, least = bounds(machine, collective), bounds(machine, collective, LEAST)
    assert 0 < least.us_per_byte <= most.us_per_byte
    for size in (1 << 10, 1 << 20, 1 << 30):
        assert lower_bound_us(least, size) <= lower_bound_us(most, size)


def test_bounds_are_kept_for_each_effort() -> None:
    machine, collective = topology("torus:4x3"), make("alltoall", 12)
    assert bounds(machine, collective, LEAST) is bounds(machine, collective, LEAST)
    assert bounds(machine, collective, BOUND_EFFORT) == bounds(machine, collective)
    assert bounds(machine, collective, LEAST) != bounds(machine, collective)


def test_limits_below_zero_are_refused() -> None:
    with pytest.raises(UserError, match=r"effort.flow_columns is -1"):
        BoundEffort(flow_columns=-1)

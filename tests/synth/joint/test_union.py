"""Custom collectives as unions of standard ones: bounds and schedules of all together."""

from dataclasses import replace
from fractions import Fraction

import bound_checks
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import custom_collectives

from tests.support.joint_cases import machines
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, custom, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.joint.union import joint_union, union_of
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

LEFT, RIGHT, EIGHT = (0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))
MB = 10**6


def union(ranks: int, *parts: tuple[str, tuple[int, ...], int]) -> Collective:
    """Collectives side by side: kind, group, and pieces of each chunk."""
    sides: tuple[list, list] = ([], [])
    first = offset = 0
    for kind, group, pieces in parts:
        one = make(kind, len(group)).split(pieces)
        for side, placed in zip(sides, (one.pre, one.post), strict=True):
            for rank, chunk, who, at in placed.rows().tolist():
                names = [group[v] for v in one.contributions[who]]
                side.append((group[rank], first + chunk, names, offset + at))
        first, offset = first + one.chunks, offset + one.message_chunks
    return custom("union", ranks, *sides)


QUADS_AND_ALL = union(8, ("allgather", LEFT, 2), ("allgather", RIGHT, 2), ("alltoall", EIGHT, 1))
SUMS_AND_ALL = union(8, ("allreduce", LEFT, 8), ("allreduce", RIGHT, 8), ("alltoall", EIGHT, 1))


def time_of(collective: Collective, *, each: int) -> tuple[float, float]:
    """Bound and time of packing's schedule in µs on DGX-1; a grain has ``each`` bytes."""
    chip, size = topology("dgx1"), each * collective.message_chunks
    problem = Problem(chip, collective, objective=Objective.TIME, bytes=size)
    schedule = synthesize(problem, "packing", Budget(effort=1)).points[0].schedule
    assert verify(schedule).ok
    found = bounds(chip, collective)
    return float(found.us_per_byte * size), float(simulate(schedule, size).time_us)


@pytest.mark.parametrize(
    ("collective", "us"), [(QUADS_AND_ALL, 1440), (SUMS_AND_ALL, 1920)], ids=["copies", "sums"]
)
def test_known_unions_on_dgx1(collective: Collective, us: float) -> None:
    """96 MB each: a single cut proves 1,200 µs of both."""
    bound, time = time_of(collective, each=12 * MB)
    chip = topology("dgx1")
    bound_checks.check(chip, collective, bounds(chip, collective))
    assert bound == us
    assert us <= time < 1.005 * us


def test_a_group_whose_neighbours_forward() -> None:
    """The allgather of a quad, 100 MB: 750 µs if only its own ranks forward."""
    bound, time = time_of(union(8, ("allgather", LEFT, 1)), each=25 * MB)
    assert bound == 500
    assert time < 515


def test_sums_of_two_groups() -> None:
    bound, time = time_of(union(8, ("allreduce", LEFT, 1), ("allreduce", RIGHT, 1)), each=100 * MB)
    assert bound == pytest.approx(4000 / 3)
    assert time < 1390


def test_reduce_scatters_of_groups_that_share_ranks() -> None:
    both = union(8, ("reduce_scatter", LEFT, 1), ("reduce_scatter", (2, 3, 4), 1))
    bound, time = time_of(both, each=25 * MB)
    assert bound <= time < 1.06 * bound


def test_chunks_of_unequal_sizes_keep_theirs() -> None:
    plain = union(8, ("allreduce", LEFT, 1), ("allgather", RIGHT, 1))
    sizes = (3, 1, 1, 1, 1)
    post = replace(plain.post, offsets=plain.post.offsets + 2 * (plain.post.offsets > 0))
    pre = replace(plain.pre, offsets=plain.pre.offsets + 2 * (plain.pre.offsets > 0))
    bound, time = time_of(replace(plain, pre=pre, post=post, sizes=sizes), each=10 * MB)
    assert bound <= time < 1.06 * bound


def test_what_is_no_union() -> None:
    partly = custom("partly", 3, [(r, 0, [r], 0) for r in range(3)], [(0, 0, [0, 1], 0)])
    assert union_of(partly) is None
    elsewhere = custom(
        "elsewhere", 3, [(0, 0, [0], 0), (1, 0, [1], 0)], [(r, 0, [0, 1], 0) for r in (1, 2)]
    )
    assert union_of(elsewhere) is None


@settings(max_examples=examples(12, 25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_schedules_of_random_unions_are_right_and_never_below_the_bound(
    data: st.DataObject,
) -> None:
    chip = data.draw(machines(most=5))
    collective = data.draw(custom_collectives(chip.ranks))
    found = joint_union(chip, collective)
    problem = Problem(chip, collective, objective=Objective.TIME, bytes=1 << 20)
    try:
        schedule = synthesize(problem, "packing", Budget(effort=0.2)).points[0].schedule
    except UserError:
        assert found is None or not found.union.operations
        return
    assert verify(schedule).ok
    bound_checks.check(chip, collective, bounds(chip, collective))
    us = simulate(schedule, 1 << 20).time_us
    assert us >= float(lower_bound_us(bounds(chip, collective), 1 << 20)) * (1 - 1e-9)
    if found is not None:
        least = found.joint.us / collective.message_chunks
        assert bounds(chip, collective).us_per_byte >= least * (1 - Fraction(1, 10**9))

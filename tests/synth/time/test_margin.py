"""Times with longer latencies tell which orders need ties to fall their way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import custom, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, gpu, link
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.base.meter import Meter
from weft.synth.judge.verify import verify
from weft.synth.time.margin import (
    JITTER_US,
    MARGIN_EFFORT,
    jittered_us,
    steadied,
    steadiest,
    worst_us,
)
from weft.synth.time.schedule_tables import prepare
from weft.synth.time.schedule_time import simulate

SIZE = 1_000_000


def tied(first: int, second: int, *, apart: bool = False) -> Schedule:
    """Two chunks that reach GPU 2 at one time and go on over one link, one of them further.

    ``first``, ``second``: the GPUs that the links 0 and 1 come from. ``apart``: the chunk that goes
    further is there long before the other one.
    """
    slow = 5 if apart else 50
    bandwidth = {0: 50, 1: slow}
    machine = Topology(
        "tie",
        tuple(map(gpu, range(5))),
        (
            link(first, 2, bandwidth[first], 1),
            link(second, 2, bandwidth[second], 1),
            link(2, 3, 50, 1),
            link(3, 4, 5, 1),
        ),
    )
    chunks = custom("two", 5, [(0, 0, [0], 0), (1, 1, [1], 0)], [(4, 0, [0], 0), (3, 1, [1], 0)])
    via = {first: 0, second: 1}
    return Schedule.of(
        machine,
        chunks,
        [
            Transfer(0, 0, 2, (via[0],), 0),
            Transfer(1, 1, 2, (via[1],), 0),
            Transfer(0, 2, 3, (2,), 1),
            Transfer(1, 2, 3, (2,), 1),
            Transfer(0, 3, 4, (3,), 2),
        ],
    )


def test_a_tie_shows() -> None:
    """In some pattern the chunk with the longer way comes second."""
    for one in (tied(0, 1), tied(1, 0)):
        times = list(jittered_us(one, SIZE))
        assert len(times) >= 8
        assert max(times) == worst_us(one, SIZE) > 1.05 * simulate(one, SIZE).time_us
        assert list(jittered_us(one, SIZE)) == times


def test_what_comes_first_by_far_stays_first() -> None:
    for one in (tied(0, 1, apart=True), tied(1, 0, apart=True)):
        us, worst = simulate(one, SIZE).time_us, worst_us(one, SIZE)
        assert us <= worst <= us + 5 * float(JITTER_US)
        assert steadied(one, SIZE) is one


def test_the_times_are_those_of_the_longer_latencies() -> None:
    """Of one link of two levels: as a machine with that latency."""
    one, levels = tied(0, 1), 2
    machine = one.topology
    each = JITTER_US / 7
    longer = [replace(x, latency=x.latency + levels * each) for x in machine.links]
    other = replace(one, topology=replace(machine, links=tuple(longer)))
    found = prepare(one).longer_us(SIZE, np.full(len(longer), levels), each)
    assert found == simulate(other, SIZE).time_us


def test_a_planned_order_is_slower_in_no_pattern() -> None:
    """Ports do not wait, so no order mends these ties; a schedule without a gain stays as it is."""
    for one in (tied(0, 1), tied(1, 0)):
        other = steadied(one, SIZE)
        assert verify(other).ok
        pairs = zip(jittered_us(other, SIZE), jittered_us(one, SIZE), strict=True)
        assert all(after <= before for after, before in pairs)


def test_large_schedules_are_run_in_no_pattern() -> None:
    one = tied(0, 1)
    many = Schedule.of(one.topology, one.collective, one)
    object.__setattr__(many, "segments", 1 << 16)
    assert list(jittered_us(many, SIZE)) == []


def test_a_search_stops_at_the_first_clearly_longer_time() -> None:
    meter = Meter(1 << 30)
    one = tied(0, 1)
    assert worst_us(one, SIZE, meter) > MARGIN_EFFORT.fragile * simulate(one, SIZE).time_us
    assert 0 < meter.done < MARGIN_EFFORT.patterns * len(one)


def test_the_steadiest_of_the_near_ones() -> None:
    worst = {"quick": 11.0, "near": 10.03, "late": 10.0}
    assert (
        steadiest([(10.0, "quick"), (10.02, "near"), (10.06, "late")], worst.__getitem__) == "near"
    )
    assert steadiest([(10.0, "quick")], {}.__getitem__) == "quick"


@pytest.mark.parametrize("seed", range(2))
def test_matching_takes_a_seed_that_holds(seed: int) -> None:
    machine = topology("mesh:5x5")
    problem = Problem(machine, make("allgather", 25), None, Objective.TIME, 1 << 30)
    outcome = synthesize(problem, "greedy", Budget(20, seed=seed))
    assert worst_us(outcome.points[0].schedule, 1 << 30) <= 20_625
    assert not any("fragile" in told for told in outcome.statements)


def test_frontier_points_keep_an_order_that_holds() -> None:
    """On a DGX-1 without two cables the row of three steps takes what it says in all patterns."""
    machine = topology("dgx1:dead=0-3,5-6")
    problem = Problem(machine, make("alltoall", 8))
    for point in synthesize(problem, "exact").points:
        us = simulate(point.schedule, 1 << 30).time_us
        assert worst_us(point.schedule, 1 << 30) <= 1.0001 * us

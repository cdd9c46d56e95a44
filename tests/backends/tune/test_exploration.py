"""What the first rounds of a race need not try."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import patterns

from weft.backends.compile.variants import Variant
from weft.backends.tune.effort import EFFORT
from weft.backends.tune.race import Exploration, families_of
from weft.backends.tune.timing import Runner, Track
from weft.backends.tune.work import Stand
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.time.calibrated import CALIBRATED, DATASHEET

SIZES = [1 << n for n in range(10, 20)]
TRACK = Track("msccl", ("Simple",), (False,), DATASHEET)


def ring(ranks: int = 4, chunks: int = 1) -> Schedule:
    return patterns.ring_allgather(ranks, chunks)


def backwards(schedule: Schedule) -> Schedule:
    order = np.arange(len(schedule), dtype=np.int32)[::-1].copy()
    return replace(schedule, priority=order)


def asked_by(exploration: Exploration) -> list[dict[str, Any]]:
    """Return what the jobs of an exploration are asked from now on."""
    asked: list[dict[str, Any]] = []

    def jobs(_: str, __: str, given: Sequence[Any]) -> list[Any]:
        asked.extend(given)
        return [[] for _ in given]

    exploration.jobs = jobs
    return asked


def known(schedules: Sequence[Schedule], us: Sequence[Sequence[float]]) -> Exploration:
    """An exploration that knows the times of the usual form of each schedule."""
    runners = [Runner(str(n), s) for n, s in enumerate(schedules)]
    found = Exploration.of(runners, SIZES, TRACK, lambda *_: [])
    found.floor = [[0.0] * len(SIZES) for _ in schedules]
    for place, row in enumerate(us):
        found.times.add(place, SIZES, [{**Variant().to_json(), "us": list(row)}])
    return found


def test_schedules_that_differ_in_order_alone_are_a_family() -> None:
    schedules = [ring(), backwards(ring()), ring(chunks=2), ring(5), ring()]
    assert families_of(schedules) == [0, 0, 1, 2, 0]
    later = replace(ring(), step=ring().step + 1)
    reduced = replace(ring(), reduce=np.ones_like(ring().reduce))
    assert families_of([ring(), later, reduced]) == [0, 1, 2]


def test_of_a_family_the_quickest_is_deepened_at_each_size() -> None:
    half = len(SIZES) // 2
    times = [[1.0] * half + [1.2] * half, [1.1] * 2 * half, [1.3] * 2 * half]
    found = known([ring(), backwards(ring()), ring(chunks=2)], times)
    assert found.within_reach() == {0: SIZES[:half], 1: SIZES[half:], 2: SIZES}
    assert found.ahead(2) == {0: SIZES[:half], 2: SIZES, 1: SIZES[half:]}


def test_of_equal_ones_the_first_with_priorities_is_deepened() -> None:
    same = [[1.0] * len(SIZES)] * 2
    assert known([ring(), backwards(ring())], same).within_reach() == {1: SIZES}
    assert known([ring(), ring()], same).within_reach() == {0: SIZES}


def test_where_bytes_alone_decide_only_the_ends_are_deepened() -> None:
    start = 5 * SIZES[-1] / 1e6
    small = known([ring()], [[start + n / 1e6 for n in SIZES]])
    assert small.flat() == []  # the start takes longer than the bytes of the largest size
    flat = known([ring()], [[max(n, 1 << 15) / 1e6 for n in SIZES]])
    assert flat.flat() == [1 << 16, 1 << 17, 1 << 18]
    never = known(
        [ring()], [[n / 1e6 * (EFFORT.flat_ratio + 0.01) ** (SIZES[-1] > n) for n in SIZES]]
    )
    assert never.flat() == []


def test_between_the_ends_forms_near_the_best_of_either_are_timed() -> None:
    near, far = EFFORT.flat_form_ratio - 0.01, EFFORT.flat_form_ratio + 0.01
    rows = [[1.0] * 10, [near] * 10, [far] * 10, [far] * 9 + [near]]
    found = known([ring(chunks=n) for n in (1, 2, 3, 4)], rows)
    asked = asked_by(found)
    found.between(SIZES[6:9])
    assert [one["sizes"] for one in asked] == [SIZES[6:9]] * 3
    assert all(one["forms"] == [[Variant().to_json()]] * 3 for one in asked)
    assert not any(any(one["wide"]) for one in asked)
    found.between([])
    assert len(asked) == 3


def test_no_program_is_quicker_than_the_floor_at_the_bandwidth_that_is_reached() -> None:
    track = Track("msccl", ("Simple", "LL"), (False,), CALIBRATED)
    problem = Problem(topology("dgx1"), make("allgather", 8), None, Objective.BANDWIDTH)
    ring = synthesize(problem, "classic{algorithm=ring}", Budget(1)).points[0].schedule
    sizes = (1 << 16, 1 << 28)
    floor = Exploration.of([Runner("ring", ring)], sizes, track, lambda *_: []).floor[0]
    slower = Exploration.of(
        [Runner("ring", ring)], sizes, replace(track, model=DATASHEET), lambda *_: []
    ).floor[0]
    assert floor[1] > 1.1 * slower[1]
    for form in (Variant(), Variant(instances=4, protocol=Protocol.LL)):
        timer = Stand(ring, track.runtime, (), CALIBRATED).timer(form)
        assert timer is not None
        for size, least in zip(sizes, floor, strict=True):
            assert timer.clock.time_us(size) >= least

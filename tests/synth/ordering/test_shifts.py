"""Shifts of jobs: known answers, and small cases against all shifts."""

from fractions import Fraction
from itertools import product

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from training_steps import compute, file, load

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.workload_file import load as workload_of
from weft.dsl.nouns.workload_plan import WorkloadPlan
from weft.synth.base.meter import Meter
from weft.synth.ordering.jobs import (
    PeriodicJob,
    ShiftGrid,
    Use,
    best_shifts,
    excesses_us,
    shared_jobs,
    solved_shifts,
    tried_shifts,
)
from weft.synth.ordering.plan import plan_in_time


def job(period: int, busy: int, *resources: str, share: Fraction = Fraction(1)) -> PeriodicJob:
    uses = tuple(Use(r, Fraction(0), Fraction(busy), share) for r in resources or ("link",))
    return PeriodicJob("job", Fraction(period), uses)


@pytest.mark.parametrize(
    ("jobs", "before", "excess"),
    [
        ([job(100, 50)] * 2, 50, 0),
        ([job(100, 60)] * 2, 60, 20),
        ([job(120, 40)] * 3, 80, 0),
        ([job(100, 50, "x", "y"), job(100, 50, "x", "z"), job(100, 50, "y", "z")], 150, 50),
        ([job(99, 33)] * 3, 66, 0),
        ([job(40, 10), job(60, 20)], 10, 10),
    ],
)
def test_known_shifts_are_proved(jobs: list[PeriodicJob], before: int, excess: int) -> None:
    found = best_shifts(jobs)
    assert (found.before, found.excess, found.bound) == (before, excess, excess)
    assert found.optimal
    assert found.helps is (excess < before)
    assert (found.drift_us is None) is (excess > 0)


@pytest.mark.parametrize("pad", [0, 2])
def test_cp_sat_agrees_with_all_shifts(pad: int) -> None:
    grid = ShiftGrid.of([job(12, 3, "x"), job(8, 2, "x", "y"), job(12, 5, "y")])
    tried = tried_shifts(grid, pad)
    solved = solved_shifts(grid, pad, 2_000_000, 0)
    assert solved is not None
    assert solved.optimal
    assert solved.excess == tried.excess


def test_of_shifts_without_excess_the_most_tolerant_are_taken() -> None:
    found = best_shifts([job(100, 30)] * 2)
    assert (found.us, found.drift_us) == ((0, 50), 20)


def test_halves_of_a_link_need_no_shift() -> None:
    found = best_shifts([job(100, 60, share=Fraction(1, 2))] * 2)
    assert (found.before, found.excess) == (0, 0)


def ticks(resource: str, busy: int, period: int) -> list[Use]:
    """All of a resource, tick by tick."""
    return [
        Use(resource, Fraction(t), Fraction(t + 1), Fraction(1)) for t in range(min(busy, period))
    ]


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=2, max_size=3))
def test_no_shifts_are_better(sizes: list[tuple[int, int]]) -> None:
    periods = [6 if at else 4 for at in range(len(sizes))]
    jobs = [
        PeriodicJob("job", Fraction(period), (*ticks("r", n, period), *ticks("q", m, period)))
        for period, (n, m) in zip(periods, sizes, strict=True)
    ]

    def excess(shifts: tuple[int, ...]) -> int:
        total = 0
        for r, t in product("rq", range(12)):
            used = sum(
                any(u.resource == r and u.start <= (t - s) % x.period < u.end for u in x.uses)
                for x, s in zip(jobs, shifts, strict=True)
            )
            total += max(0, used - 1)
        return total

    found = best_shifts(jobs)
    all_shifts = product([0], *(range(period) for period in periods[1:]))
    assert found.excess == min(map(excess, all_shifts))
    assert found.excess == excess(tuple(map(int, found.us)))


def planned(busy: int, period: int | None) -> WorkloadPlan:
    data = file([compute("c", period - busy if period else 10), load("l", busy, "c")])
    more = {} if period is None else {"period": period}
    return plan_in_time(workload_of({**data, **more}, "job"), Meter(1000))


def test_iterations_that_met_do_not_meet() -> None:
    for busy, period, number, before in ((50, 100, 2, 150), (40, 120, 3, 200)):
        found = shared_jobs([planned(busy, period)] * number, ["job"] * number)
        assert found.before_us == pytest.approx([before] * number)
        assert found.after_us == pytest.approx([period] * number)


def test_a_period_that_is_too_short_is_refused() -> None:
    plan = planned(50, 100)
    data = plan.workload.to_json() | {"period": 90}
    short = plan_in_time(workload_of(data, "job"), Meter(1000))
    with pytest.raises(UserError, match="period is 90"):
        shared_jobs([short, plan], ["a", "b"])


def test_periods_without_a_common_multiple_are_refused() -> None:
    with pytest.raises(UserError, match=r"periods of 99,991 and 99,989 µs meet again only after"):
        best_shifts([job(99991, 7), job(99989, 5)])


@pytest.mark.parametrize(("busy", "excess"), [("40.777", 0), ("60.777", "9.554")])
def test_times_that_are_not_round_are_shifted_on_a_coarser_grid(busy: str, excess: str) -> None:
    uses = (Use("link", Fraction("10.123"), Fraction("10.123") + Fraction(busy), Fraction(1)),)
    jobs = [PeriodicJob("job", Fraction("112"), uses)] * 2
    grid = ShiftGrid.of(jobs)
    assert grid.coarse
    found = best_shifts(jobs)
    assert (found.before, found.common_us) == (Fraction(busy), 112)
    assert found.bound == Fraction(excess) <= found.excess <= Fraction(excess) + grid.tick
    assert sum(excesses_us(jobs, found.us, Fraction(112)).values()) == found.excess
    assert found.drift_us is None if found.excess else 15 < found.drift_us < 16

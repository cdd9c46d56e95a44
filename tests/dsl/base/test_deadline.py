"""Waiting that a jump of the clock does not end."""

import time
from collections.abc import Callable

import pytest

from weft.dsl.base.deadline import STEP, Deadline, Stopwatch

Set = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets the clock, which begins at 100."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def test_seconds_add_up(clock: Set) -> None:
    watch = Stopwatch()
    clock(100.5)
    assert watch.seconds() == 0.5
    clock(101.25)
    assert watch.seconds() == 1.25


def test_a_jump_counts_as_one_step_and_one_back_as_nothing(clock: Set) -> None:
    watch = Stopwatch()
    clock(9000.0)
    assert watch.seconds() == STEP
    clock(50.0)
    assert watch.seconds() == STEP
    clock(50.25)
    assert watch.seconds() == STEP + 0.25


def test_a_deadline_is_over_after_its_seconds_and_an_infinite_one_never(clock: Set) -> None:
    soon, never = Deadline(2 * STEP), Deadline(float("inf"))
    clock(9000.0)
    assert not soon.over()
    assert not never.over()
    clock(9000.0 + STEP)
    assert soon.over()
    assert not never.over()

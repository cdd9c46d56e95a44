"""The schedule: sorted by step, whatever the order it was given in, and its file says all."""

import random

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ring, schedules

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer, dump, load, read, write

RING = ring(4)


@settings(max_examples=examples(30))
@given(schedules(), st.randoms(use_true_random=False))
def test_the_order_given_does_not_matter_between_steps(schedule, rng: random.Random):
    rows = list(schedule)
    rng.shuffle(rows)
    again = Schedule.of(schedule.topology, schedule.collective, rows, rounds=schedule.rounds)
    assert again.step.tolist() == sorted(schedule.step.tolist())
    assert sorted(map(repr, again)) == sorted(map(repr, schedule))


@settings(max_examples=examples(30))
@given(schedules())
def test_the_file_form_says_everything(schedule):
    again = load(dump(schedule))
    assert again == schedule
    assert again.topology == schedule.topology
    assert again.collective == schedule.collective
    assert again.rounds == schedule.rounds


def test_a_file_is_written_once_and_read_back(tmp_path):
    schedule = Schedule.of(RING, make("broadcast", 4), [Transfer(0, 0, 1, (0,))])
    write(tmp_path / "s.json", schedule)
    assert read(tmp_path / "s.json") == schedule
    with pytest.raises(UserError):
        write(tmp_path / "s.json", schedule)
    write(tmp_path / "s.json", schedule, force=True)


@pytest.mark.parametrize(
    "broken",
    [
        {"chunk": [9]},
        {"src": [4]},
        {"dst": [-1]},
        {"route": [[99]]},
        {"step": [-1]},
        {"chunk": [0, 0]},
        {"chunk": ["0"]},
        {"chunks": [0]},
    ],
)
def test_columns_that_fit_nothing_are_refused(broken):
    data = dump(Schedule.of(RING, make("broadcast", 4), [Transfer(0, 0, 1, (0,))]))
    data["transfers"] = {**data["transfers"], **broken}
    with pytest.raises((BadFile, UserError)):
        load(data)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"segments": 10**12}, "segments is 1000000000000, outside 1 … 65536"),
        ({"segments": 2**16 + 1}, "segments"),
        ({"segments": 0}, "segments"),
        ({"bytes": 0}, "bytes"),
        ({"bytes": 10**400}, "bytes"),
        ({"stride": 5}, "a stride spaces the priorities"),
    ],
)
def test_sizes_that_no_machine_holds_are_refused(change, what):
    data = dump(Schedule.of(RING, make("broadcast", 4), [Transfer(0, 0, 1, (0,))]))
    with pytest.raises(BadFile, match=what):
        load({**data, **change})


@pytest.mark.parametrize("times", [[10**400], [float("inf")], [True], ["1"], [1, 2]])
def test_times_that_no_clock_shows_are_refused(times):
    data = dump(Schedule.of(RING, make("broadcast", 4), [Transfer(0, 0, 1, (0,))]))
    data["transfers"]["end_us"] = times
    with pytest.raises(BadFile, match="times"):
        load(data)

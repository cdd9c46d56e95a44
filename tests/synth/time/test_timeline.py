"""The timeline of a schedule against the simulation it keeps more of, and against the rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, ring, tree_schedule

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.judge.replay import replay
from weft.synth.time.schedule_time import simulate
from weft.synth.time.timeline import Timeline, timeline

SIZES = st.sampled_from([1, 1000, 12_345, 1 << 20])


@settings(max_examples=examples(30, 60), deadline=None)
@given(planned_schedules(), SIZES)
def test_it_is_the_simulation_kept_whole(s: Schedule, size: int) -> None:
    run, told = timeline(s, size), simulate(s, size)
    shape = (s.segments, len(s))
    assert run.time_us == told.time_us
    assert np.array_equal(run.start_us.reshape(shape).min(axis=0), told.start_us)
    assert np.array_equal(run.end_us.reshape(shape).max(axis=0), told.end_us)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    busy = np.zeros(len(told.busy_us))
    np.add.at(busy, run.held_row, run.held_until_us - run.start_us[owner])
    assert busy == pytest.approx(told.busy_us)


@settings(max_examples=examples(30, 60), deadline=None)
@given(planned_schedules(), SIZES)
def test_nothing_holds_a_row_that_is_held(s: Schedule, size: int) -> None:
    run = timeline(s, size)
    owner = np.repeat(np.arange(len(run)), np.diff(run.held_start))
    for row in np.unique(run.held_row):
        mine = np.flatnonzero(run.held_row == row)
        mine = mine[np.argsort(run.start_us[owner[mine]], kind="stable")]
        assert (run.held_until_us[mine[:-1]] <= run.start_us[owner[mine[1:]]]).all()


@settings(max_examples=examples(30, 60), deadline=None)
@given(planned_schedules(), SIZES)
def test_causes_are_arrivals_of_the_same_chunk_at_the_source(s: Schedule, size: int) -> None:
    run = timeline(s, size)
    assert (run.ready_us <= run.start_us).all()
    assert (run.start_us < run.left_us).all()
    assert (run.left_us <= run.end_us).all()
    brings = ~replay(s).redundant
    for p, (i, k) in enumerate(zip(run.move, run.slice, strict=True)):
        came = (s.chunk == s.chunk[i]) & (s.dst == s.src[i]) & (s.step < s.step[i]) & brings
        arrivals = run.end_us[k * len(s) + np.flatnonzero(came)]
        if not len(arrivals):
            assert run.cause[p] == -1
            continue
        assert run.end_us[run.cause[p]] == arrivals.max()
        before, now = run.cause[p], p
        assert [before, now] in run.feeds.tolist()
    for a, b in run.feeds:
        i, j = run.move[a], run.move[b]
        assert (s.chunk[i], s.dst[i], run.slice[a]) == (s.chunk[j], s.src[j], run.slice[b])
        assert run.end_us[a] <= run.start_us[b]


def test_every_part_of_a_sum_feeds_the_send_that_needs_it() -> None:
    machine = ring(3)
    hop = {0: (0,), 1: (1,)}
    up = [Transfer(0, 0, 1, hop[0], 0, True), Transfer(0, 1, 2, hop[1], 1, True)]
    run = timeline(Schedule.of(machine, make("reduce", 3, roots=[2]), up), 1000)
    assert run.feeds.tolist() == [[0, 1]]
    assert run.cause.tolist() == [-1, 0]


def test_what_waits_for_a_link_is_ready_before_it_starts() -> None:
    both = [Transfer(k, 0, 1, (0,), 0) for k in range(2)]
    run = timeline(Schedule.of(ring(2), make("broadcast", 2, chunks=2, roots=[0]), both), 50_000)
    assert run.ready_us.tolist() == [0, 0]
    assert run.start_us.tolist() == [0, 1]
    assert run.bytes.tolist() == [25_000, 25_000]


def test_what_nobody_could_look_at_is_refused() -> None:
    s = tree_schedule(ring(4), make("allgather", 4))
    with pytest.raises(UserError, match="timeline"):
        timeline(replace(s, segments=60_000), 1 << 20)
    with pytest.raises(UserError, match="0 bytes"):
        timeline(s, 0)


def test_a_schedule_without_transfers_has_an_empty_timeline() -> None:
    empty = Schedule.of(ring(2), make("allgather", 2), [])
    run: Timeline = timeline(empty, 1)
    assert (len(run), run.time_us, len(run.feeds)) == (0, 0, 0)

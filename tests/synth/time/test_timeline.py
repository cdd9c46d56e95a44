"""The timeline of a schedule against the simulation it keeps more of, and against the rule."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, ring, schedules, tree_schedule
from timed_programs import chain_broadcast, ring_allgather, ring_allreduce, stream

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.judge.replay import replay
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL
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


def test_timelines_that_cannot_be_drawn_are_refused() -> None:
    s = tree_schedule(ring(4), make("allgather", 4))
    with pytest.raises(UserError, match="timeline"):
        timeline(replace(s, segments=60_000), 1 << 20)
    with pytest.raises(UserError, match="0 bytes"):
        timeline(s, 0)


def test_a_schedule_without_transfers_has_an_empty_timeline() -> None:
    empty = Schedule.of(ring(2), make("allgather", 2), [])
    run: Timeline = timeline(empty, 1)
    assert (len(run), run.time_us, len(run.feeds)) == (0, 0, 0)


# --- of programs ----------------------------------------------------------------------------------


KINDS = tuple(Op)
PAIR = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, "1", "5"))


def _agrees(p: Program, machine: Topology, size: int) -> ProgramTimeline:
    run, told = record_program(p, machine, size, MSCCL), simulate_program(p, machine, size, MSCCL)
    assert run.time_us == told.time_us
    working = np.unique(run.block)
    size_of = np.diff(run.table.first)
    assert len(run) + run.skipped == size_of[working].sum() * run.cut.iterations
    if run.skipped:
        return run
    spent = np.zeros_like(told.spent_us)
    np.add.at(spent, (run.block[run.phase_of], run.phase), run.phase_end_us - run.phase_start_us)
    waits = [a for a in Activity if a is not Activity.DONE]
    assert spent[:, waits] == pytest.approx(told.spent_us[:, waits])
    owner = np.repeat(np.arange(len(run.message_of)), np.diff(run.held_start))
    busy = np.zeros(len(told.busy_us))
    np.add.at(busy, run.held_row, run.held_until_us - run.message_start_us[owner])
    assert busy == pytest.approx(told.busy_us)
    return run


@settings(max_examples=examples(12, 40), deadline=None)
@given(schedules(max_ranks=4), st.sampled_from([1000, 1 << 20]))
def test_a_record_sums_to_the_totals(s, size) -> None:
    machine = s.topology
    try:
        p = lower_schedule(s, CompileOptions())
        simulate_program(p, machine, size, MSCCL)
    except UserError:
        return
    _in_order(_agrees(p, machine, size))


def _in_order(run: ProgramTimeline) -> None:
    """Blocks do one thing after the other, in their order; receivers come after senders."""
    for block in range(run.table.blocks):
        mine = np.flatnonzero(run.block == block)
        assert (run.reached_us[mine] <= run.done_us[mine]).all()
        assert (run.done_us[mine[:-1]] <= run.reached_us[mine[1:]]).all()
        places = list(zip(run.turn[mine], run.operation[mine], strict=True))
        assert places == sorted(places)
    assert (run.phase_start_us >= run.reached_us[run.phase_of]).all()
    assert (run.phase_end_us <= run.done_us[run.phase_of]).all()
    for m, receiver in enumerate(run.received_by):
        if receiver >= 0:
            assert run.message_end_us[m] <= run.done_us[receiver]
            assert run.table.receives[run.operation[receiver]]
            into = run.table.into[run.block[receiver]]
            assert into == run.message_connection[m]
    for before, after in run.waits:
        assert run.done_us[before] <= run.done_us[after]


def test_a_send_is_recorded_with_its_message() -> None:
    run = record_program(stream(1), PAIR, 10_000, MSCCL)
    assert [str(KINDS[run.table.op[o]]) for o in run.operation] == ["s", "r"]
    assert run.bytes.tolist() == [10_000, 10_000]
    assert run.done_us.tolist() == [10, 15]
    assert (run.message_start_us[0], run.message_left_us[0], run.message_end_us[0]) == (0, 10, 15)
    assert run.received_by.tolist() == [1]
    assert [
        (Activity(a), b, e)
        for a, b, e in zip(run.phase, run.phase_start_us, run.phase_end_us, strict=True)
    ] == [(Activity.SENDING, 0, 10), (Activity.MESSAGE, 0, 15)]


@pytest.mark.parametrize("make", [ring_allgather, ring_allreduce, lambda n: chain_broadcast(n, 2)])
def test_turns_that_repeat_are_left_out_and_said(make) -> None:
    run = _agrees(make(4), topology("dgx1").restricted_to(range(4)), 1 << 30)
    assert run.skipped > 0
    assert len(run.skipped_us)
    _in_order(run)
    # Nothing ends inside what was skipped but what began there, as its last piece.
    for begin, end in run.skipped_us:
        assert not ((run.done_us > begin) & (run.done_us < end)).any()


def test_too_many_operations_are_refused() -> None:
    with pytest.raises(UserError, match="timeline holds"):
        record_program(
            ring_allreduce(4),
            topology("dgx1").restricted_to(range(4)),
            1 << 30,
            MSCCL,
            most_operations=10,
        )

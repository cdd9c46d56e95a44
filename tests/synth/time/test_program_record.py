"""The record of a program's run against the totals of the same simulation, and against the rule."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import schedules
from timed_programs import chain_broadcast, ring_allgather, ring_allreduce, stream

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.time.program_machine import Activity
from weft.synth.time.program_record import ProgramTimeline, record_program
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL

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
    ] == [
        (Activity.SENDING, 0, 10),
        (Activity.MESSAGE, 0, 15),
    ]


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

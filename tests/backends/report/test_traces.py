"""Traces of schedules and programs: sound, complete, and with the times of the simulations."""

import json
from collections import Counter

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, ring, schedules
from timed_programs import ring_allgather, stream

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.report.trace import TraceFile, lanes
from weft.backends.report.trace_check import faults
from weft.backends.report.trace_runs import add_program, add_schedule
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.time.program_record import record_program
from weft.synth.time.runtime_model import MSCCL
from weft.synth.time.schedule_time import simulate
from weft.synth.time.timeline import timeline

NS = 0.000_501  # µs: times are rounded to whole nanoseconds


def written(add, run) -> list[dict]:
    """The events of a trace that its judge accepts."""
    trace = TraceFile()
    add(trace, run)
    text = trace.text()
    assert faults(text) == []
    return json.loads(text)["traceEvents"]


def of_phase(events: list[dict], phase: str, kind: str = "") -> list[dict]:
    return [e for e in events if e["ph"] == phase and kind in ("", e.get("cat"))]


@settings(max_examples=examples(25, 50), deadline=None)
@given(planned_schedules(), st.sampled_from([1, 1000, 1 << 20]))
def test_every_transfer_is_there_once_per_link_with_the_times_of_the_simulation(s, size) -> None:
    events = written(add_schedule, timeline(s, size))
    told = simulate(s, size)
    slices = of_phase(events, "X", "transfer")
    times = np.diff(s.route_start)
    assert Counter(e["args"]["transfer"] for e in slices) == {
        i: int(times[i]) * s.segments for i in range(len(s))
    }
    for i in range(len(s)):
        mine = [e for e in slices if e["args"]["transfer"] == i]
        assert min(e["ts"] for e in mine) == pytest.approx(told.start_us[i], abs=NS)
        assert max(e["ts"] + e["dur"] for e in mine) == pytest.approx(told.end_us[i], abs=2 * NS)
        assert mine[0]["args"]["chunk"] == s.chunk[i]
    busy = Counter[str]()
    for e in of_phase(events, "X", "resource"):
        busy[_track(events, e)] += e["dur"]
    for row, resource in enumerate(s.topology.resources, len(s.topology.links)):
        assert busy[resource.name] == pytest.approx(told.busy_us[row], abs=NS * 2 * len(slices))


def _track(events: list[dict], event: dict) -> str:
    return next(
        e["args"]["name"] for e in events if e["name"] == "thread_name" and e["tid"] == event["tid"]
    )


@settings(max_examples=examples(25, 50), deadline=None)
@given(planned_schedules(), st.sampled_from([1000, 1 << 20]))
def test_arrows_lead_from_an_arrival_to_a_later_send_of_the_chunk_there(s, size) -> None:
    run = timeline(s, size)
    events = written(add_schedule, run)
    ends = {}
    last: dict[int, dict] = {}
    for e in events:
        if e["ph"] == "X":
            last[e["tid"]] = e
        elif e["ph"] in "sf":
            ends.setdefault(e["id"], []).append(last[e["tid"]])
    assert len(ends) == len(run.feeds)
    for before, after in ends.values():
        a, b = before["args"], after["args"]
        assert (a["chunk"], a["to rank"]) == (b["chunk"], b["from rank"])
        assert a.get("slice") == b.get("slice")
        assert a["step"] < b["step"]
        assert before["ts"] + before["dur"] <= after["ts"] + NS


@settings(max_examples=examples(30), deadline=None)
@given(schedules(max_ranks=4), st.sampled_from([1000, 1 << 20]))
def test_counters_rise_and_fall_back_to_nothing(s, size) -> None:
    counters: dict[tuple, list[float]] = {}
    for e in of_phase(written(add_schedule, timeline(s, size)), "C"):
        counters.setdefault((e["pid"], e["name"]), []).extend(e["args"].values())
    for levels in counters.values():
        assert min(levels) >= 0
        assert levels[-1] == 0


def test_flights_that_overlap_take_lanes() -> None:
    machine = ring(2, bandwidth="25", latency="10")
    both = [Transfer(k, 0, 1, (0,), 0) for k in range(2)]
    s = Schedule.of(machine, make("broadcast", 2, chunks=2, roots=[0]), both)
    events = written(add_schedule, timeline(s, 50_000))
    slices = of_phase(events, "X")
    assert [(e["ts"], e["dur"], _track(events, e)) for e in slices] == [
        (0, 11, "to gpu1"),
        (1, 11, "to gpu1, lane 2"),
    ]


def test_lanes_are_reused() -> None:
    assert lanes([0, 1, 2, 3], [2, 3, 4, 5]) == [0, 1, 0, 1]


@settings(max_examples=examples(15, 30), deadline=None)
@given(schedules(max_ranks=4), st.sampled_from([1000, 1 << 20]))
def test_every_operation_of_a_program_is_there_once(s, size) -> None:
    try:
        run = record_program(lower_schedule(s, CompileOptions()), s.topology, size, MSCCL)
    except UserError:
        return
    events = written(add_program, run)
    slices = of_phase(events, "X", "operation")
    assert len(slices) == len(run)
    ends = sorted(round(1000 * (e["ts"] + e["dur"])) for e in slices)
    assert ends == sorted(round(1000 * t) for t in run.done_us)
    assert len(of_phase(events, "X", "message")) == len(run.held_row)
    arrows = of_phase(events, "s")
    assert sum(e["name"] == "message" for e in arrows) <= (run.received_by >= 0).sum()


def test_a_message_goes_from_the_send_to_the_receive() -> None:
    machine = ring(2, bandwidth="1", latency="5")
    events = written(add_program, record_program(stream(1), machine, 10_000, MSCCL))
    (out,), (into,) = of_phase(events, "s"), of_phase(events, "f")
    assert (out["ts"], into["ts"]) == (10, 15)
    shown = [(e["name"], e["ts"], e["dur"]) for e in of_phase(events, "X")]
    assert shown == [
        ("s o[0] x1", 0, 10),
        ("wait for messages", 0, 15),
        ("0 -> 1, channel 0", 0, 10),
        ("r -> o[0] x1", 15, 0),
    ]


def test_what_is_left_out_is_said() -> None:
    run = record_program(
        ring_allgather(4), topology("dgx1").restricted_to(range(4)), 1 << 30, MSCCL
    )
    (gap,) = of_phase(written(add_program, run), "X", "gap")
    assert gap["args"] == {"operations not drawn, in all": run.skipped}

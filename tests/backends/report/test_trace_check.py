"""The judge of traces finds what viewers would show wrongly, each kind by itself."""

import copy
import json

import pytest

from weft.backends.report.trace import TraceFile
from weft.backends.report.trace_check import faults, require_sound


def sound() -> dict:
    """Two tracks, an arrow, a counter; written by hand."""
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "rank 0"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 11, "args": {"name": "to 1"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 12, "args": {"name": "to 2"}},
    ]
    one = {"ph": "X", "name": "a", "pid": 1, "tid": 11, "ts": 0, "dur": 2.5}
    level = {"ph": "C", "name": "bytes", "pid": 1, "tid": 0, "ts": 1, "args": {"bytes": 3}}
    out = {"ph": "s", "name": "data", "cat": "data", "id": 1, "pid": 1, "tid": 11, "ts": 2.5}
    two = {"ph": "X", "name": "b", "pid": 1, "tid": 12, "ts": 2.5, "dur": 1}
    into = {**out, "ph": "f", "bp": "e", "tid": 12}
    three = {"ph": "X", "name": "c", "pid": 1, "tid": 11, "ts": 2.5, "dur": 1}
    return {"traceEvents": [*names, one, level, out, two, into, three]}


ONE, LEVEL, OUT, TWO, INTO, THREE = range(3, 9)

MUTANTS = [
    ("no phase", lambda e: e[ONE].pop("ph")),
    ("no phase", lambda e: e[ONE].update(ph="B")),
    ("no name", lambda e: e[ONE].pop("name")),
    ("no pid", lambda e: e[ONE].pop("pid")),
    ("no whole pid", lambda e: e[ONE].update(tid="eleven")),
    ("no time", lambda e: e[ONE].pop("ts")),
    ("no time", lambda e: e[ONE].update(ts=-1)),
    ("no time", lambda e: e[ONE].update(ts="0")),
    ("no duration", lambda e: e[ONE].pop("dur")),
    ("no duration", lambda e: e[ONE].update(dur=-1)),
    ("after one at", lambda e: e[LEVEL].update(ts=3)),
    ("on the track of one that ends", lambda e: e[ONE].update(dur=2.6)),
    ("on the track of one that ends", lambda e: e[THREE].update(tid=12)),
    ("no thread_name", lambda e: e.pop(1)),
    ("no process_name", lambda e: e.pop(0)),
    ("a second thread_name", lambda e: e.insert(2, e[1])),
    ("an empty thread_name", lambda e: e[1]["args"].update(name="")),
    ("names nothing", lambda e: e[1].update(args={})),
    ("is not ended", lambda e: e.pop(INTO)),
    ("has not started", lambda e: e.pop(OUT)),
    ("has not started", lambda e: e[OUT].update(id=2)),
    ("has not started", lambda e: e[OUT].update(name="wait")),
    ("starts twice", lambda e: e.insert(OUT, e[OUT])),
    ("or twice", lambda e: e.insert(INTO, e[INTO])),
    ("in no slice", lambda e: e[OUT].update(tid=12)),
    ("in no slice", lambda e: e.insert(TWO, e.pop(INTO))),
    ("next slice", lambda e: e[INTO].pop("bp")),
    ("without id", lambda e: e[OUT].pop("id")),
    ("without numbers", lambda e: e[LEVEL].update(args={})),
    ("without numbers", lambda e: e[LEVEL]["args"].update(bytes="3")),
]


def test_the_sound_one_is_sound() -> None:
    assert faults(json.dumps(sound())) == []


@pytest.mark.parametrize(("words", "mutate"), MUTANTS)
def test_a_mutant_is_found(words, mutate) -> None:
    data = copy.deepcopy(sound())
    mutate(data["traceEvents"])
    found = faults(json.dumps(data))
    assert any(words in fault for fault in found), found


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"traceEvents":[{"ph":"X","ts":NaN}]}'])
def test_what_is_no_trace_is_found(text) -> None:
    assert faults(text)


def test_nothing_unsound_is_written() -> None:
    trace = TraceFile()
    place = trace.track(trace.process("one"), "track")
    trace.slice(place, 0, 2, "a", "x", {})
    require_sound(trace.text())
    trace.slice(place, 1, 3, "b", "x", {})
    with pytest.raises(AssertionError, match="on the track"):
        require_sound(trace.text())

"""Checker of traces against the rules of their viewers, independent of the writer :mod:`.trace`.

Checked of Chrome's JSON format, as the Perfetto UI reads it:

* every event has a phase that is known here, a process, a thread, and a name;
* events with times come in their order; no time or duration is negative or not a number;
* every process and thread that is used has a name, and only one;
* no two slices of a track overlap;
* the two ends of an arrow come once each, the start first, and each lies in a slice: the one that
  was last begun on its track, which must contain it;
* counters have numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass

TOLERANCE = 1e-4
"""µs: a tenth of the nanosecond in which times are kept."""

PHASES = ("M", "X", "s", "f", "C")
_NAMES = ("process_name", "thread_name", "process_sort_index", "thread_sort_index")

Thread = tuple[Any, Any]


@dataclass(slots=True)
class _State:
    now: float = -math.inf
    last: dict[Thread, tuple[float, float]] = field(default_factory=dict)
    names: dict[tuple[str, Any, Any], Any] = field(default_factory=dict)
    open: dict[Any, str] = field(default_factory=dict)
    closed: set[Any] = field(default_factory=set)


def faults(text: str) -> list[str]:
    """Return all faults of the text of a trace; empty for a valid one."""
    try:
        data = json.loads(text, parse_constant=_refused)
    except ValueError as error:
        return [f"not JSON: {error}"]
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(events, list):
        return ["no list of traceEvents"]
    return list(_faults(events))


def require_sound(text: str) -> None:
    """Require that a written trace is without faults.

    Raises:
        AssertionError: it has one; a bug in weft.
    """
    found = faults(text)
    if found:
        raise AssertionError(f"the trace is not well formed: {'; '.join(found[:5])}")


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a valid JSON number")


def _faults(events: Sequence[Any]) -> Iterator[str]:
    state = _State()
    for number, event in enumerate(events):
        for fault in _of_event(event, state):
            yield f"event {number}: {fault}"
    for name in state.open:
        yield f"arrow {name} is not ended"
    for process, thread in sorted(state.last, key=str):
        for what, at in (("process_name", 0), ("thread_name", thread)):
            if (what, process, at) not in state.names:
                yield f"process {process}, thread {thread}: no {what}"


def _of_event(event: Any, state: _State) -> Iterator[str]:
    if not isinstance(event, dict) or event.get("ph") not in PHASES:
        yield "no phase that is known"
        return
    missing = [key for key in ("pid", "tid", "name") if key not in event]
    if missing or not all(isinstance(event[key], int) for key in ("pid", "tid")):
        yield f"no {' or '.join(missing or ['whole pid and tid'])}"
        return
    if event["ph"] == "M":
        yield from _name(event, state)
        return
    if not _is_time(event.get("ts")):
        yield "no time"
        return
    if event["ts"] < state.now:
        yield f"is at {event['ts']} µs, after one at {state.now}"
    state.now = max(state.now, event["ts"])
    match event["ph"]:
        case "X":
            yield from _slice(event, state)
        case "C":
            yield from _counter(event, state)
        case _:
            yield from _arrow(event, state)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _name(event: Any, state: _State) -> Iterator[str]:
    what, args = event["name"], event.get("args")
    if what not in _NAMES or not isinstance(args, dict) or len(args) != 1:
        yield "names nothing"
        return
    key = (what, event["pid"], 0 if what.startswith("process") else event["tid"])
    if key in state.names:
        yield f"a second {what}"
    (state.names[key],) = args.values()
    if what.endswith("_name") and not (isinstance(state.names[key], str) and state.names[key]):
        yield f"an empty {what}"


def _slice(event: Any, state: _State) -> Iterator[str]:
    if not _is_time(event.get("dur")):
        yield "no duration"
        return
    thread = (event["pid"], event["tid"])
    start, end = event["ts"], event["ts"] + event["dur"]
    if thread in state.last and start < state.last[thread][1] - TOLERANCE:
        yield (f"begins at {start} µs on the track of one that ends at {state.last[thread][1]} µs")
    state.last[thread] = (start, end)


def _arrow(event: Any, state: _State) -> Iterator[str]:
    name, start = event.get("id"), event["ph"] == "s"
    if name is None or not event.get("cat"):
        yield "an arrow without id or category"
        return
    label = (event["cat"], name)
    if start:
        if label in state.open or label in state.closed:
            yield f"arrow {name} starts twice"
        state.open[label] = event["name"]
    elif state.open.pop(label, None) != event["name"]:
        yield f"arrow {name} ends and has not started" + (
            " (or twice)" if label in state.closed else ""
        )
    else:
        state.closed.add(label)
        if event.get("bp") != "e":
            yield f"arrow {name} ends at the next slice, not in this one"
    begin, end = state.last.get((event["pid"], event["tid"]), (math.inf, -math.inf))
    if not begin - TOLERANCE <= event["ts"] <= end + TOLERANCE:
        yield f"arrow {name} is in no slice"


def _counter(event: Any, state: _State) -> Iterator[str]:
    args = event.get("args")
    values = list(args.values()) if isinstance(args, dict) else []
    if not values or not all(type(v) in (int, float) and math.isfinite(v) for v in values):
        yield "a counter without numbers"
    if ("process_name", event["pid"], 0) not in state.names:
        yield f"process {event['pid']}: no process_name"

"""Traces in Chrome's JSON format, which the Perfetto UI opens: a small writer.

Times are whole nanoseconds, as the viewers keep them, so that rounding cannot make neighbours
overlap. A track never holds two slices at a time; :mod:`.trace_check` proves that of the result.

The file is a list of events (``ph``): ``M`` names and orders processes and threads, ``X`` is a
slice with its duration, ``s`` and ``f`` are the ends of an arrow, each inside of the slice that was
last begun on its track, ``C`` is a counter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass

Event = dict[str, Any]

FIRST_THREAD = 1_000_000
"""Threads are numbered through all processes, from here on: viewers know a thread by its number
alone, and take one with the number of its process for the main thread."""


def nanoseconds(us: float) -> int:
    """Return µs as whole nanoseconds."""
    return round(us * 1000)


@dataclass(frozen=True, slots=True)
class TraceTrack:
    """Track: a thread of a process."""

    process: int
    thread: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Slice on a track; arrows lead from one to another."""

    number: int
    place: TraceTrack
    start_us: float
    end_us: float


_Key = tuple[float, int, int, int]


@dataclass(slots=True)
class TraceFile:
    """Events of one file, in any order until :meth:`text`.

    ``about``: what the viewer shows under "info": where the times come from.
    """

    about: dict[str, str] = field(default_factory=dict)
    _named: list[Event] = field(default_factory=list)
    _events: list[tuple[_Key, Event]] = field(default_factory=list)
    _processes: int = 0
    _threads: int = 0
    _marks: int = 0
    _arrows: int = 0

    def process(self, name: str) -> int:
        """Add a group of tracks, below all others."""
        self._processes += 1
        number = self._processes
        self._name("process_name", number, 0, name=name)
        self._name("process_sort_index", number, 0, sort_index=number)
        return number

    def track(self, process: int, name: str) -> TraceTrack:
        """Add a track, below all others."""
        self._threads += 1
        place = TraceTrack(process, FIRST_THREAD + self._threads)
        self._name("thread_name", process, place.thread, name=name)
        self._name("thread_sort_index", process, place.thread, sort_index=self._threads)
        return place

    def _name(self, what: str, process: int, thread: int, **args: object) -> None:
        self._named.append({"ph": "M", "name": what, "pid": process, "tid": thread, "args": args})

    def slice(
        self,
        place: TraceTrack,
        start_us: float,
        end_us: float,
        name: str,
        kind: str,
        args: Mapping[str, object],
    ) -> Mark:
        """Add a slice from one time to another.

        Slices of a track follow each other; those of zero duration keep the order in which they are
        given.
        """
        self._marks += 1
        begin = nanoseconds(start_us)
        self._events.append(
            (
                (start_us, 1, self._marks, 0),
                {
                    "ph": "X",
                    "name": name,
                    "cat": kind,
                    "pid": place.process,
                    "tid": place.thread,
                    "ts": begin / 1000,
                    "dur": (nanoseconds(end_us) - begin) / 1000,
                    "args": dict(args),
                },
            )
        )
        return Mark(self._marks, place, start_us, end_us)

    def arrow(self, before: Mark, after: Mark, kind: str) -> None:
        """Add an arrow from the end of one slice to the start of another that does not begin
        earlier.

        The end of the first is where nothing has begun after it; where it takes no time, at once.
        """
        if before.end_us > before.start_us:
            out: _Key = (before.end_us, 0, before.number, 1)
        else:
            out = (before.start_us, 1, before.number, 1)
        into: _Key = (after.start_us, 1, after.number, 2)
        if into <= out:  # at one instant, and the viewer would see the end first
            return
        self._arrows += 1
        for key, phase, mark in ((out, "s", before), (into, "f", after)):
            self._events.append(
                (
                    key,
                    {
                        "ph": phase,
                        "id": self._arrows,
                        "name": kind,
                        "cat": kind,
                        "pid": mark.place.process,
                        "tid": mark.place.thread,
                        "ts": nanoseconds(key[0]) / 1000,
                        **({"bp": "e"} if phase == "f" else {}),
                    },
                )
            )

    def counter(self, process: int, name: str, unit: str, times: Floats, changes: Floats) -> None:
        """Add a counter over time, from the changes at each time (µs)."""
        ticks, which = np.unique(np.rint(times * 1000).astype(np.int64), return_inverse=True)
        sums = np.zeros(len(ticks))
        np.add.at(sums, which, changes)
        level = np.rint(np.cumsum(sums) * 1e6) / 1e6
        for tick, value in zip(ticks.tolist(), level.tolist(), strict=True):
            self._events.append(
                (
                    (tick / 1000, 3, 0, 0),
                    {
                        "ph": "C",
                        "name": name,
                        "pid": process,
                        "tid": 0,
                        "ts": tick / 1000,
                        "args": {unit: value + 0.0},
                    },
                )
            )

    def events(self) -> list[Event]:
        """Return all events: names first, then by time."""
        ordered = sorted(self._events, key=lambda entry: (entry[1]["ts"], entry[0]))
        return [*self._named, *(event for _, event in ordered)]

    def text(self) -> str:
        """Return the file, one event a line."""
        lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in self.events())
        about = json.dumps(self.about, separators=(",", ":"))
        head = f'{{"displayTimeUnit":"ns","otherData":{about},"traceEvents":['
        return f"{head}\n{lines}\n]}}\n"


def lanes(start_us: Iterable[float], end_us: Iterable[float]) -> list[int]:
    """Return for each stretch of time, in order of starts, the first lane in which it is alone."""
    free: list[int] = []
    found = []
    for start, end in zip(start_us, end_us, strict=True):
        begin = nanoseconds(start)
        lane = next((i for i, at in enumerate(free) if at <= begin), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = max(nanoseconds(end), begin)
        found.append(lane)
    return found

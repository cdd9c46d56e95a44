"""Progress of an engine: a live line on a terminal, a line per schedule in logs.

Ctrl-C asks the engine to stop and keep its schedules; a second one stops everything.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from weft.dsl.base.files import SCHEMA, write_text
from weft.dsl.base.spans import printable
from weft.dsl.base.tables import count
from weft.synth.base.engine import SOLVER_DIED, Budget
from weft.synth.base.meter import STEPS

from .console import Console, live

if TYPE_CHECKING:
    from rich.console import RichCast
    from rich.text import Text

    from weft.dsl.nouns.problem import Problem
    from weft.synth.base.engine import Outcome, Point


Measure: TypeAlias = "Callable[[Point], tuple[Any, ...]]"
"""Objective's value of a point, as a tuple; the least is the best."""


Timer: TypeAlias = "Callable[[Point], Point]"
"""Function that returns a point with its time in µs and the bound on it."""


class Stoppable(Protocol):
    """Work that Ctrl-C can stop."""

    @property
    def stopped(self) -> bool:
        """True once a stop was requested."""
        ...

    def stop(self) -> None:
        """Request a stop."""


class LiveLine(ABC):
    """A line on work that Ctrl-C can stop; it is redrawn several times a second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._stop = threading.Event()

    @property
    def seconds(self) -> float:
        """Return the wall time since the start, in seconds."""
        return time.monotonic() - self._started

    @property
    def stopped(self) -> bool:
        """True once the user has requested a stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Request the end of the work, with the best result so far."""
        self._stop.set()

    def cancelled(self) -> bool:
        """Return :attr:`stopped`."""
        return self._stop.is_set()

    def __rich__(self) -> Text:
        """Return the line, cut to the terminal's width."""
        from rich.text import Text

        return Text(printable(self.line()), no_wrap=True, overflow="ellipsis")

    @abstractmethod
    def line(self) -> str:
        """Return the text of the line."""


class Progress(LiveLine):
    """Progress display of a search, an :class:`~weft.synth.base.engine.Observer`.

    Engines may call it from any thread. ``budget`` counts the work of the search; None: there is
    none, as of bounds. ``measure`` says which of two points is better; without one the latest is
    shown. ``timer`` gives points their time, where that is what the search is for.
    """

    def __init__(
        self,
        console: Console,
        budget: Budget | None,
        measure: Measure | None = None,
        timer: Timer | None = None,
    ) -> None:
        super().__init__(console)
        self._limit = None if budget is None else budget.effort
        budget = budget or Budget()
        self._meter = budget.meter()
        self.budget = budget.within(self._meter)
        self._measure = measure
        self._timer = timer
        self._value: tuple[Any, ...] = ()
        self._stage = "starting"
        self._best: Point | None = None
        self._found = 0
        self.log: SearchLog | None = None

    @property
    def effort(self) -> float:
        """Return the effort that the search has spent."""
        return self._meter.done / STEPS

    def stage(self, name: str) -> None:
        """Begin a new phase of work."""
        self._stage = name
        if name.startswith(SOLVER_DIED):  # failures are printed
            self._console.say("", name)
        else:
            self._console.detail(f"  {self.seconds:6.1f}s  {name}")

    def incumbent(self, point: Point) -> None:
        """Record a new schedule."""
        self._found += 1
        if self._timer is not None and self._told:
            point = self._timer(point)
        if self.log is not None:
            self.log.found(self.seconds, self.effort, point)
        value = self._measure(point) if self._measure else ()
        if self._best is None or not value or value < self._value:
            self._best, self._value = point, value
        self._console.detail(
            f"  {self.seconds:6.1f}s  effort {self.effort:6.2f}  found {describe(point)}"
        )

    @property
    def _told(self) -> bool:
        """True if schedules are shown before the answer: to simulate them takes time."""
        console = self._console
        seen = console.verbose > 0 and not console.quiet
        return seen or self.log is not None or self._measure is not None

    def line(self) -> str:
        """Return the current phase and the best result so far."""
        best = f"  best {describe(self._best)}" if self._best else ""
        number = f"  [{self._found} found]" if self._found else ""
        ending = "  (stopping)" if self.stopped else ""
        clock = f"{self.seconds:.0f}s"
        if self._limit is not None:
            clock += f"  effort {self.effort:.0f} of {self._limit:g}"
        return f"Solving  {clock}{ending}  {self._stage}{number}{best}"


@contextmanager
def watching(
    console: Console,
    budget: Budget | None,
    measure: Measure | None = None,
    timer: Timer | None = None,
) -> Iterator[Progress]:
    """Show progress, and turn Ctrl-C into a request to stop, while the block runs.

    Without a ``budget``, and thus without a search, no effort is shown.
    """
    # Without a visible line the best point is not needed: to simulate it takes time.
    shown = live() and not console.quiet
    progress = Progress(console, budget, measure if shown else None, timer)
    with interruptible(progress, console), live_line(progress, console):
        yield progress


@contextmanager
def live_line(progress: RichCast, console: Console) -> Iterator[None]:
    """Show the text of ``progress`` on a terminal while the block runs."""
    if console.quiet or not live():
        yield
        return
    from rich.console import Console as RichConsole
    from rich.live import Live

    screen = RichConsole(stderr=True, highlight=False, markup=False)
    with Live(
        progress,
        console=screen,
        transient=True,
        refresh_per_second=4,
        redirect_stdout=False,
        redirect_stderr=True,
    ):
        yield


@contextmanager
def interruptible(
    progress: Stoppable, console: Console, *, finishing: bool = False
) -> Iterator[None]:
    """Turn the first Ctrl-C into a request to stop; the second one aborts.

    ``finishing``: the answer is written. From its end on Ctrl-C and SIGTERM are ignored until the
    command has ended (:func:`~weft.backends.cli.frame.entry.final`): a command that has written its
    file does not fail.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, written = signal.signal(signal.SIGINT, _asking(progress, console)), False
    try:
        yield
        written = finishing
    finally:
        if written:
            for late in (signal.SIGINT, signal.SIGTERM):
                signal.signal(late, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGINT, before)


def _asking(progress: Stoppable, console: Console) -> Callable[..., None]:
    def on_interrupt(*_: Any) -> None:
        if progress.stopped:
            raise KeyboardInterrupt
        progress.stop()
        if not console.quiet:
            sys.stderr.write("\nstopping; once more to abort\n")

    return on_interrupt


class SearchLog:
    """Log of an engine's search, written at its end.

    Seconds differ from run to run, so they are kept out of the schedules themselves.
    """

    def __init__(self, problem: Problem, **facts: Any) -> None:
        machine, collective = problem.topology, problem.collective
        self._lines: list[dict[str, Any]] = [
            {
                "weft": "log",
                "schema": SCHEMA,
                **facts,
                "size": problem.bytes,
                "topology": machine.name,
                "machine": machine.digest(),
                "collective": collective.name or str(collective.kind),
                "ranks": collective.ranks,
            }
        ]

    def found(self, seconds: float, effort: float, point: Point) -> None:
        """Add a line for a schedule; numbers are floats, nothing here is a proof."""
        self._lines.append(
            {
                "seconds": round(seconds, 3),
                "effort": round(effort, 6),
                "found": describe(point),
                "steps": point.steps,
                "rounds_per_chunk": float(point.rounds_per_chunk),
                "bound": float(point.bound) if point.bound else None,
                "us": point.us,
                "least_us": point.least_us,
            }
        )

    def write(
        self, path: str, seconds: float, effort: float, outcome: Outcome, *, force: bool
    ) -> None:
        """Write the file, with a last line on the outcome."""
        end = {
            "seconds": round(seconds, 3),
            "effort": round(effort, 6),
            "status": str(outcome.status),
            **outcome.report,
        }
        self._lines.append(end)
        text = "\n".join(json.dumps(one, ensure_ascii=False) for one in self._lines)
        write_text(path, text + "\n", force=force)


def describe(point: Point) -> str:
    """Return ``3 steps, 7/6 rounds per chunk (bound 7/6, gap 0%)``; with a time ``14.033 µs (gap
    2%)``."""
    if point.us is not None:
        above = f" (gap {point.us / point.least_us - 1:.1%})" if point.least_us else ""
        return f"{point.us:,.3f} µs{above}, {count(point.steps, 'step')}"
    gap = float(point.rounds_per_chunk / point.bound - 1) if point.bound else 0.0
    return (
        f"{count(point.steps, 'step')}, {count(point.rounds_per_chunk, 'round')} per chunk "
        f"(bound {point.bound}, gap {gap:.1%})"
    )

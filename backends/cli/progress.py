"""Hearing of an engine's progress: a live line for people, a line per schedule for logs.

Ctrl-C asks the engine to stop and keep what it has; a second one stops everything.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..report.layout import count
from .console import Console, live

if TYPE_CHECKING:
    from weft.synth.engine import Point


class Progress:
    """An :class:`~weft.synth.engine.Observer` that tells a person.

    Engines may call it from any thread.
    """

    def __init__(self, console: Console, budget_s: float) -> None:
        self._console = console
        self._budget_s = budget_s
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._stage = "starting"
        self._best: Point | None = None
        self._found = 0

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self._started

    @property
    def stopped(self) -> bool:
        """Whether the user asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask the engine to return what it has."""
        self._stop.set()

    def stage(self, name: str) -> None:
        """A new phase of work begins."""
        self._stage = name
        self._console.detail(f"  {self.seconds:6.1f}s  {name}")

    def incumbent(self, point: Point) -> None:
        """A new schedule was found."""
        self._best = point
        self._found += 1
        self._console.detail(f"  {self.seconds:6.1f}s  found {describe(point)}")

    def cancelled(self) -> bool:
        """Whether the engine should stop: Ctrl-C."""
        return self._stop.is_set()

    def __rich__(self) -> str:
        """The live line: drawn anew several times a second."""
        best = f"  best {describe(self._best)}" if self._best else ""
        number = f"  [{self._found} found]" if self._found else ""
        ending = "  (stopping)" if self.stopped else ""
        clock = f"{self.seconds:.0f}s of {self._budget_s:.0f}s"
        return f"Solving  {clock}  {self._stage}{best}{number}{ending}"


def describe(point: Point) -> str:
    """``3 steps, 7/6 rounds per chunk (bound 7/6, gap 0%)``."""
    gap = float(point.rounds_per_chunk / point.bound - 1) if point.bound else 0.0
    return (
        f"{count(point.steps, 'step')}, {point.rounds_per_chunk} rounds per chunk "
        f"(bound {point.bound}, gap {gap:.1%})"
    )


@contextmanager
def watching(console: Console, budget_s: float) -> Iterator[Progress]:
    """Show progress, and turn Ctrl-C into a request to stop, while the block runs."""
    progress = Progress(console, budget_s)
    with interruptible(progress, console), _live_line(progress, console):
        yield progress


@contextmanager
def _live_line(progress: Progress, console: Console) -> Iterator[None]:
    if console.quiet or not live():
        yield
        return
    from rich.console import Console as RichConsole
    from rich.live import Live

    screen = RichConsole(stderr=True, highlight=False, markup=False)
    with Live(progress, console=screen, transient=True, refresh_per_second=4,
              redirect_stdout=False, redirect_stderr=True):  # fmt: skip
        yield


@contextmanager
def interruptible(progress: Progress, console: Console) -> Iterator[None]:
    """Turn the first Ctrl-C into a request to stop; the second one aborts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(*_: Any) -> None:
        if progress.stopped:
            raise KeyboardInterrupt
        progress.stop()
        if not console.quiet:
            sys.stderr.write("\nstopping; once more to abort\n")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

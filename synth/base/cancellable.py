"""Run an engine in a thread of its own, so that a request to stop is answered at once; cut it off.

The only module of ``synth`` that reads a clock: seconds end a search, and decide nothing else.

Compiled loops and solvers poll for a request to stop only rarely, on large machines after
many seconds. They run without Python's lock: so the calling thread polls too, gives the engine
a grace period to return, and then continues with the schedules found until then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from weft.dsl.base.compile_time import COMPILE_TIME
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.liveness import running_below, vitals

from .engine import Budget, Forwarding, Observer

T = TypeVar("T")

ENGINE_THREAD = "weft engine"
"""Name of these threads; a command that ends while one still runs must not join it."""

LOOK = 0.05
"""Seconds between two polls of the request to stop."""

GRACE_FOUND, GRACE_NOTHING = 0.7, 3.0
"""Grace period in seconds, where there is a schedule already and where there is none."""


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children, ended and running.

    Running ones are seen on Linux only.
    """
    ended = os.times()
    running = sum(vitals(child).cpu for child in running_below(os.getpid()))
    return time.process_time() + ended.children_user + ended.children_system + running


@dataclass(slots=True)
class CutOff(Forwarding):
    """Observer that requests a stop once the search has taken some CPU seconds.

    Compiling kernels does not count. ``fired`` is True once the limit was reached; ``used``: CPU
    seconds until now.
    """

    inner: Observer
    seconds: float
    started: float = field(default_factory=lambda: cpu_seconds() - COMPILE_TIME.seconds)
    fired: bool = False
    _looked: float = 0.0
    _used: float = 0.0

    @property
    def used(self) -> float:
        """Return the CPU seconds of the search; they stand still while kernels are compiled."""
        if not COMPILE_TIME.running:
            self._used = cpu_seconds() - COMPILE_TIME.seconds - self.started
        return self._used

    def cancelled(self) -> bool:
        """Return True after the cut-off, or where the inner one is cancelled."""
        now = time.monotonic()
        if now > self._looked + LOOK:  # engines call it every few microseconds
            self._looked = now
            self.fired = self.fired or self.used > self.seconds
        return self.fired or self.inner.cancelled()


def cut_off(observer: Observer, budget: Budget) -> Observer:
    """Return the observer, which requests a stop after the budget's seconds if it has some."""
    return observer if budget.seconds is None else CutOff(observer, budget.seconds)


def run_cancellable(
    work: Callable[[], T], stopped: Callable[[], bool], found: Callable[[], bool]
) -> T:
    """Run ``work`` in a thread; return its result or raise its error.

    ``stopped`` returns whether a stop was requested, ``found`` whether there is an answer already.

    Raises:
        KeyboardInterrupt: a stop was requested and the grace period is over; the thread runs on.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    worker = threading.Thread(target=run, name=ENGINE_THREAD, daemon=True)
    worker.start()
    asked: float | None = None
    while worker.is_alive():
        worker.join(LOOK)
        if asked is None and stopped():
            asked = time.monotonic()
        if asked is not None:
            grace = GRACE_FOUND if found() else GRACE_NOTHING
            if time.monotonic() - asked > grace:
                raise KeyboardInterrupt
    if failure:
        raise failure[0]
    return result[0]


def engine_at_work() -> bool:
    """Return True if the thread of an abandoned engine still runs."""
    return any(t.name == ENGINE_THREAD and t.is_alive() for t in threading.enumerate())

"""Run an engine in a thread of its own, so that a request to stop is answered at once.

Compiled loops and solvers poll for a request to stop only rarely, on large machines after
many seconds. They run without Python's lock: so the calling thread polls too, gives the engine
a grace period to return, and then continues with the schedules found until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ENGINE_THREAD = "weft engine"
"""Name of these threads; a command that ends while one still runs must not join it."""

LOOK = 0.05
"""Seconds between two polls of the request to stop."""

GRACE_FOUND, GRACE_NOTHING = 0.7, 3.0
"""Grace period in seconds, where there is a schedule already and where there is none."""


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
    """Return whether the thread of an abandoned engine still runs."""
    return any(t.name == ENGINE_THREAD and t.is_alive() for t in threading.enumerate())

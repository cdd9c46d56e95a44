"""An engine at work in a thread of its own, so that whoever asked to stop need not wait for it.

Compiled loops and solvers look at a request to stop only now and then, on large machines after
many seconds. They run without Python's lock: so the thread that asked looks itself, waits a moment
for the engine's own answer, and else goes on with what was found until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ENGINE_THREAD = "weft engine"
"""The name of such threads; a command that ends while one is at work must not wait for it."""

LOOK = 0.05
"""Seconds between two looks at the request to stop."""

GRACE_FOUND, GRACE_NOTHING = 0.7, 3.0
"""Seconds that an engine has to stop, where there is a schedule already and where there is none."""


def patiently(work: Callable[[], T], stopped: Callable[[], bool], found: Callable[[], bool]) -> T:
    """What ``work`` returns or raises.

    ``stopped``: whether it was asked to stop. ``found``: whether there is an answer without it.

    Raises:
        KeyboardInterrupt: it was asked to stop and did not in time; it is left to itself.
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
    """Whether some engine was left to itself and has not ended."""
    return any(t.name == ENGINE_THREAD and t.is_alive() for t in threading.enumerate())

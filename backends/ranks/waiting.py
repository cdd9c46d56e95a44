"""Waits of ranks for each other, with a time-out; a rank that waits leaves its core to others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

REST = 2e-3
"""Seconds that a rank sleeps at most between two looks."""


def meet(comm: Any, timeout: float, late: str) -> None:
    """Wait until all ranks of a communicator of MPI are here: in naps until they are, then awake,
    so that all go on at the same moment, as what comes next may be timed.

    Raises:
        TimeoutError: after ``timeout`` seconds, with the text ``late``.
    """
    for rest in (REST, 0.0):
        wait_until(comm.Ibarrier().Test, timeout, late, rest=rest)


def wait_until(done: Callable[[], bool], timeout: float, late: str, *, rest: float = REST) -> None:
    """Wait until something is done; the longer it takes, the longer the naps, up to ``rest``
    seconds.

    Raises:
        TimeoutError: after ``timeout`` seconds, with the text ``late``.
    """
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(late)
        time.sleep(min(rest, waited / 10))

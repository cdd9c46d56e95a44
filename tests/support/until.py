"""Waiting for other processes without looking at a clock."""

import time
from collections.abc import Callable

NAP = 0.02
NAPS = 90_000

HANGS = 1800.0
"""Seconds after which a process that hangs is given up; no result depends on them."""


def until(done: Callable[[], bool], what: str = "it") -> None:
    """Return once it is done.

    Naps are counted, half an hour of them: a busy machine makes each longer, a clock that jumps
    changes nothing.
    """
    for _ in range(NAPS):
        if done():
            return
        time.sleep(NAP)
    raise AssertionError(f"{what} did not come")

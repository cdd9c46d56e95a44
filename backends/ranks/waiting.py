"""How a rank waits for a request of MPI: with an end, and leaving the core to ranks that work."""

from __future__ import annotations

import time
from typing import Any

AWAKE = 1e-3
"""Seconds in which a rank looks again and again, as a wait this short may be timed."""

NAP = 1e-4
"""Seconds that it sleeps between two looks after that."""


def wait_for(request: Any, timeout: float, late: str) -> None:
    """Wait until a request is done.

    Raises:
        TimeoutError: after ``timeout`` seconds, with the text ``late``.
    """
    began = time.monotonic()
    while not request.Test():
        waited = time.monotonic() - began
        if waited > timeout:
            raise TimeoutError(late)
        time.sleep(0 if waited < AWAKE else NAP)

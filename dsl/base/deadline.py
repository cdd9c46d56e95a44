"""Seconds of waiting, looked at again and again, that a jump of the clock does not use up."""

from __future__ import annotations

import time

STEP = 1.0
"""Seconds that count at most between two looks: a computer that slept, or that was too busy to
look, has not waited meanwhile."""


class Stopwatch:
    """The seconds since it was made, as far as they were read."""

    def __init__(self) -> None:
        self._last, self._seconds = time.monotonic(), 0.0

    def seconds(self) -> float:
        """Return the seconds so far, of which each look adds :data:`STEP` at most."""
        now = time.monotonic()
        self._seconds += min(max(now - self._last, 0.0), STEP)
        self._last = now
        return self._seconds


class Deadline:
    """The end of some seconds; infinitely many never end."""

    def __init__(self, seconds: float) -> None:
        self._watch, self._most = Stopwatch(), seconds

    def over(self) -> bool:
        """Return True if the seconds are over; each call counts the time since the last one."""
        return self._watch.seconds() >= self._most

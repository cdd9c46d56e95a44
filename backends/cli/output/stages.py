"""Progress of ``compile`` and ``run``: a live line on a terminal, and with ``-v`` a log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from weft.dsl.base.spans import printable

from .console import OUTPUT, Console, live
from .progress import live_line


class StageProgress:
    """Current stage of the work, with its duration."""

    def __init__(self, console: Console, word: str) -> None:
        self._console, self._word = console, word
        self._started = self._told = time.monotonic()
        self._stage = "starting"

    def __call__(self, name: str) -> None:
        """Begin a new stage; of successive counts of one stage, only the first is logged.

        Where no live line is shown, a count is reported now and then, so that a log shows progress.
        """
        if _uncounted(name) != _uncounted(self._stage):
            self._console.detail(f"  {self._seconds:6.1f}s  {name}")
        elif not live() and time.monotonic() - self._told >= OUTPUT.heartbeat_seconds:
            self._told = time.monotonic()
            self._console.say("", f"{self._seconds:.0f}s  {name}")
        self._stage = name

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def __rich__(self) -> str:
        """Return the live line; it is redrawn several times a second."""
        return printable(f"{self._word}  {self._seconds:.0f}s  {self._stage}")


@contextmanager
def telling(console: Console, word: str) -> Iterator[StageProgress]:
    """Show the stages of some work while the block runs."""
    stages = StageProgress(console, word)
    with live_line(stages, console):
        yield stages


def _uncounted(name: str) -> str:
    return re.sub(r"\d+ of \d+", "", name)

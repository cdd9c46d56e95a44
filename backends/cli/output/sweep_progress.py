"""Progress of a sweep on stderr: a live line, and with ``-v`` a line per job."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from weft.dsl.base.spans import printable
from weft.dsl.base.tables import count

from .console import Console

if TYPE_CHECKING:
    from rich.text import Text

    from ...sweep.question import SweepQuestion


class SweepProgress:
    """Display of progress, a :class:`~weft.backends.sweep.run.Watcher`; Ctrl-C stops the sweep."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stop = threading.Event()
        self._start = time.monotonic()
        self._jobs = self._known = self._ended = self._begun = 0
        self._states: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        """Return the wall time since the start, in seconds."""
        return time.monotonic() - self._start

    @property
    def stopped(self) -> bool:
        """True once the user has asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Request the end of all running jobs."""
        self._stop.set()

    def cancelled(self) -> bool:
        """Return :attr:`stopped`."""
        return self._stop.is_set()

    def begins(self, jobs: int, known: int) -> None:
        """Record the number of jobs and of known answers, as :class:`Watcher` defines."""
        self._jobs, self._known, self._start = jobs, known, time.monotonic()

    def started(self, question: SweepQuestion, where: str) -> None:
        """Record the start of a job, as :class:`Watcher` defines."""
        self._begun += 1
        self._console.detail(f"  {self.seconds:6.1f}s  starts {question.label.stem()} on {where}")

    def ended(self, question: SweepQuestion, row: dict[str, Any], seconds: float) -> None:
        """Record the end of a job, as :class:`Watcher` defines."""
        self._ended += 1
        self._states[row["status"]] += 1
        what = f"{row['status']:<10} {question.label.stem()} in {seconds:.1f}s"
        self._console.detail(f"  {self.seconds:6.1f}s  {what}")

    def warn(self, text: str) -> None:
        """Print a warning, as :class:`Watcher` defines."""
        self._console.warn(text)

    def __rich__(self) -> Text:
        """Return the live line; it is redrawn several times a second."""
        from rich.text import Text

        return Text(printable(self.line()), no_wrap=True, overflow="ellipsis")

    def line(self) -> str:
        """Return the line ``Sweeping  37 of 200 jobs (12 known)  25 optimal  about 40s left``."""
        done = self._known + self._ended
        states = "  ".join(f"{n} {state}" for state, n in self._states.most_common())
        left = self._jobs - done
        about = f"  about {self.seconds / self._ended * left:.0f}s left" if self._ended else ""
        ending = "  (stopping)" if self.stopped else about
        return (
            f"Sweeping  {done} of {count(self._jobs, 'job')} ({self._known} known)  "
            f"{states}{ending}"
        )

"""Interface of executors: submit, cancel, and answers in the order of the jobs."""

from __future__ import annotations

import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import field, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import PluginWarning, repeat

from .job import LIMITS, Ending, Job, JobResult


class Event(StrEnum):
    """Events of a job before it ends."""

    STARTED = "started"  #: some process begins it
    LOST = "lost"  #: that process died; it will be started again if it may


Told = Callable[[Event, str], None]
"""Callback for a job's events, with ``host:process id``; called from any thread, must be quick."""


@dataclass(eq=False, slots=True)
class JobHandle:
    """One job that was submitted."""

    job: Job
    deadline: float | None = None
    told: Told | None = None
    on_cancel: Callable[[], None] | None = None
    starts: int = 0
    unwanted: threading.Event = field(default_factory=threading.Event)
    _future: Future[JobResult] = field(default_factory=Future)

    def cancel(self) -> None:
        """Kill it if it runs, drop it if it waits; nothing if it has ended."""
        if not self.unwanted.is_set():
            self.unwanted.set()
            if self.on_cancel is not None:
                self.on_cancel()

    def ended(self) -> bool:
        """Return True if there is an answer."""
        return self._future.done()

    def answer(self, timeout: float | None = None) -> JobResult:
        """Wait for the answer and return it.

        Raises:
            TimeoutError: it has not ended after some seconds.
        """
        return self._future.result(timeout)

    def forget(self) -> None:
        """Drop the value and keep the ending, to save memory once the value is used."""
        if self.ended():
            answer, self._future = self.answer(), Future()
            self.end(replace(answer, value=None))

    def on_end(self, listener: Callable[[JobHandle], None]) -> None:
        """Call a listener when the job ends, from any thread; at once if it has ended."""
        self._future.add_done_callback(lambda _: listener(self))

    def hear(self, event: Event, where: str) -> None:
        """For executors: something happened."""
        self.starts += event is Event.STARTED
        if self.told is not None:
            self.told(event, where)

    def end(self, answer: JobResult) -> None:
        """For executors: it has ended; the first word counts."""
        with contextlib.suppress(InvalidStateError):
            self._future.set_result(answer)


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of a group of jobs: one more has ended. ``place``: its index in the jobs."""

    ended: int
    jobs: int
    place: int
    answer: JobResult


class Executor(ABC):
    """Interface of executors. A context manager: leaving it stops the running jobs."""

    @abstractmethod
    def submit(
        self, job: Job, *, deadline: float | None = None, told: Told | None = None
    ) -> JobHandle:
        """Run a job when there is room, in the order of submission.

        ``deadline``: seconds after its start when it is killed. ``told`` is called with its events.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop everything: waiting jobs are dropped, running ones killed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def map(
        self,
        function: str,
        arguments: Iterable[Any],
        *,
        deadline: float | None = None,
        progress: Callable[[Step], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[Any]:
        """Return the values of a function, ``module:name``, for all arguments, in their order.

        The rest as :meth:`answers`.

        Raises:
            WeftError: the first error, in the order of the arguments, that a job raised; also if
                one was late (NothingFound), or its process died again and again.
            KeyboardInterrupt: it was cancelled.
        """
        told = self.answers(
            function, arguments, deadline=deadline, progress=progress, cancelled=cancelled
        )
        if any(answer.ending is Ending.CANCELLED for answer in told):
            raise KeyboardInterrupt
        return [answer.get() for answer in told]

    def answers(
        self,
        function: str,
        arguments: Iterable[Any],
        *,
        deadline: float | None = None,
        progress: Callable[[Step], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[JobResult]:
        """Return the answers of a function's jobs, one per argument, in their order.

        Args:
            function: ``module:name``; see :mod:`weft.backends.jobs` on what it may do.
            arguments: one JSON value per job.
            deadline: seconds after the start of a job when it is killed.
            progress: called for every job that ends, in this thread.
            cancelled: polled twenty times a second; once it returns True, all running jobs are
                killed, and their endings and those of the waiting ones are CANCELLED.

        Raises:
            KeyboardInterrupt: the user's, after all jobs were killed.
        """
        handles = [self.submit(Job.of(function, one), deadline=deadline) for one in arguments]
        for step in ends(handles, cancelled):
            if progress is not None:
                progress(step)
        return [handle.answer() for handle in handles]


def ends(
    handles: Sequence[JobHandle], cancelled: Callable[[], bool] | None = None
) -> Iterator[Step]:
    """Yield the jobs as they end, in this thread; all are cancelled once ``cancelled`` returns
    True, and when the iterator is closed early."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place, handle in enumerate(handles):
        handle.on_end(lambda _, place=place: ended.put(place))  # type: ignore[misc]
    heard = 0

    def cancel_all() -> None:
        for handle in handles:
            handle.cancel()

    try:
        while heard < len(handles):
            if cancelled is not None and cancelled():
                cancel_all()
            try:
                place = ended.get(timeout=LIMITS.look_seconds)
            except queue.Empty:
                continue
            heard += 1
            answer = handles[place].answer()
            for text, trace in answer.remarks:
                repeat(PluginWarning(text, trace))
            yield Step(heard, len(handles), place, answer)
    except BaseException:
        cancel_all()
        raise

"""Execution of a sweep's jobs: known answers are reused, new ones stored at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Protocol

from weft.dsl.base.lazy_dataclass import dataclass

from ..jobs.executor import Event, Executor, JobHandle, ends
from ..jobs.job import Ending, Job, JobResult
from .body import FUNCTION, believable, without_schedules
from .cache import Cache
from .folder import Folder, row_of
from .question import SweepQuestion

UNKNOWN = {
    Ending.LATE: "late",
    Ending.LOST: "lost",
    Ending.BROKEN: "broken",
    Ending.CANCELLED: "pending",
    Ending.REFUSED: "unavailable",
}
"""Status of a job without an answer, by cause; it runs again next time."""


class Watcher(Protocol):
    """Observer of a sweep; called in the thread that runs it (``started`` in any)."""

    def begins(self, jobs: int, known: int) -> None:
        """Called once with the number of jobs and of known answers."""

    def started(self, question: SweepQuestion, where: str) -> None:
        """Called when a job has begun."""

    def ended(self, question: SweepQuestion, row: dict[str, Any], seconds: float) -> None:
        """Called when a job has ended; ``row`` as in ``sweep.json``."""

    def warn(self, text: str) -> None:
        """Called with a warning; the sweep goes on."""

    def cancelled(self) -> bool:
        """Return True if the sweep should stop."""
        ...


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Result of a sweep.

    Attributes:
        rows: one per question, in their order. seconds: of those that ran now, by key.
        ran: jobs that ended now. cached: answers from the cache. kept: from the folder.
        pending: jobs without an answer because the sweep was stopped.
    """

    rows: tuple[dict[str, Any], ...]
    seconds: dict[str, float]
    ran: int
    cached: int
    kept: int
    pending: int


def run(
    questions: Sequence[SweepQuestion],
    code: str,
    executor: Callable[[], Executor],
    watcher: Watcher,
    *,
    deadline: float,
    cache: Cache | None = None,
    folder: Folder | None = None,
) -> SweepResult:
    """Answer all questions.

    ``executor`` is made only if something must run; ``deadline``: seconds after which a job is
    killed. Answers are written as they come. If ``watcher`` requests a stop, running jobs are
    killed, and finished ones stay.

    Raises:
        UserError: the folder cannot be written.
        KeyboardInterrupt: the second Ctrl-C; finished jobs are in folder and cache.
    """
    work = _SweepState(code, watcher, cache, folder)
    asked = {question.key(code): question for question in questions}
    open_ones = {key: q for key, q in asked.items() if not work.known(key, q)}
    watcher.begins(len(asked), len(asked) - len(open_ones))
    if open_ones and not watcher.cancelled():
        with executor() as pool:
            work.ask(pool, open_ones, deadline)
    rows = tuple(work.row(question, question.key(code)) for question in questions)
    if folder is not None:
        folder.finish(code, rows)
    pending = sum(row["status"] == "pending" for row in rows)
    return SweepResult(rows, work.seconds, work.ran, work.cached, work.kept, pending)


@dataclass(slots=True)
class _SweepState:
    """State of a run: the rows so far, and the stores of answers."""

    code: str
    watcher: Watcher
    cache: Cache | None
    folder: Folder | None
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ran: int = 0
    cached: int = 0
    kept: int = 0
    warned: bool = False

    def known(self, key: str, question: SweepQuestion) -> bool:
        """Return True if the answer is stored or no job is needed for it."""
        if self.folder is not None and key in self.folder.done:
            self.rows[key] = self.folder.done[key]
            self.kept += 1
            return True
        if question.refused:
            self._keep(
                question, key, without_schedules("refused", question.refused), source="reading"
            )
            return True
        if self.cache is None or self.watcher.cancelled():
            return False
        found = self.cache.get(question, believable)
        if found is None:
            return False
        self._keep(question, key, found, source="cache")
        self.cached += 1
        return True

    def ask(
        self,
        pool: Executor,
        questions: dict[str, SweepQuestion],
        deadline: float,
    ) -> None:
        keys = list(questions)
        handles: list[JobHandle] = []
        for key, question in questions.items():
            job = Job.of(FUNCTION, question.argument())
            handles.append(pool.submit(job, deadline=deadline, told=self._listener(key, question)))
        for step in ends(handles, self.watcher.cancelled):
            key = keys[step.place]
            self._ended(key, questions[key], step.answer)
            handles[step.place].forget()

    def row(self, question: SweepQuestion, key: str) -> dict[str, Any]:
        """Return the row of a question, with its own label: two may have one answer."""
        held = (
            self.rows.get(key) or row_of(question, key, without_schedules("pending", "not run"))[0]
        )
        return {**held, **question.label.to_json()}

    def _listener(self, key: str, question: SweepQuestion) -> Callable[[Event, str], None]:
        def told(event: Event, where: str) -> None:
            if self.folder is not None:
                self.folder.note(str(event), key, where=where)
            if event is Event.STARTED:
                self.watcher.started(question, where)

        return told

    def _ended(self, key: str, question: SweepQuestion, answer: JobResult) -> None:
        if answer.ending is Ending.DONE:
            self.ran += 1
            self._store(question, answer.value)
            row = self._keep(
                question,
                key,
                answer.value,
                source="run",
                seconds=answer.seconds,
                starts=answer.starts,
            )
        else:
            row = self._failed(question, key, answer)
        self.seconds[key] = answer.seconds
        if answer.ending is not Ending.CANCELLED:
            self.watcher.ended(question, row, answer.seconds)

    def _failed(self, question: SweepQuestion, key: str, answer: JobResult) -> dict[str, Any]:
        """Return the row of a job without an answer; it is not reused next time."""
        cancelled = answer.ending is Ending.CANCELLED
        why = "not run" if cancelled else answer.error().message
        row, _ = row_of(question, key, without_schedules(UNKNOWN[answer.ending], why))
        self.rows[key] = row
        if self.folder is not None and answer.starts:
            trace = (answer.fault or {}).get("trace")
            self.folder.note(
                "ended",
                key,
                row=row,
                files=None,
                starts=answer.starts,
                seconds=round(answer.seconds, 3),
                trace=trace,
            )
        return row

    def _store(self, question: SweepQuestion, result: dict[str, Any]) -> None:
        """Store an answer in the cache; a failure to write is reported once."""
        if self.cache is None:
            return
        try:
            self.cache.put(question, result)
        except Exception as error:
            if not self.warned:
                self.watcher.warn(f"the cache in {self.cache.folder} cannot be written: {error}")
                self.warned = True

    def _keep(self, question: SweepQuestion, key: str, result: dict[str, Any], **more: Any) -> Any:
        if self.folder is not None:
            row = self.folder.keep(question, key, result, **more)
        else:
            row = row_of(question, key, result)[0]
            row["points"] = [{**point, "file": None} for point in row["points"]]
        self.rows[key] = row
        return row

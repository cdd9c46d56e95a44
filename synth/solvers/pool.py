"""Processes in which native solvers run: kept warm, killed on request, replaced where they abort.

A solver that aborts, or needs more memory than it may, would take this process and all schedules
found so far along. So it runs in a process of its own, that is started with the first question
(0.1 CPU seconds for CP-SAT: this process then need not load OR-Tools, which takes 0.4) and answers
those that follow. An answer depends on the question only, so asking again after an abort gives
what would have come without it.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from weft.dsl.base.answering import LOOK, AnsweringProcess, Lost, never
from weft.dsl.base.environment import SOLVER_MEMORY, solver_memory
from weft.dsl.base.errors import Missing
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes

from ..base.engine import GIVEN_UP, SOLVER_DIED
from ..base.meter import Meter

CODE = "from weft.synth.solvers.child import main; main()"

IDLE_LOOKS = round(60 / LOOK)
"""Looks at a solver that sleeps and uses no CPU after which it hangs: a minute, since solvers
compute. It decides no answer: the same question is sent again."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a question to a solver: the request to stop, and remarks."""

    stopped: Callable[[], bool] = never  # returns whether the answer is not wanted any more
    # Receives a line of text where the process had to be started again
    tell: Callable[[str], None] = lambda _: None


SILENT = Listener()


def listener_of(meter: Meter | None) -> Listener:
    """Return the callbacks of a question within the work that a meter counts."""
    return SILENT if meter is None else Listener(meter.stop_asked, meter.tell)


class SolverPool:
    """The processes of this one: as many as there were threads with questions at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[AnsweringProcess] = []

    def ask(
        self, question: Any, listener: Listener = SILENT, heard: Callable[[Any], None] | None = None
    ) -> Any:
        """Return the answer of a solver; None where it was stopped, or died of the question.

        ``heard`` receives the solutions that it finds on the way: they are known even if it dies.

        Raises:
            Missing: the solver is not installed.
            UserError: ``$WEFT_SOLVER_MEMORY`` is not a size.
        """
        process = self._take()
        try:
            for last in (False, True):
                try:
                    answer = None
                    if process.ready(listener.stopped):
                        answer = process.ask(question, None, listener.stopped, heard)
                    if answer is not None and "missing" in answer:
                        raise Missing(answer["missing"], hint=answer["hint"])
                    return answer and answer["answer"]
                except Lost as error:
                    limit = solver_memory()
                    note = f"; its memory is limited to {format_bytes(limit)}" if limit else ""
                    again = GIVEN_UP if last else "it is started again"
                    listener.tell(f"{SOLVER_DIED} ({error}{note}); {again}")
            return None
        finally:
            with self._lock:
                self._idle.append(process)

    def close(self) -> None:
        """End all processes that are idle."""
        with self._lock:
            processes, self._idle = self._idle, []
        for process in processes:
            process.kill()

    def _take(self) -> AnsweringProcess:
        """Return a process with the memory limit of now, running or not."""
        limit = str(solver_memory())
        with self._lock:
            if self._idle:
                process = self._idle.pop()
                if process.environment[SOLVER_MEMORY] == limit:
                    return process
                process.kill()
        return AnsweringProcess(CODE, environment={SOLVER_MEMORY: limit}, idle=IDLE_LOOKS)


@cache
def solvers() -> SolverPool:
    """Return the pool of this process; it ends with it."""
    pool = SolverPool()
    atexit.register(pool.close)
    return pool

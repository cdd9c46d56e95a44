"""Threads of which one runs at a time, in an adverse order that a seed determines.

No clock is looked at. Whoever runs gives its turn away before every access to shared memory; who is
next is random, and some are **delayed**: left out for the next tens or thousands of turns, as long
as anybody else can go on. A thread that waits for a condition gets no turn before it is true; where
nobody can go on, that is a deadlock.
"""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

DELAYS = (0.0, 0.01, 0.1)
"""Parts of the turns after which a thread is delayed; each run has one of them."""

LENGTHS = (10, 100, 3000)
"""Turns that a delay takes."""


class Deadlock(Exception):
    """Nobody can go on."""


class _Stopped(BaseException):
    """Another thread has failed."""


@dataclass(eq=False)
class Runner:
    """One thread: its name, what it may know of itself, and what it waits for."""

    name: str
    own: Any = None
    late: int = 0
    waits: Callable[[], bool] | None = None
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Turns:
    """Runs functions as threads, one at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.delays = self.rng.choice(DELAYS)
        self.alive: list[Runner] = []
        self.taken = 0
        self.failure: BaseException | None = None
        self.over = threading.Semaphore(0)
        self.runner = Runner("nobody")

    def run(self, functions: Sequence[tuple[str, Any, Callable[[], None]]]) -> None:
        """Run functions, each with a name and what :attr:`now` gives it, until all have ended.

        Raises:
            Deadlock: nobody can go on. What a function raises.
        """
        for name, own, function in functions:
            self.add(name, own, function)
        self._pass_on()
        self.over.acquire()
        if self.failure is not None:
            raise self.failure

    @property
    def now(self) -> Any:
        """What the running thread was given."""
        return self.runner.own

    def add(self, name: str, own: Any, function: Callable[[], None]) -> Runner:
        """Another thread, which begins when its turn comes."""
        runner = Runner(name, own)
        self.alive.append(runner)
        threading.Thread(target=self._body, args=(runner, function), daemon=True).start()
        return runner

    def give(self, until: Callable[[], bool] | None = None) -> None:
        """Let others run; with ``until``, at least until that is true."""
        me = self.runner
        me.waits = until
        self._pass_on()
        me.gate.acquire()
        if self.failure is not None:
            raise _Stopped

    def _body(self, runner: Runner, function: Callable[[], None]) -> None:
        runner.gate.acquire()
        try:
            if self.failure is None:
                function()
        except _Stopped:
            pass
        except BaseException as error:  # told by run, in the thread that waits there
            self.failure = self.failure or error
        self.alive.remove(runner)
        if self.alive:
            self._pass_on()
        else:
            self.over.release()

    def _pass_on(self) -> None:
        self.taken += 1
        able = [x for x in self.alive if self.failure or x.waits is None or x.waits()]
        if not able:
            self.failure = Deadlock(", ".join(x.name for x in self.alive) + " wait for ever")
            able = self.alive
        chosen = self.rng.choice([x for x in able if x.late <= self.taken] or able)
        if self.rng.random() < self.delays:
            chosen.late = self.taken + self.rng.choice(LENGTHS)
        chosen.waits = None
        self.runner = chosen
        chosen.gate.release()

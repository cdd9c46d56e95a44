"""Process that answers questions: started with the first, kept for the next, killed and replaced.

Jobs and solvers run in such processes: native code can neither be interrupted nor kept from
aborting. Questions and answers are JSON values; between a question and its answer the process
may send its findings (``found``). It ends with its owner: the pipe that it listens to closes.
Its owner never waits for it blindly: whether it writes or reads, it polls a request to stop, and
sees that the process has died, was stopped, or hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from .deadline import Deadline
from .liveness import Watch
from .processes import Command, Process, end, end_tree, python, signal_name, start

IDLE = 600.0
"""Seconds without a question after which a process ends; it is started again on demand."""

STARTING = 120.0
"""Seconds in which a new process must send its first frame; a loaded machine takes a few."""

LOOK = 0.05
"""Seconds between two polls of a request to stop."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

Say = Callable[[Any], None]
"""Callback that sends a JSON value."""


class Lost(Exception):
    """Error: the process died, or did not start; the text gives the cause."""


def never() -> bool:
    """Default test for cancellation: never cancelled."""
    return False


class AnsweringProcess:
    """One process, started on demand. Not for several threads at once.

    ``code``: the Python that it runs, which calls :func:`serve`. ``threads``: that libraries may
    use within it. ``environment``: variables besides the environment of this process.
    ``idle``: looks, one each :data:`LOOK` seconds, after which it is given up if it does nothing.
    """

    def __init__(
        self,
        code: str,
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
        idle: int | None = None,
    ) -> None:
        self._code = code
        self._idle = idle
        self.environment = dict.fromkeys(_THREADS, str(threads)) | dict(environment or {})
        self._process: Process | None = None
        self._reader = FrameReader()
        self._errors: BinaryIO | None = None
        self.hello: Any = None

    @property
    def pid(self) -> int | None:
        """Return the number of the process; None where none runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def ready(self, stopped: Callable[[], bool] = never) -> bool:
        """Start the process if there is none; False if it was not wanted any more meanwhile.

        ``hello`` is the first value that it has sent.

        Raises:
            Lost: it does not start.
        """
        if self.pid is not None:
            return True
        self.kill()
        self._start()
        try:
            hello = self.listen(Deadline(STARTING), stopped)
        except BaseException:
            self.kill()
            raise
        if hello is None:
            self.kill()
            if stopped():
                return False
            raise Lost(f"it did not start within {STARTING:.0f}s")
        self.hello = hello
        return True

    def ask(
        self,
        question: Any,
        until: Deadline | None = None,
        stopped: Callable[[], bool] = never,
        heard: Say | None = None,
    ) -> Any:
        """Return the answer to a question; None at the deadline or once ``stopped``.

        ``heard`` gets the findings of the process on the way. Without an answer the process is
        killed.

        Raises:
            Lost: the process died, was stopped, or hangs.
        """
        try:
            if self.send(question, until, stopped):
                while (value := self.listen(until, stopped)) is not None:
                    if "found" not in value:
                        return value
                    if heard is not None:
                        heard(value["found"])
        except BaseException:
            self.kill()
            raise
        self.kill()
        return None

    def send(
        self, question: Any, until: Deadline | None = None, stopped: Callable[[], bool] = never
    ) -> bool:
        """Send a question; False if the deadline came, or it was ``stopped``, before it was sent.

        Where the process died meanwhile, :meth:`listen` raises.

        Raises:
            Lost: the process was stopped, or hangs.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        pipe, rest = process.stdin.fileno(), memoryview(frame(question))
        watch = Watch(idle=self._idle)
        while rest:
            if stopped() or (until is not None and until.over()):
                return False
            if select.select([], [pipe], [], LOOK)[1]:
                try:
                    rest = rest[os.write(pipe, rest) :]
                except BlockingIOError:  # less room than it takes to be writable
                    continue
                except BrokenPipeError:
                    return True
            else:
                _require_alive(process, watch)
        return True

    def listen(self, until: Deadline | None, stopped: Callable[[], bool]) -> Any:
        """Return the next value that it sends; None at the deadline or once ``stopped``.

        Raises:
            Lost: the process died, was stopped, or hangs.
        """
        process = self._process
        assert process is not None
        assert process.stdout is not None
        pipe, watch = process.stdout.fileno(), Watch(idle=self._idle)
        while not stopped() and (until is None or not until.over()):
            if (value := self._reader.value()) is not None:
                return value[0]
            if select.select([pipe], [], [], LOOK)[0]:
                part = os.read(pipe, 1 << 16)
                if not part:
                    raise Lost(self._how(process))
                self._reader.feed(part)
            else:
                _require_alive(process, watch)
        return None

    def kill(self) -> None:
        """End the process and all that it started, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        end([process])
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile(prefix="weft-job-")
        self._reader = FrameReader()
        # A fixed seed of hashes: no answer may hang on the order of a set.
        surroundings = {"PYTHONHASHSEED": "0", **self.environment}
        command = Command(python("-c", self._code).words, surroundings)
        pipe = subprocess.PIPE
        self._process = start(command, stdin=pipe, stdout=pipe, stderr=self._errors)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def _how(self, process: Process) -> str:
        """Return a text on how a process ended by itself, and the end of its output."""
        try:
            code = process.wait(5.0)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            return "it fell silent"
        if code < 0:
            how = f"killed by signal {-code} {signal_name(-code)}".rstrip()
        else:
            how = f"exit code {code}"
        if self._errors is None:
            return how
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1][:200]}" if lines else how


def _require_alive(process: Process, watch: Watch) -> None:
    """Raise Lost if a process was stopped, or hangs; one that died is noticed by its pipes."""
    if (fault := watch.fault(process.pid)) is not None:
        raise Lost(fault)


def serve(hello: Any, answer: Callable[[Any, Say], None]) -> None:
    """In the process: say hello, then hand each question to ``answer``, which reports results.

    Returns after :data:`IDLE` seconds without a question.
    """
    # Private copies of stdin and stdout, which no process that is started from here inherits; all
    # prints, also of a solver's native code, go to stderr.
    asked, said = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    wanted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked, wanted), daemon=True).start()

    def say(value: Any) -> None:
        write(said, value)

    say(hello)
    while True:
        try:
            question = wanted.get(timeout=IDLE)
        except queue.Empty:
            return
        answer(question, say)


def _listen(asked: int, wanted: queue.SimpleQueue[Any]) -> None:
    """Put questions into the queue; when the owner closes the pipe, end this process tree."""
    reader = FrameReader()
    while part := os.read(asked, 1 << 16):
        reader.feed(part)
        while (value := reader.value()) is not None:
            wanted.put(value[0])
    end_tree(os.getpid())


# --- JSON values over a pipe, each behind its length: eight bytes, most significant first ---------

_HEAD = 8


def frame(value: Any) -> bytes:
    """Return a value as it is sent."""
    body = json.dumps(value, allow_nan=False).encode()
    return len(body).to_bytes(_HEAD, "big") + body


def write(pipe: int, value: Any) -> None:
    """Send a value.

    Raises:
        BrokenPipeError: the other end is closed.
    """
    rest = memoryview(frame(value))
    while rest:
        rest = rest[os.write(pipe, rest) :]


class FrameReader:
    """Puts values together from parts as they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, part: bytes) -> None:
        """More bytes of the stream."""
        self._held += part

    def value(self) -> tuple[Any] | None:
        """Return the next whole value, alone in a tuple; None if it has not all come."""
        if len(self._held) < _HEAD:
            return None
        end = _HEAD + int.from_bytes(self._held[:_HEAD], "big")
        if len(self._held) < end:
            return None
        found = json.loads(bytes(self._held[_HEAD:end]))
        del self._held[:end]
        return (found,)

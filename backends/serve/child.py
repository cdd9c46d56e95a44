"""A forked process takes the place of a client: its words, files, folder, environment, limits."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.liveness import end_this_process

Run = Callable[[None], int]
"""The command line: runs the words of ``sys.argv`` and returns the exit code."""

LIMITS = sorted({getattr(resource, n) for n in dir(resource) if n.startswith("RLIMIT_")})
"""Numbers of all limits that ``ulimit`` sets."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A client as the system knows it: process, user, limits, priority, processors."""

    pid: int
    user: int
    limits: tuple[tuple[int, int], ...] = ()  # soft and hard, in the order of LIMITS
    nice: int = 0
    processors: frozenset[int] = frozenset()

    @classmethod
    def of(cls, sock: socket.socket) -> Caller:
        """Return the process at the other end of a connection.

        Raises:
            OSError: it has ended, or may not be looked at.
        """
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, uid, gid
        pid, user = (int.from_bytes(peer[at : at + 4], sys.byteorder) for at in (0, 4))
        if user != os.geteuid() or not pid:
            return cls(pid, user)
        limits = tuple(resource.prlimit(pid, one) for one in LIMITS)
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        return cls(pid, user, limits, nice, frozenset(os.sched_getaffinity(pid)))

    def is_wider(self) -> bool:
        """Return True if a limit is higher than this process may set."""
        ours = [resource.getrlimit(one)[1] for one in LIMITS]
        return any(
            mine != resource.RLIM_INFINITY and not 0 <= hard <= mine
            for (_, hard), mine in zip(self.limits, ours, strict=True)
        )


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line: words, environment, file-creation mask, ignored signals, form of streams."""

    words: tuple[str, ...]
    environment: Mapping[bytes, bytes]
    umask: int
    ignored: tuple[int, ...]
    streams: tuple[tuple[str, str, bool], ...]  # encoding, errors, line by line
    identity: tuple[bytes, ...]

    @classmethod
    def read(cls, body: bytes) -> CommandLine:
        """Read the fields of a message.

        Raises:
            ValueError: it is not the message of a client.
        """
        identity, settings, environment, words = (
            part.split(b"\0") for part in body.split(b"\0\0", 3)
        )
        told = dict(one.decode().split("=", 1) for one in settings)
        streams = [one.split(" ") for one in told["streams"].split(",")]
        pairs = [one.partition(b"=") for one in environment]
        return cls(
            tuple(os.fsdecode(word[1:]) for word in words),
            {name: value for name, _, value in pairs if name},
            int(told["umask"]),
            tuple(map(int, filter(None, told["ignored"].split(",")))),
            tuple((encoding, errors, lines == "1") for encoding, errors, lines in streams),
            tuple(identity),
        )


def answer(line: CommandLine, caller: Caller, files: list[int], run: Run) -> NoReturn:
    """In a child: run the command line in the place of the client, and end with its exit code."""
    code = 70
    try:
        _take_place(line, caller, files)
        code = run(None)
    except BaseException as error:  # of the system, as when the folder may not be entered
        with contextlib.suppress(OSError):
            os.write(2, f"error: the server cannot run this: {error}\n".encode())
    end_this_process(code)


def _take_place(line: CommandLine, caller: Caller, files: list[int]) -> None:
    """Become as a process that the client started itself, its signals last."""
    for number in range(3):
        os.dup2(files[number], number)
    os.fchdir(files[3])
    for one in files:
        os.close(one)
    for limit, values in zip(LIMITS, caller.limits, strict=True):
        resource.setrlimit(limit, values)
    with contextlib.suppress(PermissionError):  # a lower number than the server's
        os.setpriority(os.PRIO_PROCESS, 0, caller.nice)
    with contextlib.suppress(OSError):  # processors that the server may not use
        os.sched_setaffinity(0, caller.processors)
    os.umask(line.umask)
    os.environ.clear()
    os.environb.update(line.environment)
    time.tzset()
    tempfile.tempdir = None  # the server's, by its own environment
    sys.argv = ["weft", *line.words]
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = _stream(name, number, *line.streams[number])
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    logger = logging.getLogger("weft")  # which prints for the command line of the server
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    signal.set_wakeup_fd(-1)
    for one in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in line.ignored:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _stream(name: str, number: int, encoding: str, errors: str, lines: bool) -> io.TextIOWrapper:
    """Return a text stream as the interpreter makes it at its start."""
    mode = "r" if name == "stdin" else "w"
    raw = io.FileIO(number, mode, closefd=False)
    raw.name = f"<{name}>"  # errors name it so
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(
        buffer, encoding=encoding, errors=errors, newline="\n", line_buffering=lines
    )
    stream.mode = mode  # type: ignore[misc]  # read-only in typeshed; Python sets it at its start
    return stream

"""The loop of ``weft serve``: takes command lines, forks for each, passes signals, tells the end.

One thread and no waiting for any client: what has come is read, what is over is ended. No command
line is run in this process, so none leaves anything behind for the next.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from weft.dsl.base.deadline import STEP, Deadline
from weft.dsl.base.lazy_dataclass import dataclass

from .child import Caller, CommandLine
from .place import close
from .wire import HEAD, HEAD_BYTES, PASSED_ON, SocketLimits

Answer = Callable[[CommandLine, Caller, list[int]], NoReturn]
"""Callback in the child: takes the client's place, with its descriptors, and ends the process."""

PASSED = frozenset(getattr(signal, name) for name in (*PASSED_ON, "SIGSTOP", "SIGCONT"))
"""Signals that a client sends to its child."""

_HEAD = re.compile(re.escape(HEAD).replace(re.escape("{:010d}"), r"(\d{10})").encode())


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """Limits of a server, beside those that its options set."""

    message_seconds: float = 5.0  # in which a client must have sent its command line
    waiting: int = 64  # connections that have not sent it yet
    grace_seconds: float = 5.0  # between SIGTERM and SIGKILL where a client has gone
    read_bytes: int = 1 << 16  # at a time


SERVE = ServeLimits()


@dataclass(frozen=True, slots=True)
class Installation:
    """The files that a server has loaded, with their times: it ends when one has changed."""

    files: tuple[str, ...]
    states: tuple[tuple[int, int], ...]

    @classmethod
    def loaded(cls) -> Installation:
        """Return that of this process: weft's modules, its data, the folders of packages."""
        package = Path(sys.modules["weft"].__file__ or "").parent
        modules = (m for n, m in list(sys.modules.items()) if n.partition(".")[0] == "weft")
        code = {str(m.__file__) for m in modules if getattr(m, "__file__", None)}
        scripts = os.path.dirname(os.path.abspath(sys.argv[0]))  # where any command may come and go
        files = (*sorted(code), *_data(package), *(x for x in sys.path if x != scripts))
        return cls(files, tuple(map(_state, files)))

    def has_changed(self) -> bool:
        """Return True if a file is not as it was."""
        return tuple(map(_state, self.files)) != self.states


def _data(package: Path) -> Iterator[str]:
    """Yield the files of a package that are not code."""
    for folder, inner, names in os.walk(package, followlinks=True):
        inner[:] = sorted(x for x in inner if x not in ("__pycache__", "machine_code"))
        yield from (os.path.join(folder, x) for x in sorted(names) if not x.endswith(".py"))


def _state(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return found.st_mtime_ns, found.st_size


class _Client:
    """A connection: first its message comes, then its child runs, then the status goes back."""

    def __init__(self, sock: socket.socket, caller: Caller) -> None:
        self.sock, self.caller = sock, caller
        self.held = bytearray()
        self.files: list[int] = []
        self.line: CommandLine | None = None
        self.pid = 0
        self.until: Deadline | None = Deadline(SERVE.message_seconds)

    def tell(self, text: str) -> None:
        """Send a line, if the client is there."""
        with contextlib.suppress(OSError):
            self.sock.send(f"{text}\n".encode())

    def close(self) -> None:
        """Close what it has open here."""
        self.sock.close()
        for one in self.files:
            os.close(one)
        self.files = []

    def signal(self, number: int) -> None:
        """Send a signal to its child and the processes in its group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # before it made one, or after its end
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Server:
    """Takes command lines from a socket until it is idle for long, is ended or is out of date."""

    def __init__(
        self,
        listener: socket.socket,
        path: str,
        answer: Answer,
        children: int,
        idle: float,
        like: bytes,
    ) -> None:
        self._listener, self._path, self._answer = listener, path, answer
        self._children, self._idle_seconds = children, idle
        self._like = dict(one.partition(b"=")[::2] for one in like.split(b"\0"))
        self._installation = Installation.loaded()
        self._questions: dict[int, _Client] = {}
        self._reason = ""
        self._signals: list[int] = []

    def serve(self) -> str:
        """Answer until the end, and return why it came."""
        self._selector = selectors.DefaultSelector()
        self._woken, wake = socket.socketpair()
        for one in (self._woken, wake):
            one.setblocking(False)
        for sock in (self._listener, self._woken):
            self._selector.register(sock, selectors.EVENT_READ)
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heard = [n for n in handled if signal.getsignal(n) is not signal.SIG_IGN]  # nohup
        heard += [signal.SIGCHLD]
        before = {n: signal.signal(n, self._signalled) for n in heard}
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        try:
            self._loop()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            self._woken.close()
            wake.close()
        return self._reason

    def _loop(self) -> None:
        idle = Deadline(self._idle_seconds)
        while self._questions or not self._reason:
            for key, _ in self._selector.select(STEP):
                if key.fileobj is self._listener:
                    self._take()
                elif key.fileobj is self._woken:
                    self._woken.recv(SERVE.read_bytes)
                else:
                    self._read(self._questions[key.fd])
            self._heed()
            self._reap()
            self._expire()
            if self._questions:
                idle = Deadline(self._idle_seconds)
            elif idle.over():
                self._stop("no command line came for long")

    def _signalled(self, number: int, _: object) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _heed(self) -> None:
        """Stop at the first signal, and end the children at the next."""
        for number in self._signals:
            if self._reason:
                for one in self._questions.values():
                    if one.pid:
                        one.signal(signal.SIGTERM)
            self._stop(f"it got {signal.Signals(number).name}")
        self._signals.clear()

    def _stop(self, reason: str) -> None:
        """Take no more command lines; those that run go on to their end."""
        if not self._reason:
            self._reason = reason
            self._selector.unregister(self._listener)
            close(self._listener, self._path)

    def _take(self) -> None:
        """Take the connections that wait."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while not self._reason:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                try:
                    one = _Client(sock, Caller.of(sock))
                except OSError:  # it has ended, or is another user's in part
                    one = _Client(sock, Caller(0, -1))
                waiting = sum(not q.pid for q in self._questions.values())
                if one.caller.user != os.geteuid() or waiting >= SERVE.waiting:
                    one.tell("no it serves its own user only, and a limited number at once")
                    one.close()
                    continue
                self._questions[sock.fileno()] = one
                self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, one: _Client) -> None:
        """Handle what came from a client, or that it has gone."""
        try:
            data, files, _, _ = socket.recv_fds(
                one.sock, SERVE.read_bytes, SocketLimits.descriptors, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, files = b"", []
        one.files += files
        if not data:
            self._leave(one)
        elif one.pid:
            for number in set(data) & PASSED:
                one.signal(number)
        elif one.line is not None:
            self._begin(one) if data == b"\0" else self._drop(one)
        else:
            one.held += data
            self._receive(one)

    def _receive(self, one: _Client) -> None:
        """Read the message once it is whole; a wrong one is refused at once."""
        if len(one.held) < HEAD_BYTES:
            return
        head = _HEAD.match(one.held)
        size = int(head[1]) if head else 0
        if not head or size > SocketLimits.most_bytes:
            self._refuse(
                one, f"it takes {HEAD[:12]} and {SocketLimits.most_bytes} bytes of message"
            )
        elif len(one.held) - HEAD_BYTES >= size:
            try:
                line = CommandLine.read(bytes(one.held[HEAD_BYTES:]))
                reason = self._against(one, line)
            except (ValueError, KeyError, IndexError):
                reason = "it does not understand the message"
            if reason:
                self._refuse(one, reason)
            else:
                one.line = line
                one.tell("ready")

    def _against(self, one: _Client, line: CommandLine) -> str:
        """Return why a command line cannot be answered here; '' if it can."""
        asked = dict(pair.partition(b"=")[::2] for pair in line.identity)
        unlike = [n for n in asked | self._like if asked.get(n) != self._like.get(n)]
        if unlike:
            return f"it is not like this process: {os.fsdecode(unlike[0])}"
        if self._installation.has_changed():
            self._stop("the installation has changed")
        if self._reason:
            return f"it ends: {self._reason}"
        if sum(q.pid > 0 for q in self._questions.values()) >= self._children:
            return f"it runs {self._children} commands already"
        if len(one.files) != SocketLimits.descriptors or len(line.streams) != 3:
            return "it does not understand the message"
        if one.caller.is_wider():
            return "the limits of this shell (ulimit) are higher than those of the server"
        return ""

    def _begin(self, one: _Client) -> None:
        """Fork the child of a command line; signals wait until it can handle them."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            self._refuse(one, f"it cannot fork: {error.strerror}")
            return
        if not pid:
            self._become(one)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        one.tell(f"run {pid}")
        for file in one.files:
            os.close(file)
        one.pid, one.files, one.until, one.held = pid, [], None, bytearray()

    def _become(self, one: _Client) -> None:
        """In the child: close what is the server's, and run the command line."""
        os.setsid()
        self._selector.close()
        for sock in (self._listener, self._woken, *(q.sock for q in self._questions.values())):
            sock.close()
        for other in self._questions.values():
            if other is not one:
                other.close()
        assert one.line is not None
        self._answer(one.line, one.caller, one.files)

    def _reap(self) -> None:
        """Tell the clients whose children have ended."""
        for one in tuple(self._questions.values()):
            if one.pid:
                pid, status = os.waitpid(one.pid, os.WNOHANG)
                if pid:
                    one.tell(f"end {status}")
                    self._drop(one)

    def _expire(self) -> None:
        """Drop clients that do not send their message, kill children whose clients have gone."""
        for one in tuple(self._questions.values()):
            if one.until is not None and one.until.over():
                if one.pid:
                    one.signal(signal.SIGKILL)
                    one.until = None
                else:
                    self._drop(one)

    def _leave(self, one: _Client) -> None:
        """End the child of a client that has gone."""
        if not one.pid:
            self._drop(one)
        elif one.until is None:
            self._selector.unregister(one.sock)
            one.signal(signal.SIGTERM)
            one.signal(signal.SIGCONT)  # it may be stopped
            one.until = Deadline(SERVE.grace_seconds)

    def _refuse(self, one: _Client, reason: str) -> None:
        one.tell(f"no {reason}")
        self._drop(one)

    def _drop(self, one: _Client) -> None:
        with contextlib.suppress(KeyError):  # one that has left
            self._selector.unregister(one.sock)
        del self._questions[one.sock.fileno()]
        one.close()

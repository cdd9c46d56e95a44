"""Client of ``weft serve``: has a command line answered before any other part of weft is loaded.

The server's child prints to the terminal, the files and the pipes of this process, so nothing is
copied here: it waits for the status, and passes signals on. Where no server may answer, the command
is run as without one, and one line on stderr says why.
"""

from __future__ import annotations

import os
import sys

from .wire import (
    HEAD,
    OPTION,
    PASSED_ON,
    VARIABLE,
    SocketLimits,
    default_address,
    identity,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import signal as _signal
    from collections.abc import Iterator
    from types import FrameType
else:
    import _signal  # `signal` and `socket` load enum, which takes as long as all of this

HERE = "serve"
"""The verb that is never sent to a server."""

OF_RANKS = (("PMI_RANK",), ("PMIX_RANK",), ("OMPI_COMM_WORLD_RANK",), ("RANK", "MASTER_ADDR"))
"""Variables of processes that are ranks of a job, whose starter knows their numbers: one group."""

OWN_DEVICES = ("/dev/fd/", "/dev/tty", "/proc/self/")
"""Beginnings of paths that mean another thing in another process."""


class Unserved(Exception):
    """Error: no server answers; the text says why."""


def ask_server() -> None:
    """Have a server answer the command line of this process, and end as its child did.

    Returns where it is to be run here. ``--server ADDRESS`` is taken from ``sys.argv``.
    """
    address = os.environ.get(VARIABLE, "")
    if sys.argv[1:2] == [OPTION] and len(sys.argv) > 2:
        address = sys.argv[2]
        del sys.argv[1:3]
    elif sys.argv[1:] and sys.argv[1].startswith(f"{OPTION}="):
        address = sys.argv.pop(1).partition("=")[2]
    words = sys.argv[1:]
    if not address or not words or words[0] == HERE:
        return
    if any(all(name in os.environ for name in group) for group in OF_RANKS):
        return
    if any(device in word for word in words for device in OWN_DEVICES):
        return
    address = default_address() if address == "default" else address
    try:
        sock = _ask(address, words)
        os._exit(_follow(sock))
    except (Unserved, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if not {"-q", "--quiet"} & set(words):
            _say(f"warning: not answered by the server {shown(address)}: {shown(reason)}\n")


def connect(address: str) -> tuple[_socket.socket, int]:
    """Return a connection to the server of this user, and the number of its process.

    Raises:
        Unserved: it is another user's, or the system does not tell whose it is.
        OSError: nothing listens there.
    """
    import _socket

    if not hasattr(_socket, "SO_PEERCRED"):
        raise Unserved("this system does not tell whose a socket is; Linux does")
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.settimeout(SocketLimits.answer_seconds)
        sock.connect(address)
        peer = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)  # pid, uid, gid
        pid, uid = (int.from_bytes(peer[at : at + 4], sys.byteorder) for at in (0, 4))
        if uid != os.geteuid():
            raise Unserved(f"it is a server of user {uid}, not of user {os.geteuid()}")
    except BaseException:
        sock.close()
        raise
    return sock, pid


def _ask(address: str, words: list[str]) -> _socket.socket:
    """Send a command line to a server that is ready to answer it, and let it begin."""
    message = _message(words)
    sock, _ = connect(address)
    _send(sock, message)
    first = next(_lines(sock), "no answer")
    if first != "ready":
        raise Unserved(first.removeprefix("no "))
    sock.settimeout(None)
    sock.send(b"\0")
    _pass_signals_on(sock)
    return sock


def _follow(sock: _socket.socket) -> int:
    """Wait for the end of the child and return its exit code."""
    child = 0
    for line in _lines(sock):
        word, _, value = line.partition(" ")
        if word == "no":
            raise Unserved(value)
        if word == "run":
            child = int(value)
        elif word == "end":
            return _end(int(value))
    _say("error: the server ended before the command did\n\nhint: run the command again\n")
    if child:
        try:
            os.killpg(child, _signal.SIGTERM)
        except OSError:  # it has ended
            pass
    return 128 + _signal.SIGKILL


def _message(words: list[str]) -> bytes:
    umask = os.umask(0o77)
    os.umask(umask)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    ignored = [n for n in _passed_on() if _signal.getsignal(n) == _signal.SIG_IGN]
    settings = {
        "umask": umask,
        "ignored": ",".join(map(str, ignored)),
        "streams": ",".join(f"{s.encoding} {s.errors} {s.line_buffering:d}" for s in streams),
    }
    body = b"\0\0".join(
        (
            identity(),
            b"\0".join(f"{name}={value}".encode() for name, value in settings.items()),
            b"\0".join(b"%s=%s" % pair for pair in os.environb.items()),
            b"\0".join(b"." + os.fsencode(word) for word in words),  # a word may be empty
        )
    )
    if len(body) > SocketLimits.most_bytes:
        raise Unserved(
            f"words and environment take {len(body)} bytes, at most {SocketLimits.most_bytes}"
        )
    return HEAD.format(len(body)).encode() + body


def _send(sock: _socket.socket, message: bytes) -> None:
    import _socket

    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        carried = b"".join(n.to_bytes(4, sys.byteorder) for n in (0, 1, 2, folder))
        sent = sock.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, carried)])
        if sent < len(message):
            sock.sendall(message[sent:])
    except ConnectionError:  # refused on its first bytes: the reason is to be read
        pass
    finally:
        os.close(folder)


def _lines(sock: _socket.socket) -> Iterator[str]:
    """Yield the lines of the server until it closes."""
    held = b""
    try:
        while part := sock.recv(SocketLimits.line_bytes):
            held += part
            *whole, held = held.split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")
    except ConnectionError:
        return


def _passed_on() -> list[int]:
    return [getattr(_signal, name) for name in PASSED_ON]


def _pass_signals_on(sock: _socket.socket) -> None:
    """Send each signal on as a byte; Ctrl-Z stops child and client, and both go on together."""

    def pass_on(number: int, _: FrameType | None = None) -> None:
        try:
            sock.send(bytes([number]))
        except OSError:  # the server has ended, which is noticed where its lines are read
            pass

    def stop(*_: object) -> None:
        pass_on(_signal.SIGSTOP)
        os.kill(os.getpid(), _signal.SIGSTOP)
        pass_on(_signal.SIGCONT)

    for number in _passed_on():
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, pass_on)
    if _signal.getsignal(_signal.SIGTSTP) != _signal.SIG_IGN:
        _signal.signal(_signal.SIGTSTP, stop)


def _end(status: int) -> int:
    """Return the exit code of a status; where a signal ended the child, end by the same."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(number, _signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _say(text: str) -> None:
    try:
        os.write(2, os.fsencode(text))
    except OSError:  # stderr is closed
        pass

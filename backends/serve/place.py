"""The place of a server's socket: a folder that no other user can write, held by a lock."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weft.dsl.base.errors import Missing, UserError
from weft.dsl.base.lazy_dataclass import dataclass

from .wire import default_address


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """Limits of a socket."""

    path_bytes: int = 107  # as Linux takes it
    backlog: int = 128  # connections that wait for the server to take them


PLACE = PlaceLimits()


@contextmanager
def held(path: str) -> Iterator[str]:
    """Hold the place of a socket for the length of a block, with its absolute path; only one
    process can. A socket that a server has left there, which was killed, is removed.

    Raises:
        Missing: the system does not say whose a socket is.
        UserError: the place is another server's, or not safe, or something else lies there.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise Missing(
            "a server needs Unix sockets that tell the user at the other end (SO_PEERCRED)",
            hint="Linux has them; run the command without a server",
        )
    path = os.path.abspath(path)
    if (length := len(os.fsencode(path))) > PLACE.path_bytes:
        raise UserError(
            f"expected a path of at most {PLACE.path_bytes} bytes for a socket, got {length}",
            where=path,
            hint="choose another with --socket",
        )
    _require_safe_folder(path)
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise UserError(
            "expected a socket or nothing, got a file", where=path, hint="--socket PATH"
        )
    lock = _locked(path)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        yield path
    finally:
        os.close(lock)


@contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """Listen at a path that is held; only this user may connect. The socket goes with the block."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(PLACE.backlog)
    listener.setblocking(False)
    try:
        yield listener
    finally:
        close(listener, path)


def close(listener: socket.socket, path: str) -> None:
    """Stop listening; clients that come later find no socket."""
    if listener.fileno() >= 0:
        listener.close()
        with suppress(FileNotFoundError):
            os.unlink(path)


def _require_safe_folder(path: str) -> None:
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise UserError(f"{error.strerror}", where=folder, hint="--socket PATH") from None
    usual = path == os.path.abspath(default_address())
    ours = found.st_uid == os.geteuid() or (not usual and found.st_uid == 0)
    others = 0o077 if usual else 0 if found.st_mode & stat.S_ISVTX else 0o022
    if not (stat.S_ISDIR(found.st_mode) and ours and not found.st_mode & others):
        raise UserError(
            "expected a folder of your own that no other user can write, got "
            f"mode {stat.S_IMODE(found.st_mode):o} of user {found.st_uid}",
            where=folder,
            hint="chmod 700 it, or choose another with --socket",
        )


def _locked(path: str) -> int:
    """Return a lock beside a path that ends with this process."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(f"{path}.lock", flags, 0o600)
    except OSError as error:
        raise UserError(f"{error.strerror}", where=f"{path}.lock", hint="--socket PATH") from None
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which a forked child does not hold
    except (BlockingIOError, PermissionError):
        os.close(lock)
        raise UserError(
            "a server has this place already",
            where=path,
            hint="ask it (WEFT_SERVER), end it with SIGTERM, or choose another with --socket",
        ) from None
    return lock

"""The messages between ``weft serve`` and its clients, and the place of its socket.

Loaded before all other parts of weft by a command that asks a server, so it imports only what
every interpreter has loaded at its start.

A client sends one message: a head of fixed length, then fields of bytes with NUL between them,
and with its first bytes the descriptors 0, 1 and 2 and one of its working folder. The server
answers lines: ``ready``, or ``no`` and the reason. Then the client sends single bytes: 0 to go, and
later the number of each signal that it gets; the server answers ``run PID`` and, at the end,
``end STATUS`` with the status of :func:`os.waitpid`. No file and no message names code.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "WEFT_SERVER"
"""Environment variable: the socket of the server to ask, or ``default``."""

OPTION = "--server"

HEAD = "weft serve 1 {:010d}\n"
"""First bytes of a message: the protocol, and the number of bytes behind them."""

HEAD_BYTES = len(HEAD.format(0))

LOADED_WITH = ("PYTHON", "NUMBA_", "OMP_", "OPENBLAS_", "MKL_", "NPY_", "LD_", "MALLOC_")
"""Beginnings of the variables that count once, where a process or a library starts."""


PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Signals that the child gets where the client gets them."""


class SocketLimits:
    """Limits of the messages; without a decorator, which would be loaded."""

    most_bytes = 1 << 22  # of a message: twice what Linux allows for words and environment
    descriptors = 4  # sent with it
    answer_seconds = 5.0  # in which a server must be ready, else the client does without
    line_bytes = 1 << 12  # of a line of the server


def default_address() -> str:
    """Return the socket that servers and clients use where none is named."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(folder):
        return os.path.join(folder, "weft", "serve.sock")
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"weft-{os.geteuid()}", "serve.sock")


def identity() -> bytes:
    """Return all in which a server must equal a process that it answers for, as ``name=value``
    between NULs: installation, interpreter, import path, groups, file systems."""
    weft = sys.modules["weft"]
    found = {
        "version of weft": weft.__version__,
        "installation": weft.__file__,
        "Python": f"{sys.executable} {sys.version}",
        "import path": sys.path,
        "flags of Python": (sys.flags, sys.warnoptions, sys._xoptions),
        "encoding of file names": (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()),
        "groups": (os.getegid(), sorted(os.getgroups())),
        "mounts": (os.stat("/").st_dev, os.stat("/").st_ino, _space("mnt"), _space("pid")),
    }
    names = (n for n in sorted(os.environ) if n.startswith(LOADED_WITH))
    found |= {f"${name}": os.environ[name] for name in names}
    return os.fsencode("\0".join(f"{name}={value}" for name, value in found.items()))


def _space(kind: str) -> str:
    """Return the namespace of this process; '' where the system does not say."""
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def shown(text: str) -> str:
    """Return a text without control characters."""
    return text if text.isprintable() else ascii(text)

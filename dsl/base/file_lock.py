"""Lock between processes, kept while a file is open: one of them does a piece of work, once.

Linux gives it back when the holder ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

LOOK = 0.05
"""Seconds between two looks at a lock that another process holds."""


class FileLock:
    """Advisory lock that avoids duplicate work; a process that fails to acquire it may continue.

    Its file exists while a process holds it. A process that opened it before its removal gets a
    lock that no other sees: so the result must be looked for once more after waiting.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, -1

    def take(self, looks: int) -> bool:
        """Wait for the lock; return False after ``looks`` looks, or where files lack locks.

        Looks and not seconds: a computer that slept has not waited.
        """
        try:
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError:
            return False
        for _ in range(looks):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOOK)
            except OSError:  # a file system without locks
                break
            else:
                return True
        self._close()
        return False

    def give(self) -> None:
        """Give it back if it was taken, and remove its file."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._close()

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

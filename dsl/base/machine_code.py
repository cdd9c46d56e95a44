"""Machine code of kernels on the disk, so that a loop is compiled once and not in every process.

A file holds one kernel for one list of types. Its name says for what it is valid: a digest of the
sources, the versions of Python and numba, the processor. So nothing depends on file times, what
several processes, hosts or versions write does not collide, and code for another processor is not
found, rather than executed. Code for a generic processor runs on all of its architecture. Where
loops cannot be linked, a wheel brings such files, and ``weft doctor --warm`` makes them.

Files lie in the folders of :mod:`.linked`. Without one that can be written, a process keeps its
compiled code.

Processes that need the same kernel at the same time compile it once: the others wait for the one
that began. A lock of the system holds them, for a counted number of looks; then they compile too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import serialize
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult

from .compile_time import COMPILE_TIME
from .linked import LOG, read_ours, readable, writable, write_whole

GENERIC = ("generic", "")
"""Name and features of a processor with the common features of its architecture."""

_RESULT: Any = CompileResult
_PICKLING: Any = serialize

LOOKS = 1200
"""Looks, a minute of them, at a kernel that another process compiles; a few seconds are usual."""

_SEAL = hashlib.sha256().digest_size

COMPILING = (
    "compiling the loops for this machine: up to a minute, once ('weft doctor --warm' compiles all)"
)


class MachineCode(_Cache):
    """The files of one kernel, as numba's dispatcher requests them.

    Args:
        module: the module of the kernel.
        name: the kernel's name.
        sources: a digest of all that its machine code depends on.
    """

    def __init__(self, module: str, name: str, sources: str) -> None:
        self._module, self._name, self._sources = module, name, sources
        self._enabled = True
        self._begun: dict[Any, FileLock] = {}

    @property
    def cache_path(self) -> str | None:
        """Folder that is written to; None if there is none."""
        home = writable()
        return None if home is None else str(home / self._module)

    def enable(self) -> None:
        """Read and write files."""
        self._enabled = True

    def disable(self) -> None:
        """Neither read nor write files."""
        self._enabled = False

    def flush(self) -> None:
        """Do nothing: the name of a file states all that it is valid for."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for arguments of these types; None if it must be compiled."""
        if not self._enabled:
            return None
        target_context.refresh()
        codegen = target_context.codegen()
        found = self._find(sig, codegen)
        if found is None:
            announce()
            self._begin(sig, codegen)
            found = self._find(sig, codegen)  # another process may have made it meanwhile
            if found is not None:
                self._end(sig)
        if found is not None:
            return _RESULT._rebuild(target_context, *found)
        COMPILE_TIME.begin()  # until it is saved; numba's lock lets no other thread compile
        return None

    def _find(self, sig: Any, codegen: Any) -> Any:
        paths = self.files(sig, codegen)
        return next((found for path in paths if (found := _read(path)) is not None), None)

    def _begin(self, sig: Any, codegen: Any) -> None:
        """Be the one process that compiles for these types, or wait until another has done so."""
        path = self._written(sig, codegen)
        if path is None or sig in self._begun:  # begun before, and interrupted
            return
        lock = FileLock(path.with_suffix(".lock"))
        try:
            path.parent.mkdir(mode=0o755, exist_ok=True)
        except OSError:
            return
        if lock.take(LOOKS):
            self._begun[sig] = lock

    def _end(self, sig: Any) -> None:
        if (lock := self._begun.pop(sig, None)) is not None:
            lock.give()

    def _written(self, sig: Any, codegen: Any) -> Path | None:
        """The file that is written for these types; None if none can be."""
        triple, *host = codegen.magic_tuple()
        folder = self.cache_path
        return None if folder is None else Path(folder, self._file(sig, triple, tuple(host)))

    def files(self, sig: Any, codegen: Any) -> Iterator[Path]:
        """Yield the files that could have the machine code for these types, the best first."""
        triple, *host = codegen.magic_tuple()
        for folder in readable():
            for processor in (tuple(host), GENERIC):
                yield folder / self._module / self._file(sig, triple, processor)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write new machine code; where that fails, the next process compiles again."""
        if not self._enabled:
            return
        COMPILE_TIME.end()
        try:
            path = self._written(sig, data.codegen)
            if path is not None and not data.library.has_dynamic_globals:
                self._save(path, _PICKLING.dumps(data._reduce()))
        finally:
            self._end(sig)

    def _save(self, path: Path, code: bytes) -> None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o755, exist_ok=True)
            for old in path.parent.glob(path.name.replace(self._sources, "*")):
                old.unlink(missing_ok=True)  # of other sources
            write_whole(path, hashlib.sha256(code).digest() + code)

    def _file(self, sig: Any, triple: str, processor: tuple[str, ...]) -> str:
        versions = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__)
        key = hashlib.sha256(repr((sig, triple, processor, versions)).encode()).hexdigest()
        return f"{self._name}.{key[:16]}.{self._sources}.code"


@cache
def announce() -> None:
    """Report once in a process that something is compiled."""
    LOG.info(COMPILING)


def _read(path: Path) -> Any:
    """The contents of a file; None if there is none, or it is damaged."""
    data = read_ours(path) or b""
    if hashlib.sha256(data[_SEAL:]).digest() != data[:_SEAL]:
        return None
    return pickle.loads(data[_SEAL:])


# Lock between processes, kept while a file is open: one of them does a piece of work, once.
#
# Linux gives it back when the holder ends, however it ends.

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

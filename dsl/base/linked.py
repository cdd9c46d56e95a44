"""Linked kernels: machine code in shared libraries, which Python loads in a millisecond.

A library holds the kernels of one module that Python calls, made from the same Python functions
that numba compiles without a library. Beside it lies the source of a **guard** for every
kernel: the library itself checks nothing, and reads wrong words, or crashes, if it is called with
other types than those it was compiled for. A guard passes these on and raises TypeError for others.

The name of a library says for what it is valid: a digest of the sources of the kernels, and the
Python and the platform. Code is for a generic processor of the architecture. So three states follow
one rule: a library of these sources is used; for a module without one numba compiles; where another
library was made or this one is damaged that is reported once, and numba compiles.

Machine code is read from the folder of the package, from the user's and from a temporary one;
written to the first of these that can be written. It is executed, so it is loaded only where no
other user may write, in the folder or above it; other places are left out with a warning. Files in
a package's own folder are as safe as the package.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

FOLDER = "machine_code"
"""Folder of the files of machine code below the package's."""

LIBRARY = "weft_kernels"
"""Name of every library as a module of Python."""

MARK = "__kernel__"
"""Attribute of functions that are kernels."""

LOG = logging.getLogger("weft.kernels")

UNSAFE = (
    "machine code in %s is neither read nor written: another user may write there; "
    "the loops are compiled anew"
)
STALE = (
    "a library of loops is damaged, or of other sources: numba is loaded for them "
    "('weft doctor --warm' links them anew)"
)

UNUSABLE = (
    *(OSError, ValueError, ImportError, LookupError),
    *(TypeError, AttributeError, NameError, SyntaxError),
)
"""Errors of a library or of its guards that are missing, damaged, or of another form."""

Kernels = dict[str, Callable[..., Any]]


@cache
def linked(name: str) -> Kernels | None:
    """Return the kernels of a loaded module that Python calls, by name; None: numba must compile.

    Never raises: a library that is missing, damaged, or may not be read is not used.
    """
    seen = False
    for folder in readable():
        guards = library_of(name, folder / name).with_suffix(".json")
        with contextlib.suppress(*UNUSABLE):
            if (found := _load(name, guards)) is not None:
                return found
        seen |= any(guards.parent.glob("*.json"))
    if seen:
        _report_stale()
    return None


@cache
def _report_stale() -> None:
    """Report once in a process that a library is not used."""
    LOG.info(STALE)


def library_of(name: str, folder: Path) -> Path:
    """Return the file in a folder that is the library of a module, of its sources as they are."""
    return folder / f"{digest(name)}{EXTENSION_SUFFIXES[0]}"


def _load(name: str, guards: Path) -> Kernels | None:
    if (told := read_ours(guards)) is None:
        return None
    record, library = json.loads(told), guards.with_suffix(".so")
    if hashlib.sha256(read_ours(library) or b"").hexdigest() != record["sha256"]:
        return None
    spec = spec_from_loader(LIBRARY, ExtensionFileLoader(LIBRARY, str(library)))
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return guarded(sys.modules[name], made, record["guards"])


def guarded(module: ModuleType, library: Any, source: str) -> Kernels:
    """Return the functions that the source of guards defines, in front of those of a library.

    The source is :func:`weft.backends.kernels.guards_of` a module. It is read from where the
    machine code is, by the same rules: who may write the one may write the other.
    """

    def refuse(name: str, expected: str, got: tuple[Any, ...]) -> TypeError:
        return TypeError(f"{name}: expected ({expected}), got ({', '.join(map(_kind, got))})")

    names: dict[str, Any] = {"module": module, "library": library, "refuse": refuse}
    exec(compile(source, f"<guards of {module.__name__}>", "exec"), names)
    made: Kernels = names["KERNELS"]
    return made


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{type(value).__name__}({', '.join(map(_kind, value))})"
    if not hasattr(value, "dtype") or not hasattr(value, "flags"):
        return type(value).__name__
    form = "" if value.flags.carray else ", not contiguous or not writable"
    return f"{value.dtype}[{value.ndim}{form}]"


@cache
def digest(name: str) -> str:
    """A digest of the sources of the kernels of a module.

    That is the sources of the module and of all modules whose kernels it imports, and the constants
    that they import from elsewhere.
    """
    texts = sorted(_sources(name, {}).values())
    return hashlib.sha256(b"".join(texts)).hexdigest()[:12]


def _sources(name: str, found: dict[str, bytes]) -> dict[str, bytes]:
    module = sys.modules[name]
    if name in found or module.__file__ is None:
        return found
    constants = sorted((k, repr(v)) for k, v in vars(module).items() if isinstance(v, int | float))
    text = Path(module.__file__).read_bytes() + repr(constants).encode()
    found[name] = hashlib.sha256(text).digest()
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and hasattr(value, MARK):
            _sources(value.__module__, found)
    return found


# --- folders --------------------------------------------------------------------------------------


@cache
def writable() -> Path | None:
    """The folder that new machine code is written to, made if need be; None if there is none."""
    return next((folder for folder in _folders() if _can_write(folder)), None)


def readable() -> Iterator[Path]:
    """Yield the folders that may hold machine code, the best first."""
    return (folder for folder in _folders() if _can_read(folder))


def clear() -> None:
    """Look at the folders anew."""
    for one in (writable, _can_read, linked, digest, _report_stale):
        one.cache_clear()


@cache
def _can_read(folder: Path) -> bool:
    trusted = _trusted(folder)
    if not trusted and folder.parent.exists():
        LOG.warning(UNSAFE, folder)
    return trusted and folder.is_dir()


def _folders() -> Iterator[Path]:
    """``NUMBA_CACHE_DIR`` if it is set, then the package's, the user's and the temporary one."""
    package = package_folder()
    # Two installations may share the folders outside of them.
    own = f"weft-{hashlib.sha256(os.fsencode(package)).hexdigest()[:12]}"
    # A relative place may be unpacked data in the working folder.
    if os.path.isabs(folder := os.environ.get("NUMBA_CACHE_DIR", "")):
        yield Path(folder, own)
    yield package / FOLDER
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(user):
        yield Path(user, "weft", FOLDER, own)
    import tempfile  # seldom asked for

    if (shared := tempfile.gettempdir()) != os.path.realpath(os.curdir):  # without any other
        yield Path(shared, f"{own}-{os.geteuid()}")


def package_folder() -> Path:
    """Return the folder of the package."""
    return Path(__file__).absolute().parents[2]


def _trusted(folder: Path) -> bool:
    """Return False for a folder in which another user could have put code for us to execute.

    It is to be the user's own, and all above it his or root's; a folder that is not there yet will
    be. In a folder as ``/tmp`` users cannot replace files of others.
    """
    if folder == package_folder() / FOLDER:
        return not folder.exists() or is_ours(folder.lstat())
    real = Path(os.path.realpath(folder))
    for place in (folder, *folder.parents, real, *real.parents):
        try:
            found = place.lstat()
        except FileNotFoundError:
            continue
        except OSError:
            return False
        if found.st_uid not in (os.geteuid(), 0 if place not in (folder, real) else -1):
            return False
        kept = stat.S_ISLNK(found.st_mode) or (found.st_mode & stat.S_ISVTX and place != real)
        if not kept and _others_write(found):
            return False
    return True


def is_ours(found: os.stat_result) -> bool:
    """Return True for files that only the user, or the owner of the package, can write."""
    owners = (os.geteuid(), package_folder().stat().st_uid)
    return found.st_uid in owners and not _others_write(found)


def _others_write(found: os.stat_result) -> bool:
    """Return True where other users may write; a group that has only its owner is none."""
    if not found.st_mode & stat.S_IWGRP or found.st_mode & stat.S_IWOTH:
        return bool(found.st_mode & stat.S_IWOTH)
    import grp
    import pwd

    try:
        name, group = pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid)
    except KeyError:
        return True
    return group.gr_name != name or not set(group.gr_mem) <= {name}


def _can_write(folder: Path) -> bool:
    import tempfile  # seldom asked for

    own = package_folder() / FOLDER
    try:
        if folder != own and not _trusted(folder):
            return False
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o755 if folder == own else 0o700, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return _trusted(folder)


def read_ours(path: Path) -> bytes | None:
    """Return the contents of a file that no other user could write; None if there is none."""
    try:
        with open(path, "rb") as file:
            if not (is_ours(os.fstat(file.fileno())) and is_ours(path.parent.lstat())):
                return None
            return file.read()
    except OSError:
        return None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that other processes see whole or not at all."""
    import tempfile  # seldom asked for

    handle, made = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(made, 0o644)  # the package's folder serves all users
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise

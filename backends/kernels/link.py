"""Libraries of kernels: numba's code generator ahead of time, and the C compiler that links.

Numba's part for this (``numba.pycc``) is marked as deprecated; all that depends on it is here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.dsl.base.jit import by_numba, load_numba
from weft.dsl.base.linked import LIBRARY, library_of, write_whole

from .declared import declared, types_of
from .guards import guards_of, symbol

RUNTIME = (
    "pycc/modulemixin.c",
    "cext/dictobject.c",
    "cext/listobject.c",
    "cext/setobject.c",
    "cext/utils.c",
    "core/runtime/nrt.cpp",
)
"""Files of numba's that every library contains: its memory of arrays, random numbers, errors."""

_FLAGS = "-O2 -g0 -w -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections".split()


class CannotLink(Exception):
    """Libraries cannot be made here: no C compiler, no headers of Python, no setuptools."""


@contextlib.contextmanager
def runtime() -> Iterator[Path]:
    """Compile what all libraries share; yield the folder of the object files, some 2 CPU seconds.

    Raises:
        CannotLink: it does not compile, or numba lacks its part for this.
    """
    home = Path(load_numba().__file__).parent
    try:
        _compiler()
        from numba import _helperlib
        from numpy import get_include
    except ImportError as error:
        raise CannotLink(str(error)) from error
    defines = {
        "PYCC_MODULE_NAME": LIBRARY,
        "PYCC_USE_NRT": 1,
        "NUMBA_LAPACK_BUILD_ILP64": int(getattr(_helperlib, "LAPACK_BUILD_ILP64", 0)),
    }
    include = [f"-I{sysconfig.get_path('include')}", f"-I{get_include()}"]
    words = [*_FLAGS, *include, *(f"-D{k}={v}" for k, v in defines.items())]
    with tempfile.TemporaryDirectory(prefix="weft-link-") as folder:
        for name in RUNTIME:
            made = Path(folder, Path(name).name).with_suffix(".o")
            _run("CXX" if name.endswith("pp") else "CC", *words, "-c", home / name, "-o", made)
        yield Path(folder)


def link(module: ModuleType, objects: Path, folder: Path) -> None:
    """Make the library of a module's kernels in its folder below ``folder``, and remove older ones.

    Only in a process that compiles for the generic processor. ``objects``: of :func:`runtime`.

    Raises:
        CannotLink: the compiler fails. OSError: the folder cannot be written.
    """
    home = folder / module.__name__
    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    library = library_of(module.__name__, home)
    with tempfile.TemporaryDirectory(prefix="weft-link-") as work:
        made, code = Path(work, "kernels.so"), Path(work, "kernels.o")
        _generate(module, code)
        parts = [code, *sorted(objects.glob("*.o"))]
        _run("CC", "-shared", "-s", "-Wl,--gc-sections", "-pthread", *parts, "-o", made, "-lm")
        data = made.read_bytes()
    for old in (*home.glob("*.json"), *home.glob("*.so")):
        old.unlink(missing_ok=True)
    record = {"sha256": hashlib.sha256(data).hexdigest(), "guards": guards_of(module)}
    write_whole(library, data)
    write_whole(library.with_suffix(".json"), json.dumps(record, indent=1).encode())


def is_linked(module: ModuleType, folder: Path) -> bool:
    """Return True if a folder has the library of a module, of its sources and types as they are."""
    library = library_of(module.__name__, folder / module.__name__)
    try:
        record = json.loads(library.with_suffix(".json").read_bytes())
        whole = hashlib.sha256(library.read_bytes()).hexdigest() == record["sha256"]
        return whole and bool(record["guards"] == guards_of(module))
    except (OSError, ValueError, KeyError):
        return False


def _compiler() -> Any:
    """Return numba's module for compilation ahead of time, which needs setuptools."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        from numba.pycc import compiler
    return compiler


def _generate(module: ModuleType, made: Path) -> None:
    """Write the object file of the kernels of a module, with functions that Python can call."""
    core, compiler = load_numba().core, _compiler()

    def flags() -> Any:
        found = core.compiler.Flags()
        found.release_gil = True
        return found

    vars(compiler)["Flags"] = flags  # it makes its own, which keep Python's lock
    entries = [
        compiler.ExportEntry(
            symbol(name, place),
            core.typing.signature(None, *types_of(module, text)),
            getattr(by_numba(module.__name__), name).py_func,
        )
        for name, lists in declared()[module.__name__].items()
        for place, text in enumerate(lists)
    ]
    made_by = compiler.ModuleCompiler(entries, LIBRARY, True, cpu_name="generic")
    made_by.external_init_function = f"pycc_init_{LIBRARY}"
    made_by.write_native_object(str(made), wrap=True)


def _run(compiler: str, *words: object) -> None:
    """Run the compiler that Python was made with, or ``$CC``, ``$CXX``.

    Raises:
        CannotLink: there is none, or it fails.
    """
    usual = sysconfig.get_config_var(compiler) or "cc"
    command = [*shlex.split(os.environ.get(compiler) or usual), *map(str, words)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise CannotLink(f"{command[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise CannotLink(f"{command[0]}: {error.stderr.strip()[-500:]}") from error

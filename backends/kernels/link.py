"""Libraries of kernels, from numba's code generator and the C compiler, and their guards.

Numba's part for this (``numba.pycc``) is marked as deprecated; all that depends on it is here.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import shlex
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE
from types import ModuleType
from typing import Any

from weft.dsl.base.jit import by_numba, load_numba
from weft.dsl.base.linked import LIBRARY, UNUSABLE, library_of, write_whole
from weft.dsl.base.processes import Command, start

from .declared import declared, parts_of, types_of

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
    except UNUSABLE:
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
        process = start(Command(tuple(command), {}), stdout=DEVNULL, stderr=PIPE)
    except OSError as error:
        raise CannotLink(f"{command[0]}: {error.strerror}") from error
    told = process.communicate()[1].decode(errors="replace")
    if process.returncode:
        raise CannotLink(f"{command[0]}: {told.strip()[-500:]}")


# --- guards: Python source that passes on only what a kernel was compiled for ---------------------

_HEAD = """\
import numpy as np
INTS = frozenset((int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32))
FLOATS = INTS | {float, np.float32, np.float64}
BOOLS = frozenset((bool, np.bool_))
"""

SCALARS = {"int64": "INTS", "float64": "FLOATS", "bool": "BOOLS"}
"""Types of numbers, and the set of classes of Python's and NumPy's that are taken for each."""

ARRAYS = ("bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint64")
"""Types of the items of arrays."""


def guards_of(module: ModuleType) -> str:
    """Return the source of the guards of a module's kernels, for :func:`.linked.guarded`.

    Arrays are taken that are of the type and dimensions, C-contiguous, aligned and writable, for a
    kernel may write; tuples of the length and the class; whole numbers as floats, too.

    Raises:
        ValueError: a type in ``types.toml`` that lacks a guard.
    """
    kernels = declared()[module.__name__]
    lines = [_HEAD, *(f'{name}_items = np.dtype("{name}")' for name in ARRAYS)]
    tuples = _named_tuples(module, [text for lists in kernels.values() for text in lists])
    for name in reversed(tuples):
        fields = parts_of(declared()["tuples"][name][0])
        tests = [f"type(x) is module.{name}", *_tests(fields, "x", tuples)]
        lines.append(f"def is_{name}(x):\n    return {_all(tests)}")
    for name, lists in kernels.items():
        lines.append(f"def {name}(*a):")
        for place, text in enumerate(lists):
            tests = _tests(parts_of(text), "a", tuples)
            lines.append(f"    if {_all(tests)}:\n        return library.{symbol(name, place)}(*a)")
        lines.append(f"    raise refuse({name!r}, {' or '.join(lists)!r}, a)")
    lines.append(f"KERNELS = {{{', '.join(f'{name!r}: {name}' for name in kernels)}}}")
    return "\n".join(lines) + "\n"


def symbol(name: str, place: int) -> str:
    """Return the name in a library of a kernel, compiled for one of its lists of types."""
    return f"{name}_{place}"


def _all(tests: list[str]) -> str:
    return " and ".join(tests)


def _named_tuples(module: ModuleType, texts: list[str]) -> list[str]:
    """Return the named tuples in lists of types, those that others hold after these."""
    found: list[str] = []
    for text in texts:
        for node in ast.walk(ast.parse(f"({text},)", mode="eval")):
            if isinstance(node, ast.Name) and node.id in vars(module):
                inner = _named_tuples(module, declared()["tuples"][node.id])
                found = [x for x in found if x not in (node.id, *inner)] + [node.id, *inner]
    return found


def _tests(parts: list[ast.expr], place: str, tuples: list[str]) -> list[str]:
    each = [_test(part, f"{place}[{i}]", tuples) for i, part in enumerate(parts)]
    return [f"len({place}) == {len(parts)}", *each]


def _test(part: ast.expr, place: str, tuples: list[str]) -> str:
    """Return the condition that a value is of a type."""
    match part:
        case ast.Name(name) if name in tuples:
            return f"is_{name}({place})"
        case ast.Name(name) if name in SCALARS:
            return f"type({place}) in {SCALARS[name]}"
        case ast.Subscript(ast.Name(name), ast.Constant(int(dimensions))) if name in ARRAYS:
            form = f"{place}.ndim == {dimensions} and {place}.flags.carray"
            return f"type({place}) is np.ndarray and {place}.dtype == {name}_items and {form}"
        case ast.Tuple(items):
            return _all([f"type({place}) is tuple", *_tests(items, place, tuples)])
        case _:
            raise ValueError(f"not a type of an argument: {ast.unparse(part)}")

"""Kernels: loops over arrays that are compiled, and that may run as plain Python as well.

A function that is always compiled is decorated with :func:`compiled`; machine code is loaded when
such a function is called for the first time, not when its module is. A module whose loops may need
integers beyond 64 bits marks its functions with :func:`kernel`; imported, it is plain Python on
lists. :func:`fast` gives the same module with its kernels compiled.

The kernels that Python calls are declared, with types, in ``backends/kernels/types.toml``, and come
from a library (:mod:`.linked`) where there is one; numba compiles all others when they are called.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, wraps
from inspect import unwrap
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

from .linked import MARK, digest, linked

F = TypeVar("F", bound=Callable[..., Any])

Array = Any
"""An array in a kernel: its indices give NumPy scalars, whose types the compiler sees."""


def compiled(function: F) -> F:
    """Call the machine code of a function; it runs without Python's lock."""

    @wraps(function)
    def call(*args: Any) -> Any:
        return dispatcher(call)(*args)

    setattr(call, MARK, True)
    return cast(F, call)


def kernel(function: F) -> F:
    """Mark a function that :func:`fast` compiles; by itself it stays plain Python."""
    setattr(function, MARK, True)
    return function


@cache
def dispatcher(function: Callable[..., Any]) -> Any:
    """The machine code of a function that is marked :func:`compiled`."""
    return getattr(_fast(function.__module__), function.__name__)


def marked(module: ModuleType) -> list[str]:
    """The names of the functions that a module marks as kernels."""
    return [
        key
        for key, value in vars(module).items()
        if hasattr(value, MARK) and value.__module__ == module.__name__
    ]


def fast(module: ModuleType) -> Any:
    """The kernels of a module, compiled; its other names as they are."""
    return _fast(module.__name__)


class _Linked(SimpleNamespace):
    """Names of a module whose kernels are linked; numba compiles those that are not declared."""

    def __getattr__(self, key: str) -> Any:
        return getattr(by_numba(self.__name__), key)


@cache
def _fast(name: str) -> SimpleNamespace:
    if (kernels := linked(name)) is None:
        return by_numba(name)
    others = {k: v for k, v in vars(sys.modules[name]).items() if not hasattr(v, MARK)}
    return _Linked(**{**others, **kernels})


@cache
def by_numba(name: str) -> SimpleNamespace:
    """The marked functions of a module, compiled by numba, those of other modules too that it uses;
    its other names as they are."""
    module = sys.modules[name]
    names = dict(vars(module))
    for key, value in names.items():
        if hasattr(value, MARK) and value.__module__ != name:
            names[key] = getattr(by_numba(value.__module__), value.__name__)
    for key in marked(module):
        names[key] = _compiled(names[key], names)
    return SimpleNamespace(**names)


def watched(module: ModuleType, **replaced: Any) -> Any:
    """The marked functions of a module as plain Python, where some names stand for others."""
    names = dict(vars(module))
    for key in marked(module):
        value = names[key]
        names[key] = FunctionType(value.__code__, names, key, value.__defaults__)
    names.update(replaced)
    return SimpleNamespace(**names)


def _compiled(plain: Any, names: dict[str, Any]) -> Any:
    """A copy of a function that sees these globals, compiled."""
    # Loaded here: numba takes a third of a second, and plain kernels do without it.
    njit = load_numba().njit
    from .machine_code import MachineCode

    function = unwrap(plain)
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__module__, copy.__doc__ = function.__module__, function.__doc__
    made: Any = njit(nogil=True)(copy)
    # Not ``cache=True``: numba looks at the file of a function only, not at its callees, and
    # fails where it can write no file.
    made._cache = MachineCode(function.__module__, function.__name__, digest(function.__module__))
    return made


@cache
def load_numba() -> Any:
    """Return numba, without the settings that it reads from a file in the working folder.

    Such a file could name a folder of machine code to execute.
    """
    yaml = sys.modules.get("yaml")
    guarded = os.path.exists(".numba_config.yaml")
    with warnings.catch_warnings():
        if guarded:
            warnings.simplefilter("ignore")  # it reports that it cannot read the file
            sys.modules["yaml"] = None  # type: ignore[assignment]
        try:
            import numba.core.config as config
        finally:
            if guarded:
                del sys.modules["yaml"]
            if guarded and yaml is not None:
                sys.modules["yaml"] = yaml
    vars(config)["_config_fname"] = os.devnull  # where it looks again at each compilation
    return sys.modules["numba"]

"""Kernels: loops over arrays that numba compiles, and that may run as plain Python as well.

A function that is always compiled is decorated with :func:`compiled`; numba is loaded when such a
function is called for the first time, not when its module is. A module whose loops are
worth no compiler on small inputs, or need integers beyond 64 bits, marks its functions with
:func:`kernel`; imported, it is plain Python on lists, and numba is not loaded. :func:`fast` gives
the same module with every marked function compiled, those of other modules too that it uses.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, wraps
from inspect import unwrap
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

Array = Any
"""An array in a kernel: its indices give NumPy scalars, whose types the compiler sees."""

_MARK = "__kernel__"

_PLAIN_STEPS: Counter[str] = Counter()
"""Steps that the loops of each module took as plain Python in this process; of one whose compiled
loops are loaded, more than any."""


def compiled(function: F) -> F:
    """Compile on the first call and keep the machine code on disk; runs without Python's lock."""

    @wraps(function)
    def call(*args: Any) -> Any:
        return dispatcher(call)(*args)

    setattr(call, _MARK, True)
    return cast(F, call)


def kernel(function: F) -> F:
    """Mark a function that :func:`fast` compiles; by itself it stays plain Python."""
    setattr(function, _MARK, True)
    return function


@cache
def dispatcher(function: Callable[..., Any]) -> Any:
    """The machine code of a function that is marked :func:`compiled`. Loads numba."""
    return getattr(_fast(function.__module__), function.__name__)


def marked(module: ModuleType) -> list[str]:
    """The names of the functions that a module marks as kernels."""
    return [
        key
        for key, value in vars(module).items()
        if hasattr(value, _MARK) and value.__module__ == module.__name__
    ]


def fast(module: ModuleType) -> Any:
    """The marked functions of a module, compiled; its other names as they are. Loads numba."""
    return _fast(module.__name__)


@cache
def _fast(name: str) -> SimpleNamespace:
    module = sys.modules[name]
    names = dict(vars(module))
    for key, value in names.items():
        if hasattr(value, _MARK) and value.__module__ != name:
            names[key] = getattr(_fast(value.__module__), value.__name__)
    for key in marked(module):
        names[key] = _compiled(names[key], names)
    _PLAIN_STEPS[name] = sys.maxsize
    return SimpleNamespace(**names)


def worth_compiling(module: ModuleType, steps: int, enough: int) -> bool:
    """Return True if the next ``steps`` of a module's loops should be run by compiled code.

    Loading numba and the machine code takes as long as ``enough`` plain steps. The loops of a
    process run plain until they have taken that many, and compiled from then on, or from when
    others had them compiled: never more than twice the time of the better choice. Only speed
    depends on it, no result.
    """
    _PLAIN_STEPS[module.__name__] += steps
    return _PLAIN_STEPS[module.__name__] > enough


def forget_steps() -> None:
    """Count the plain steps of all loops from 0 again, as in a new process; those that are compiled
    stay so."""
    for name in [name for name, steps in _PLAIN_STEPS.items() if steps < sys.maxsize]:
        del _PLAIN_STEPS[name]


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
        if isinstance(value, FunctionType) and hasattr(value, _MARK):
            _sources(value.__module__, found)
    return found

"""Compile every kernel that is declared, for a generic processor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from weft.dsl.base.jit import fast, load_numba, marked

from .declared import MODULES, declared, types_of


def compile_all() -> int:
    """Compile kernels without machine code on the disk; return the number of kernels in all.

    Only in a process that has compiled nothing before: numba queries the processor once.
    """
    return len([compile_one(place) for place in range(len(kernels()))])


def compile_one(place: int) -> str:
    """Compile one of :func:`kernels` unless it has machine code on the disk; return its name.

    Only in a process that compiles nothing for its own processor, before or later: a job can be it.
    """
    _for_any_processor()
    where, kernel, types = _kernels()[place]
    kernel.compile(types)
    return where


def kernels() -> tuple[str, ...]:
    """The names of the kernels that Python calls, once for each list of types."""
    return tuple(f"{module.__name__.partition('.')[2]}.{name}" for module, name, _ in _wanted())


def missing() -> tuple[int, int]:
    """Return how many kernels lack machine code on the disk, and how many exist."""
    load_numba()
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    every = _kernels()
    lacking = [
        kernel
        for _, kernel, types in every
        if not any(path.exists() for path in kernel._cache.files(types, codegen))
    ]
    return len(lacking), len(every)


def _wanted() -> Iterator[tuple[ModuleType, str, str]]:
    """Yield module, name and types, as text, of every kernel that Python calls."""
    wanted = declared()
    for module in MODULES:
        for name, lists in wanted.get(module.__name__, {}).items():
            for text in lists:
                yield module, name, text


def _kernels() -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Return name, compiler's object and types of every kernel that Python calls."""
    return [
        (where, getattr(fast(module), name), types_of(module, text))
        for where, (module, name, text) in zip(kernels(), _wanted(), strict=True)
    ]


@cache
def _for_any_processor() -> None:
    """Compile for the generic processor from now on, and keep only functions that Python calls.

    Kernels that only kernels call become a part of their callers' machine code, and get no file.
    """
    from numba.core import config

    from weft.dsl.base.machine_code import GENERIC

    vars(config).update(zip(("CPU_NAME", "CPU_FEATURES"), GENERIC, strict=True))
    wanted = declared()
    for module in MODULES:
        for name in marked(module):
            if name not in wanted.get(module.__name__, {}):
                getattr(fast(module), name)._cache.disable()

"""Compile every kernel that is declared, for a generic processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.dsl.base.jit import fast, marked
from weft.dsl.base.progress import ProgressCallback, silent

from .declared import MODULES, declared, types_of


def compile_all(tell: ProgressCallback = silent) -> int:
    """Compile what has no machine code on the disk yet; return the number of kernels in all.

    Only in a process that has compiled nothing before: numba asks for the processor once. Kernels
    that only kernels call become a part of their callers' machine code, and get no file.
    """
    _for_any_processor()
    wanted = declared()
    for module in MODULES:
        for name in marked(module):
            if name not in wanted.get(module.__name__, {}):
                getattr(fast(module), name)._cache.disable()
    every = list(_kernels())
    for number, (where, kernel, types) in enumerate(every, 1):
        tell(f"{number} of {len(every)}  {where}")
        kernel.compile(types)
    return len(every)


def missing() -> tuple[int, int]:
    """Return how many kernels have no machine code on the disk, and how many there are."""
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    every = list(_kernels())
    lacking = [
        kernel
        for _, kernel, types in every
        if not any(path.exists() for path in kernel._cache.files(types, codegen))
    ]
    return len(lacking), len(every)


def _kernels() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield a name, the compiler's object and the types of every kernel that Python calls."""
    wanted = declared()
    for module in MODULES:
        for name, lists in wanted.get(module.__name__, {}).items():
            for text in lists:
                where = f"{module.__name__.partition('.')[2]}.{name}"
                yield where, getattr(fast(module), name), types_of(module, text)


def _for_any_processor() -> None:
    from numba.core import config

    from weft.dsl.base.machine_code import GENERIC

    vars(config).update(zip(("CPU_NAME", "CPU_FEATURES"), GENERIC, strict=True))

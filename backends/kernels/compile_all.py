"""Make the machine code of every kernel that is declared, for a generic processor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.dsl.base.jit import by_numba, load_numba, marked
from weft.dsl.base.linked import readable, writable

from .declared import MODULES, declared, types_of
from .link import CannotLink, is_linked, link, runtime

LINKED = tuple(module for module in MODULES if module.__name__ in declared())
"""The modules with kernels that Python calls: a library for each."""


def compile_all() -> str:
    """Make all machine code that lacks; return '', or why numba compiled it without a library.

    Only in a process that has compiled nothing before: numba queries the processor once.
    """
    folder = writable()
    try:
        if folder is None:
            raise CannotLink("no folder can be written")
        with runtime() as objects:
            for place in lacking():
                link_one([place, str(objects), str(folder)])
    except CannotLink as error:
        for place in range(len(kernels())):
            compile_one(place)
        return str(error)
    return ""


def lacking() -> list[int]:
    """Return the places among :data:`LINKED` of the modules without a library."""
    return [place for place, module in enumerate(LINKED) if not _has_library(module)]


def link_one(question: list[Any]) -> str:
    """Make the library of one of :data:`LINKED`; return the module's name. A job can be it.

    ``question``: its place, the folder of :func:`.runtime`, and the folder to write to.

    Raises:
        CannotLink: the compiler fails.
    """
    place, objects, folder = question
    _for_any_processor(keep=False)
    link(LINKED[place], Path(objects), Path(folder))
    return str(LINKED[place].__name__.partition(".")[2])


def compile_one(place: int) -> str:
    """Compile one of :func:`kernels` unless it has machine code on the disk; return its name.

    Only in a process that compiles nothing for its own processor, before or later: a job can be it.
    """
    _for_any_processor(keep=True)
    module, name, text = list(_wanted())[place]
    _dispatcher(module, name).compile(types_of(module, text))
    return kernels()[place]


def kernels() -> tuple[str, ...]:
    """The names of the kernels that Python calls, once for each list of types."""
    return tuple(f"{module.__name__.partition('.')[2]}.{name}" for module, name, _ in _wanted())


def missing() -> tuple[int, int, int]:
    """Return how many kernels lack machine code on the disk, have it from numba, and are linked.

    Loads numba unless all are linked.
    """
    linked = {module.__name__ for module in LINKED if _has_library(module)}
    others = [(m, name, text) for m, name, text in _wanted() if m.__name__ not in linked]
    if not others:
        return 0, 0, len(kernels())
    load_numba()
    from numba.core.registry import cpu_target

    codegen = cpu_target.target_context.codegen()
    found = sum(
        any(path.exists() for path in _dispatcher(m, name)._cache.files(types_of(m, text), codegen))
        for m, name, text in others
    )
    return len(others) - found, found, len(kernels()) - len(others)


def _has_library(module: ModuleType) -> bool:
    return any(is_linked(module, folder) for folder in readable())


def _wanted() -> Iterator[tuple[ModuleType, str, str]]:
    """Yield module, name and types, as text, of every kernel that Python calls."""
    for module in LINKED:
        for name, lists in declared()[module.__name__].items():
            for text in lists:
                yield module, name, text


def _dispatcher(module: ModuleType, name: str) -> Any:
    return getattr(by_numba(module.__name__), name)


@cache
def _for_any_processor(*, keep: bool) -> None:
    """Compile for the generic processor from now on, and ``keep`` functions that Python calls.

    Kernels that only kernels call become a part of their callers' machine code, and get no file.
    """
    load_numba()
    from numba.core import config

    from weft.dsl.base.machine_code import GENERIC

    vars(config).update(zip(("CPU_NAME", "CPU_FEATURES"), GENERIC, strict=True))
    for module in MODULES:
        for name in marked(module):
            if not keep or name not in declared().get(module.__name__, {}):
                _dispatcher(module, name)._cache.disable()

"""Recipes: algorithms as functions with options, loaded by name from a Python file.

>>> from weft.dsl.author.standard import Broadcast
>>> @program(Broadcast)
... def star(p):
...     for rank in range(1, p.ranks):
...         p.chunk(0, 0).copy_to(rank=rank)
>>> star.build(ranks=4).collective.ranks, len(star.build(ranks=4).moves)
(4, 4)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, make_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from ..base.errors import BadAlgorithm, BadFile, UnknownName, UserError
from ..base.files import read_text
from ..base.lazy_dataclass import Frozen
from ..base.spans import Source
from ..base.spec import build, parse_spec, python_parts
from ..nouns.algorithm import Algorithm
from ..nouns.collective import Collective
from ..nouns.program import Protocol
from .builder import Builder, settle
from .call_site import span_of
from .python_file import call_user, run_python

_WRITTEN = (int, float, str, Enum, Fraction)
_PROGRAM = "@program(Allreduce(8, chunks=8)) before a function"
_COLLECTIVE = "a collective, or a function that makes one: Allreduce(8, chunks=8)"


class Recipe(Frozen):
    """A function that records an algorithm with a builder.

    ``collective`` is a collective, or a function that makes one; its parameters and the keyword
    parameters of ``write`` are the options of the recipe.
    """

    write: Callable[..., None]
    collective: Collective | Callable[..., Collective]
    name: str
    in_place: bool = False
    instances: int = 1
    protocol: Protocol | str = Protocol.SIMPLE

    def __post_init__(self) -> None:
        settle(self.name, self.in_place, self.instances, self.protocol)

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """Return the options by name."""
        made = {} if isinstance(self.collective, Collective) else _parameters(self.collective)
        return made | dict(list(_parameters(self.write).items())[1:])

    def form(self) -> type[Any]:
        """Return a dataclass whose fields are the options, for :mod:`weft.dsl.base.spec`.

        Options whose default is neither a number nor a text are left out and keep it.
        """
        rows: list[Any] = [
            (name, _kind(p)) if p.default is p.empty else (name, _kind(p), field(default=p.default))
            for name, p in self.options.items()
            if p.default is p.empty or p.default is None or isinstance(p.default, _WRITTEN)
        ]
        rows.sort(key=len)  # fields without a default come first
        return make_dataclass(self.name, rows, frozen=True)

    def build(self, /, *, in_place: bool | None = None, **options: Any) -> Algorithm:
        """Return the algorithm for these options; ``in_place`` overrides the recipe's.

        Raises:
            UserError: an option is unknown or missing. BadAlgorithm: the algorithm is invalid.
        """
        known = self.options
        for name in options:
            if name not in known:
                raise UnknownName(f"option of {self.name}", name, known)
        for name, parameter in known.items():
            if parameter.default is parameter.empty and name not in options:
                raise UserError(
                    f"{self.name} needs the option {name}", hint=f"{self.name}{{{name}=…}}"
                )
        builder = Builder(
            self.wanted(options),
            name=self.name,
            instances=self.instances,
            in_place=self.in_place if in_place is None else in_place,
            protocol=self.protocol,
        )
        self.write(builder, **_some(options, list(_parameters(self.write))[1:]))
        try:
            return builder.algorithm()
        except BadAlgorithm as error:  # a missing move lacks a line: point at the function
            error.where = span_of(self.write.__code__, 0)
            raise

    def wanted(self, options: Mapping[str, Any]) -> Collective:
        """Return the collective for these options.

        Raises:
            UserError: the recipe's function returns no collective.
        """
        if isinstance(self.collective, Collective):
            return self.collective
        made = self.collective(**_some(options, _parameters(self.collective)))
        if not isinstance(made, Collective):
            raise UserError(f"the collective of {self.name} is {made!r}", hint=_COLLECTIVE)
        return made


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(function).parameters
    return {name: p for name, p in found.items() if p.kind in kinds}


def _some(options: Mapping[str, Any], names: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def program(
    collective: Collective | Callable[..., Collective],
    *,
    name: str = "",
    in_place: bool = False,
    instances: int = 1,
    protocol: Protocol | str = Protocol.SIMPLE,
) -> Callable[[Callable[..., None]], Recipe]:
    """Return a decorator that turns a function of a builder into a recipe.

    ``@program(Allreduce(8, chunks=8))`` fixes the collective; ``@program(Allreduce)``, or any
    function that returns one, leaves its parameters to the caller (``ring{ranks=8,chunks=8}``).

    Raises:
        UserError: not a collective, or the function lacks a parameter for the builder, or has one
            called ``in_place``, an option of every algorithm.
    """
    if not isinstance(collective, Collective) and not callable(collective):
        raise UserError(f"@program({collective!r}): not a collective", hint=_COLLECTIVE)

    return _Decorator(collective, name, in_place, instances, protocol)


class _Decorator(Frozen):
    collective: Collective | Callable[..., Collective]
    name: str
    in_place: bool
    instances: int
    protocol: Protocol | str

    def __call__(self, write: Callable[..., None]) -> Recipe:
        made = Recipe(
            write,
            self.collective,
            self.name or write.__name__,
            self.in_place,
            self.instances,
            self.protocol,
        )
        if not _parameters(write):
            raise UserError(f"{made.name} takes no builder", hint=f"def {made.name}(p): …")
        if "in_place" in made.options:
            raise UserError(
                f"{made.name} cannot have an option of its own called in_place",
                hint="@program(…, in_place=True), and p.in_place inside",
            )
        for test, kind in _NEVER_RUN:
            if test(write):
                raise UserError(
                    f"{made.name} is {kind}: calling it does not run its body",
                    hint="write a plain function: def, no yield",
                )
        return made

    def taken_for(self, name: str) -> CodeType | None:
        """Return the code of the function of this name mistaken for a collective, if any."""
        taken = self.collective
        if isinstance(taken, FunctionType) and taken.__name__ == name:
            return taken.__code__
        return None


_NEVER_RUN = (
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator"),
)

Found = Recipe | Algorithm | Builder


def algorithms(source: Source, names: Mapping[str, Any]) -> dict[str, Found]:
    """Return the recipes and algorithms that a Python file defines, by name; else its builders.

    Raises:
        UserError: ``@program`` decorates a function without naming a collective.
    """
    for name, value in names.items():
        if isinstance(value, _Decorator) and (code := value.taken_for(name)):
            raise UserError(
                f"@program before {name} names no collective",
                where=span_of(code, 0),
                hint="@program(Allreduce(8, chunks=8)), or @program(Allreduce) to choose later",
            )
    finished: dict[str, Found] = {
        k: v for k, v in names.items() if isinstance(v, Recipe | Algorithm)
    }
    return finished or {k: v for k, v in names.items() if isinstance(v, Builder)}


def load(path: str | Path, *, in_place: bool | None = None) -> Algorithm:
    """Load the algorithm of ``FILE.py``, ``FILE.py:name`` or ``FILE.py:name{option=value}``.

    ``in_place`` applies to recipes; an algorithm that the file has built already is not changed.

    Raises:
        BadFile: no algorithm, or several and none named; or one that differs from ``in_place``.
        UserError: as :meth:`Recipe.build`.
    """
    path = str(path)
    file, name, options = python_parts(path)
    source = _read(file)
    name, found = _chosen(source, run_python(source), name)
    if isinstance(found, Recipe):
        values = _options(found, name, options, path)
        made: Algorithm = call_user(source, found.build, in_place=in_place, **values)
        return made
    _take_no_options(name, options, path)
    algorithm = _finished(found, file)
    if in_place is not None and in_place != algorithm.in_place:
        place = "in place" if algorithm.in_place else "out of place"
        raise BadFile(
            f"{name} is already built {place}",
            where=file,
            hint=f"Builder(…, in_place={in_place}), or a function after @program(…)",
        )
    return algorithm


def load_collective(path: str) -> Collective:
    """Load the ``collective`` of a Python file, else that of its algorithm, named as for ``load``.

    Raises:
        BadFile, UserError: it defines neither, or an invalid one.
    """
    file, name, options = python_parts(path)
    source = _read(file)
    names = run_python(source)
    made = names.get("collective")
    if isinstance(made, Collective) and not name + options:
        return made
    name, found = _chosen(source, names, name)
    if isinstance(found, Recipe):
        values = _options(found, name, options, path)
        wanted: Collective = call_user(source, found.wanted, values)
        return wanted
    _take_no_options(name, options, path)
    return found.collective


def _read(file: str) -> Source:
    try:
        return Source(file, read_text(file))
    except BadFile as error:
        if file.startswith("classic:"):
            error.hint = f"classic algorithms are for the command line: weft compile '{file}{{…}}'"
        raise


def nothing_in(file: str) -> BadFile:
    """Return the error for a Python file without algorithms or collectives."""
    return BadFile(
        "the file defines no algorithm and no `collective`",
        where=file,
        hint=f"{_PROGRAM}; or collective = weft.custom(…)",
    )


def _chosen(source: Source, names: Mapping[str, Any], name: str) -> tuple[str, Found]:
    found = algorithms(source, names)
    if not found:
        raise nothing_in(source.name)
    if not name and len(found) > 1:
        raise UserError(
            f"the file defines {len(found)} algorithms",
            where=source.name,
            hint=f"name one: {source.name}:{next(iter(found))}; it has {', '.join(found)}",
        )
    name = name or next(iter(found))
    if name not in found:
        raise UnknownName("algorithm", name, found, where=source.name)
    return name, found[name]


def _options(recipe: Recipe, name: str, options: str, path: str) -> dict[str, Any]:
    return asdict(build(parse_spec(name + options, path), recipe.form()))


def _take_no_options(name: str, options: str, path: str) -> None:
    if options:
        raise UserError(f"{name} takes no options: it is already built", where=path, hint=_PROGRAM)


def _finished(found: Algorithm | Builder, file: str) -> Algorithm:
    if isinstance(found, Algorithm):
        return found
    try:
        return found.algorithm()
    except BadAlgorithm as error:  # a missing move lacks a line
        error.where = file
        raise


def _kind(parameter: inspect.Parameter) -> Any:
    """Return the type of an option: of its default, or its annotation; else int."""
    if parameter.default not in (parameter.empty, None):
        return type(parameter.default)
    named: dict[Any, type] = {kind.__name__: kind for kind in (int, float, str, bool)}
    return named.get(getattr(parameter.annotation, "__name__", parameter.annotation), int)

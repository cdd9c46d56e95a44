"""Read a script back from its file by its syntax: nothing in it is executed but arithmetic."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import require_kind
from weft.dsl.base.integers import literal
from weft.dsl.nouns.collective import Collective, Kind, make

from .model import LIMITS, Round, Script
from .permutes import PermuteRound, read_rounds, require_permutes, scripted
from .text import parse


def constants_in(
    text: str, where: str, constants: Callable[[ast.Module], dict[str, Any]]
) -> dict[str, Any]:
    """Return the constants of an emitted file; nothing in it is executed.

    Raises:
        BadFile: it does not compile, or ``constants`` raises a ValueError.
    """
    try:
        compile(text, where, "exec", dont_inherit=True)  # what parses may still not compile
        return constants(ast.parse(text))
    except (SyntaxError, ValueError) as error:
        raise BadFile(
            f"not a file of weft's: {error}", where=where, hint="compile it anew"
        ) from None


def require_constants(found: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Raise BadFile for the first name without a value."""
    for name in names:
        if name not in found:
            raise BadFile(
                f"{name} is missing, or not made of plain values",
                where=where,
                hint="compile the file anew",
            )


def read_script(text: str, where: str) -> Script:
    """Return the script in a file; well formed, not proved.

    Raises:
        BadFile: not such a file, or one that was edited into something else.
    """
    found = constants_in(text, where, _constants)
    code = "PROGRAM" if "PROGRAM" in found else "CODE"
    require_constants(found, ("HEADER", code, "SHAPE"), where)
    header, shape = found["HEADER"], found["SHAPE"]
    require_kind(header, "script", where)
    try:
        ranks = int(shape["ranks"])
        script = Script(
            str(header["name"]),
            _collective(header, ranks, int(shape["unit"])),
            shape["shift"] is not None,
            tuple(map(int, shape["scratch"])),
            _rounds(found[code], ranks, where) if code == "CODE" else (),
            tuple(map(int, header.get("grid", ()))),
        )
        _require_shape(script, shape, where)
        if code == "PROGRAM":
            rounds = read_rounds(found[code], ranks, where)
            require_permutes(script, rounds, where)
            script = replace(script, ranks=scripted(rounds, ranks))
    except (KeyError, TypeError, ValueError, NameError, ArithmeticError, UserError) as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(
            f"HEADER, SHAPE or {code} make no sense: {getattr(error, 'message', error)}",
            where=where,
            hint="compile the file anew",
        ) from None
    return script


def _rounds(lines: Any, ranks: int, where: str) -> tuple[tuple[Round, ...], ...]:
    """Return the rounds of all ranks, from lines or from the function that yields them."""
    if isinstance(lines, ast.FunctionDef):
        lines = _evaluated(lines, ranks)
    return tuple(
        tuple(
            parse(line, f"{where}: rank {rank} round {number}")
            for number, line in enumerate(own, 1)
        )
        for rank, own in enumerate(lines)
    )


def permutes_in(text: str, ranks: int, where: str) -> tuple[PermuteRound, ...]:
    """Return the permutations in a file for JAX that :func:`read_script` accepts."""
    return read_rounds(_constants(ast.parse(text))["PROGRAM"], ranks, where)


def runtime_of(text: str) -> str | None:
    """Return the runtime that a file is for, if it says so."""
    found = _constants(ast.parse(text)).get("HEADER", {}).get("runtime")
    return None if found is None else str(found)


def _constants(tree: ast.Module) -> dict[str, Any]:
    """HEADER, SHAPE's arguments, and PROGRAM or CODE: its lines, or the function with them."""
    _require_once(tree)
    found: dict[str, Any] = {}
    formulas: ast.FunctionDef | None = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "code":
            formulas = node
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if name == "CODE" and formulas is not None:
            said = ast.unparse(node.value)
            if not _OF_ALL_RANKS.fullmatch(said):
                raise ValueError(f"CODE is {said}, not the lines of code(rank) for all ranks")
            found[name] = formulas
        elif name in ("HEADER", "CODE", "PROGRAM"):
            found[name] = literal(node.value)
        elif name == "SHAPE" and isinstance(node.value, ast.Call):
            found[name] = {str(k.arg): literal(k.value) for k in node.value.keywords}
    return found


_OF_ALL_RANKS = re.compile(r"tuple\(\(?tuple\(code\(rank\)\) for rank in range\(\d+\)\)?\)")


def _require_once(tree: ast.Module) -> None:
    """Require that no name is bound twice, so that the values read are those that run.

    Raises:
        ValueError: something does.
    """
    bound: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.append(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound += [alias.asname or alias.name for alias in node.names]
    for name in ("HEADER", "CODE", "PROGRAM", "SHAPE", "code"):
        if bound.count(name) > 1:
            raise ValueError(f"{name} is bound more than once")


_ARITHMETIC = (
    ast.FunctionDef,
    ast.arguments,
    ast.arg,
    ast.For,
    ast.Expr,
    ast.Yield,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.USub,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.BitXor,
)
"""Syntax nodes allowed in a function of formulas, besides ``range``: all without side effects."""


def _evaluated(formulas: ast.FunctionDef, ranks: int) -> list[list[str]]:
    """Return the lines that the formulas give for every rank.

    Raises:
        ValueError: they contain more than arithmetic, or give too many lines.
    """
    formulas.returns, formulas.decorator_list = None, []
    for arg in formulas.args.args:
        arg.annotation = None
    for node in ast.walk(formulas):
        ranges = isinstance(node, ast.Call) and ast.unparse(node.func) == "range"
        texts = (isinstance(node, ast.FormattedValue) and node.format_spec is not None) or (
            isinstance(node, ast.BinOp)
            and any(
                isinstance(x, ast.JoinedStr) or isinstance(getattr(x, "value", None), str)
                for x in (node.left, node.right)
            )
        )
        if texts or (not ranges and not isinstance(node, _ARITHMETIC)):
            what = ast.unparse(node) or type(node).__name__
            raise ValueError(f"the function code contains {what!r}")
    turns = iter(range(LIMITS.turns))

    def counted(*numbers: int) -> Iterator[int]:
        for number in range(*numbers):
            if next(turns, None) is None:
                raise ValueError(f"more than {LIMITS.turns} turns of loops")
            yield number

    names: dict[str, Any] = {"__builtins__": {"range": counted}}
    module = ast.fix_missing_locations(ast.Module([formulas], type_ignores=[]))
    exec(compile(module, "<code>", "exec"), names)
    made = []
    for rank in range(ranks):
        made.append(list(islice(names["code"](rank), LIMITS.rounds)))
        if len(made[-1]) == LIMITS.rounds:
            raise ValueError(f"more than {LIMITS.rounds} rounds")
    return made


def _collective(header: dict[str, Any], ranks: int, unit: int) -> Collective:
    kind = Kind(header["collective"])
    if kind is Kind.CUSTOM:
        return Collective.from_json(header["definition"], "HEADER")
    return make(kind, ranks, roots=tuple(header["roots"])).split(unit)


def _require_shape(script: Script, shape: dict[str, Any], where: str) -> None:
    """Require that the buffer sizes in the file's code are those of the collective.

    Raises:
        BadFile: it is not.
    """
    from .emit import shape_of

    said: dict[str, Any] = {"gives": None, "takes": None, **shape}  # what Shape has by default
    wanted = shape_of(script)
    said = {key: said.pop(key, None) for key in wanted} | said
    if repr(said) != repr(wanted):  # 4.0 and True are not numbers of chunks
        differ = [key for key, value in wanted.items() if repr(said.get(key)) != repr(value)]
        raise BadFile(
            f"SHAPE does not fit the collective: {', '.join(differ) or 'other keys'}",
            where=where,
            hint="compile the file anew",
        )

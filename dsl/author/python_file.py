"""Execution of a user's Python file; errors point at its lines."""

from __future__ import annotations

import traceback
from typing import Any

from ..base.errors import BadFile, SyntaxProblem, UserError
from ..base.foreign import refuse_foreign, signatures
from ..base.spans import Source, Span


def run_python(source: Source) -> dict[str, Any]:
    """Execute a file and return the names that it defines.

    Raises:
        SyntaxProblem: not Python. UserError: it raised an error of weft. BadFile: any other error,
            or a program of another tool.
    """
    refuse_foreign(source.text, source.name, signatures("program"))
    names: dict[str, Any] = {"__name__": "__weft__", "__file__": source.name}
    try:
        code = compile(source.text, source.name, "exec")
    except SyntaxError as error:
        where = line_span(source, error.lineno or 1)
        raise SyntaxProblem(f"not Python: {error.msg}", where=where) from None
    call_user(source, exec, code, names)
    return names


def call_user(source: Source, function: Any, /, *args: Any, **options: Any) -> Any:
    """Call code of a user's file.

    Errors point at the line of the file where they arose, or at the file if none was running.

    Raises:
        UserError: as :func:`run_python`.
    """
    try:
        return function(*args, **options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a user's file must not end the process
        if isinstance(error, UserError) and isinstance(error.where, Span):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == source.name and f.lineno]
        where = line_span(source, lines[-1]) if lines else source.name
        if isinstance(error, UserError):
            error.where = where
            raise
        raise BadFile(f"{type(error).__name__}: {error}", where=where) from None


def line_span(source: Source, number: int) -> Span:
    """Return the span of a line without its indentation."""
    lines = source.text.split("\n")
    number = min(number, len(lines))
    start = sum(len(line) + 1 for line in lines[: number - 1])
    text = lines[number - 1]
    return Span(source, start + len(text) - len(text.lstrip()), start + len(text.rstrip()))

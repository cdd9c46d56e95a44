"""A function fits a screen and a file has one idea."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

from sources import Source, parse, sources

FUNCTION_LIMIT = 60  # code lines: docstrings, comments and blank lines are free
FILE_LIMIT = 900  # all lines

FILES = sources("dsl", "synth", "backends", "tests")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def code_lines(source: Source) -> set[int]:
    """The numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(source.tree):
        match node:  # a string that is a statement is prose: a docstring
            case ast.Expr(value=ast.Constant(value=str())):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def long_functions(source: Source) -> Iterator[str]:
    lines = code_lines(source)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = len(lines & set(range(node.lineno, (node.end_lineno or 0) + 1)))
            if size > FUNCTION_LIMIT:
                yield f"{source}:{node.lineno}: {node.name} has {size} code lines"


@pytest.mark.parametrize("source", FILES, ids=str)
def test_no_function_is_too_long(source: Source) -> None:
    assert list(long_functions(source)) == []


@pytest.mark.parametrize("source", FILES, ids=str)
def test_no_file_is_too_long(source: Source) -> None:
    assert len(source.text.splitlines()) <= FILE_LIMIT


def _function(code: int) -> Source:
    body = [
        '    """Two lines',
        '    of prose."""',
        "    # a comment",
        "",
        *["    f()"] * (code - 1),
    ]
    return parse("\n".join(["def f():", *body]), "dsl/a.py")


def test_the_rule_counts_code_only() -> None:
    assert list(long_functions(_function(FUNCTION_LIMIT))) == []
    assert list(long_functions(_function(FUNCTION_LIMIT + 1))) == [
        f"dsl/a.py:1: f has {FUNCTION_LIMIT + 1} code lines"
    ]

"""Sizes: lines, files, functions as the formatter writes them, comments, docstrings."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from statistics import median

from sources import Source, walk

from .tree import Figure, Tree, formatted, functions, place, pragmas

FUNCTION_LIMIT = 60
FILE_LIMIT = 900
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_MACHINE_COMMENT = re.compile(r"#\s*(?:fmt:|type:|noqa|pragma|ruff|mypy|!)")
_KEEPS_AWAY = re.compile(r"fmt:\s*(?:skip|off)")
RIDDLE = re.compile(r"(What|Whether|Who|Where|How) [a-z]")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines(source: Source) -> int:
    """All lines of a file."""
    return len(source.text.splitlines())


def code_lines(source: Source) -> set[int]:
    """The numbers of the lines that hold code: no docstring, comment or blank line."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in walk(source.tree):
        match node:  # a string that is a statement is prose: a docstring
            case ast.Expr(value=ast.Constant(value=str())):
                found.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return found


def long_functions(source: Source) -> Iterator[str]:
    """The functions of a file with more code lines than the limit, each with its size."""
    if all(size <= FUNCTION_LIMIT for size, _ in extents(source)):
        return
    held = code_lines(source)
    for node in functions(source):
        size = len(held & set(range(node.lineno, (node.end_lineno or 0) + 1)))
        if size > FUNCTION_LIMIT:
            yield f"{source}:{node.lineno}: {node.name} has {size} code lines"


def extents(source: Source) -> Iterator[tuple[int, str]]:
    """(All lines from `def` to the end, place) of every function of a file."""
    for node in functions(source):
        yield (node.end_lineno or 0) - node.lineno + 1, place(source, node, node.name)


def plain(tree: Tree) -> Iterator[Figure]:
    """Lines and files as they stand in the checkout."""
    size = {str(source): lines(source) for source in tree.code}
    longest = max(size, key=lambda name: size[name])
    yield Figure("product_lines", "lines (dsl, synth, backends)", sum(size.values()))
    yield Figure("product_files", "files", len(size))
    yield Figure("file_median", "median lines of a file", median(size.values()))
    yield Figure("file_longest", "lines of the longest file", size[longest], (longest,))
    tests = sum(map(lines, tree.tests))
    yield Figure("test_lines", "lines of tests", tests)
    yield Figure("test_files", "files of tests", len(tree.tests))


def as_formatted(tree: Tree) -> Iterator[Figure]:
    """Functions and files as the formatter writes them, pragmas removed."""
    files = formatted(tree.code, tree.root)
    found = sorted(pair for source in files for pair in extents(source))
    many = tuple(f"{where} ({size})" for size, where in found if size > FUNCTION_LIMIT)
    more = tuple(name for source in files for name in long_functions(source))
    sizes = {str(source): lines(source) for source in files}
    yield Figure("formatted_lines", "lines", sum(sizes.values()))
    yield Figure("functions", "functions", len(found))
    yield Figure("function_median", "median lines of a function", found[len(found) // 2][0])
    yield Figure("function_p99", "99th percentile", found[len(found) * 99 // 100][0])
    yield Figure("function_max", "longest function", found[-1][0], (found[-1][1],))
    yield Figure("function_over", f"functions over {FUNCTION_LIMIT} lines", len(many), many)
    label = f"functions over {FUNCTION_LIMIT} code lines"
    yield Figure("function_code_over", label, len(more), more)
    for limit in (500, FILE_LIMIT):
        over = tuple(f"{name} ({n})" for name, n in sizes.items() if n > limit)
        yield Figure(f"file_over_{limit}", f"files over {limit} lines", len(over), over)


def fmt_skips(files: tuple[Source, ...]) -> tuple[str, ...]:
    """Every `fmt: skip` and `fmt: off`."""
    return tuple(
        f"{source}:{line}"
        for source in files
        for line, text in pragmas(source)
        if _KEEPS_AWAY.search(text)
    )


def typography(tree: Tree) -> Iterator[Figure]:
    """Comments that keep the formatter away, in the code and in the tests."""
    for key, label, files in (("code", "the code", tree.code), ("tests", "the tests", tree.tests)):
        found = fmt_skips(files)
        yield Figure(f"fmt_skip_{key}", f"fmt: skip or off in {label}", len(found), found)


def comments(source: Source) -> int:
    """Comments meant for a reader, on their own line or trailing; no pragmas."""
    return sum(
        token.type == tokenize.COMMENT and not _MACHINE_COMMENT.match(token.string)
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
    )


def docstrings(source: Source) -> Iterator[tuple[str, str]]:
    """(Place, text) of the docstrings of a file's module, classes and functions."""
    for node in walk(source.tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield place(source, node), text


def prose(tree: Tree) -> Iterator[Figure]:
    """Comments per line, and docstrings that begin with a question word."""
    count = sum(map(comments, tree.code))
    held = sum(bool(line.strip()) for source in tree.code for line in source.text.splitlines())
    yield Figure("comments", "comments", count)
    yield Figure("comment_percent", "comments per non-blank line, %", round(100 * count / held, 2))
    texts = [pair for source in tree.code for pair in docstrings(source)]
    yield Figure("docstrings", "docstrings", len(texts))
    for word in ("What", "Whether", "Who", "Where", "How"):
        found = tuple(at for at, text in texts if (m := RIDDLE.match(text)) and m[1] == word)
        yield Figure(f"begins_{word.lower()}", f"begin with “{word} …”", len(found), found)

"""Parser of sketches; all syntax errors of a text are collected and reported together.

>>> tree = parse("sketch two  # a name\\nchunks 2\\n")
>>> tree.name, tree.statements[0].count.value
('two', 2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.errors import SeveralErrors, WeftError, require_type
from ..base.spans import Source
from .ast import SketchTree
from .build import TreeBuilder
from .comments import attach
from .diagnose import explain
from .tokens import Code, Rejected, read_tree, without_comments

MAX_ERRORS = 20
"""Number of syntax errors after which parsing stops."""


def parse(text: str, name: str = "<sketch>") -> SketchTree:
    """Parse a sketch; ``name`` is its file, for messages.

    Raises:
        SyntaxProblem: a syntax error, with its span and the expected text.
        SeveralErrors: several syntax errors.
    """
    hint = "the text of a sketch; weft.load_sketch takes names and paths"
    source = Source(name, require_type(text, str, "sketch", hint))
    tree, problems = _read(source)
    built = None
    if tree is not None:
        builder = TreeBuilder(source)
        built = builder.build(tree)
        problems += builder.problems
    raise_all(problems)
    assert isinstance(built, SketchTree), "a text without problems has a tree"
    return attach(built, text)


def raise_all(problems: Sequence[WeftError]) -> None:
    """Raise the problems in text order, if there are any; several as ``SeveralErrors``."""

    def order(problem: WeftError) -> int:
        return getattr(problem.where, "start", -1)

    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise SeveralErrors(sorted(problems, key=order))


def _read(source: Source) -> tuple[Code | None, list[WeftError]]:
    """Return the parse tree of the readable lines, and the errors of the others.

    After an error its line is blanked (with lines indented below it) and the text parsed again.
    """
    code = without_comments(source.text)
    start = "document"
    problems: list[WeftError] = []
    blanked: set[int] = set()
    while len(problems) < MAX_ERRORS:
        try:
            return read_tree(code, start), problems
        except Rejected as rejected:
            bad = _bad_lines(code, rejected)
            # A block emptied by blanking is not a second error.
            if not (_is_empty_block(rejected) and blanked.intersection(bad)):
                problems.append(explain(source, code, rejected))
            if start == "document" and _is_first_line(code, rejected.offset):
                start = "rest"
            blanked.update(bad)
            code = _without_lines(code, bad)
    return None, problems


def _is_first_line(code: str, offset: int) -> bool:
    begin = len(code) - len(code.lstrip())
    return code.count("\n", begin, offset) == 0


def _is_empty_block(rejected: Rejected) -> bool:
    """Return True if the head of a block is followed by a line that is not indented."""
    return rejected.accepted == {"_INDENT"}


def _bad_lines(code: str, rejected: Rejected) -> range:
    """Return the offending line and the lines indented deeper directly below it."""
    lines = code.split("\n")
    at_end = rejected.found == "$END"
    bad = code.count("\n", 0, len(code.rstrip()) if at_end else rejected.offset)
    if _is_empty_block(rejected) and not at_end:
        # The error is in the head above the line.
        bad = max((i for i in range(bad) if lines[i].strip()), default=bad)
    depth = _indentation(lines[bad])
    end = bad + 1
    while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) > depth):
        end += 1
    return range(bad, end)


def _without_lines(code: str, bad: range) -> str:
    lines = code.split("\n")
    for i in bad:
        lines[i] = re.sub(r"[^\r]", " ", lines[i])
    return "\n".join(lines)


def _indentation(line: str) -> int:
    text = line.expandtabs(8)
    return len(text) - len(text.lstrip())

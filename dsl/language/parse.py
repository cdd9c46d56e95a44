"""Text to syntax tree. All syntax errors of a text are found and reported together.

>>> tree = parse("sketch two  # a name\\nchunks 2\\n")
>>> tree.name, tree.statements[0].count.value
('two', 2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.errors import SeveralErrors, WeftError
from ..base.spans import Source
from .ast import SketchText
from .build import Builder
from .comments import attach
from .diagnose import explain
from .tokens import Code, Rejected, read_tree, without_comments

MAX_ERRORS = 20
"""After this many syntax errors a text is given up."""


def parse(text: str, name: str = "<sketch>") -> SketchText:
    """The syntax tree of a sketch; ``name`` is the file it came from.

    Raises:
        SyntaxProblem: it does not parse; the span says where, the message what was expected.
        SeveralErrors: several such.
    """
    source = Source(name, text)
    tree, problems = _read(source)
    built = None
    if tree is not None:
        builder = Builder(source)
        built = builder.build(tree)
        problems += builder.problems
    raise_all(problems)
    assert isinstance(built, SketchText), "a text without problems has a tree"
    return attach(built, text)


def raise_all(problems: Sequence[WeftError]) -> None:
    """Raise nothing, the one problem, or all of them in the order of the text."""

    def order(problem: WeftError) -> int:
        return getattr(problem.where, "start", -1)

    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise SeveralErrors(sorted(problems, key=order))


def _read(source: Source) -> tuple[Code | None, list[WeftError]]:
    """The parse tree of what can be read, and what is wrong with the rest.

    After an error its line is blanked (with what is indented under it) and the text read again.
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
            # A block that only blanking made empty is no second mistake.
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
    """Whether the head of a block is followed by a line that is not indented."""
    return rejected.accepted == {"_INDENT"}


def _bad_lines(code: str, rejected: Rejected) -> range:
    """The offending line and all that is indented more right below it."""
    lines = code.split("\n")
    at_end = rejected.found == "$END"
    bad = code.count("\n", 0, len(code.rstrip()) if at_end else rejected.offset)
    if _is_empty_block(rejected) and not at_end:
        # The line is fine; the head above it is not.
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

"""Syntax errors as messages: found text, expected text, suggested correction."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from ..base.errors import SyntaxProblem
from ..base.spans import Source, Span
from .tokens import Rejected, spelling

_HEADERS = ("machine", "collective", "size", "engine", "phases")
_EXAMPLES: tuple[tuple[set[str], str], ...] = (
    ({"SKETCH_NAME"}, "the first line is 'sketch' and a name"),
    ({"QUANTITY"}, "a size is a number and a unit: 64KiB, 1MiB, 2GB"),
    ({"PHASE_KIND"}, "rules are written outside 'phases:', collectives inside it"),
    (
        {"_ACROSS", "_ALONG", "_IN"},
        "within node, across nodes by local rank, in blocks of 4, along x, in (0 1)(2 3)",
    ),
    (
        {"_FEW", "_MANY"},
        "few peers, many peers, at most 4 peers; or reduce, multicast, off, groups at most 1",
    ),
    ({"_INDENT"}, "what belongs to a line that ends in ':' is indented below it"),
)
"""Hints with examples, by the terminals accepted at the error."""

_ARITHMETIC = frozenset({"+", "-", "*", "//", "%"})
_KINDS = {
    "INT": "a number",
    "NAME": "a name",
    "QUOTED": "a name in quotes",
    "SKETCH_NAME": "a name for the sketch",
    "MACHINE_TEXT": "a machine such as dgx2:nodes=2",
    "QUANTITY": "a size such as 1MiB",
    "ENGINE_TEXT": "an engine such as packing{trees=4}",
    "PERCENTAGE": "a percentage such as 50%",
    "PHASE_KIND": "a collective such as allgather",
    "LABEL": "a label in quotes",
    "_NL": "the end of the line",
    "_INDENT": "an indented line",
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+[A-Za-z]*|<->|->|\.\.|//|.")


def explain(source: Source, code: str, rejected: Rejected) -> SyntaxProblem:
    """Return the error for a position where parsing failed.

    ``code`` is the text of ``source`` with comments blanked.
    """
    span = _place(source, code, rejected)
    word = span.text
    if rejected.found == "_DEDENT":
        return SyntaxProblem(
            "the indentation matches no line above",
            where=span,
            hint="indent a line like its neighbours in the block",
        )
    if rejected.found == "_INDENT":
        return SyntaxProblem(
            "this line is indented, but no block begins above it",
            where=span,
            hint="blocks begin with 'between nodes:', 'within node:', 'for … in …:' or 'phases:'",
        )
    if word == '"':
        return SyntaxProblem(
            "a quotation mark that is not closed, or quotes nothing",
            where=span,
            hint="quotes open and close on one line",
        )
    found = _found(rejected, word)
    wanted = _wanted(rejected.accepted)
    return SyntaxProblem(
        f"expected {_either(wanted)}, found {found}" if wanted else f"unexpected {found}",
        where=span,
        hint=_hint(rejected.accepted, word),
    )


def _place(source: Source, code: str, rejected: Rejected) -> Span:
    """Return the span of the word at the error; at a line's end, just after its last character."""
    offset = rejected.offset
    line_end = code.find("\n", offset)
    rest = code[offset:] if line_end < 0 else code[offset:line_end]
    if not rest.strip():
        before = code[:offset].rstrip(" \t\r\n" if rejected.found == "$END" else " \t\r")
        return Span(source, len(before), len(before))
    offset += len(rest) - len(rest.lstrip())
    match = _WORD.match(code, offset)
    return Span(source, offset, match.end() if match else offset + 1)


def _found(rejected: Rejected, word: str) -> str:
    if rejected.found == "$END":
        return "the end of the file"
    return repr(word) if word else "the end of the line"


def _wanted(accepted: frozenset[str]) -> list[str]:
    """Return descriptions of the accepted terminals, most specific first."""
    signs = _spellings(accepted)
    if "sketch" in signs:
        return ["'sketch'"]
    if {"only", "forbid"} <= signs:
        return ["a rule", "a header"] if "machine" in signs else ["a rule"]
    kinds = [text for kind, text in _KINDS.items() if kind in accepted]
    if "INT" in accepted:  # an expression may start here
        kinds = [k for k in kinds if k != _KINDS["QUOTED"]]
        signs -= {"("}
    if signs - _ARITHMETIC or kinds:
        signs -= _ARITHMETIC
    return [*kinds[:2], *sorted(map(repr, signs), key=_signs_last), *kinds[2:]]


def _spellings(accepted: Iterable[str]) -> set[str]:
    real = (t for t in accepted if t not in ("$END", "_INDENT", "_DEDENT"))
    return {word for t in real if (word := spelling(t)) is not None}


def _signs_last(word: str) -> tuple[bool, bool, str]:
    return (not word[1].isalpha(), not word.endswith(">'"), word)


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _hint(accepted: Iterable[str], word: str) -> str:
    keywords = sorted(w for w in _spellings(accepted) if w.isalpha())
    near = difflib.get_close_matches(word, keywords, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if word in _HEADERS:
        return f"{word!r} is at the left margin, outside all blocks"
    if {"only", "forbid"} <= set(keywords):
        return f"a line begins with one of {', '.join(keywords)}"
    return next((hint for needs, hint in _EXAMPLES if needs <= set(accepted)), "")

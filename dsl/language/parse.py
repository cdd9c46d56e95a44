"""Parser of sketches; all syntax errors of a text are collected and reported together.

>>> tree = parse("sketch two  # a name\\nchunks 2\\n")
>>> tree.name, tree.statements[0].count.value
('two', 2)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from threading import Lock
from typing import TypeVar

from lark import Lark, Token
from lark.exceptions import UnexpectedInput
from lark.indenter import DedentError, Indenter

from ..base.errors import SeveralErrors, SyntaxProblem, WeftError, require_type
from ..base.lazy_dataclass import Frozen
from ..base.spans import Source, Span
from .ast import PhaseLine, PhasesRule, RuleBlock, SketchTree, Statement, Trivia
from .build import Code, TreeBuilder

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
            begin = len(code) - len(code.lstrip())
            if start == "document" and "\n" not in code[begin : rejected.offset]:
                start = "rest"
            blanked.update(bad)
            lines = code.split("\n")
            for i in bad:
                lines[i] = re.sub(r"[^\r]", " ", lines[i])
            code = "\n".join(lines)
    return None, problems


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


def _indentation(line: str) -> int:
    text = line.expandtabs(8)
    return len(text) - len(text.lstrip())


# --- comments -------------------------------------------------------------------------------------
# A comment above or beside a line belongs to that line. After the last line of a block, comments
# indented like its body are the block's *tail*; comments below the last line are the tail of the
# sketch.

Written = TypeVar("Written", bound=Statement | PhaseLine)


class _Note(Frozen):
    """A line without code: its comment (empty for a blank line) and the comment's column."""

    text: str
    column: int


def attach(tree: SketchTree, text: str) -> SketchTree:
    """Return the tree with the comments and blank lines of its text."""
    return _Attacher(text).sketch(tree)


class _Attacher:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._code = without_comments(text).split("\n")
        self._comments = comments(text)
        self._next = 0  # the first line not yet assigned

    def sketch(self, tree: SketchTree) -> SketchTree:
        trivia = self._trivia(_line_of(tree))
        statements = tuple(map(self._statement, tree.statements))
        tail = _tidy(note.text for note in self._notes())
        self._next = len(self._lines)
        return replace(
            tree,
            trivia=trivia,
            statements=statements,
            tail=tail[:-1] if tail and not tail[-1] else tail,
        )

    def _statement(self, one: Written) -> Written:
        line = _line_of(one)
        # A rule on the same line as its `for …:` leaves the comments to the loop.
        done = one if self._next > line else replace(one, trivia=self._trivia(line))
        # A block stays a block.
        if isinstance(done, RuleBlock):
            return self._block(done)  # type: ignore[return-value]
        return self._phases(done) if isinstance(done, PhasesRule) else done  # type: ignore[return-value]

    def _phases(self, rule: PhasesRule) -> PhasesRule:
        body, tail = self._body(rule.phases)
        return replace(rule, phases=body, tail=tail)

    def _block(self, block: RuleBlock) -> RuleBlock:
        first = block.body[0]
        if _line_of(first) == _line_of(block):
            return replace(block, body=tuple(map(self._statement, block.body)))
        body, tail = self._body(block.body)
        return replace(block, body=body, tail=tail)

    def _body(self, lines: tuple[Written, ...]) -> tuple[tuple[Written, ...], tuple[str, ...]]:
        first = lines[0]
        body = list(map(self._statement, lines))
        # A blank line below the head is dropped.
        above = body[0].trivia.above
        start = next((i for i, note in enumerate(above) if note), len(above))
        body[0] = replace(body[0], trivia=replace(body[0].trivia, above=above[start:]))
        assert first.span is not None, "a parsed line knows its place"
        margin = self._column(first.span.start, _line_of(first))
        return tuple(body), self._tail(margin)

    def _trivia(self, line: int) -> Trivia:
        above = _tidy(note.text for note in self._notes())
        if self._next == 0 and not any(self._code[i].strip() for i in range(line)):
            start = next((i for i, note in enumerate(above) if note), len(above))
            above = above[start:]
        self._next = line + 1
        return Trivia(above, self._comments.get(line, (0, ""))[1])

    def _notes(self) -> list[_Note]:
        """Return the lines without code from here to the next line with code."""
        notes = []
        for line in range(self._next, len(self._lines)):
            if self._code[line].strip():
                break
            offset, text = self._comments.get(line, (0, ""))
            notes.append(_Note(text, self._column(offset, line) if text else 0))
        return notes

    def _tail(self, margin: int) -> tuple[str, ...]:
        """Consume and return the comments from here that are indented at least by ``margin``."""
        notes = self._notes()
        count = 0
        for i, note in enumerate(notes):
            if note.text and note.column < margin:
                break
            if note.text:
                count = i + 1
        self._next += count
        return _tidy(note.text for note in notes[:count])

    def _column(self, offset: int, line: int) -> int:
        start = sum(len(text) + 1 for text in self._lines[:line])
        before = self._lines[line][: offset - start]
        return len(before.expandtabs(8))


def _line_of(one: Statement | PhaseLine | SketchTree) -> int:
    """Return the first line (from 0) of a statement."""
    assert one.span is not None, "a parsed line knows its place"
    return one.span.line - 1


def _tidy(notes: Iterable[str]) -> tuple[str, ...]:
    """Return the notes with consecutive blank lines merged."""
    kept: list[str] = []
    for note in notes:
        if note or not kept or kept[-1]:
            kept.append(note)
    return tuple(kept)


# --- messages of syntax errors --------------------------------------------------------------------

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
    return [
        *kinds[:2],
        *sorted(
            map(repr, signs),
            key=lambda word: (not word[1].isalpha(), not word.endswith(">'"), word),
        ),
        *kinds[2:],
    ]


def _spellings(accepted: Iterable[str]) -> set[str]:
    real = (t for t in accepted if t not in ("$END", "_INDENT", "_DEDENT"))
    return {word for t in real if (word := spelling(t)) is not None}


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


# --- lexer ----------------------------------------------------------------------------------------
# LALR(1): comments are removed, line ends and indentation are tokens.

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|#[^\n]*')
# The indenter keeps its stack between tokens, so texts are parsed one at a time.
_ONE_AT_A_TIME = Lock()


class Rejected(Exception):
    """Parse error: its position and the terminals accepted there.

    ``found`` is the type of the token, or empty if no token could be read. An indentation that
    matches no line above is ``found == "_DEDENT"`` with no accepted terminals.
    """

    def __init__(self, offset: int, found: str, accepted: frozenset[str] = frozenset()) -> None:
        super().__init__(offset, found, accepted)
        self.offset = offset
        self.found = found
        self.accepted = accepted


def without_comments(text: str) -> str:
    """Return the text with comments replaced by spaces, which keeps all offsets."""
    return _COMMENT.sub(lambda m: m[1] or " " * len(m[0]), text)


def comments(text: str) -> dict[int, tuple[int, str]]:
    """Return the comments by line (from 0): offset in the text, and comment."""
    found = {}
    for match in _COMMENT.finditer(text):
        if match[1] is None:
            line = text.count("\n", 0, match.start())
            found[line] = (match.start(), match[0].rstrip())
    return found


def read_tree(code: str, start: str = "document") -> Code:
    """Parse a text without comments.

    Raises:
        Rejected: a syntax error.
    """
    # Complete the last line; offsets do not change.
    with _ONE_AT_A_TIME:
        steps = _lark().parse_interactive(code + "\n", start=start)
        try:
            for _ in steps.iter_parse():
                pass
            tree: Code = steps.feed_eof()  # type: ignore[no-untyped-call]
            return tree
        except _Misindented as error:
            raise Rejected(error.offset, "_DEDENT") from None
        except UnexpectedInput as error:
            accepted = frozenset(steps.accepts())  # type: ignore[no-untyped-call]
            raise _rejected(error, accepted, len(code)) from None


def _rejected(error: UnexpectedInput, accepted: frozenset[str], end: int) -> Rejected:
    token: Token | None = getattr(error, "token", None)
    kind = "" if token is None else token.type
    offset = error.pos_in_stream
    if token is not None and kind == "_INDENT":  # it follows the token of the line end
        offset = token.end_pos
    return Rejected(end if kind == "$END" or offset is None else offset, kind, accepted)


def spelling(terminal: str) -> str | None:
    """Return the spelling of a keyword or sign; None for tokens with many spellings."""
    pattern = _lark().get_terminal(terminal).pattern
    if pattern.type == "str":
        return pattern.value
    word = re.fullmatch(r"([a-z]+)\\b", pattern.value)
    return word[1] if word else None


@cache
def _lark() -> Lark:
    grammar = resources.files(__package__) / "grammar.lark"
    return Lark(
        grammar.read_text(encoding="utf-8"),
        parser="lalr",
        lexer="contextual",
        start=["document", "rest"],
        postlex=_Lines(),
        propagate_positions=True,
        maybe_placeholders=True,
    )


class _Misindented(DedentError):
    def __init__(self, offset: int) -> None:
        super().__init__("unexpected dedent")
        self.offset = offset


class _Lines(Indenter):
    """Converter of the spaces after a line's end into ``_INDENT`` and ``_DEDENT``."""

    NL_type = "_NL"
    OPEN_PAREN_types: list[str] = []  # noqa: RUF012 - the base class declares it so
    CLOSE_PAREN_types: list[str] = []  # noqa: RUF012
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 8

    def handle_NL(self, token: Token) -> Iterator[Token]:
        """Yield the base class's tokens, raising errors with their position."""
        try:
            yield from super().handle_NL(token)
        except DedentError:
            raise _Misindented(token.end_pos or 0) from None

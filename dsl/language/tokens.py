"""Lexer and LALR(1) parser: comments removed, line ends and indentation as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from threading import Lock

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput
from lark.indenter import DedentError, Indenter

Code = Tree[Token]

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

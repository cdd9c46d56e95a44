"""Attachment of comments and blank lines to the lines of a sketch.

A comment above or beside a line belongs to that line. After the last line of a block, comments
indented like its body are the block's *tail*; comments below the last line are the tail of the
sketch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ..base.lazy_dataclass import dataclass
from .ast import PhaseLine, PhasesRule, RuleBlock, SketchTree, Statement, Trivia
from .tokens import comments, without_comments

Written = TypeVar("Written", bound=Statement | PhaseLine)


@dataclass(frozen=True, slots=True)
class _Note:
    """A line without code: its comment (empty for a blank line) and the comment's column."""

    text: str
    column: int


def attach(tree: SketchTree, text: str) -> SketchTree:
    """Return the tree with the comments and blank lines of its text."""
    return _Attacher(text).sketch(tree)


class _Attacher:
    """Assigns each note once, from the top of the text to its end."""

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
        return replace(tree, trivia=trivia, statements=statements, tail=_no_blank_end(tail))

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


def _no_blank_end(notes: tuple[str, ...]) -> tuple[str, ...]:
    return notes[:-1] if notes and not notes[-1] else notes

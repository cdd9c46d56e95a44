"""Source locations in a user's file: of the running call, or of a recorded instruction."""

from __future__ import annotations

import linecache
import sys
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

from ..base.errors import BadAlgorithm
from ..base.spans import Source, Span

_OURS = frozenset(
    str(Path(__file__).with_name(name)) for name in ("builder.py", "contributions.py", "recipe.py")
)


def user_frame() -> FrameType:
    """Return the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename in _OURS or frame.f_code.co_filename == __file__:
        assert frame.f_back is not None, "the builder has a caller"
        frame = frame.f_back
    return frame


def user_span() -> Span | str:
    """Return the location in the user's code of the current call."""
    frame = user_frame()
    return span_of(frame.f_code, frame.f_lasti)


def wrong(message: str, hint: str = "") -> BadAlgorithm:
    """Return the error for the current call in the user's code."""
    return BadAlgorithm(message, where=user_span(), hint=hint)


def span_of(code: CodeType, lasti: int) -> Span | str:
    """Return the span of the expression at an instruction; ``file:line`` if the text is unknown.

    Of an expression of several lines: the first line.
    """
    found = next(islice(code.co_positions(), lasti // 2, None), None)
    line, end, first, last = found or (None, None, None, None)
    line = line or code.co_firstlineno
    rows = linecache.getlines(code.co_filename)
    if not 0 < line <= len(rows):
        return f"{code.co_filename}:{line}"
    row = rows[line - 1]
    start = sum(map(len, rows[: line - 1]))
    blank = len(row) - len(row.lstrip())
    # Columns count bytes of UTF-8; spans count characters.
    raw = row.encode()
    begin = blank if first is None else len(raw[:first].decode(errors="ignore"))
    stop = len(row.rstrip())
    if end == line and last is not None:
        stop = len(raw[:last].decode(errors="ignore"))
    source = Source(code.co_filename, "".join(rows))
    return Span(source, start + begin, start + max(stop, begin + 1))


def line_of(code: CodeType, lasti: int) -> int:
    """Return the line number of an instruction."""
    found = next(islice(code.co_positions(), lasti // 2, None), None)
    return (found and found[0]) or code.co_firstlineno

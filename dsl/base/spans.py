"""Source texts and spans of characters in them, for error messages of all front ends.

>>> source = Source("ring.sketch", "chunks 2\\nforbid 0 -> 9\\n")
>>> print(Span(source, 16, 22).render())
 --> ring.sketch:2:8
  |
2 | forbid 0 -> 9
  |        ^^^^^^
"""

from __future__ import annotations

import re

from .lazy_dataclass import dataclass

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    r"""Return a text whose control characters are visible: a terminal would obey them.

    Escapes and C1 codes move the cursor and set titles, marks of direction turn words around. Each
    becomes its number as JSON and Python write it; tabs and line ends stay.

    >>> printable("gpu\x1b[2J\x9b")
    'gpu\\u001b[2J\\u009b'
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Return a name as it is printed: with a line end it could pass for another line's words."""
    return printable(text.replace("\n", "\\n"))


@dataclass(frozen=True, slots=True)
class Source:
    """A named text: a file, or ``<stdin>``."""

    name: str
    text: str

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        before = self.text[: min(max(offset, 0), len(self.text))]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class Span:
    """The characters ``start … end-1`` of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        """Return the line of the first character, from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """Return the column of the first character, from 1."""
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        """Return the characters of the span."""
        return self.source.text[self.start : self.end]

    def part(self, start: int, end: int) -> Span:
        """Return the span of characters ``start … end-1`` within this one."""
        return Span(self.source, self.start + start, self.start + end)

    def strip(self) -> Span:
        """Return the span without white space at its ends."""
        text = self.text
        left = len(text) - len(text.lstrip())
        return self.part(left, max(left, len(text.rstrip())))

    def render(self) -> str:
        """Return file, line and column, the line itself, and carets under the span."""
        line, column = self.source.position(self.start)
        lines = self.source.text.split("\n")
        row = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
        width = max(1, min(self.end - self.start, len(row) - column + 1))
        gutter = " " * len(str(line))
        # Tabs are kept so that the carets stand under the right characters.
        pad = "".join("\t" if ch == "\t" else " " for ch in row[: column - 1])
        pad += " " * (column - 1 - len(pad))
        return f" --> {self}\n{gutter} |\n{line} | {row}\n{gutter} | {pad}{'^' * width}"

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"

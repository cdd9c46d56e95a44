"""Output of the command line: results to stdout, everything else to stderr.

Names, notes and errors repeat what files say, so all that is printed passes
:func:`~weft.dsl.base.spans.printable`: no file reaches the terminal with a control character.

``--json`` puts one object on stdout instead of text; stderr is the same either way.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from itertools import groupby
from textwrap import wrap
from typing import Any, TextIO

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import printable

SCHEMA = 1
"""Version of the objects that ``--json`` prints."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """Limits of what is printed while a verb works, and of columns."""

    column_letters: int = 14  # that a column of words keeps
    heartbeat_seconds: float = 20.0  # least, between lines on long work without a live line


OUTPUT = OutputLimits()


@dataclass(frozen=True, slots=True)
class Console:
    """Output settings of a command: verbosity, form (text or JSON), and colour (auto, always,
    never).

    ``defaults``: options that a file of defaults gave, which ``--json`` repeats.
    """

    json: bool = False
    quiet: bool = False
    verbose: int = 0
    colour: str = "auto"
    defaults: Mapping[str, Any] | None = None

    def result(self, text: str, data: Mapping[str, Any]) -> None:
        """Print the result of a verb: ``text``, or with ``--json`` the object ``data``."""
        if self.json:
            more = {} if self.defaults is None else {"defaults": self.defaults}
            text = _json({**data, **more})
        elif text:
            text = fitted_text(printable(text), columns())
            text = coloured(text) if self._paints(sys.stdout) else text
        if text:
            with stdout_errors():
                print(text, flush=True)

    def say(self, label: str, text: str) -> None:
        """Print one line for a finished phase: ``Solved   exact in 1.2s``."""
        if not self.quiet:
            _print(f"{label:<9}{text}")

    def detail(self, text: str) -> None:
        """Print a line that only ``-v`` shows."""
        if self.verbose and not self.quiet:
            _print(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        if not self.quiet:
            _print(f": {text}", self._bold("warning", "33"))

    def fail(self, rendered: str, data: Mapping[str, Any]) -> None:
        """Print an error: rendered on stderr; with ``--json`` also as the object on stdout."""
        head, colon, rest = rendered.partition(":")
        _print(colon + rest, self._bold(head, "31"))
        if self.json:
            with stdout_errors():
                print(_json(data), flush=True)

    def _paints(self, stream: TextIO) -> bool:
        """Return True if text on a stream has colour: on terminals, unless the environment says
        ``NO_COLOR``; ``--color`` decides before both."""
        if self.colour != "auto":
            return self.colour == "always"
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return stream.isatty() and not plain

    def _bold(self, word: str, colour: str) -> str:
        return f"\033[1;{colour}m{word}\033[0m" if self._paints(sys.stderr) else word


def _print(text: str, head: str = "") -> None:
    """Print text on stderr without control characters, behind a head of our own."""
    print(head + printable(text), file=sys.stderr, flush=True)


def _json(data: Mapping[str, Any]) -> str:
    return printable(json.dumps({"schema": SCHEMA, **data}, ensure_ascii=False))


_VERDICTS = (
    (re.compile(r"^(ok|equal|yes)(?=[ :]|$)", re.MULTILINE), "32"),
    (re.compile(r"^(FAILED|missing)(?=[ :]|$)", re.MULTILINE), "31"),
    (re.compile(r"^(warning)(?=[ :]|$)", re.MULTILINE), "33"),
)
"""First words of lines that are verdicts, each with its colour."""


def coloured(text: str) -> str:
    """Return a text with its verdicts in colour."""
    for pattern, colour in _VERDICTS:
        text = pattern.sub(f"\033[1;{colour}m\\1\033[0m", text)
    return text


@contextmanager
def stdout_errors() -> Iterator[None]:
    """Handle errors of stdout: a full disk is a UserError, a closed pipe a silent end."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise UserError(
            f"standard output cannot be written: {error.strerror}", where="<stdout>"
        ) from None


def silence_stdout() -> None:
    """Discard all further output to stdout, including the interpreter's last flush."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def columns() -> int:
    """Return the width of the terminal on stdout; 0 for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def live() -> bool:
    """Return True if stderr is a terminal, on which a line may be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


# Fit a verb's text to the width of a terminal: tables by their columns, prose by its words.
#
# Verbs write the same text everywhere. On a terminal that is narrower a table has its columns of
# words wrapped, and where that is not enough printed in parts that begin with its first column.

_GAP = re.compile(r"\S {2,}\S")
_NUMBER = re.compile(r"-?$|[-+~<>]?[\d.,]+(?:\.\.[\d.,]+)? ?(?:%|[KMGT]i?B|µs|ms|s|B)?$")


def fitted_text(text: str, width: int) -> str:
    """Return a text of which no line is wider than the terminal, as far as its words allow."""
    lines = text.split("\n")
    if not width or max(map(len, lines)) <= width:
        return text
    found: list[str] = []
    for tabular, group in groupby(lines, key=_is_row):
        block = list(group)
        if max(map(len, block)) <= width:
            found += block
            continue
        columns = _columns(block) if tabular and len(block) > 1 else []
        if len(columns) > 1:
            found += _table(block, columns, width)
        else:
            found += [part for line in block for part in _prose(line, width)]
    return "\n".join(found)


def _is_row(line: str) -> bool:
    """Return True for lines that may be of a table: words apart, or a wrapped last column."""
    return _GAP.search(line) is not None or line.startswith("    ")


def _prose(line: str, width: int) -> list[str]:
    """Return a line as several, the later ones below the text behind its first word and a gap."""
    gap = re.match(r"(\s*\S+ {2,})\S", line)
    indent = gap.end() - 1 if gap and gap.end() < width // 2 else len(line) - len(line.lstrip()) + 2
    whole = {"break_long_words": False, "break_on_hyphens": False}
    head = line[:indent] if gap and gap.end() - 1 == indent else ""
    rest = line[len(head) :] if head else line
    parts = wrap(
        rest,
        width - len(head) if head else width,
        subsequent_indent="" if head else " " * indent,
        drop_whitespace=True,
        **whole,  # type: ignore[arg-type]
    )
    if not head:
        lead = line[: len(line) - len(line.lstrip())]
        return [lead + parts[0].lstrip(), *parts[1:]] if parts else [line]
    return [head + parts[0], *(" " * indent + part for part in parts[1:])] if parts else [line]


# --- tables ---------------------------------------------------------------------------------------


def _columns(block: Sequence[str]) -> list[tuple[int, int]]:
    """Return first and last place of each column; two blanks in every line separate them."""
    wide = max(map(len, block))
    blank = [all(line[i : i + 1] in ("", " ") for line in block) for i in range(wide)]
    edges, start = [], None
    for i in range(wide + 1):
        inside = i < wide and not (blank[i] and (i + 1 >= wide or blank[i + 1] or blank[i - 1]))
        if inside and start is None:
            start = i
        elif not inside and start is not None:
            edges.append((start, i))
            start = None
    return edges


def _table(block: Sequence[str], columns: Sequence[tuple[int, int]], width: int) -> list[str]:
    rows = [[line[a:b].strip() for a, b in columns] for line in block]
    rows = _joined(rows)
    wide = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    words = [not all(_NUMBER.match(row[i]) for row in rows[1:]) for i in range(len(columns))]
    least = [
        max(OUTPUT.column_letters, *(len(word) for row in rows for word in row[i].split() or [""]))
        if words[i]
        else wide[i]
        for i in range(len(columns))
    ]
    whole = list(wide)
    while sum(wide) + 2 * (len(wide) - 1) > width:
        able = [i for i in range(len(wide)) if wide[i] > least[i]]
        if not able:
            break
        widest = max(able, key=lambda i: wide[i])
        wide[widest] -= 1
    if sum(wide) + 2 * (len(wide) - 1) <= width:
        return list(_printed(rows, wide, words, range(len(wide))))
    first = max(min(whole[0], width // 2), least[0])
    room = width - first - 2
    wide = [first, *(max(min(x, room), least[i]) for i, x in enumerate(whole[1:], 1))]
    found: list[str] = []
    for part in _parts(wide, width):
        found += ([""] if found else []) + list(_printed(rows, wide, words, part))
    return found


def _joined(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the rows with text that was wrapped below a last column put back into it."""
    found: list[list[str]] = []
    for row in rows:
        if found and row[-1] and not any(row[:-1]):
            found[-1][-1] = f"{found[-1][-1]} {row[-1]}"
        else:
            found.append(list(row))
    return found


def _parts(wide: Sequence[int], width: int) -> list[list[int]]:
    """Return columns in parts that fit, each after the first column."""
    parts: list[list[int]] = [[0]]
    for i in range(1, len(wide)):
        used = sum(wide[k] + 2 for k in parts[-1]) + wide[i]
        if used > width and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _printed(
    rows: Sequence[Sequence[str]], wide: Sequence[int], words: Sequence[bool], part: Sequence[int]
) -> Iterator[str]:
    for row in rows:
        cells = [
            wrap(row[i], wide[i], break_long_words=False, break_on_hyphens=False) or [""]
            for i in part
        ]
        for k in range(max(map(len, cells))):
            line = [
                (cell[k] if k < len(cell) else "").ljust(wide[i])
                if words[i]
                else (cell[k] if k < len(cell) else "").rjust(wide[i])
                for cell, i in zip(cells, part, strict=True)
            ]
            yield "  ".join(line).rstrip()


class Exit(IntEnum):
    """Exit code of a command."""

    DONE = 0  #: done; also a time-out or Ctrl-C (or SIGTERM) with an incumbent
    NO = 1  #: a negative answer: infeasible, a failed check, a wrong result
    WRONG_QUESTION = 2  #: usage, an unknown name, a bad file
    NOTHING_FOUND = 3  #: nothing within the budget; with --require-optimal: not proved best
    MISSING = 4  #: something needed is not here; the hint names the package
    BUG = 70  #: a bug, in weft or in the plug-in that the message names
    INTERRUPTED = 130  #: Ctrl-C or SIGTERM, and nothing was found

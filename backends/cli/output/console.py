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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.spans import printable

from .fit_width import fitted_text

SCHEMA = 1
"""Version of the objects that ``--json`` prints."""


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
    """Print text on stderr without what a terminal would obey, behind a head of our own."""
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
        raise UserError(
            f"standard output cannot be written: {error.strerror}", where="<stdout>"
        ) from None


def columns() -> int:
    """Return the width of the terminal on stdout; 0 for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def live() -> bool:
    """Return True if stderr is a terminal, on which a line may be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

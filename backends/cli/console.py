"""Output of the command line: results to stdout, everything else to stderr.

``--json`` puts one object on stdout instead of text; stderr is the same either way.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from weft.dsl.base.errors import UserError

SCHEMA = 1
"""Version of the objects that ``--json`` prints."""


@dataclass(frozen=True, slots=True)
class Console:
    """Output settings of a command: verbosity and form (text or JSON)."""

    json: bool = False
    quiet: bool = False
    verbose: int = 0

    def result(self, text: str, data: Mapping[str, Any]) -> None:
        """Print the result of a verb: ``text``, or with ``--json`` the object ``data``."""
        if self.json:
            text = json.dumps({"schema": SCHEMA, **data}, ensure_ascii=False)
        if text:
            with stdout_errors():
                print(text, flush=True)

    def say(self, label: str, text: str) -> None:
        """Print one line for a finished phase: ``Solved   exact in 1.2s``."""
        if not self.quiet:
            print(f"{label:<9}{text}", file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        """Print a line that only ``-v`` shows."""
        if self.verbose and not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print a warning."""
        if not self.quiet:
            print(f"{_bold('warning', '33')}: {text}", file=sys.stderr, flush=True)

    def fail(self, rendered: str, data: Mapping[str, Any]) -> None:
        """Print an error: rendered on stderr; with ``--json`` also as the object on stdout."""
        head, colon, rest = rendered.partition(":")
        print(_bold(head, "31") + colon + rest, file=sys.stderr, flush=True)
        if self.json:
            with stdout_errors():
                print(json.dumps({"schema": SCHEMA, **data}, ensure_ascii=False), flush=True)


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


def _bold(word: str, colour: str) -> str:
    if live() and not os.environ.get("NO_COLOR"):
        return f"\033[1;{colour}m{word}\033[0m"
    return word

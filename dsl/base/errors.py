"""Every error a user can cause, in one tree.

::

    WeftError                    what, where, one hint; carries the exit code of the command line
    ├── UserError          (2)   the question is wrong: usage, unknown name, unreadable file
    │   ├── UnknownName    (2)   a name nobody registered; suggests the nearest
    │   ├── SyntaxProblem  (2)   text that does not parse, with its span
    │   ├── BadFile        (2)   a file that cannot be read, or says something impossible
    │   ├── BadTopology    (2)   a machine that cannot exist, or cannot do what is asked
    │   ├── BadSketch      (2)   a sketch that cannot hold on this machine
    │   ├── BadAlgorithm   (2)   an algorithm that goes wrong at one of its lines
    │   └── SeveralErrors  (2)   all that is wrong with one text, reported at once
    ├── AnswerIsNo         (1)   infeasible, a failed check, a wrong result
    │   ├── Infeasible     (1)   no schedule obeys all the rules; names those in conflict
    │   └── CheckFailed    (1)   a checker found the artefact wrong
    ├── NothingFound       (3)   the budget ended before the first answer
    └── Missing            (4)   a package, solver or device is not here; says what to install

Anything else that escapes is a bug of ours (exit code 70).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from .spans import Span


class WeftError(Exception):
    """Root of the tree: a message, where it applies, and one hint.

    ``where`` is a :class:`~weft.dsl.base.spans.Span` into a text the user wrote, or a plain
    string such as a file name; ``hint`` says what to do next.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, where: Span | str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def render(self) -> str:
        """The error as a person reads it: what, where (with a caret), one hint."""
        lines = [f"error: {self.message}"]
        if isinstance(self.where, Span):
            lines.append(self.where.render())
        elif self.where:
            lines.append(f" --> {self.where}")
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, str | None]:
        """The ``error`` object of ``--json``: message, where, hint."""
        where = str(self.where) if self.where is not None else None
        return {"message": self.message, "where": where, "hint": self.hint or None}


class UserError(WeftError):
    """The question is wrong."""

    exit_code = 2


class Refusal(UserError):
    """An engine does not take this problem; ``reason`` says why in words."""

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(
            f"the engine {engine} cannot solve this: {reason}",
            hint="leave out what it names, or choose another engine (weft list engines)",
        )
        self.reason = reason


class UnknownName(UserError):
    """A name that is not among those known; the hint names the nearest ones."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, where: Span | str | None = None
    ) -> None:
        super().__init__(f"unknown {kind} {name!r}", where=where, hint=suggest(name, known))


class SyntaxProblem(UserError):
    """A text that does not parse."""


class BadFile(UserError):
    """A file that cannot be read, or whose contents cannot be."""


class BadTopology(UserError):
    """A machine that cannot exist, or cannot do what is asked of it."""


class BadSketch(UserError):
    """A sketch that reads well and cannot hold on this machine."""


class BadAlgorithm(UserError):
    """A hand-written algorithm that reads, adds or overwrites what it must not, or falls short."""


class SeveralErrors(UserError):
    """All that is wrong with one text, in its order; the first one speaks for them all."""

    def __init__(self, errors: Iterable[WeftError]) -> None:
        self.errors = tuple(errors)
        first, more = self.errors[0], len(self.errors) - 1
        message = f"{first.message} (and {more} more)" if more else first.message
        super().__init__(message, where=first.where, hint=first.hint)

    def render(self) -> str:
        """Every error as it would be rendered alone."""
        return "\n\n".join(error.render() for error in self.errors)


class AnswerIsNo(WeftError):
    """The question is fine and the answer is no."""

    exit_code = 1


class Infeasible(AnswerIsNo):
    """No schedule obeys all rules; ``conflict`` holds the labels of a smallest set of them."""

    def __init__(
        self,
        message: str,
        *,
        conflict: tuple[str, ...] = (),
        where: Span | str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.conflict = conflict


class CheckFailed(AnswerIsNo):
    """A checker found an artefact wrong; nothing was written."""


class NothingFound(WeftError):
    """The budget ended before the first answer."""

    exit_code = 3


class Missing(WeftError):
    """Something needed is not installed or not present; the hint says what to install."""

    exit_code = 4


def an(noun: str) -> str:
    """A noun behind its article.

    >>> an("algorithm"), an("schedule"), an("msccl-xml")
    ('an algorithm', 'a schedule', 'an msccl-xml')
    """
    return f"{'an' if noun[:1] in 'aeiou' or noun.lower().startswith('msccl') else 'a'} {noun}"


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known names, or lists all when none is near."""
    names = sorted(map(str, known))  # members of an enumeration by their values
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    if not names:
        return ""
    shown = ", ".join(names[:24]) + (", …" if len(names) > 24 else "")
    return f"known: {shown}"

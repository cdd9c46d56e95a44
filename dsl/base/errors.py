"""Tree of all errors that a user can cause.

::

    WeftError                    message, location, one hint; carries the exit code of the CLI
    ├── UserError          (2)   invalid input: usage, unknown name, unreadable file
    │   ├── UnknownName    (2)   a name that is not registered; suggests the nearest
    │   ├── WrongType      (2)   an argument of another type than is needed; also a TypeError
    │   ├── SyntaxProblem  (2)   text that does not parse, with its span
    │   ├── BadFile        (2)   a file that cannot be read, or with invalid contents
    │   ├── BadTopology    (2)   an invalid machine, or one that cannot run the collective
    │   ├── BadSketch      (2)   a sketch that does not fit the machine
    │   ├── BadAlgorithm   (2)   a hand-written algorithm with an invalid line
    │   └── SeveralErrors  (2)   all errors of one text, reported together
    ├── AnswerIsNo         (1)   infeasible, a failed check, a wrong result
    │   ├── Infeasible     (1)   no schedule obeys all rules; names those in conflict
    │   └── CheckFailed    (1)   a checker rejected the artefact
    ├── NothingFound       (3)   the budget ended before the first answer
    ├── Missing            (4)   a package, solver or device is absent; names the package
    │   └── BrokenPlugin   (4)   a plug-in that cannot be loaded
    └── PluginFault        (70)  a plug-in raised something unexpected, or its result is wrong

Any other exception that escapes is a bug of weft (exit code 70).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, TypeVar

from .spans import Span, printable


class WeftError(Exception):
    """Root of the error tree: a message, its location, and one hint.

    ``where`` is a :class:`~weft.dsl.base.spans.Span` into a text the user wrote, or a plain
    string such as a file name; ``hint`` is the suggested next action. All three are in the text
    of the exception, which is what notebooks and tracebacks show: there options have their
    names of Python (:func:`in_python`).
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, where: Span | str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return in_python(self.render().removeprefix("error: "))

    def render(self) -> str:
        """Return the error as printed: message, location with a caret, hint."""
        lines = [f"error: {self.message}"]
        if isinstance(self.where, Span):
            lines.append(self.where.render())
        elif self.where:
            lines.append(f" --> {self.where}")
        if self.hint:
            lines += ["", f"hint: {self.hint}"]
        return printable("\n".join(lines))

    def to_json(self) -> dict[str, str | None]:
        """Return the ``error`` object of ``--json``: message, where, hint."""
        where = str(self.where) if self.where is not None else None
        return {"message": self.message, "where": where, "hint": self.hint or None}


class UserError(WeftError):
    """Invalid input (exit code 2)."""

    exit_code = 2


class Refusal(UserError):
    """An engine does not support this problem; ``reason`` is the explanation."""

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(
            f"the engine {engine} cannot solve this: {reason}",
            hint="leave out what it names, or choose another engine (weft list engines)",
        )
        self.reason = reason


class UnknownName(UserError):
    """An unknown name; the hint lists the nearest known ones. ``meant``: the hints for names of
    other programs, in lower case."""

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        *,
        where: Span | str | None = None,
        meant: Mapping[str, str] | None = None,
    ) -> None:
        hint = (meant or {}).get(name.lower()) or suggest(name, known)
        super().__init__(f"unknown {kind} {name!r}", where=where, hint=hint)


class WrongType(UserError, TypeError):
    """An argument of another type than is needed."""


class SyntaxProblem(UserError):
    """A text that does not parse."""


class BadFile(UserError):
    """A file that cannot be read or has invalid contents."""


class BadTopology(UserError):
    """An invalid machine, or one that cannot run the collective."""


class BadSketch(UserError):
    """A well-formed sketch that does not fit the machine."""


class BadAlgorithm(UserError):
    """A hand-written algorithm with an invalid move, or one that misses its postcondition."""


class SeveralErrors(UserError):
    """All errors of one text, in text order; message and location are those of the first."""

    def __init__(self, errors: Iterable[WeftError]) -> None:
        self.errors = tuple(errors)
        first, more = self.errors[0], len(self.errors) - 1
        message = f"{first.message} (and {more} more)" if more else first.message
        super().__init__(message, where=first.where, hint=first.hint)

    def render(self) -> str:
        """Return the rendered errors one after another."""
        return "\n\n".join(error.render() for error in self.errors)


class AnswerIsNo(WeftError):
    """A valid question with a negative answer (exit code 1)."""

    exit_code = 1


class Infeasible(AnswerIsNo):
    """No schedule obeys all rules; ``conflict`` holds the labels of a smallest conflicting set."""

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
    """A checker rejected an artefact; nothing was written."""


class NothingFound(WeftError):
    """The time budget ended before a first solution was found."""

    exit_code = 3


class Missing(WeftError):
    """A required package, solver or device is absent; the hint names the installation."""

    exit_code = 4


class BrokenPlugin(Missing):
    """A plug-in of another package that cannot be loaded; names the plug-in and its package."""


class PluginFault(WeftError):
    """A plug-in raised an unexpected exception, or gave a wrong result; names its package.

    The exit code is that of a bug, for it is one, of the plug-in. The exception is the cause.
    """

    exit_code = 70


_SHORT = {
    "t": "topology",
    "c": "collective",
    "s": "sketch",
    "e": "engine",
    "o": "output",
    "f": "force",
}
_TRUE = ("f", "force", "in-place", "synth", "bound", "shift", "directions")
_WORDS = ("c", "collective", "e", "engine", "to", "target", "on", "protocol", "model", "format")
_OPTION = (
    r"(?<![\w/.-])(?:--(?P<long>[a-z][a-z-]*)|-(?P<short>[tcseof]))(?=[\s=,;:)'\"]|$)"
    r"(?:[ =](?P<value>'[^']*'|\"[^\"]*\"|[A-Z0-9.][^\s,;)]*(?:,[^\s,;)]+)*|\S*[^\s\w,;:.)]\w\S*"
    r"|(?!is |are |says |and |or |takes |makes |names )\w+))?"
)
_PROGRAMS = r"\b(weft [\w-]+|\w+-smi|mpirun|mpiexec|dask|torchrun|srun|pip|run the test) "
_LONGEST = 4000
"""Characters of a message in which options are looked for; longer ones hold text of files."""


def in_python(text: str) -> str:
    """Return a text in which options of the command line are arguments of Python.

    Command lines of weft and of other programs stay as they are.

    >>> in_python("the objective time needs a size; hint: --size 1MiB, or -e exact")
    'the objective time needs a size; hint: size="1MiB", or engine="exact"'
    >>> in_python("more --effort; weft synth -t dgx1 --effort 9; -f overwrites it")
    'more effort=; weft synth -t dgx1 --effort 9; force=True overwrites it'
    """
    if "-" not in text or len(text) > _LONGEST:
        return text
    import re  # not where no text is shown

    def named(match: re.Match[str]) -> str:
        before = text[: match.start()].rpartition("\n")[2].rpartition(";")[2]
        if re.search(_PROGRAMS, before):
            return match[0]
        flag, value = match["long"] or match["short"], match["value"]
        name = _SHORT.get(flag, flag.replace("-", "_"))
        rest = ""
        if value and before == " --> ":  # a place: all of it is the value
            return f'{name}="{value}"'
        if value and flag not in _WORDS and re.fullmatch("[a-z]+", value):
            value, rest = None, f" {value}"  # the next word of the sentence
        if flag in _TRUE:
            return f"{name}=True{rest}" if value is None else f"{name}=True {value}"
        if value is None:
            return f"{name}{rest}" if text[match.end() :][:1] == ":" else f"{name}={rest}"
        bare = re.fullmatch(r"['\"].*|[\d.]+|[A-Z…]+", value) and (
            flag not in _WORDS or value[0] in "'\""
        )
        return f"{name}={value}" if bare else f'{name}="{value}"'

    text = re.sub(r"(?<!\S)-[a-z]/--", "--", text)
    return re.sub(_OPTION, named, text)


T = TypeVar("T")


def require_type(value: object, kind: type[T], what: str, hint: str) -> T:
    """Return ``value``, checked to be of the type; ``what``: the place that it is for.

    Raises:
        WrongType: it is not; the hint says how to get one.
    """
    if isinstance(value, kind):
        return value
    given = type(value).__name__
    shown = f" ({value!r})" if isinstance(value, str | int | float) else ""
    wanted = "text" if kind is str else kind.__name__
    raise WrongType(f"{what} is {an(wanted)}, not {an(given)}{shown[:60]}", hint=hint)


def placed(make: Callable[[], T], where: str) -> T:
    """Return a function's result; its errors get a place in a file.

    Raises:
        BadFile: it raised a UserError.
    """
    try:
        return make()
    except BadFile:
        raise
    except UserError as error:
        raise BadFile(error.message, where=where, hint=error.hint) from None


def an(noun: str) -> str:
    """Return a noun with its indefinite article.

    >>> an("algorithm"), an("schedule"), an("msccl-xml")
    ('an algorithm', 'a schedule', 'an msccl-xml')
    """
    return f"{'an' if noun[:1] in 'aeiouAEIO' or noun.lower().startswith('msccl') else 'a'} {noun}"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known names, or with all of them if none is near."""
    names = sorted(set(map(str, known)))  # members of an enumeration sort by value
    import difflib  # 3 ms: only where a name is wrong

    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    near = near or [n for n in names if n.lower() == name.lower()]
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    if not names:
        return ""
    shown = ", ".join(names[:24]) + (", …" if len(names) > 24 else "")
    return f"known: {shown}"

"""Base class of nouns (kinds of files), with one method per question that a verb asks.

Simulators, pages and judges are imported inside the methods of nouns: a verb asks one question of
one noun, and the others' tools (numba, jinja2, SciPy) would take longer to load than most answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.tables import microseconds, number
from weft.dsl.base.units import SizeRange, format_bytes

from ..check.checks import Check
from ..formats.format import Asked, Format
from .inputs import collective_for, collective_from

if TYPE_CHECKING:
    from weft.dsl.nouns.topology import Topology

    from ..formats.listings import Sheets
    from ..report.html.page import Make
    from ..report.trace import Trace
    from .console import Console

CLASSIC = "classic:"
"""Prefix of the names of classic algorithms."""

Drawn = tuple[str, dict[str, Any]]
"""Text of a file, and the facts that are printed about it."""


class Kind(StrEnum):
    """Kinds of files that are not artefacts of a format."""

    SCHEDULE = "schedule"
    TOPOLOGY = "topology"
    COLLECTIVE = "collective"
    ALGORITHM = "algorithm"
    SKETCH = "sketch"
    LIBRARY = "library"
    STREAM = "stream"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Subject:
    """One input file: its noun, its text, and its JSON if it has any.

    ``named`` is what the user wrote: for a topology perhaps with options after the path.
    """

    noun: Noun
    text: str
    where: str
    data: Any = None
    named: str = ""

    @property
    def kind(self) -> str:
        """Return the kind of file, as ``--json`` names it: a ``Kind``, or the name of a format."""
        return self.noun.kind

    @property
    def format(self) -> Format | None:
        """Return the format of an artefact; None for other files."""
        return self.noun.format

    def schedule(self) -> Any:
        """Return the schedule in the file, well formed but not verified."""
        from weft.dsl.nouns.schedule import load

        return load(self.data, self.where)

    def collective(self) -> Any:
        """Return the collective in the file; a Python file describes one."""
        from weft.dsl.nouns.collective import Collective

        return (
            collective_from(self.where)
            if self.data is None
            else Collective.from_json(self.data, self.where)
        )

    def library(self) -> Any:
        """Return the library in the file; the files it names are in the same folder."""
        from weft.dsl.nouns.library import load

        return load(self.data, self.where)

    def algorithm(self, *, in_place: bool | None = None) -> Any:
        """Return the algorithm that a Python file describes or a name selects, or a classic one."""
        if self.named.startswith(CLASSIC):
            from weft.synth.engines.classic.text import named_algorithm

            return named_algorithm(self.named, in_place=bool(in_place)).algorithm
        from weft.dsl.author.recipe import load

        return load(self.named, in_place=in_place)

    def machine(self) -> Any:
        """Return the machine for which a classic algorithm was named; None if there is none."""
        if not self.named.startswith(CLASSIC):
            return None
        from weft.synth.engines.classic.text import named_algorithm

        return named_algorithm(self.named).topology

    def topology(self) -> Any:
        """Return the topology in the file, whatever its format, or that of a catalogue name."""
        from weft.dsl.catalogue import imported, topology

        return imported(self.text, self.named) if self.text else topology(self.named)


@dataclass(frozen=True, slots=True)
class Timed:
    """Input of a simulation: machine, collective, time by size, lower bound (µs), usual sizes."""

    topology: Topology
    collective: Any
    evaluate: Callable[[int, float], Any]
    facts: dict[str, Any]
    sizes: SizeRange
    explain: Callable[[Any], str] = lambda _: ""


def asked_of(args: argparse.Namespace, **more: Any) -> Asked:
    """Return the flags of a verb that apply to an artefact: ``-c``, ``--root``, ``--target`` …"""
    flags = {"collective": None, "root": None, "roots": None, **vars(args)}

    def resolve(name: str | None, ranks: int) -> Any:
        named = flags["collective"] or name
        if named is None:
            return None
        asked = argparse.Namespace(**{**flags, "collective": named})
        return collective_for(asked, tuple(range(ranks)))

    rooted = flags["root"] is not None or flags["roots"] is not None
    settings = {
        "target": flags.get("target"),
        "protocol": flags.get("protocol"),
        "in_place": bool(flags.get("in_place")),
        "rooted": rooted and flags["collective"] is None,
        **more,
    }
    return Asked(resolve=resolve, **settings)


class Noun:
    """Kind of file; a question that a subclass does not implement raises an error.

    ``kind`` is its name in ``--json``.
    """

    kind: ClassVar[str] = ""
    format: Format | None = None
    """Format of an artefact."""
    asks_collective = False
    """True if ``-c`` and ``--root`` may state the collective of its files."""

    def check(self, subject: Subject, args: argparse.Namespace, console: Console) -> list[Check]:
        """Return the checks that ``weft check`` prints."""
        raise UserError(f"{an(self.kind)} is not checked", where=subject.where)

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the file as text, and its facts for ``--json``."""
        return subject.text.rstrip("\n"), {"text": subject.text}

    def page(self, subject: Subject, args: argparse.Namespace) -> Make:
        """Return its HTML page; by default the page of the text that ``show`` prints."""
        from ..report.html.text_page import text_page

        text = self.show(subject)[0]
        page = text_page(self.kind, Path(subject.named).name, text, subject.named)
        return lambda _: page

    def timed(self, subject: Subject, args: argparse.Namespace) -> Timed:
        """Return the input of ``weft simulate``."""
        raise UserError(
            f"a schedule, an algorithm or a program is needed; this is: {self.kind}",
            where=subject.where,
        )

    def run_text(self, subject: Subject, args: argparse.Namespace) -> str:
        """Return a simulation as text, for ``weft show`` with ``--size`` or ``-t``."""
        raise UserError(
            f"{an(self.kind)} takes no time", where=subject.where, hint="leave --size and -t out"
        )

    def trace(
        self, trace: Trace, subject: Subject, args: argparse.Namespace, group: str
    ) -> tuple[str, float, int]:
        """Add its simulation to a trace; return a description, µs, and the message's bytes."""
        raise UserError(
            f"a trace is of a schedule, an algorithm or a program; this is {an(self.kind)}",
            where=subject.where,
        )

    def dot(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Return the Graphviz text of a machine, with the use of its links by a schedule."""
        raise no_drawing(subject, "a topology or a schedule")

    def svg(self, subject: Subject, args: argparse.Namespace) -> Drawn:
        """Return an SVG drawing of a machine, and of a schedule or a program on it."""
        raise no_drawing(subject, "a topology, a schedule, an algorithm or a program")

    def sheets(self, subject: Subject, args: argparse.Namespace, console: Console) -> Sheets:
        """Return the sheets that ``weft diff`` compares; by default the lines of ``show``."""
        from ..report.difference import text_sheets

        return text_sheets(self.show(subject)[0])


def no_drawing(subject: Subject, wanted: str) -> UserError:
    """Return the error for a drawing of something else than is ``wanted``."""
    return UserError(f"it is of {wanted}; this is {an(subject.kind)}", where=subject.where)


def timed_facts(what: str, size: int, us: float) -> Drawn:
    """Return a description and facts of a drawing of a run of ``us`` µs at a message size."""
    told = f"{what}, {microseconds(us)} µs at {format_bytes(size)}"
    return told, {"about": told, "bytes": size, "us": number(us)}

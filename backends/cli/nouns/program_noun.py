"""Files that hold or become a program: artefacts of a format, and the base of algorithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from ...check.checks import Check
from ...formats.format import Format, ProgramContent, Requirements
from ...formats.listings import Sheets
from ..flags.files import CheckFlags, DiffFlags, SimulateFlags
from ..output.console import Console
from .noun import Noun, SimulationSetup, Subject, asked_of


class ProgramNoun(Noun, ABC):
    """Base of nouns that hold or become a program, timed by the runtime's model."""

    @abstractmethod
    def held(self, subject: Subject, asked: Requirements, done: str) -> ProgramContent:
        """Return the verified program; ``done``: the word for the verb's action in a refusal."""

    def title(self, subject: Subject) -> str:
        """Return the name on a page."""
        return Path(subject.where).name

    def require(self, subject: Subject, done: str) -> None:
        """Refuse a file without a program."""

    def timed(self, subject: Subject, args: SimulateFlags) -> SimulationSetup:
        """Return the simulation by the runtime's model, on the machine of ``-t``."""
        from .program_simulation import simulation_of

        self.require(subject, "simulated")
        return simulation_of(subject, args, lambda asked: self.held(subject, asked, "simulated"))

    def compared_times(self, subject: Subject, args: DiffFlags) -> Sheets:
        """Return the sheet of times by the runtime's model; none without a machine."""
        from .program_simulation import program_times

        return program_times(subject, args, lambda asked: self.held(subject, asked, "simulated"))


class FormatNoun(ProgramNoun):
    """Artefacts of a format, which implements every question."""

    format: Format

    def __init__(self, format: Format) -> None:
        self.format = format
        self.kind: str = format.kind  # type: ignore[misc]
        self.asks_collective = format.asks_collective

    def require(self, subject: Subject, done: str) -> None:
        """Refuse a file without a program, with the message of the format."""
        if not self.format.compiled:
            raise self.format.lacks(done, subject.where)

    def held(self, subject: Subject, asked: Requirements, done: str) -> ProgramContent:
        """Return the program in the artefact."""
        self.require(subject, done)
        return self.format.held(subject.text, subject.where, asked)

    def timed(self, subject: Subject, args: SimulateFlags) -> SimulationSetup:
        """Return the simulation by the runtime's model, or by the rule of another simulator."""
        timing = self.format.timing(subject.text, subject.where)
        if timing is None:
            return super().timed(subject, args)
        from .program_simulation import file_simulation

        return file_simulation(subject, args, timing)

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Return the checks of the format."""
        return self.format.check(subject.text, subject.where, asked_of(args, target=args.target))

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the listing of the format."""
        return self.format.show(subject.text, subject.where)

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return the sheets of the format, after the times of its program."""
        found = self.format.sheets(subject.text, subject.where)
        if found is None:
            return super().sheets(subject, args, console)
        timed = self.compared_times(subject, args) if self.format.compiled else {}
        return {**timed, **found}

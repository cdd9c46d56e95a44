"""Algorithms in Python and classic ones; compiled by default options to be checked or timed."""

from __future__ import annotations

from typing import Any

from weft.dsl.author.recipe import load
from weft.dsl.base.tables import count
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import target
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.classic.text import named_algorithm

from ...check.checker import check_program, report_program
from ...check.checks import Check, of_report
from ...check.findings import require_good
from ...compile.compile import CompileOptions, lower_algorithm
from ...formats.format import GOOD, ProgramContent, Requirements
from ...formats.listings import Sheets, algorithm_text
from ...report.sheets import algorithm_sheets
from ..flags.files import CheckFlags, DiffFlags
from ..output.console import Console
from .noun import CLASSIC, FileKind, Subject
from .program_noun import ProgramNoun


class AlgorithmNoun(ProgramNoun):
    """Algorithms in Python, and the classic ones; compiled by default options to be timed."""

    kind = FileKind.ALGORITHM

    def algorithm(self, subject: Subject, *, in_place: bool | None = None) -> Algorithm:
        """Return the algorithm that a Python file describes or a name selects, or a classic one."""
        if subject.named.startswith(CLASSIC):
            return named_algorithm(subject.named, in_place=bool(in_place)).algorithm
        return load(subject.named, in_place=in_place)

    def machine(self, subject: Subject) -> Topology | None:
        """Return the machine for which a classic algorithm was named; None without one."""
        if not subject.named.startswith(CLASSIC):
            return None
        return named_algorithm(subject.named).topology

    def held(self, subject: Subject, asked: Requirements, done: str) -> ProgramContent:
        """Return the program compiled by default options; ``compile`` has the options."""
        algorithm = subject.algorithm()
        protocol = Protocol(asked.protocol) if asked.protocol else None
        options = CompileOptions(target=target(asked.target or "msccl"), protocol=protocol)
        program = lower_algorithm(algorithm, options)
        require_good(check_program(program), subject.where)
        facts = (("algorithm", algorithm.name), ("moves", len(algorithm.moves)))
        return ProgramContent(program, facts=facts)

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check the algorithm's operations, then the program compiled from it."""
        algorithm = subject.algorithm()
        size = f"{count(len(algorithm.moves), 'move')}, {algorithm.collective}"
        checks = [Check("form", True, size), Check("algorithm", True, "achieves its collective")]
        chosen = CompileOptions(target(args.target)) if args.target else CompileOptions()
        found = report_program(lower_algorithm(algorithm, chosen), args.target)
        return [*checks, *of_report(found, GOOD)]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the moves in order."""
        algorithm = subject.algorithm()
        collective = algorithm.collective
        return algorithm_text(algorithm), {
            "name": algorithm.name,
            "moves": len(algorithm.moves),
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
        }

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return the times of the compiled program, facts and moves."""
        return {**self.compared_times(subject, args), **algorithm_sheets(subject.algorithm())}

    def title(self, subject: Subject) -> str:
        """Return the name given on the command line."""
        return subject.named

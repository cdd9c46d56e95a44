"""Check a program; return a report with the proofs, or the findings only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.dsl.base.errors import require_type
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Code, Program
from weft.dsl.nouns.runtime import MAX_COUNT, Target
from weft.dsl.nouns.runtime import target as target_of

from .bounds import buffers_of_program
from .findings import Finding, Severity, at_transfers, errors, errors_first, fate
from .graph import Hang
from .limits import limits, steps_of_listing
from .prove import Claim, Proof, prove


@dataclass(frozen=True)
class CheckReport:
    """Findings of a check, errors first, and its proofs."""

    findings: tuple[Finding, ...]
    proofs: tuple[Proof, ...]

    @property
    def ok(self) -> bool:
        """No error was found."""
        return not errors(self.findings)


def check_program(program: Program, target: str | None = None) -> tuple[Finding, ...]:
    """Errors and warnings of :func:`report_program`."""
    require_type(program, Program, "the program to check", "weft.compile(schedule) makes one")
    return without_notes(report_program(program, target))


def without_notes(report: CheckReport) -> tuple[Finding, ...]:
    """Return the errors and warnings."""
    return tuple(f for f in report.findings if f.severity is not Severity.NOTE)


def report_program(program: Program, target: str | None = None) -> CheckReport:
    """All faults of a program, or its proof; with a target, also violations of its limits.

    Raises:
        UnknownName: unknown target.
    """
    collective = program.collective
    if len(program.ranks) != collective.ranks:
        text = f"{len(program.ranks)} ranks for {collective.ranks} of the collective"
        return CheckReport((Finding("structure", Severity.ERROR, text),), ())
    pieces, rest = divmod(program.message_chunks, collective.message_chunks)
    if rest or program.message_chunks < 1:
        text = (
            f"expected a multiple of the collective's {collective.message_chunks} chunks, "
            f"got {program.message_chunks}"
        )
        return CheckReport((Finding("structure", Severity.ERROR, text),), ())
    code = program
    chosen = [target_of(target)] if target else []
    runtimes = [r for t in chosen for r in t.runtimes]
    refusals = [limits(code, steps_of_listing(code), r) for r in runtimes]
    found = merged(refusals, runtimes, strict=True)
    verdict = prove(
        Claim(
            code,
            buffers_of_program(program),
            (program.in_place,),
            (collective.split(pieces),),
            lambda stop: [_hang_of_program(code, stop)],
        )
    )
    found += [replace(f, fate=fate(f.kind, runtimes)) for f in verdict.findings]
    return CheckReport(errors_first(found), tuple(verdict.proofs))


def merged(refusals: list[list[Finding]], runtimes: list[Target], *, strict: bool) -> list[Finding]:
    """Merge equal findings of several runtimes into one.

    Where no target is chosen refusals are warnings, unless every runtime has one.
    """
    hopeless = strict or all(errors(found) for found in refusals)
    severity = Severity.ERROR if hopeless else Severity.WARNING
    merged: dict[Finding, list[Target]] = {}
    for found, runtime in zip(refusals, runtimes, strict=True):
        for finding in found:
            merged.setdefault(finding, []).append(runtime)
    return [
        replace(
            f,
            severity=severity if f.severity is Severity.ERROR else f.severity,
            fate=fate(f.kind, names) or ", ".join(t.name for t in names),
        )
        for f, names in merged.items()
    ]


def _hang_of_program(code: Code, stop: Hang) -> Finding:
    if stop.merge >= min(MAX_COUNT, int(code.count.max(initial=1))):
        return at_hang(code, stop, f"deadlock at every message size: {stop.story}", Severity.ERROR)
    text = (
        f"deadlock with at most {stop.merge} chunks per operation: {stop.story}. "
        f"Right only for messages so small that {stop.merge + 1} chunks share an operation"
    )
    return at_hang(code, stop, text, Severity.ERROR)


def at_hang(code: Code, stop: Hang, text: str, severity: Severity) -> Finding:
    """Return the finding of a deadlock, at one of the operations that wait."""
    kind = "deadlock" if severity is Severity.ERROR else ""
    return at_transfers("deadlock", code, np.array([stop.transfer]), text, severity, kind)[0]

"""Checks: findings and proofs of any judge, in the one form that verbs print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import table

from .findings import Finding, Severity, errors

if TYPE_CHECKING:
    from .checker import CheckReport


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a judgement: its name, whether it holds, and what was found.

    ``severity``: of a finding that fails nothing, such as ``warning``; '' for other checks.
    """

    name: str
    ok: bool
    detail: str
    severity: str = ""

    def to_json(self) -> dict[str, Any]:
        """One entry of ``checks``."""
        told = f"{self.severity}: {self.detail}" if self.severity else self.detail
        return {"name": self.name, "ok": self.ok, "detail": told}


def checks_text(checks: Iterable[Check]) -> str:
    """Return a line per check."""
    rows = [((c.severity or "ok") if c.ok else "FAILED", c.name, c.detail) for c in checks]
    return table(("", "check", "finding"), rows)


def of_findings(findings: Sequence[Finding], good: str) -> list[Check]:
    """Findings of the program checker as checks; only errors fail."""
    told = []
    for f in findings:
        wrong = f.severity is Severity.ERROR
        words = ": ".join(filter(None, (f.where, f.told)))
        told.append(Check(f.check, not wrong, words, "" if wrong else str(f.severity)))
    return told if errors(findings) else [Check("program", True, good), *told]


def of_report(report: CheckReport, good: str) -> list[Check]:
    """Return the proofs, each as a check, and the findings."""
    proofs = [Check(p.check, True, f"proved: {p.detail}") for p in report.proofs]
    told = of_findings(report.findings, good)
    return [*told[:1], *proofs, *told[1:]] if report.ok else [*proofs, *told]

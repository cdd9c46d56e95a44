"""Checks: findings and proofs of any judge, in the one form that verbs print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, table

from .findings import LIMITS, Finding, Severity, errors

if TYPE_CHECKING:
    from .checker import CheckReport


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a judgement: its name, its verdict, and the findings.

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


NUMBERS = re.compile(r"\d+")


def checks_text(checks: Iterable[Check], *, whole: bool = False) -> str:
    """Return a line per check; of many that differ in numbers only, the first few and a count.

    ``whole``: fold nothing.
    """
    rows = [((c.severity or "ok") if c.ok else "FAILED", c.name, c.detail) for c in checks]
    kinds = [(mark, name, NUMBERS.sub("#", detail)) for mark, name, detail in rows]
    number = Counter(kinds)
    seen: Counter[tuple[str, str, str]] = Counter()
    lines = []
    for row, kind in zip(rows, kinds, strict=True):
        seen[kind] += 1
        if whole or number[kind] < LIMITS.alike_findings or seen[kind] <= LIMITS.alike_shown:
            lines.append(row)
        elif seen[kind] == LIMITS.alike_shown + 1:
            lines.append(
                (*row[:2], f"… and {number[kind] - LIMITS.alike_shown} more like it (-v: all)")
            )
    return table(("", "check", "finding"), lines)


def verdict_text(checks: Sequence[Check]) -> str:
    """Return the verdict of all checks in one line, with the first that fails."""
    failed = [c for c in checks if not c.ok]
    if failed:
        first = failed[0]
        return (
            f"FAILED: {len(failed)} of {count(len(checks), 'check')}; {first.name}: {first.detail}"
        )
    warned = sum(c.severity == str(Severity.WARNING) for c in checks)
    told = f", {count(warned, 'warning')}" if warned else ""
    return f"ok: {count(len(checks) - warned, 'check')}{told}"


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

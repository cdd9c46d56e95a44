"""Noun of plans of workloads."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.errors import CheckFailed
from weft.dsl.nouns.workload_plan import WorkloadPlan
from weft.synth.ordering.plan import plan_faults

from ...check.checks import Check
from ...report.plan_text import certificate_text, plan_facts, plan_text
from ...report.sizes import TEXT
from ..flags.files import CheckFlags
from ..output.console import Console
from .noun import FileKind, Noun, Subject


class PlanNoun(Noun):
    """Plans of workloads, as ``weft plan`` writes them."""

    kind = FileKind.PLAN

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check order, work, resources and priorities, and the certificate of the bound."""
        plan = subject.plan()
        faults = plan_faults(plan)
        checks = [Check("plan", False, fault) for fault in faults[: TEXT.plan_faults]]
        if not faults:
            told = f"{plan.us:,.6g} µs: every operation done, in order, no resource used twice"
            checks.append(Check("plan", True, told))
            checks.append(Check("bound", True, certificate_text(plan.proof)))
        return checks

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return bound, times, classes and order."""
        plan = judged_plan(subject)
        return plan_text(plan), plan_facts(plan)


def judged_plan(subject: Subject) -> WorkloadPlan:
    """Return the plan in a file.

    Raises:
        CheckFailed: it is wrong.
    """
    plan = subject.plan()
    if faults := plan_faults(plan):
        raise CheckFailed(f"the plan is wrong: {faults[0]}", where=subject.where)
    return plan

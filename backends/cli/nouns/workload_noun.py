"""Noun of workloads."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.tables import count
from weft.dsl.nouns.workload import require_ranks

from ...check.checks import Check
from ...report.workload_text import workload_facts, workload_text
from ..flags.files import CheckFlags
from ..inputs.machines import read_topology
from ..output.console import Console
from .noun import FileKind, Noun, Subject


class WorkloadNoun(Noun):
    """Workloads, in weft's own JSON or as a table."""

    kind = FileKind.WORKLOAD

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check the form, the order, and that the machine of ``-t`` has all ranks."""
        workload = subject.workload()
        told = f"{count(len(workload.operations), 'operation')} on {count(workload.ranks, 'rank')}"
        checks = [Check("form", True, told)]
        checks.append(Check("order", True, "no operation waits for itself"))
        if args.topology is not None:
            machine = read_topology(args.topology)
            require_ranks(workload, machine.ranks, machine.name)
            checks.append(Check("ranks", True, f"all on {machine.name}"))
        return checks + [Check("note", True, note) for note in workload.notes]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return what each class sends."""
        workload = subject.workload()
        return workload_text(workload), workload_facts(workload)

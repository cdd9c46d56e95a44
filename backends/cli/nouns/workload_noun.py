"""Noun of workloads: bytes and groups of each class, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from weft.dsl.base.tables import count, facts, microseconds, number, table
from weft.dsl.base.units import format_binary, format_bytes
from weft.dsl.nouns.workload import WorkKind, Workload, WorkloadOperation, require_ranks

from ...check.checks import Check
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
        """Return the messages that each class sends."""
        workload = subject.workload()
        return workload_text(workload), workload_facts(workload)


def workload_text(workload: Workload) -> str:
    """Return facts, a table of the classes, one of the computations, and the assumptions."""
    axes = " × ".join(f"{name} {size}" for name, size in workload.axes)
    period = None if workload.period is None else f"{microseconds(float(workload.period))} µs"
    head = facts(
        [
            ("workload", workload.name),
            ("ranks", workload.ranks),
            ("axes", axes),
            ("operations", len(workload.operations)),
            ("waits", sum(map(len, workload.predecessors))),
            ("period", period),
            ("digest", workload.digest()),
        ]
    )
    parts = [head]
    classes = class_facts(workload)
    if classes:
        rows = [
            (c["class"], c["kind"], c["operations"], c["groups"], _ranks(c), *_sizes(c))
            for c in classes
        ]
        columns = ("class", "kind", "operations", "groups", "ranks", "each", "in all")
        parts.append(table(columns, rows))
    if computing := compute_facts(workload):
        parts.append(
            f"{count(computing['operations'], 'computation')}, "
            f"{microseconds(computing['us'])} µs in all, at most "
            f"{microseconds(computing['most_us'])} µs on one rank"
        )
    if workload.notes:
        parts.append("assumed:\n" + "\n".join(f"  {note}" for note in workload.notes))
    return "\n\n".join(parts)


def workload_facts(workload: Workload) -> dict[str, Any]:
    """Return the object of ``--json``."""
    return {
        "name": workload.name,
        "ranks": workload.ranks,
        "axes": dict(workload.axes),
        "operations": len(workload.operations),
        "period_us": number(workload.period),
        "digest": workload.digest(),
        "classes": class_facts(workload),
        "compute": compute_facts(workload),
        "notes": list(workload.notes),
    }


def class_facts(workload: Workload) -> list[dict[str, Any]]:
    """Return of each class its kinds, operations, groups, sizes, and µs of loads."""
    return [
        _class(name, [workload.operations[at] for at in which])
        for name, which in workload.classes.items()
    ]


def _class(name: str, members: Sequence[WorkloadOperation]) -> dict[str, Any]:
    groups = {one.members for one in members if one.needs_machine}
    sizes = [one.total_bytes for one in members if one.needs_machine]
    loads: dict[str, Fraction] = {}
    for one in members:
        for resource, us in one.loads:
            loads[resource] = loads.get(resource, Fraction(0)) + us
    return {
        "class": name,
        "kind": ", ".join(sorted({str(one.kind) for one in members})),
        "operations": len(members),
        "groups": len(groups),
        "ranks_per_group": sorted({len(group) for group in groups}),
        "bytes": sum(sizes),
        "bytes_each": sorted(set(sizes)),
        "loads_us": {resource: number(us) for resource, us in loads.items()},
    }


def compute_facts(workload: Workload) -> dict[str, Any] | None:
    """Return number and durations of the computations; None without any."""
    busy: dict[int, Fraction] = {}
    total, everywhere, found = Fraction(0), Fraction(0), 0
    for one in workload.operations:
        if one.kind != WorkKind.COMPUTE or one.us is None:
            continue
        found += 1
        total += one.us
        if not one.ranks:
            everywhere += one.us
        for rank in one.ranks:
            busy[rank] = busy.get(rank, Fraction(0)) + one.us
    if not found:
        return None
    most = everywhere + max(busy.values(), default=Fraction(0))
    return {"operations": found, "us": number(total), "most_us": number(most)}


def _ranks(row: dict[str, Any]) -> str:
    sizes = row["ranks_per_group"]
    if len(sizes) > 2:
        return f"{sizes[0]} … {sizes[-1]}"
    return ", ".join(map(str, sizes)) or "-"


def _sizes(row: dict[str, Any]) -> tuple[str, str]:
    if row["loads_us"]:
        told = ", ".join(f"{name} {us} µs" for name, us in row["loads_us"].items())
        return "-", told
    sizes = row["bytes_each"]
    least, most, total = (  # to four digits where that is shorter: 2.864GiB for 3003520KiB
        min(format_bytes(x), format_binary(x), key=len) for x in (sizes[0], sizes[-1], row["bytes"])
    )
    return (least if least == most else f"{least} … {most}"), total

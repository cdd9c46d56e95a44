"""``weft check``: judge a file by what it holds, with checkers that know nothing of its maker."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ..report.layout import table
from .console import Console
from .exit_codes import Exit
from .sketches import lint_sketch, read_sketch
from .subjects import Kind, Subject, read_subject

EXAMPLES = """examples:
  weft check allgather.json
  weft check algo.xml
  weft check my.sketch --json
exit code 1 if a check fails"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at, and what was found."""

    name: str
    ok: bool
    detail: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a schedule, MSCCL XML, sketch, topology or "
                        "collective (told by its content), or -")  # fmt: skip
    parser.add_argument("-s", "--sketch", metavar="SKETCH",
                        help="a schedule must obey this sketch too")  # fmt: skip


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the checks for what the file holds."""
    subject = read_subject(args.file)
    checks = _CHECKERS[subject.kind](subject, args.sketch)
    good = all(check.ok for check in checks)
    rows = [("ok" if c.ok else "FAILED", c.name, c.detail) for c in checks]
    console.result(table(("", "check", "finding"), rows), {
        "status": "ok" if good else "failed",
        "kind": str(subject.kind),
        "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks],
    })  # fmt: skip
    return Exit.DONE if good else Exit.NO


def _schedule(subject: Subject, sketch_name: str | None) -> list[Check]:
    from weft.synth.verify import verify

    schedule = subject.schedule()
    sketch = None
    if sketch_name:
        sketch = read_sketch(sketch_name, schedule.topology, schedule.collective)
    verdict = verify(schedule, sketch)
    facts = f"{len(schedule)} transfers in {schedule.steps} steps, {schedule.collective}"
    checks = [Check("form", True, f"{facts} on {schedule.topology.name}")]
    if verdict.ok:
        obeys = f", and the sketch {sketch.name}" if sketch else ""
        return [*checks, Check("schedule", True, f"achieves its collective{obeys}")]
    return checks + [Check("schedule", False, str(problem)) for problem in verdict.problems]


def _xml(subject: Subject, _: str | None) -> list[Check]:
    from ..check import check_xml

    verdict = check_xml(subject.text, subject.where)
    found = [Check("program", False, str(problem)) for problem in verdict.problems]
    return found or [Check("program", True, "no race of sends, deadlock or broken limit")]


def _topology(subject: Subject, _: str | None) -> list[Check]:
    from weft.dsl.hops import hop_distances

    topology = subject.topology()
    size = f"{topology.ranks} ranks, {topology.hosts} hosts, {len(topology.links)} links"
    checks = [Check("form", True, f"{topology.name}: {size}")]
    distance = hop_distances(topology)
    lost = [(a, b) for a, b in zip(*(distance < 0).nonzero(), strict=True)]
    if lost:
        a, b = lost[0]
        detail = f"rank {a} cannot reach rank {b}"
        detail += f" (and {len(lost) - 1} more such pairs)" if len(lost) > 1 else ""
        checks.append(Check("connected", False, detail))
    else:
        checks.append(Check("connected", True, f"every rank within {distance.max()} hops"))
    return checks + [Check("note", True, note) for note in topology.notes]


def _collective(subject: Subject, _: str | None) -> list[Check]:
    return [Check("form", True, str(subject.collective()))]


def _sketch(subject: Subject, _: str | None) -> list[Check]:
    remarks = lint_sketch(subject.text, subject.where)
    return [Check("sketch", False, remark) for remark in remarks] or [
        Check("sketch", True, "no remarks")
    ]


_CHECKERS: dict[Kind, Callable[[Subject, str | None], list[Check]]] = {
    Kind.SCHEDULE: _schedule,
    Kind.XML: _xml,
    Kind.TOPOLOGY: _topology,
    Kind.COLLECTIVE: _collective,
    Kind.SKETCH: _sketch,
}

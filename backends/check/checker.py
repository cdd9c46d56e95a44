"""Check a file or a program; return a report with the proofs, or the findings only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import distinct_values
from weft.dsl.base.errors import UserError, require_type
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import OPS, Code, Program
from weft.dsl.nouns.runtime import MAX_COUNT, RUNTIMES, Target
from weft.dsl.nouns.runtime import target as target_of

from ..formats.msccl.read.collective import candidates, fit
from ..formats.msccl.read.columns import code_of
from ..formats.msccl.read.model import XmlAlgo, XmlRemark
from .bounds import buffers_of_program, buffers_of_xml, consistent, negative_scratch
from .deadlock import Hang
from .findings import Finding, Severity, at_transfers, errors, fate
from .header import header, notes, portable, sizes_of
from .limits import Steps, limits, steps_of_listing, steps_of_xml
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


def check_xml(
    algo: XmlAlgo, target: str | None = None, collective: Collective | None = None
) -> tuple[Finding, ...]:
    """Errors and warnings of :func:`report_xml`."""
    return _without_notes(report_xml(algo, target, collective))


def check_program(program: Program, target: str | None = None) -> tuple[Finding, ...]:
    """Errors and warnings of :func:`report_program`."""
    require_type(program, Program, "the program to check", "weft.compile(schedule) makes one")
    return _without_notes(report_program(program, target))


def _without_notes(report: CheckReport) -> tuple[Finding, ...]:
    return tuple(f for f in report.findings if f.severity is not Severity.NOTE)


def report_xml(
    algo: XmlAlgo, target: str | None = None, collective: Collective | None = None
) -> CheckReport:
    """Everything wrong with a file, or its proof, for a runtime or the portable subset of all.

    Without a target, what one runtime forbids is a warning, and an error if all of them do.
    ``collective`` says what the file must achieve; without it ``coll`` does, where it can.

    Raises:
        UnknownName: there is no such target. UserError: the collective does not fit the file.
    """
    code, steps = code_of(algo), steps_of_xml(algo)
    chosen = [target_of(target)] if target else list(RUNTIMES.values())
    found = [
        _of_remark(r, Severity.WARNING, "")
        for r in algo.remarks
        if not r.rejected and _concerns(r, chosen)
    ]
    runtimes = [r for t in chosen for r in t.runtimes]
    refusals = [_refusals(algo, code, steps, r) for r in runtimes]
    found += _merged(refusals, runtimes, strict=target is not None)
    if target == "portable":
        found += portable(algo, code)
    wanted, note = _collectives(algo, collective)
    verdict = prove(
        Claim(
            code,
            buffers_of_xml(algo),
            algo.placements,
            wanted,
            lambda stop: [_hang_of_xml(algo, code, stop, chosen)],
            any("R" in t.letters and not _refuses(code, t) for t in runtimes),
        )
    )
    if target == "portable":
        verdict.findings = [_no_late_sends(f) for f in verdict.findings]
    judged = [*verdict.findings, *note, *notes(algo, code, chosen)]
    found += [replace(f, fate=f.fate or fate(f.kind, chosen)) for f in judged]
    return CheckReport(_sorted(found), tuple(verdict.proofs))


def report_program(program: Program, target: str | None = None) -> CheckReport:
    """Everything wrong with a program, or its proof; with a target, also what its limits forbid.

    Raises:
        UnknownName: there is no such target.
    """
    collective = program.collective
    if len(program.ranks) != collective.ranks:
        text = f"{len(program.ranks)} ranks for {collective.ranks} of the collective"
        return CheckReport((Finding("structure", Severity.ERROR, text),), ())
    pieces, rest = divmod(program.message_chunks, collective.message_chunks)
    if rest or program.message_chunks < 1:
        text = (
            f"{program.message_chunks} chunks are no multiple of the collective's "
            f"{collective.message_chunks}"
        )
        return CheckReport((Finding("structure", Severity.ERROR, text),), ())
    code = program
    chosen = [target_of(target)] if target else []
    runtimes = [r for t in chosen for r in t.runtimes]
    refusals = [limits(code, steps_of_listing(code), r) for r in runtimes]
    found = _merged(refusals, runtimes, strict=True)
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
    return CheckReport(_sorted(found), tuple(verdict.proofs))


# --- what one runtime refuses ---------------------------------------------------------------------


def _refusals(algo: XmlAlgo, code: Code, steps: Steps, target: Target) -> list[Finding]:
    found = [
        _of_remark(r, Severity.ERROR, "refused")
        for r in algo.remarks
        if r.rejected and _concerns(r, [target])
    ]
    found += limits(code, steps, target)
    found += header(algo, code, target)
    found += negative_scratch(algo)
    if target.consistent_chunks:
        found += consistent(algo)
    return found


def _merged(
    refusals: list[list[Finding]], runtimes: list[Target], *, strict: bool
) -> list[Finding]:
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


def _refuses(code: Code, target: Target) -> bool:
    """Test whether it does not even have the instructions."""
    return any(OPS[op] not in target.ops for op in distinct_values(code.op).tolist())


def _concerns(remark: XmlRemark, targets: list[Target]) -> bool:
    return any(set(t.letters) & set(remark.runtimes) for t in targets)


def _of_remark(remark: XmlRemark, severity: Severity, kind: str) -> Finding:
    more = f" ({remark.times} places)" if remark.times > 1 else ""
    return Finding("reading", severity, f"{remark.span}: {remark.message}{more}", kind=kind)


def _no_late_sends(finding: Finding) -> Finding:
    """Turn a warning about a flag that one runtime publishes too early into an error."""
    late = finding.kind == "late-send"
    return replace(finding, severity=Severity.ERROR) if late else finding


# --- what the file is for, and up to which size ---------------------------------------------------


def _collectives(
    algo: XmlAlgo, collective: Collective | None
) -> tuple[Sequence[Collective], list[Finding]]:
    """Return the collectives that the file may be for, and a finding if there is none."""
    if collective is not None:
        return (fit(collective, algo),), []
    try:
        found = list(candidates(algo))
    except UserError as error:
        known = algo.coll not in ("custom", "send", "recv", "gather", "scatter", "alltoallv")
        severity = Severity.ERROR if known else Severity.NOTE
        text = f"the result is not judged: {error.message}"
        return (), [Finding("result", severity, text, kind="result" if known else "")]
    if not found:
        verb = "receives" if algo.coll == "broadcast" else "sends"
        text = f"no rank can be the root of the {algo.coll}: every one {verb}"
        return (), [Finding("result", Severity.ERROR, text, kind="result")]
    return found, []


def _hang_of_xml(algo: XmlAlgo, code: Code, stop: Hang, targets: list[Target]) -> Finding:
    """Return the finding of a deadlock, with the sizes up to which each runtime is safe; a
    warning where the file is never used above them.
    """
    everywhere = stop.merge >= min(MAX_COUNT, int(code.count.max(initial=1)))
    runtimes = [r for t in targets for r in t.runtimes]
    if everywhere:
        text = f"deadlock at every message size: {stop.story}"
        return _at(code, stop, text, Severity.ERROR)
    limit = {
        r.name: algo.message_chunks * r.largest_chunk(algo.protocol, algo.coll, stop.merge + 1)
        for r in runtimes
    }
    ranges = {r.name: sizes_of(algo, r) for r in runtimes}
    hit = [
        name
        for name, sizes in ranges.items()
        if not sizes.empty and (sizes.high is None or sizes.high > limit[name])
    ]
    right = ", ".join(f"{limit[r.name]} bytes on {r.name}" for r in runtimes)
    text = (
        f"deadlock with at most {stop.merge} chunks per operation: {stop.story}. "
        f"Right for messages up to {right}"
    )
    if not hit:
        most = max((s.high for s in ranges.values() if s.high is not None), default=0)
        return _at(
            code, stop, f"{text}; the file is used up to {most} bytes only", Severity.WARNING
        )
    allowed = {name: ranges[name].high for name in hit}
    shown = ", ".join(f"{name} {'any size' if h is None else h}" for name, h in allowed.items())
    hangs = f"{text}; the file is used up to: {shown}"
    finding = _at(code, stop, hangs, Severity.ERROR)
    return replace(finding, fate=fate("deadlock", [RUNTIMES[name] for name in hit]))


def _hang_of_program(code: Code, stop: Hang) -> Finding:
    if stop.merge >= min(MAX_COUNT, int(code.count.max(initial=1))):
        return _at(code, stop, f"deadlock at every message size: {stop.story}", Severity.ERROR)
    text = (
        f"deadlock with at most {stop.merge} chunks per operation: {stop.story}. "
        f"Right only for messages so small that {stop.merge + 1} chunks share an operation"
    )
    return _at(code, stop, text, Severity.ERROR)


def _at(code: Code, stop: Hang, text: str, severity: Severity) -> Finding:
    kind = "deadlock" if severity is Severity.ERROR else ""
    return at_transfers("deadlock", code, np.array([stop.transfer]), text, severity, kind)[0]


def _sorted(found: list[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(found, key=lambda f: order.index(f.severity)))

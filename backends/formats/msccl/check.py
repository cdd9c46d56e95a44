"""Check an MSCCL file: refusals of each runtime, its size range, and the proof of its code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.dsl.base.arrays import distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import OPS, Code, Op, Protocol
from weft.dsl.nouns.runtime import MAX_COUNT, MAX_ITERATIONS, RUNTIMES, Target
from weft.dsl.nouns.runtime import target as target_of

from ...check.bounds import CallerBuffers
from ...check.checker import CheckReport, at_hang, merged, without_notes
from ...check.findings import Finding, Severity, errors_first, fate
from ...check.graph import Hang
from ...check.limits import Steps, limits
from ...check.prove import Claim, prove
from .read.collective import candidates, fit
from .read.columns import code_of
from .read.model import FACTS, XmlAlgo, XmlRemark

PORTABLE = ("allreduce", "allgather", "alltoall", "broadcast", "reduce")
NO_MEANING = ("send", "recv", "gather", "scatter", "alltoallv")


def check_xml(
    algo: XmlAlgo, target: str | None = None, collective: Collective | None = None
) -> tuple[Finding, ...]:
    """Errors and warnings of :func:`report_xml`."""
    return without_notes(report_xml(algo, target, collective))


def report_xml(
    algo: XmlAlgo, target: str | None = None, collective: Collective | None = None
) -> CheckReport:
    """Everything wrong with a file, or its proof, for a runtime or the portable subset of all.

    Without a target, refusals of one runtime are warnings, and errors if all of them refuse.
    ``collective`` says what the file must achieve; without it ``coll`` does, where it can.

    Raises:
        UnknownName: unknown target. UserError: the collective does not fit the file.
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
    found += merged(refusals, runtimes, strict=target is not None)
    if target == "portable":
        found += portable(algo, code)
    wanted, note = _collectives(algo, collective)
    used = {OPS[op] for op in distinct_values(code.op).tolist()}
    verdict = prove(
        Claim(
            code,
            buffers_of_xml(algo),
            algo.placements,
            wanted,
            lambda stop: [_hang_of_xml(algo, code, stop, chosen)],
            any("R" in t.letters and used <= t.ops for t in runtimes),
        )
    )
    if target == "portable":
        # A flag that one runtime publishes too early is an error of a portable file.
        verdict.findings = [
            replace(f, severity=Severity.ERROR) if f.kind == "late-send" else f
            for f in verdict.findings
        ]
    judged = [*verdict.findings, *note, *notes(algo, code, chosen)]
    found += [replace(f, fate=f.fate or fate(f.kind, chosen)) for f in judged]
    return CheckReport(errors_first(found), tuple(verdict.proofs))


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


def _concerns(remark: XmlRemark, targets: list[Target]) -> bool:
    return any(set(t.letters) & set(remark.runtimes) for t in targets)


def _of_remark(remark: XmlRemark, severity: Severity, kind: str) -> Finding:
    more = f" ({remark.times} places)" if remark.times > 1 else ""
    return Finding("reading", severity, f"{remark.span}: {remark.message}{more}", kind=kind)


def _collectives(
    algo: XmlAlgo, collective: Collective | None
) -> tuple[Sequence[Collective], list[Finding]]:
    """Return the collectives that the file may be for, and a finding if none fits."""
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
        return at_hang(code, stop, text, Severity.ERROR)
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
        return at_hang(
            code, stop, f"{text}; the file is used up to {most} bytes only", Severity.WARNING
        )
    allowed = {name: ranges[name].high for name in hit}
    shown = ", ".join(f"{name} {'any size' if h is None else h}" for name, h in allowed.items())
    hangs = f"{text}; the file is used up to: {shown}"
    finding = at_hang(code, stop, hangs, Severity.ERROR)
    return replace(finding, fate=fate("deadlock", [RUNTIMES[name] for name in hit]))


def steps_of_xml(algo: XmlAlgo) -> Steps:
    """As written in the file."""
    rows = [(b.steps, b.largest_s, b.waits) for r in algo.ranks for b in r.blocks]
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Steps(table[:, 0], table[:, 1], table[:, 2])


def buffers_of_xml(algo: XmlAlgo) -> CallerBuffers:
    """Return the buffers by the ``coll`` attribute; as declared if it lacks a fixed meaning."""
    n, whole = algo.ngpus, algo.message_chunks
    part = whole // n if n else whole
    declared = np.array(
        [(r.input_chunks, r.output_chunks, r.scratch_chunks) for r in algo.ranks], np.int64
    ).reshape(-1, 3)
    size = declared.copy()
    shift = np.zeros(n, np.int64)
    match algo.coll:
        case "allreduce" | "alltoall" | "broadcast" | "reduce" | "custom":
            size[:, :2] = whole
        case "allgather":
            size[:, :2] = part, whole
            shift = np.arange(n) * part
        case "reduce_scatter" | "reducescatter":
            size[:, :2] = whole, part
            shift = np.arange(n) * -part
    return CallerBuffers(size, shift, any(algo.placements))


def consistent(algo: XmlAlgo) -> list[Finding]:
    """microsoft/msccl's rule: i_chunks and o_chunks must be those of the collective."""
    multiple = {"allgather": (algo.ngpus, 1), "reduce_scatter": (1, algo.ngpus)}
    factors = multiple.get(algo.coll, (1, 1))
    found = []
    for r in algo.ranks:
        declared = (("i_chunks", r.input_chunks), ("o_chunks", r.output_chunks))
        for (name, chunks), factor in zip(declared, factors, strict=True):
            if chunks > 0 and chunks * factor != algo.message_chunks:
                text = (
                    f"{name}: expected {factor} × it to be nchunksperloop {algo.message_chunks}, "
                    f"got {chunks}"
                )
                found.append(Finding("bounds", Severity.ERROR, text, r.id, kind="refused"))
    return found[:20]


def negative_scratch(algo: XmlAlgo) -> list[Finding]:
    """Find ranks with a negative ``s_chunks``: every runtime refuses the file."""
    wrong = {r.id: r.scratch_chunks for r in algo.ranks if r.scratch_chunks < 0}
    told = [(r, f"s_chunks: expected 0 or more, got {got}") for r, got in wrong.items()]
    return [Finding("bounds", Severity.ERROR, text, r, kind="refused") for r, text in told[:20]]


# --- the attributes of <algo>: when a runtime selects the file, and its cost ----------------------


@dataclass(frozen=True)
class Sizes:
    """Message bytes for which one runtime selects a file, both inclusive; ``high`` None: any."""

    low: int
    high: int | None

    @property
    def empty(self) -> bool:
        """Test if the range is without a message."""
        return self.high is not None and self.low > self.high

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low} bytes or more"
        return f"{self.low} … {self.high} bytes"


def sizes_of(algo: XmlAlgo, target: Target) -> Sizes:
    """Messages of which sizes a runtime takes the file for."""
    low = max(0, algo.min_bytes or 0)
    high = algo.max_bytes if algo.max_bytes is not None else FACTS.absent_max_bytes
    if target.max_bytes_excluded:
        return Sizes(low, high - 1)
    return Sizes(low, None if high == 0 else high)


class _Notes:
    """Findings about the head of the file."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def __call__(self, text: str, kind: str, severity: Severity = Severity.ERROR) -> None:
        self.found.append(Finding("sizes", severity, text, kind=kind))


def header(algo: XmlAlgo, code: Code, target: Target) -> list[Finding]:
    """Return findings on why a runtime would reject or never select the file."""
    note = _Notes()
    if algo.message_chunks < 1:
        note(f"nchunksperloop: expected 1 or more, got {algo.message_chunks}", "crashes")
        return note.found
    if "M" in target.letters:
        _msccl(algo, code, note)
    range_ = sizes_of(algo, target)
    if range_.empty:
        low, high = algo.min_bytes or 0, algo.max_bytes
        most = "below" if target.max_bytes_excluded else "at most"
        note(f"minBytes: expected {most} maxBytes {high}, got {low}", "ignored")
    if algo.outofplace is False and not algo.inplace and target.letters != "M":
        note("expected inplace=1 or outofplace=1, got neither", "ignored")
    if range_.high is not None:
        chunk = -(-range_.high // algo.message_chunks)
        turns = -(-chunk // target.payload[algo.protocol])
        if turns > MAX_ITERATIONS:
            note(
                f"{turns} loop iterations at maxBytes; flags count to {MAX_ITERATIONS}",
                "",
                Severity.WARNING,
            )
    return note.found


def _msccl(algo: XmlAlgo, code: Code, note: _Notes) -> None:
    """Note attributes that only microsoft/msccl reads."""
    low = algo.min_bytes or 0
    high = algo.max_bytes if algo.max_bytes is not None else FACTS.absent_max_bytes
    if low < 0 or high < 0:
        note(f"minBytes, maxBytes: expected 0 or more, got {low} and {high}", "refused")
    elif low > high:
        note(f"minBytes: expected at most maxBytes {high}, got {low}", "refused")
    if algo.nthreads % 32 or algo.nthreads < 0:
        note(f"nthreads: expected a multiple of 32, got {algo.nthreads}", "refused")
    waits = int(np.diff(code.wait_start).max(initial=0))
    if 0 < algo.nthreads < waits:
        text = (
            f"nthreads: expected {waits} or more, one for each wait of a step, got {algo.nthreads}"
        )
        note(text, "late-wait")
    if algo.coll == "alltoall" and algo.inplace:
        note("inplace=1: msccl refuses alltoall in place", "ignored")
    if algo.coll == "alltoall" and algo.name == "2D":
        note("msccl takes an alltoall named 2D for its own", "intercepted")
    scratch = max((r.scratch_chunks for r in algo.ranks), default=0)
    total = max(0, high) * scratch // algo.message_chunks
    if total > FACTS.scratch_bytes:
        text = f"msccl allocates {total / (1 << 30):.0f} GiB of scratch for maxBytes at start-up"
        note(text, "memory", Severity.WARNING)


def portable(algo: XmlAlgo, code: Code) -> list[Finding]:
    """Note attributes that runtimes read differently."""
    note = _Notes()
    if algo.coll not in PORTABLE:
        text = f"coll: expected one that all runtimes know, got {algo.coll}"
        if algo.coll in ("reduce_scatter", "reducescatter"):
            text += ": msccl spells it reduce_scatter, rccl and executor reducescatter"
        note(text, "portable")
    if algo.max_bytes == 0:
        note("maxBytes 0 means no limit for rccl and executor, and no size for msccl", "portable")
    if int(np.count_nonzero((code.count == 0) & (code.op != OPS.index(Op.NOP)))):
        note("cnt 0 writes outside a table of msccl", "portable")
    return note.found


def notes(algo: XmlAlgo, code: Code, targets: list[Target]) -> list[Finding]:
    """Note correct attributes with a limitation."""
    letters = "".join(sorted({x for t in targets for x in t.letters}))
    found = []

    def note(text: str) -> None:
        found.append(Finding("use", Severity.NOTE, text))

    rooted = algo.coll in ("broadcast", "reduce")
    if rooted:
        note("the root is the file's; the caller's is ignored")
    if rooted and algo.protocol is Protocol.SIMPLE:
        note(
            f"{algo.coll} under Simple: safe over NVLink and PCIe peers only, the step count of "
            "the network proxy is wrong"
        )
    if "M" in letters and algo.inplace and algo.outofplace:
        note("msccl looks at inplace=1 only: out-of-place calls do not get the file")
    if "R" in letters and bool((code.op == OPS.index(Op.REDUCE)).any()):
        note(
            "rccl's re works on 16-byte vectors: aligned only for messages of a multiple of "
            f"{16 * algo.message_chunks} bytes"
        )
    if algo.coll in NO_MEANING:
        note(f"coll {algo.coll} lacks counts per peer: no runtime calls it usefully")
    if len(algo.name) > 63:
        note("only the first 63 characters of the name are kept")
    return found

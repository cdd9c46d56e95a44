"""The attributes of ``<algo>``: when a runtime selects the file, and what it costs."""

from __future__ import annotations

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import OPS, Code, Op, Protocol
from weft.dsl.nouns.runtime import MAX_ITERATIONS, Target

from ..formats.msccl.read.model import XmlAlgo
from .findings import Finding, Severity

MSCCL_MAX_BYTES = 1 << 27
"""Value that microsoft/msccl uses for an absent maxBytes."""
SCRATCH_BYTES = 16 << 30
"""Scratch that microsoft/msccl allocates at once; more is called out."""
PORTABLE = ("allreduce", "allgather", "alltoall", "broadcast", "reduce")
NO_MEANING = ("send", "recv", "gather", "scatter", "alltoallv")


@dataclass(frozen=True)
class Sizes:
    """Message bytes for which one runtime selects a file, both inclusive; ``high`` None: any."""

    low: int
    high: int | None

    @property
    def empty(self) -> bool:
        """Test whether there is no such message."""
        return self.high is not None and self.low > self.high

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low} bytes or more"
        return f"{self.low} … {self.high} bytes"


def sizes_of(algo: XmlAlgo, target: Target) -> Sizes:
    """Messages of which sizes a runtime takes the file for."""
    low = max(0, algo.min_bytes or 0)
    high = algo.max_bytes if algo.max_bytes is not None else MSCCL_MAX_BYTES
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
        note(f"nchunksperloop is {algo.message_chunks}", "crashes")
        return note.found
    if "M" in target.letters:
        _msccl(algo, code, note)
    range_ = sizes_of(algo, target)
    if range_.empty:
        low, high = algo.min_bytes or 0, algo.max_bytes
        text = f"no message size is from minBytes {low} to maxBytes {high}"
        note(text + (", which is excluded" if target.max_bytes_excluded else ""), "ignored")
    if algo.outofplace is False and not algo.inplace and target.letters != "M":
        note("neither inplace nor outofplace", "ignored")
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
    """Note what only microsoft/msccl looks at."""
    low = algo.min_bytes or 0
    high = algo.max_bytes if algo.max_bytes is not None else MSCCL_MAX_BYTES
    if low < 0 or high < 0:
        note("minBytes or maxBytes is negative", "refused")
    elif low > high:
        note(f"minBytes {low} is more than maxBytes {high}", "refused")
    if algo.nthreads % 32 or algo.nthreads < 0:
        note(f"nthreads {algo.nthreads} is not a multiple of 32", "refused")
    waits = int(np.diff(code.wait_start).max(initial=0))
    if 0 < algo.nthreads < waits:
        text = f"a step waits for {waits} others, one by a thread: nthreads is {algo.nthreads}"
        note(text, "late-wait")
    if algo.coll == "alltoall" and algo.inplace:
        note("inplace=1: msccl refuses alltoall in place", "ignored")
    if algo.coll == "alltoall" and algo.name == "2D":
        note("msccl takes an alltoall named 2D for its own", "intercepted")
    scratch = max((r.scratch_chunks for r in algo.ranks), default=0)
    total = max(0, high) * scratch // algo.message_chunks
    if total > SCRATCH_BYTES:
        text = f"msccl allocates {total / (1 << 30):.0f} GiB of scratch for maxBytes at start-up"
        note(text, "memory", Severity.WARNING)


def portable(algo: XmlAlgo, code: Code) -> list[Finding]:
    """Note what every runtime takes, but not in the same way."""
    note = _Notes()
    if algo.coll not in PORTABLE:
        text = f"coll {algo.coll} is not one that all runtimes know"
        if algo.coll in ("reduce_scatter", "reducescatter"):
            text += ": msccl spells it reduce_scatter, rccl and executor reducescatter"
        note(text, "portable")
    if algo.max_bytes == 0:
        note("maxBytes 0 means no limit for rccl and executor, and no size for msccl", "portable")
    if int(np.count_nonzero((code.count == 0) & (code.op != OPS.index(Op.NOP)))):
        note("cnt 0 writes outside a table of msccl", "portable")
    return note.found


def notes(algo: XmlAlgo, code: Code, targets: list[Target]) -> list[Finding]:
    """Note what is right and still good to know."""
    letters = "".join(sorted({x for t in targets for x in t.letters}))
    found = []

    def note(text: str) -> None:
        found.append(Finding("use", Severity.NOTE, text))

    rooted = algo.coll in ("broadcast", "reduce")
    if rooted:
        note("the root is the file's, whatever root the caller passes")
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
        note(f"coll {algo.coll} has no counts per peer: no runtime calls it with a use")
    if len(algo.name) > 63:
        note("only the first 63 characters of the name are kept")
    return found

"""Prove a code: addresses, connections, waits, deadlock, races, result, in this order.

Each family needs those before it: connections need a sound structure, the deadlock test needs
paired messages, the race proof needs a program without deadlock, the result one without races.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from weft.dsl.base.layers import EdgeLevels
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Code, Protocol

from ..judge.events import connect
from .accesses import accesses
from .bounds import CallerBuffers, bounds
from .connections import pairing, structure
from .deadlock import Hang, hang, waits
from .findings import Finding, Severity, at_transfers, errors
from .graph import Graph, expand, with_late_sends, without_relaxed_waits
from .meaning import meaning
from .races import LATE_SENDS, RELAXED, levels, races

MOST_CHUNKS = 20_000_000
"""A program that moves more chunks is not looked at."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that was proved, by the name of its check, in one sentence."""

    check: str
    detail: str


@dataclass(frozen=True)
class Claim:
    """Claim about a program or file that is to be proved.

    Attributes:
        placements: as ``in_place`` values; the result is that of one of ``collectives`` (of a
            broadcast with any root); no collective: the result is not judged.
        hangs: what a deadlock from some size on means; see :func:`~.checker._hang_of_xml`.
        weak_flags: prove it for RCCL's weaker flags as well.
    """

    code: Code
    buffers: CallerBuffers
    placements: Sequence[bool]
    collectives: Sequence[Collective]
    hangs: Callable[[Hang], list[Finding]]
    weak_flags: bool = False


@dataclass
class ProofVerdict:
    """Findings, and the proofs made before anything wrong was found."""

    findings: list[Finding] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    def step(self, found: list[Finding], check: str, proved: str) -> bool:
        """Note findings, or a proof if there is no error; True: the next family can be checked."""
        self.findings += found
        if errors(found):
            return False
        self.proofs.append(Proof(check, proved))
        return True


def prove(claim: Claim) -> ProofVerdict:
    """Everything wrong with a code, or the proof that it is right."""
    code, verdict = claim.code, ProofVerdict()
    found = structure(code)
    negative = np.flatnonzero(code.count < 0)
    found += at_transfers("structure", code, negative, "cnt is negative", kind="refused")
    if int(code.count.sum()) > MOST_CHUNKS:
        text = f"more than {MOST_CHUNKS} chunks are moved in all: not looked at"
        found.append(Finding("structure", Severity.ERROR, text))
    if found:
        verdict.findings = found
        return verdict
    text = f"all {code.instructions} steps stay in their buffers, counts included"
    sound = verdict.step(bounds(code, claim.buffers), "bounds", text)
    text = f"{len(connect(code)[0])} connections, one block at each end, messages of equal counts"
    if not verdict.step(pairing(code), "connections", text):
        return verdict
    graph = expand(code)
    text = f"all {len(code.wait_flag)} dependences are published"
    if verdict.step(waits(code, graph), "waits", text) and sound:
        _orders(claim, graph, verdict)
    elif sound is False and not errors([f for f in verdict.findings if f.check == "waits"]):
        _deadlock(claim, graph, verdict)
    return verdict


def _deadlock(claim: Claim, graph: Graph, verdict: ProofVerdict) -> bool:
    stop = hang(claim.code, graph)
    depth = claim.code.protocol.fifo_operations
    fifo = f"with FIFOs of {depth} operations ({claim.code.protocol})"
    if stop is None:
        text = f"none, {fifo}, for messages of any size and any number of loop iterations"
        return verdict.step([], "deadlock", text)
    text = f"none for the sizes of the file, {fifo}"
    return verdict.step(claim.hangs(stop), "deadlock", text)


def _orders(claim: Claim, graph: Graph, verdict: ProofVerdict) -> None:
    """Deadlock, then races and the result in every placement."""
    if not _deadlock(claim, graph, verdict):
        return
    edges = levels(graph)
    if len(edges.order) < graph.size:
        return  # a cycle without credits at every size; it was reported
    for in_place in claim.placements:
        how = "in place" if in_place else "out of place"
        text = f"every two accesses to one chunk, one a write, are ordered, {how}"
        found = races(graph, edges, claim.buffers, in_place=in_place)
        if not verdict.step(found, "races", text):
            continue
        if claim.weak_flags:
            verdict.findings += _weak(claim, graph, edges, in_place)
        if claim.collectives and not any(f.severity is Severity.WARNING for f in found):
            found = _result(claim, graph, edges, in_place)
            wanted = claim.collectives[0]
            text = f"every output chunk holds what {wanted} wants, nothing more or less, {how}"
            verdict.step(found, "result", text)


def _weak(claim: Claim, graph: Graph, edges: EdgeLevels, in_place: bool) -> list[Finding]:
    found = []
    modes = [(without_relaxed_waits, RELAXED)]
    if claim.code.protocol is not Protocol.SIMPLE:
        modes.append((with_late_sends, LATE_SENDS))
    for weaken, question in modes:
        weaker = weaken(graph)
        if len(weaker.kind) == len(graph.kind) and np.array_equal(weaker.source, graph.source):
            continue
        found += races(
            graph,
            edges,
            claim.buffers,
            in_place=in_place,
            question=question,
            weak=(weaker, levels(weaker)),
        )
    return found


def _result(claim: Claim, graph: Graph, edges: EdgeLevels, in_place: bool) -> list[Finding]:
    """Return what is wrong with the result for the collective that it fits best."""
    touched = accesses(graph, edges.order, claim.buffers, in_place)
    best: list[Finding] = []
    for k, collective in enumerate(claim.collectives):
        found = meaning(graph, touched, claim.buffers, collective, in_place=in_place)
        if not found:
            return []
        best = found if not k or len(found) < len(best) else best
    return best

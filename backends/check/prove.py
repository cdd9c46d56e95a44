"""Prove a code: addresses, connections, waits, deadlock, races, result, in this order.

Each family needs those before it: connections need a sound structure, the deadlock test needs
paired messages, the race proof needs a program without deadlock, the result one without races.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Ints
from weft.dsl.base.layers import EdgeLevels
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import RECEIVES, SENDS, Code, Protocol

from ..judge.events import connect
from ..judge.values import Values, WantedValues, wanted_of, waves
from .accesses import RANK_BITS, Accesses, accesses, block_of, place_name, places
from .bounds import CallerBuffers, bounds
from .findings import LIMITS, Finding, Severity, at_blocks, at_transfers, errors
from .graph import Edge, Graph, Hang, expand, hang, waits, with_late_sends, without_relaxed_waits
from .races import LATE_SENDS, RELAXED, levels, races


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
        hangs: findings of a deadlock from some size on; see :func:`~.checker._hang_of_xml`.
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
        """Note findings, or a proof if none is an error; True: the next family can be checked."""
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
    if int(code.count.sum()) > LIMITS.moved_chunks:
        text = f"more than {LIMITS.moved_chunks} chunks are moved in all: not looked at"
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
    """Return the faults of the result for the collective that it fits best."""
    touched = accesses(graph, edges.order, claim.buffers, in_place)
    best: list[Finding] = []
    for k, collective in enumerate(claim.collectives):
        found = meaning(graph, touched, claim.buffers, collective, in_place=in_place)
        if not found:
            return []
        best = found if not k or len(found) < len(best) else best
    return best


# Connections: peers that exist, one block at each end, as many messages sent as received.
#
# A connection (source, destination, channel) carries no tags: the k-th send meets the k-th receive.


def structure(code: Code) -> list[Finding]:
    """Block numbers and peers: 0, 1, 2 … on each rank; peers that exist and are others."""
    found: list[Finding] = []
    order = np.lexsort((code.block_id, code.block_rank))
    rank, number = code.block_rank[order], code.block_id[order]
    first = np.searchsorted(rank, np.arange(code.rank_count))
    wanted = np.arange(len(order)) - first[rank] if len(order) else order
    bad = np.flatnonzero(number != wanted)
    found += at_blocks(
        "structure",
        code,
        order[bad],
        lambda k: f"tb ids must be 0, 1, 2 …, and {wanted[bad[k]]} is missing or there twice",
        kind="refused",
    )
    found += _odd_peers(code, code.block_send, "send")
    found += _odd_peers(code, code.block_recv, "receive")
    block = code.block
    for does, peer, word in (
        (SENDS, code.block_send, "sends"),
        (RECEIVES, code.block_recv, "receives"),
    ):
        alone = np.flatnonzero(does[code.op] & (peer[block] < 0))
        text = f"{word}: expected a {word[:-1]} peer of its thread block, got none"
        found += at_transfers("structure", code, alone, text, kind="refused")
    return found


def _odd_peers(code: Code, peer: Ints, verb: str) -> list[Finding]:
    found: list[Finding] = []
    beyond = peer >= code.rank_count
    own = (peer < -1) | (peer == code.block_rank)
    for bad, kind in ((beyond, "peer-beyond"), (own, "refused")):
        odd = np.flatnonzero(bad)

        def message(k: int, odd: Ints = odd) -> str:
            return f"{verb} peer {peer[odd[k]]} is not another rank"

        found += at_blocks("structure", code, odd, message, kind=kind)
    return found


def pairing(code: Code) -> list[Finding]:
    """One block at each end; the same messages at both ends."""
    found: list[Finding] = []
    links, *sides = connect(code)
    number = len(links)
    for side, word in zip(sides, ("sending", "receiving"), strict=True):
        ends = np.bincount(side[side >= 0], minlength=number)
        for c in np.flatnonzero(ends > 1)[:20].tolist():
            text = f"{ends[c]} thread blocks share the {word} end of {_name(links, c)}"
            found.append(_finding(links, c, text, "shared"))
        for c in np.flatnonzero(ends == 0)[:20].tolist():
            text = f"{_name(links, c)} has no {word} block: setting it up hangs"
            found.append(_finding(links, c, text, "one-sided"))
    return found or _messages(code, links, sides)


def _messages(code: Code, links: Ints, sides: list[Ints]) -> list[Finding]:
    """Numbers and counts of messages; each connection has one block at each end here."""
    block = code.block
    some = code.count > 0
    columns = []
    for does, side in zip((SENDS, RECEIVES), sides, strict=True):
        moves = np.flatnonzero(does[code.op] & some)
        order = np.argsort(side[block[moves]], kind="stable")
        moves = moves[order]
        where = side[block[moves]]
        columns.append((moves, where, np.bincount(where, minlength=len(links))))
    (sends, _, sent), (receives, _, received) = columns
    found = []
    for c in np.flatnonzero(sent != received)[:20].tolist():
        text = f"{sent[c]} sends but {received[c]} receives on {_name(links, c)}"
        found.append(_finding(links, c, text, "message-number"))
    if found:
        return found
    # Sorted by connection and of equal numbers, the k-th entries meet.
    bad = np.flatnonzero(code.count[sends] != code.count[receives])
    return at_transfers(
        "connections",
        code,
        receives[bad],
        lambda k: (
            f"takes {code.count[receives[bad[k]]]} chunks, but "
            f"{code.describe(int(sends[bad[k]]))} sends "
            f"{code.count[sends[bad[k]]]}"
        ),
        kind="message-count",
    )


def _name(links: Ints, c: int) -> str:
    source, target, channel = links[c].tolist()
    return f"the connection from rank {source} to rank {target} on channel {channel}"


def _finding(links: Ints, c: int, text: str, kind: str) -> Finding:
    return Finding("connections", Severity.ERROR, text, int(links[c, 0]), kind=kind)


# Result of a program, as sets of contributions, against that of its collective.
#
# Races and deadlocks are excluded before, so every read sees one certain write and every value is a
# sum of contributions that does not depend on any order. The data flow is followed in as many array
# operations as it is deep. A value is exact: the group of chunks it belongs to and one bit for each
# contribution of that group; a sum of different groups, a contribution taken twice, or a value from
# unwritten memory can never become right again, because nothing is subtracted.


@dataclass(frozen=True)
class ValueFlow:
    """Data flow of a graph, in static single assignment.

    Attributes:
        term_start, term: CSR by operation: the values it adds; an index below ``graph.size`` is an
            operation's value, one above it (minus the size) an entry of ``first_place``.
        first_place: places that are read before anything is written to them.
        last_place, last: for each place that is written, the operation that writes it last.
    """

    graph: Graph
    term_start: Ints
    term: Ints
    first_place: Ints
    last_place: Ints
    last: Ints


def flow(graph: Graph, touched: Accesses) -> ValueFlow:
    """Return the data flow of a graph without races, from its accesses in order."""
    reads = np.flatnonzero(~touched.writes | touched.adds)
    previous = touched.previous[reads]
    fresh = reads[previous < 0]
    first_place, index = np.unique(touched.place[fresh], return_inverse=True)
    source = np.empty(len(reads), np.int64)
    source[previous >= 0] = touched.operation[previous[previous >= 0]]
    source[previous < 0] = graph.size + index
    message = graph.kind == Edge.MESSAGE
    owner = np.concatenate([touched.operation[reads], graph.target[message]])
    term = np.concatenate([source, graph.source[message]])
    sort = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[sort], np.arange(graph.size + 1))
    written = np.flatnonzero(touched.writes)
    final = np.ones(len(written), bool)
    final[:-1] = touched.place[written][1:] != touched.place[written][:-1]
    last = written[final]
    return ValueFlow(
        graph, start, term[sort], first_place, touched.place[last], touched.operation[last]
    )


def evaluate(data: ValueFlow, before: Values) -> Values:
    """Return the values of all operations and, after them, of ``first_place``."""
    size = data.graph.size
    values = Values.unwritten(size + len(data.first_place), before.words)
    values.put(np.arange(size, size + len(data.first_place)), before)
    for some, terms, number in waves(data.term_start, data.term):
        values.put(some, values.sums(terms, number))
    return values


def meaning(
    graph: Graph,
    touched: Accesses,
    buffers: CallerBuffers,
    collective: Collective,
    *,
    in_place: bool,
) -> list[Finding]:
    """Output chunks without the values of the collective; input that is overwritten."""
    wanted = wanted_of(collective)
    data = flow(graph, touched)
    at_first = places(buffers, in_place, wanted.pre_rank, 0, wanted.pre_offset)
    before = wanted.before.at(at_first, data.first_place)
    values = evaluate(data, before)
    target = places(buffers, in_place, wanted.rank, 1, wanted.offset)
    after = _final(data, values, wanted.before.at(at_first, target), target)
    bad = np.flatnonzero(~after.same(wanted.values))
    tell = _Teller(data, values, wanted, buffers, in_place, at_first)
    found = [tell.wrong(int(target[k]), int(k)) for k in bad[: LIMITS.findings].tolist()]
    if len(bad) > LIMITS.findings:
        found.append(
            tell.finding(f"… and {len(bad) - LIMITS.findings} more output chunks are wrong")
        )
    if not in_place:
        found += _overwritten(data, values, wanted, at_first, tell)
    return found


def _final(data: ValueFlow, values: Values, before: Values, target: Ints) -> Values:
    """Return the value of places at the end: the last write, or the value before the run."""
    at = np.searchsorted(data.last_place, target)
    at = np.minimum(at, max(len(data.last_place) - 1, 0))
    written = np.zeros(len(target), bool)
    if len(data.last_place):
        written = data.last_place[at] == target
    before.put(np.flatnonzero(written), values.take(data.last[at[written]]))
    return before


def _overwritten(
    data: ValueFlow, values: Values, wanted: WantedValues, at_first: Ints, tell: _Teller
) -> list[Finding]:
    """Out of place the send buffer is const: it must be unchanged at the end."""
    inputs = tell.inputs(data.last_place)
    place, last = data.last_place[inputs], data.last[inputs]
    bad = np.flatnonzero(~values.take(last).same(wanted.before.at(at_first, place)))
    found = []
    for k in bad[: LIMITS.findings].tolist():
        name = place_name(tell.buffers, False, int(place[k]))
        text = f"{name} is overwritten: the input must not change"
        found.append(tell.finding(text, int(last[k]), int(place[k]) >> RANK_BITS))
    return found


class _Teller:
    """Describes the values of a chunk in words."""

    def __init__(
        self,
        data: ValueFlow,
        values: Values,
        wanted: WantedValues,
        buffers: CallerBuffers,
        in_place: bool,
        at_first: Ints,
    ) -> None:
        self.data, self.values, self.wanted = data, values, wanted
        self.buffers, self.in_place = buffers, in_place
        self._at_first = at_first

    @cached_property
    def first(self) -> dict[int, int]:
        """The entry of the precondition that each input place holds."""
        return {place: k for k, place in enumerate(self._at_first.tolist())}

    def inputs(self, place: Ints) -> npt.NDArray[np.intp]:
        """Mark the places that are input chunks (out of place)."""
        rank = place >> RANK_BITS
        low = places(self.buffers, False, rank, 0, np.zeros(len(place), np.int64))
        return np.flatnonzero((place >= low) & (place < low + self.buffers.size[rank, 0]))

    def finding(self, text: str, operation: int = -1, rank: int | None = None) -> Finding:
        """Return a finding at an operation."""
        how = "in place" if self.in_place else "out of place"
        if operation < 0:
            return Finding("result", Severity.ERROR, f"{text}, {how}", rank, kind="result")
        code, transfer = self.data.graph.code, int(self.data.graph.transfer[operation])
        block = block_of(code, transfer)
        return Finding(
            "result",
            Severity.ERROR,
            f"{text}, {how}",
            int(code.block_rank[block]),
            int(code.block_id[block]),
            int(code.label[transfer]),
            "result",
        )

    def wrong(self, place: int, k: int) -> Finding:
        """Return the finding for an output chunk that violates entry ``k`` of the postcondition."""
        rank = place >> RANK_BITS
        name = place_name(self.buffers, self.in_place, place)
        at = int(np.searchsorted(self.data.last_place, place))
        written = at < len(self.data.last_place) and int(self.data.last_place[at]) == place
        want = self.wanted.contributions(k)
        if not written and place not in self.first:
            text = f"{name} is never written; wanted is {self.sum(Counter(want))}"
            return self.finding(text, rank=rank)
        operation = int(self.data.last[at]) if written else -1
        found, poison = self.contents(operation, place)
        if poison:
            where = ", ".join(sorted(poison)[:3])
            text = f"{name} comes from {where}, which was not written before"
            text += f"; wanted is {self.sum(Counter(want))}"
            return self.finding(text, operation, rank)
        text = f"{name} holds {self.sum(found)}; wanted is {self.sum(Counter(want))}"
        return self.finding(text + self.hint(operation), operation, rank)

    def hint(self, operation: int) -> str:
        """Return a remark on the semantics of ``rrc``, if a wrong value comes from one; else ''."""
        if operation < 0:
            return ""
        code, t = self.data.graph.code, int(self.data.graph.transfer[operation])
        # Only receives that also read have a source of their own to confuse.
        reads = (
            len(
                self.data.term[
                    self.data.term_start[operation] : self.data.term_start[operation + 1]
                ]
            )
            > 1
        )
        src = (int(code.src_buffer[t]), int(code.src_offset[t]))
        if (
            reads
            and RECEIVES[code.op[t]]
            and src != (int(code.dst_buffer[t]), int(code.dst_offset[t]))
        ):
            return " (the runtimes add the local src of rrc, not dst and not the sender's slice)"
        return ""

    def contents(self, operation: int, place: int) -> tuple[Counter[tuple[int, int]], set[str]]:
        """Return contributions with their multiplicities, and chunks that were never written."""
        found: Counter[tuple[int, int]] = Counter()
        poison: set[str] = set()
        size = self.data.graph.size
        todo: list[int] = [operation] if operation >= 0 else []
        if operation < 0:
            found.update(self.wanted.entry(self.first[place]))
        for _ in range(LIMITS.traced_operations):
            if not todo:
                break
            v = todo.pop()
            if v >= size:
                source = int(self.data.first_place[v - size])
                if source in self.first:
                    found.update(self.wanted.entry(self.first[source]))
                else:
                    poison.add(
                        f"rank {source >> RANK_BITS} "
                        f"{place_name(self.buffers, self.in_place, source)}"
                    )
                continue
            todo += self.data.term[self.data.term_start[v] : self.data.term_start[v + 1]].tolist()
        return found, poison

    def sum(self, found: Counter[tuple[int, int]]) -> str:
        """``x0[3] + 2·x1[3]``: rank and input chunk of each contribution."""
        parts = [
            (f"{times}·" if times > 1 else "") + self.wanted.name(*key)
            for key, times in sorted(found.items())
        ]
        if len(parts) > 12:
            parts = [*parts[:12], f"… {len(parts) - 12} more"]
        return " + ".join(parts) or "nothing"

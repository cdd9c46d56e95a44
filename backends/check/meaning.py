"""Result of a program, as sets of contributions, against what its collective wants.

Races and deadlocks are excluded before, so every read sees one certain write and every value is a
sum of contributions that does not depend on any order. The data flow is followed in as many array
operations as it is deep. A value is exact: the group of chunks it belongs to and one bit for each
contribution of that group; a sum of different groups, a contribution taken twice, or a value from
unwritten memory can never become right again, because nothing is subtracted.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import RECEIVES

from ..judge.values import Values, WantedValues, wanted_of, waves
from .accesses import RANK_BITS, Accesses, block_of, place_name, places
from .bounds import CallerBuffers
from .findings import MOST, Finding, Severity
from .graph import Edge, Graph

MOST_TRACED = 100_000
"""Operations looked through to say what a wrong chunk holds."""


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
    """Output chunks that do not hold what the collective wants; input that is overwritten."""
    wanted = wanted_of(collective)
    data = flow(graph, touched)
    at_first = places(buffers, in_place, wanted.pre_rank, 0, wanted.pre_offset)
    before = wanted.before.at(at_first, data.first_place)
    values = evaluate(data, before)
    target = places(buffers, in_place, wanted.rank, 1, wanted.offset)
    after = _final(data, values, wanted.before.at(at_first, target), target)
    bad = np.flatnonzero(~after.same(wanted.values))
    tell = _Teller(data, values, wanted, buffers, in_place, at_first)
    found = [tell.wrong(int(target[k]), int(k)) for k in bad[:MOST].tolist()]
    if len(bad) > MOST:
        found.append(tell.finding(f"… and {len(bad) - MOST} more output chunks are wrong"))
    if not in_place:
        found += _overwritten(data, values, wanted, at_first, tell)
    return found


def _final(data: ValueFlow, values: Values, before: Values, target: Ints) -> Values:
    """Return the value of places at the end: the last write, or what was there before."""
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
    """Out of place the send buffer is const: it must hold at the end what it held before."""
    inputs = tell.inputs(data.last_place)
    place, last = data.last_place[inputs], data.last[inputs]
    bad = np.flatnonzero(~values.take(last).same(wanted.before.at(at_first, place)))
    found = []
    for k in bad[:MOST].tolist():
        name = place_name(tell.buffers, False, int(place[k]))
        text = f"{name} is overwritten: the input must not change"
        found.append(tell.finding(text, int(last[k]), int(place[k]) >> RANK_BITS))
    return found


class _Teller:
    """Says in words what a chunk holds."""

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
        for _ in range(MOST_TRACED):
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

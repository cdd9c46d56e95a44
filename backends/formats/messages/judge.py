"""Judge of message graphs: pairs, deadlocks, and the final values of every output.

It knows nothing of how graphs are made: it takes what a file says. Values are sets of
contributions (:mod:`weft.backends.judge.values`); as no value is ever overwritten, one pass in any
order that the dependencies allow proves the result for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.layers import depths, least_first
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective

from ...check.findings import LIMITS, Finding, Severity
from ...execute.execute import Execution
from ...judge.values import Values, WantedValues, wanted_of, waves
from .model import GraphNode, GraphNodeKind, Key, MessageGraph, key_of


def check_graph(graph: MessageGraph) -> list[Finding]:
    """Return everything wrong with a graph; of a known collective, no error is a proof."""
    for check in (_form, _pairs):
        if found := list(islice(check(graph), LIMITS.findings)):
            return found
    order = order_of(graph)
    if found := list(islice(_hangs(order), LIMITS.findings)):
        return found
    if graph.collective is None:
        return [
            Finding("result", Severity.NOTE, "not judged: the file does not say what messages hold")
        ]
    return list(islice(_result(graph, graph.collective, order), LIMITS.findings))


def _error(check: str, text: str, rank: int, place: int | None = None) -> Finding:
    return Finding(check, Severity.ERROR, text, rank, step=place)


def _form(graph: MessageGraph) -> Iterator[Finding]:
    """Numbers that make sense: peers, sizes, nodes that exist."""
    ranks = len(graph.ranks)
    if graph.collective is not None and graph.collective.ranks != ranks:
        yield _error("form", f"{ranks} ranks, the collective has {graph.collective.ranks}", 0)
        return
    for rank, place, node in graph.nodes():
        if not node.local:
            if not 0 <= node.peer < ranks or node.peer == rank:
                text = f"a message to or from {node.peer}; peers are the others of {ranks}"
                yield _error("form", text, rank, place)
            if node.bytes < 1:
                yield _error("form", f"a message of {node.bytes} bytes", rank, place)
        named = (*node.needs, *node.waits, *node.after)
        if any(not 0 <= other < len(graph.ranks[rank]) or other == place for other in named):
            yield _error(
                "form", "it depends on itself, or on a node that is not there", rank, place
            )


Ends = list[tuple[int, int]]
"""Rank and position of nodes."""


def _ends_of(graph: MessageGraph) -> dict[Key, tuple[Ends, Ends]]:
    """Return the sends and the receives of each source, destination and tag, as they meet.

    Messages that share all three and their size meet in the order in which they are issued: that
    of the dependencies, or else of the file.
    """
    found: dict[Key, tuple[Ends, Ends]] = defaultdict(lambda: ([], []))
    for rank, place, node in graph.nodes():
        if not node.local:
            found[key_of(rank, node)][node.kind is GraphNodeKind.RECV].append((rank, place))
    issued: dict[int, list[int]] = {}

    def turn(end: tuple[int, int]) -> tuple[int, int]:
        rank, place = end
        if rank not in issued:
            issued[rank] = _issued(graph.ranks[rank])
        return graph.ranks[rank][place].bytes, issued[rank][place]

    for ends in found.values():
        for one in ends:
            if len(one) > 1:
                one.sort(key=turn)
    return found


def _issued(own: Sequence[GraphNode]) -> list[int]:
    """Return the place of each node in the order in which a rank issues them, of those that are
    ready the first in the file; nodes on a cycle, which the judge names, come last."""
    order = least_first([{*node.needs, *node.waits, *node.after} for node in own])
    turn = {place: count for count, place in enumerate(order)}
    return [turn.get(place, len(own)) for place in range(len(own))]


def _pairs(graph: MessageGraph) -> Iterator[Finding]:
    """Every send meets one receive of its size, by source, destination and tag.

    Tags are used again in the traces of others; where values are proved they name one message,
    because no order of nodes may change the result.
    """
    for (src, dst, tag), (sends, recvs) in _ends_of(graph).items():
        rank, place = (sends or recvs)[0]
        what = f"tag {tag} from {src} to {dst}"
        if max(len(sends), len(recvs)) > 1 and graph.collective is not None:
            yield _error("pairs", f"{what} names several messages", rank, place)
        elif len(sends) != len(recvs):
            text = f"{what}: one end is missing"
            if sends and recvs:
                text = f"{what}: {len(sends)} messages are sent, {len(recvs)} received"
            yield _error("pairs", text, rank, place)
        for send, recv in zip(sends, recvs, strict=False):
            sizes = [graph.ranks[rank][place].bytes for rank, place in (send, recv)]
            if len(sends) == len(recvs) and sizes[0] != sizes[1]:
                text = f"{what}: {sizes[0]} bytes are sent, {sizes[1]} received"
                yield _error("pairs", text, *send)


@dataclass(frozen=True, eq=False)
class GraphOrder:
    """All nodes numbered, rank after rank.

    Attributes:
        first: the number of each rank's first node.
        level: the longest chain of dependencies before each node; -1 for those on a cycle.
        send_of: for each receive the number of its send; -1 for other nodes.
    """

    first: Ints
    level: Ints
    send_of: Ints


def order_of(graph: MessageGraph) -> GraphOrder:
    """Return the levels of all nodes, whose messages pair up."""
    sizes = np.array([len(own) for own in graph.ranks], np.int64)
    first = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    send_of = np.full(total, -1, np.int64)
    for sends, recvs in _ends_of(graph).values():
        for (rank, place), (other, there) in zip(sends, recvs, strict=True):
            send_of[first[other] + there] = first[rank] + place
    ends = [
        (int(first[rank]) + other, int(first[rank]) + place)
        for rank, place, node in graph.nodes()
        for other in (*node.needs, *node.waits, *node.after)
    ]
    met = np.flatnonzero(send_of >= 0)
    source, target = np.concatenate(
        [np.array(ends, np.int64).reshape(-1, 2), np.stack([send_of[met], met], axis=1)]
    ).T
    level = depths(total, source, target)
    return GraphOrder(first, level, send_of)


def _hangs(order: GraphOrder) -> Iterator[Finding]:
    """Nodes that wait for each other."""
    for number in np.flatnonzero(order.level < 0).tolist():
        rank = int(np.searchsorted(order.first, number, side="right")) - 1
        place = number - int(order.first[rank])
        yield _error("deadlock", "it never starts: a cycle of dependencies", rank, place)


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Terms:
    """The summands of every node, as rows: those of nodes first, then those of inputs, then one for
    inputs that are not there.

    ``rows``: of all nodes, one after another; ``start[i]:start[i + 1]`` those of node i.
    """

    inputs: dict[tuple[int, int], int]
    start: Ints
    rows: Ints

    @staticmethod
    def of(graph: MessageGraph, wanted: WantedValues, order: GraphOrder) -> _Terms:
        nodes = len(order.level)
        places = zip(wanted.pre_rank.tolist(), wanted.pre_offset.tolist(), strict=True)
        inputs = {place: nodes + row for row, place in enumerate(places)}
        rows: list[list[int]] = []
        for number, (rank, _, node) in enumerate(graph.nodes()):
            if node.kind is GraphNodeKind.RECV:
                rows.append([int(order.send_of[number])])
                continue
            own = [inputs.get((rank, offset), nodes + len(inputs)) for offset in node.inputs]
            rows.append([*own, *(int(order.first[rank]) + other for other in node.needs)])
        start = np.cumsum([0, *map(len, rows)])
        return _Terms(inputs, start, np.array([x for own in rows for x in own], np.int64))

    @property
    def given(self) -> Ints:
        """The rows of inputs."""
        return len(self.start) - 1 + np.arange(len(self.inputs))

    @property
    def size(self) -> int:
        """All rows."""
        return len(self.start) + len(self.inputs)

    def ends(self, graph: MessageGraph) -> tuple[Ints, Ints]:
        """Return places (rank << 32 | offset) of outputs, and the rows whose values end there."""
        where, row = [], []
        for number, (rank, _, node) in enumerate(graph.nodes()):
            where += [rank << 32 | offset for offset in node.outputs]
            row += [number] * len(node.outputs)
        for rank, own in enumerate(graph.copies):
            where += [rank << 32 | there for _, there in own]
            row += [self.inputs.get((rank, here), self.size - 1) for here, _ in own]
        return np.array(where, np.int64), np.array(row, np.int64)


def _result(graph: MessageGraph, collective: Collective, order: GraphOrder) -> Iterator[Finding]:
    """Every output holds the values of the collective, once."""
    for rank, place, node in graph.nodes():
        if node.kind is GraphNodeKind.SEND and len(node.needs) + len(node.inputs) != 1:
            text = f"a send of {len(node.needs) + len(node.inputs)} values, not of one"
            yield _error("result", text, rank, place)
    wanted = wanted_of(collective)
    terms = _Terms.of(graph, wanted, order)
    held = Values.unwritten(terms.size, wanted.values.words)
    held.put(terms.given, wanted.before)
    for nodes, rows, count in waves(terms.start, terms.rows):
        held.put(nodes, held.sums(rows, count))
    where, row = terms.ends(graph)
    if len(distinct_values(where)) != len(where):
        yield _error("result", "two values end in one place of the output", int(where[0] >> 32))
        return
    found = held.take(row).at(where, wanted.rank << 32 | wanted.offset)
    for k in np.flatnonzero(~found.same(wanted.values)).tolist():
        text = f"o[{int(wanted.offset[k])}] does not end with what the collective wants"
        yield _error("result", text, int(wanted.rank[k]))


# --- data -----------------------------------------------------------------------------------------


def run_graph(graph: MessageGraph, collective: Collective, seed: int) -> Execution:
    """Move random 64-bit integers as the graph says, and compare with the collective's sums."""
    wanted = wanted_of(collective)
    terms = _Terms.of(graph, wanted, order_of(graph))
    rng = np.random.default_rng(seed)
    words = wanted.values.words
    groups = int(max(wanted.before.group.max(initial=0), wanted.values.group.max(initial=0))) + 1
    drawn = rng.integers(0, 1 << 63, (groups, 64 * words), np.uint64)
    data = np.zeros(terms.size, np.uint64)
    data[terms.given] = _numbers(wanted.before, drawn)
    for nodes, rows, count in waves(terms.start, terms.rows):
        data[nodes] = np.add.reduceat(data[rows], np.cumsum(count) - count)
    where, row = terms.ends(graph)
    at = dict(zip(where.tolist(), data[row].tolist(), strict=True))
    places = (wanted.rank << 32 | wanted.offset).tolist()
    right = _numbers(wanted.values, drawn).tolist()
    wrong = [p for p, value in zip(places, right, strict=True) if at.get(p) != value]
    if wrong:
        rank, offset = wrong[0] >> 32, wrong[0] & 0xFFFFFFFF
        return Execution(False, f"rank {rank} o[{offset}] is wrong")
    sends = graph.count(GraphNodeKind.SEND)
    return Execution(True, f"{sends} messages of random integers: all results right")


def _numbers(values: Values, drawn: np.ndarray) -> np.ndarray:
    """Return the sums of the numbers that were drawn for the contributions of each value."""
    bits = np.unpackbits(
        values.bits.astype("<u8").view(np.uint8).reshape(len(values.bits), -1),
        axis=1,
        bitorder="little",
    ).astype(np.uint64)
    total: np.ndarray = (bits * drawn[values.group]).sum(axis=1, dtype=np.uint64)
    return total

"""Schedules and algorithms to message graphs: one message for each transfer, one sum for each
reducing arrival.

Before (one step of a ring)::

    chunk 2: 0 -> 1, reduce

After::

    rank 0: send 4096 B to 1, tag 7, needs node 5      rank 1: node 6: recv from 0, tag 7
                                                               node 7: sum, needs nodes 6 and 3

A transfer waits for the last node that wrote its chunk, and for nothing else: what another step
brings later is another value, so that nothing is ever overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import groupby, pairwise
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.slots import INPUT, NONE, OUTPUT, Aliases
from weft.dsl.nouns.topology import Topology

from .model import LIMITS, GraphNode, GraphNodeKind, MessageGraph

SumTime = Callable[[int], int]
"""Picoseconds that a sum takes, by its bytes."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value on a rank: of a node, or (``node`` is -1) of the input at an offset."""

    node: int = -1
    offset: int = -1


@dataclass(slots=True)
class _GraphWriter:
    """Nodes of all ranks, as they are added."""

    collective: Collective
    message_bytes: int
    sum_ps: SumTime
    ranks: list[list[GraphNode]] = field(default_factory=list)
    tags: int = 0

    def __post_init__(self) -> None:
        self.ranks = [[] for _ in range(self.collective.ranks)]

    def size(self, grains: int) -> int:
        """Bytes of ``grains`` grains, rounded up: never 0, which simulators reject."""
        return max(1, -(-self.message_bytes * grains // self.collective.message_chunks))

    def add(self, rank: int, node: GraphNode, values: Sequence[_Value] = ()) -> _Value:
        """Add a node that takes some values; return its own."""
        own = self.ranks[rank]
        needs = tuple(dict.fromkeys(v.node for v in values if v.node >= 0))
        inputs = tuple(v.offset for v in values if v.node < 0)
        own.append(replace(node, needs=needs, inputs=inputs))
        return _Value(len(own) - 1)

    def message(
        self, src: int, dst: int, grains: int, value: _Value, route: tuple[int, ...] = ()
    ) -> _Value:
        """Add both ends of a message; return the value that it brings."""
        size, tag = self.size(grains), self.tags
        self.tags += 1
        self.add(src, GraphNode(GraphNodeKind.SEND, size, dst, tag, route=route), (value,))
        return self.add(dst, GraphNode(GraphNodeKind.RECV, size, src, tag))

    def sum(self, rank: int, grains: int, values: Sequence[_Value]) -> _Value:
        """Add a sum."""
        size = self.size(grains)
        return self.add(rank, GraphNode(GraphNodeKind.SUM, size, ps=self.sum_ps(size)), values)

    def done(self, name: str, ends: Iterable[tuple[int, int, _Value]]) -> MessageGraph:
        """Return the graph; ``ends``: rank, offset in the output, and the value that ends there."""
        outputs: dict[tuple[int, int], list[int]] = defaultdict(list)
        copies: list[list[tuple[int, int]]] = [[] for _ in self.ranks]
        for rank, offset, value in ends:
            if value.node < 0:
                copies[rank].append((value.offset, offset))
            else:
                outputs[rank, value.node].append(offset)
        for (rank, place), offsets in outputs.items():
            own = self.ranks[rank]
            own[place] = replace(own[place], outputs=tuple(sorted(offsets)))
        return MessageGraph(
            name,
            tuple(map(tuple, self.ranks)),
            self.collective,
            self.message_bytes,
            tuple(tuple(sorted(own)) for own in copies),
        )


def _require_size(nodes: int) -> None:
    if nodes > LIMITS.nodes:
        raise UserError(
            f"{nodes} sends, receives and sums are too many for simulators; {LIMITS.nodes} are "
            "written at most",
            hint="fewer segments, or fewer chunks",
        )


def graph_of_schedule(
    schedule: Schedule, name: str, message_bytes: int, sum_ps: SumTime
) -> MessageGraph:
    """Return the graph of a verified schedule without segments of its own.

    Messages stand in the schedule's order, each with a tag of its own. Copies that bring only what
    is there already are sent, and nothing waits for them.

    Raises:
        UserError: it is too large.
    """
    _require_size(2 * len(schedule) + int(schedule.reduce.sum()))
    c = schedule.collective
    writer = _GraphWriter(c, message_bytes, sum_ps)
    held = {
        (rank, chunk): (_Value(offset=offset), _mask(c, who))
        for rank, chunk, who, offset in c.pre.rows().tolist()
    }
    grains = c.grains.tolist()
    ends, links = schedule.route_start.tolist(), schedule.route_links.tolist()
    routes = [tuple(links[a:b]) for a, b in pairwise(ends)]
    for _, transfers in groupby(_rows(schedule), key=lambda row: row[0]):
        arriving = [(row, held[row[2], row[1]]) for row in transfers]
        for (_, chunk, src, dst, reduce), (value, mask) in arriving:
            brought = writer.message(src, dst, grains[chunk], value, routes[writer.tags])
            there = held.get((dst, chunk))
            if there is None:
                held[dst, chunk] = brought, mask
            elif reduce:
                total = writer.sum(dst, grains[chunk], (brought, there[0]))
                held[dst, chunk] = total, mask | there[1]
            elif mask != there[1]:
                held[dst, chunk] = brought, mask
    return writer.done(name, _ends(writer, held))


def _mask(c: Collective, who: int) -> int:
    return sum(1 << rank for rank in c.contributions[who])


def _rows(schedule: Schedule) -> Iterator[tuple[int, int, int, int, bool]]:
    s = schedule
    columns = (s.step, s.chunk, s.src, s.dst, s.reduce)
    return zip(*(column.tolist() for column in columns), strict=True)


def _ends(
    writer: _GraphWriter, held: dict[tuple[int, int], tuple[_Value, int]]
) -> Iterator[tuple[int, int, _Value]]:
    """Yield the chunks and their final places; those of one place are summed there."""
    rows = writer.collective.post.rows().tolist()
    rows.sort(key=lambda row: (row[0], row[3], row[1]))
    for (rank, offset), own in groupby(rows, key=lambda row: (row[0], row[3])):
        total: _Value | None = None
        for _, chunk, _, _ in own:
            value = held[rank, chunk][0]
            grains = int(writer.collective.grains[chunk])
            total = value if total is None else writer.sum(rank, grains, (total, value))
        assert total is not None
        yield rank, offset, total


def graph_of_algorithm(algorithm: Algorithm, message_bytes: int, sum_ps: SumTime) -> MessageGraph:
    """Return the graph of an algorithm: each move from rank to rank is a message.

    Copies inside a rank are not written to these files, and cost nothing.

    Raises:
        UserError: it is too large.
    """
    c, moves = algorithm.collective, algorithm.moves
    _require_size(2 * len(moves) + int(moves.reduce.sum()))
    writer = _GraphWriter(c, message_bytes, sum_ps)
    alias = Aliases.of(c, algorithm.in_place)
    held = {
        (rank, alias.name(rank, INPUT + offset)): _Value(offset=offset)
        for rank, _, _, offset in c.pre.rows().tolist()
    }
    columns = (moves.src, moves.source, moves.dst, moves.target, moves.operand)
    for src, source, dst, target, operand in zip(*(x.tolist() for x in columns), strict=True):
        value = held[src, alias.name(src, source)]
        if src != dst:
            value = writer.message(src, dst, 1, value)
        if operand != NONE:
            value = writer.sum(dst, 1, (value, held[dst, alias.name(dst, operand)]))
        held[dst, alias.name(dst, target)] = value
    places = {(rank, offset) for rank, _, _, offset in c.post.rows().tolist()}
    ends = [(rank, at, held[rank, alias.name(rank, OUTPUT + at)]) for rank, at in sorted(places)]
    return writer.done(algorithm.name, ends)


# --- order ----------------------------------------------------------------------------------------


def in_turns(
    graph: MessageGraph, schedule: Schedule, start_us: Sequence[float], one_port: bool = False
) -> MessageGraph:
    """Return the graph of a schedule with the ports of messages, and the sends of each port one
    after another, by their starts in weft's simulation.

    Of a message the tag is the transfer's place in the schedule. A port of a rank is a link of the
    machine; ``one_port``: each rank has only one.
    """
    first = schedule.route_links[schedule.route_start[:-1]].tolist()
    last = schedule.route_links[schedule.route_start[1:] - 1].tolist()
    number = _ports(schedule.topology)

    def turn(rank: int, node: GraphNode) -> tuple[int, Any]:
        if node.local:
            return 0, (0.0, 0)
        sends = node.kind is GraphNodeKind.SEND
        port = number[first[node.tag] if sends else last[node.tag]][not sends]
        return (0 if one_port else port), (
            start_us[node.tag],
            (node.peer - rank) % len(graph.ranks),
        )

    return ported(
        graph, [[turn(rank, node) for node in own] for rank, own in enumerate(graph.ranks)]
    )


def _ports(topology: Topology) -> list[tuple[int, int]]:
    """Return for each link its number among those that leave its source, and enter its end."""
    leaving, entering = [0] * len(topology.nodes), [0] * len(topology.nodes)
    found = []
    for link in topology.links:
        found.append((leaving[link.src], entering[link.dst]))
        leaving[link.src] += 1
        entering[link.dst] += 1
    return found


def ported(graph: MessageGraph, ports: Sequence[Sequence[tuple[int, Any]]]) -> MessageGraph:
    """Return the graph with the ports of messages, and the sends of each port one after another.

    ``ports[rank]``: for each node of the rank its port, and its turn there.
    """
    ranks = []
    for own, places in zip(graph.ranks, ports, strict=True):
        sends = [i for i, node in enumerate(own) if node.kind is GraphNodeKind.SEND]
        order = sorted(sends, key=lambda i: (*places[i], i))
        before = dict(zip(order[1:], order, strict=False))
        follows = {i: b for i, b in before.items() if places[i][0] == places[b][0]}
        ranks.append(
            tuple(
                replace(node, port=places[i][0], after=(follows[i],) if i in follows else ())
                for i, node in enumerate(own)
            )
        )
    return replace(graph, ranks=tuple(ranks))


def with_turns(graph: MessageGraph) -> MessageGraph:
    """Return a graph whose sends wait for turns, where they had to start after other sends.

    The turn of a send waits for all that the send waits for, and for the turn before it; this
    expresses the order of sends in formats without "after the start of".
    """
    ranks = []
    for own in graph.ranks:
        sends = [i for i, node in enumerate(own) if node.after]
        sends = sorted({*sends, *(other for i in sends for other in own[i].after)})
        turn = {i: len(own) + k for k, i in enumerate(sends)}
        nodes = [
            replace(node, after=(), waits=(*node.waits, turn[i])) if i in turn else node
            for i, node in enumerate(own)
        ]
        for i in sends:
            before = (turn[other] for other in own[i].after)
            waits = (*own[i].needs, *own[i].waits, *before)
            nodes.append(GraphNode(GraphNodeKind.TURN, waits=waits))
        ranks.append(tuple(nodes))
    return replace(graph, ranks=tuple(ranks))

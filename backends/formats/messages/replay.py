"""Replay of a message graph on ports that serve whole messages, first come first served.

A message passes its hops one after another: each has a port, which it holds for a while, and takes
some time to the next. So the rules of simulators that store messages at every device differ in the
hops only. Time is a whole number of units; of messages that come at one instant, the first
that was issued goes first: ranks in order, then nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.synth.time.routes import Route, routes_of

from .judge import order_of
from .model import GraphNode, GraphNodeKind, Key, MessageGraph, key_of

Hop = tuple[int, int, int]
"""A port, how long a message holds it, and when it is at the next (from its start)."""

Hops = Callable[[int, GraphNode], Sequence[Hop]]
"""The hops of the message that a rank's send begins."""


def router(graph: MessageGraph, topology: Topology) -> Callable[[int, GraphNode], Route]:
    """Return a function from a rank's send to the links of its message: the route in the file, or
    the fastest one of the machine where the file names none that leads there.

    Where parallel cables join two ranks, messages without a route take them in turn.

    Raises:
        BadTopology: two ranks that talk are not joined.
    """
    links = topology.links

    def leads(rank: int, node: GraphNode) -> bool:
        at = rank
        for number in node.route:
            if number >= len(links) or links[number].src != at:
                return False
            at = links[number].dst
        return at == node.peer

    ways: dict[Key, Route] = {}
    free = []
    for rank, _, node in graph.nodes():
        if node.kind is GraphNodeKind.SEND:
            if leads(rank, node):
                ways[key_of(rank, node)] = node.route
            else:
                free.append(key_of(rank, node))
    ways |= zip(free, routes_of(topology, free), strict=True)
    return lambda rank, node: ways[key_of(rank, node)]


@dataclass(frozen=True, slots=True)
class ReplayRule:
    """Rule of a simulator: hops of messages, units that a sum takes, and when a send is over.

    ``on_arrival``: a send is over when its message has arrived; otherwise as soon as it starts.
    ``mixed``: nodes that are free at one instant are issued in an order that has nothing to do with
    the file's (but is always the same).
    """

    hops: Hops
    work: Callable[[GraphNode], int]
    on_arrival: bool
    mixed: bool = False


def replayed(graph: MessageGraph, rule: ReplayRule) -> int:
    """Return when the last node of a graph without errors is over, in units of the rule."""
    run = _MessageReplay(graph, rule)
    run.go()
    return run.last


class _MessageReplay:
    """A run: nodes wait for others, messages for ports. Nodes are numbered rank after rank."""

    def __init__(self, graph: MessageGraph, rule: ReplayRule) -> None:
        order = order_of(graph)
        first = order.first.tolist()
        self.rule = rule
        self.nodes = [(rank, node) for rank, _, node in graph.nodes()]
        self.on_start: list[list[int]] = [[] for _ in self.nodes]
        self.on_end: list[list[int]] = [[] for _ in self.nodes]
        self.missing = [0] * len(self.nodes)
        self.recv_of = {send: recv for recv, send in enumerate(order.send_of.tolist()) if send >= 0}
        for number, (rank, node) in enumerate(self.nodes):
            for other in (*node.needs, *node.waits):
                self.on_end[first[rank] + other].append(number)
            for other in node.after:
                self.on_start[first[rank] + other].append(number)
            self.missing[number] = len(node.needs) + len(node.waits) + len(node.after)
        self.free: dict[int, int] = {}
        self.posted: dict[int, int] = {}
        self.brought: dict[int, int] = {}
        self.last = 0
        self.events: list[tuple[int, int, int, int]] = []  # time, turn, node, hop (or -1: it ends)
        self.turn = 0

    def go(self) -> None:
        """Carry everything out."""
        self._issue_all([n for n, missing in enumerate(self.missing) if not missing], 0)
        while self.events:
            now, _, number, hop = heappop(self.events)
            if hop < 0:
                self._end(number, now)
            else:
                self._travel(number, hop, now)

    def _push(self, time: int, number: int, hop: int) -> None:
        heappush(self.events, (time, self.turn, number, hop))
        self.turn += 1

    def _issue(self, number: int, now: int) -> None:
        node = self.nodes[number][1]
        if node.kind is GraphNodeKind.SEND:
            self._push(now, number, 0)
            return
        self._started(number, now)
        if node.kind is not GraphNodeKind.RECV:
            self._push(now + self.rule.work(node), number, -1)
        elif number in self.brought:
            self._push(max(now, self.brought[number]), number, -1)
        else:
            self.posted[number] = now

    def _travel(self, number: int, hop: int, now: int) -> None:
        """A message is at a port: it goes on when that is free, or has arrived."""
        rank, node = self.nodes[number]
        hops = self.rule.hops(rank, node)
        if hop == len(hops):
            self._arrived(number, now)
            return
        port, holds, takes = hops[hop]
        start = max(now, self.free.get(port, 0))
        self.free[port] = start + holds
        self._push(start + takes, number, hop + 1)
        if not hop:
            if not self.rule.on_arrival:
                self._push(start, number, -1)
            if self.on_start[number]:
                self._started(number, start)

    def _arrived(self, number: int, now: int) -> None:
        if self.rule.on_arrival:
            self._push(now, number, -1)
        recv = self.recv_of[number]
        self.brought[recv] = now
        if recv in self.posted:
            self._push(now, recv, -1)

    def _started(self, number: int, now: int) -> None:
        self._satisfied(self.on_start[number], now)

    def _end(self, number: int, now: int) -> None:
        self.last = max(self.last, now)
        self._satisfied(self.on_end[number], now)

    def _satisfied(self, numbers: Sequence[int], now: int) -> None:
        for number in numbers:
            self.missing[number] -= 1
        free = [number for number in dict.fromkeys(numbers) if not self.missing[number]]
        self._issue_all(free, now)

    def _issue_all(self, numbers: Sequence[int], now: int) -> None:
        if self.rule.mixed:  # in the order of Knuth's multiplicative hash
            numbers = sorted(numbers, key=lambda number: number * 2654435761 & 0xFFFFFFFF)
        for number in numbers:
            self._issue(number, now)

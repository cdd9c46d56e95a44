"""Predict the time of a script on a machine: α–β time by the rule of docs/simulation.md.

A rank's round begins when its last one ended and its local work is done. A message starts when
both its ends are in the round and all links and shared resources of its route are free; it occupies
each of them for bytes ÷ that one's own bandwidth, leaves when the slowest is done, and arrives α
later. Waiting messages start in the order in which they became ready, and one that must wait does
not block the others. A rank's messages are done when all it sends has left and all it receives has
arrived. Local sums take bytes ÷ ``sum_GBps``; copies take no time. ``overhead_us`` is added to
what a message occupies, of everything that it holds: LogP's o, as the simulator has it.

Times are whole ticks, so that equal times are equal.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.program import offsets
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.fabric import fabric_of
from weft.synth.time import queue_kernel as q
from weft.synth.time.routes import Route, routes_of

from .model import Script

TICKS = 10**6
"""Of a µs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """µs until the last rank is through, and for each rank until it is."""

    time_us: float
    rank_us: tuple[float, ...]


def predict(
    script: Script,
    topology: Topology,
    message_bytes: int,
    *,
    sum_GBps: float = 0.0,
    overhead_us: float = 0.0,
) -> Prediction:
    """Return the time of a call with a message of that many bytes; ``sum_GBps``: 0 means at once.

    Cost: O(messages · log), some µs each.

    Raises:
        BadTopology: other ranks than the script has, or no way between two that talk.
        UserError: a size below one byte, or a rate or an overhead below 0.
    """
    if topology.ranks != script.collective.ranks:
        raise BadTopology(
            f"the script is for {script.collective.ranks} ranks, "
            f"{topology.name} has {topology.ranks}"
        )
    if message_bytes < 1 or min(sum_GBps, overhead_us) < 0:
        raise UserError("a message has bytes; rates and overheads are not negative")
    chunk = message_bytes / script.collective.message_chunks
    run = _RoundSimulation(_plan(script, topology, chunk, sum_GBps, overhead_us), topology.ranks)
    run.go()
    ends = tuple(x / TICKS for x in run.time)
    return Prediction(max(ends), ends)


@dataclass(frozen=True, slots=True)
class _MessageCost:
    """Resources a message occupies, each with its duration, and the times it leaves and arrives."""

    holds: tuple[tuple[int, int], ...]
    leaves: int
    arrives: int


@dataclass(frozen=True, slots=True)
class _MessageTable:
    """Messages by number, the earlier rounds first; those of each rank's rounds, and its work."""

    ends: list[tuple[int, int]]
    costs: list[_MessageCost]
    of_round: list[list[list[int]]]
    work: list[list[int]]
    rows: int


def _plan(
    script: Script, topology: Topology, chunk: float, sum_GBps: float, overhead_us: float
) -> _MessageTable:
    messages: list[tuple[int, int, int, int]] = []
    of_round: list[list[list[int]]] = [[[] for _ in own] for own in script.ranks]
    for number in range(script.rounds):
        turn: dict[tuple[int, int], int] = defaultdict(int)
        for rank, own in enumerate(script.ranks):
            for send in own[number].sends:
                k = turn[rank, send.peer]
                turn[rank, send.peer] = k + 1
                for end in (rank, send.peer):
                    of_round[end][number].append(len(messages))
                messages.append((rank, send.peer, k, send.part.count))
    connections = sorted({(a, b, k) for a, b, k, _ in messages})
    route = dict(zip(connections, routes_of(topology, connections), strict=True))
    fabric = fabric_of(topology)
    per_byte = [TICKS / float(x * BYTES_PER_US_PER_GBPS) for x in fabric.bandwidth]

    @cache
    def cost(links: Route, count: int) -> _MessageCost:
        holds: dict[int, int] = defaultdict(lambda: round(overhead_us * TICKS))
        for link in links:
            for row in fabric.loaded[link]:
                holds[row] += max(1, round(per_byte[row] * chunk * count))
        leaves = max(holds.values())
        alpha = round(float(sum(topology.links[i].latency for i in links)) * TICKS)
        return _MessageCost(tuple(holds.items()), leaves, leaves + alpha)

    per_sum = TICKS / (sum_GBps * BYTES_PER_US_PER_GBPS) if sum_GBps else 0.0
    work = [
        [
            round(per_sum * chunk * sum(w.into.count for w in one.work if len(w.terms) > 1))
            for one in own
        ]
        for own in script.ranks
    ]
    return _MessageTable(
        [(a, b) for a, b, _, _ in messages],
        [cost(route[a, b, k], n) for a, b, k, n in messages],
        of_round,
        work,
        len(per_byte),
    )


class _RoundSimulation:
    """A run: rounds of ranks, and messages that queue (:mod:`weft.synth.time.queue_kernel`).

    Events are about a row (it is free), or about a rank: ``-1 - rank`` says that one of its
    messages is through, ``-1 - ranks - rank`` that its next round begins.
    """

    def __init__(self, plan: _MessageTable, ranks: int) -> None:
        self.plan = plan
        self.ranks = ranks
        self.time = [0] * ranks
        self.round = [0] * ranks
        self.left = [0] * ranks  # messages of the rank's round that are not through
        self.both = [False] * len(plan.ends)  # whether one end is there already
        self.m, self.first = _memory(plan, ranks)

    def go(self) -> None:
        """Carry everything out."""
        m, heap = self.m, self.m[q.EVENTS_AT]
        for rank in range(self.ranks):
            q.push(m, 0, -1 - self.ranks - rank)
        while m[q.EVENTS]:
            m[q.NOW] = now = m[heap + q.TIME]
            while m[q.EVENTS] and m[heap + q.TIME] == now:
                what = q.pop(m)
                if what >= 0:
                    q.add_head(m, m[what + q.QUEUE], what)
                elif what >= -self.ranks:
                    self._through(-1 - what, now)
                else:
                    self._begin(-1 - self.ranks - what, now)
            while m[q.HEADS]:
                client = q.next_started(m)
                if client >= 0:
                    self._start((client - self.first) // q.CLIENT_COLUMNS, now)

    def _through(self, rank: int, now: int) -> None:
        """A message of the rank's round is through; if it is the last, it works, and goes on."""
        self.time[rank] = now
        self.left[rank] -= 1
        if not self.left[rank]:
            self._next(rank, now)

    def _next(self, rank: int, now: int) -> None:
        self.time[rank] = now + self.plan.work[rank][self.round[rank]]
        self.round[rank] += 1
        q.push(self.m, self.time[rank], -1 - self.ranks - rank)

    def _begin(self, rank: int, now: int) -> None:
        """Post the round's messages; those whose other end is posted as well are ready."""
        if self.round[rank] == len(self.plan.of_round[rank]):
            return
        own = self.plan.of_round[rank][self.round[rank]]
        self.left[rank] = len(own)
        for number in own:
            if self.both[number]:
                client = self.first + number * q.CLIENT_COLUMNS
                self.m[client + q.KEY] = now
                q.add_head(self.m, client, -1)
            self.both[number] = True
        if not own:
            self._next(rank, now)

    def _start(self, number: int, now: int) -> None:
        cost = self.plan.costs[number]
        source, target = self.plan.ends[number]
        q.push(self.m, now + cost.leaves, -1 - source)
        q.push(self.m, now + cost.arrives, -1 - target)


def _memory(plan: _MessageTable, ranks: int) -> tuple[list[int], int]:
    """Return the memory of the queues, and where its clients begin: the messages."""
    index = {cost: leg for leg, cost in enumerate(dict.fromkeys(plan.costs))}
    lengths = np.array([len(cost.holds) for cost in index], np.int64)
    holds = np.array([hold for cost in index for hold in cost.holds], object).reshape(-1, 2)
    legs = offsets(lengths), holds[:, 0], holds[:, 1]
    ends = np.array([(cost.leaves, cost.arrives) for cost in index], object).reshape(-1, 2)
    leg = np.array([index[cost] for cost in plan.costs], np.int64)
    # At a time a rank has one event that begins a round; a message has two that are under way.
    m, first = q.memory_of(plan.rows, legs, ends, leg, ranks + 2 * len(leg))
    return m.tolist(), first

"""How long a script takes on a machine: α–β time by the rule of docs/simulation.md, for rounds.

A rank's round begins when its last one ended and its local work is done. A message starts when
both its ends are in the round and all links and shared resources of its route are free; it occupies
each of them for bytes ÷ that one's own bandwidth, leaves when the slowest is done, and arrives α
later. Of those that wait the first ready is the first served, and one that must wait keeps nobody
else from starting. A rank's messages are through when what it sends has left and what it receives
has arrived. Local sums take bytes ÷ ``sum_GBps``; copies take no time. ``overhead_us`` is added to
what a message occupies, of everything that it holds: LogP's o, as the simulator has it.

Times are whole ticks, so that equal times are equal.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.fabric import fabric_of
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
    """The time of a call with a message of so many bytes; ``sum_GBps``: 0 means at once.

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
    run = _Run(_plan(script, topology, chunk, sum_GBps, overhead_us), topology.ranks)
    run.go()
    ends = tuple(x / TICKS for x in run.time)
    return Prediction(max(ends), ends)


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a message holds, for how long each; when it has left, and when it is there."""

    holds: tuple[tuple[int, int], ...]
    leaves: int
    arrives: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """Messages by number, the earlier rounds first; those of each rank's rounds, and its work."""

    ends: list[tuple[int, int]]
    costs: list[_Cost]
    of_round: list[list[list[int]]]
    work: list[list[int]]
    rows: int


def _plan(
    script: Script, topology: Topology, chunk: float, sum_GBps: float, overhead_us: float
) -> _Plan:
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
    def cost(links: Route, count: int) -> _Cost:
        holds: dict[int, int] = defaultdict(lambda: round(overhead_us * TICKS))
        for link in links:
            for row in fabric.loaded[link]:
                holds[row] += max(1, round(per_byte[row] * chunk * count))
        leaves = max(holds.values())
        alpha = round(float(sum(topology.links[i].latency for i in links)) * TICKS)
        return _Cost(tuple(holds.items()), leaves, leaves + alpha)

    per_sum = TICKS / (sum_GBps * BYTES_PER_US_PER_GBPS) if sum_GBps else 0.0
    work = [
        [
            round(per_sum * chunk * sum(w.into.count for w in one.work if len(w.terms) > 1))
            for one in own
        ]
        for own in script.ranks
    ]
    return _Plan(
        [(a, b) for a, b, _, _ in messages],
        [cost(route[a, b, k], n) for a, b, k, n in messages],
        of_round,
        work,
        len(per_byte),
    )


Key = tuple[int, int]
"""When a message was ready, and its number: the order of service."""


class _Run:
    """The machine at some time."""

    def __init__(self, plan: _Plan, ranks: int) -> None:
        self.plan = plan
        self.time = [0] * ranks
        self.round = [0] * ranks
        self.left = [0] * ranks  # messages of the rank's round that are not through
        self.both = [False] * len(plan.ends)  # whether one end is there already
        self.free_at = [0] * plan.rows
        self.waiting: list[list[Key]] = [[] for _ in range(plan.rows)]
        self.begins = [(0, rank) for rank in range(ranks)]
        self.throughs: list[tuple[int, int]] = []  # when, at which rank
        self.frees: list[tuple[int, int]] = []  # when, which row

    def go(self) -> None:
        """Carry everything out."""
        queues = (self.begins, self.throughs, self.frees)
        while any(queues):
            now = min(queue[0][0] for queue in queues if queue)
            while self.throughs and self.throughs[0][0] == now:
                self._through(heappop(self.throughs)[1], now)
            new: list[Key] = []
            while self.begins and self.begins[0][0] == now:
                self._begin(heappop(self.begins)[1], now, new)
            rows = set()
            while self.frees and self.frees[0][0] == now:
                rows.add(heappop(self.frees)[1])
            self._serve(now, new, sorted(rows))

    def _through(self, rank: int, now: int) -> None:
        """A message of the rank's round is through; if it is the last, it works, and goes on."""
        self.time[rank] = now
        self.left[rank] -= 1
        if not self.left[rank]:
            self._next(rank, now)

    def _next(self, rank: int, now: int) -> None:
        self.time[rank] = now + self.plan.work[rank][self.round[rank]]
        self.round[rank] += 1
        heappush(self.begins, (self.time[rank], rank))

    def _begin(self, rank: int, now: int, new: list[Key]) -> None:
        """Post the round's messages; those whose other end is posted as well are ready."""
        if self.round[rank] == len(self.plan.of_round[rank]):
            return
        own = self.plan.of_round[rank][self.round[rank]]
        self.left[rank] = len(own)
        for number in own:
            if self.both[number]:
                heappush(new, (now, number))
            self.both[number] = True
        if not own:
            self._next(rank, now)

    def _serve(self, now: int, new: list[Key], rows: list[int]) -> None:
        """Start what can be: of the new messages, and of those that wait for rows now free."""
        while True:
            queues = [new, *(self.waiting[row] for row in rows if self.free_at[row] <= now)]
            first = min((queue for queue in queues if queue), default=None, key=_head)
            if first is None:
                return
            key = heappop(first)
            cost = self.plan.costs[key[1]]
            held = next((row for row, _ in cost.holds if self.free_at[row] > now), None)
            if held is None:
                self._start(key[1], cost, now)
            else:
                heappush(self.waiting[held], key)

    def _start(self, number: int, cost: _Cost, now: int) -> None:
        for row, ticks in cost.holds:
            self.free_at[row] = now + ticks
            heappush(self.frees, (now + ticks, row))
        source, target = self.plan.ends[number]
        heappush(self.throughs, (now + cost.leaves, source))
        heappush(self.throughs, (now + cost.arrives, target))


def _head(queue: list[Key]) -> Key:
    return queue[0]

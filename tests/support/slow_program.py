"""A slow simulator of programs that reads like the rule of docs/simulation.md; no skipping.

Everything is looked at again at every instant. It shares nothing with the one it judges but the
nouns and the numbers of the runtime.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.program import Op, Program
from weft.dsl.nouns.topology import Topology
from weft.synth.time.runtime_model import RuntimeModel

Operation = tuple[int, int, int, int]  # rank, block, instruction, piece


@dataclass
class Slow:
    """One run; ``time`` is its result, in µs."""

    program: Program
    topology: Topology
    size: int
    model: RuntimeModel
    now: Fraction = Fraction(0)
    events: list[tuple[Fraction, str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        p = self.program
        how = self.model.protocols[p.protocol]
        self.how = how
        self.chunk = Fraction(self.size, p.message_chunks)
        self.turns = math.ceil(self.chunk / how.payload)
        rooted = p.collective.kind in ("broadcast", "reduce") and how.rooted_payload
        fits = (rooted or how.payload) // math.ceil(self.chunk)
        self.merge = min(71, max(1, fits))
        self.blocks = {(r, b): x for r, y in enumerate(p.ranks) for b, x in enumerate(y.blocks)}
        self.code = {key: self.pieces(*key) for key in self.blocks}
        self.at = dict.fromkeys(self.blocks, 0)  # operations done, over all turns
        self.sent: dict[object, int] = {}
        self.arrived: dict[object, int] = {}
        self.received: dict[object, int] = {}
        self.held: set[object] = set()
        self.sending: set[object] = set()
        self.paid: dict[object, Fraction] = {}
        self.queue: dict[object, Fraction] = {}
        self.route = self.routes()

    def routes(self) -> dict[object, tuple[int, ...]]:
        """Least α, widest, shortest; connections of a pair take equal ones in turn."""
        links, hops = self.topology.links, find_hops(self.topology)

        def worth(route: tuple[int, ...]) -> tuple[Fraction, Fraction, int]:
            alpha = sum((links[i].latency for i in route), Fraction(0))
            return alpha, -min(links[i].bandwidth for i in route), len(route)

        found: dict[object, tuple[int, ...]] = {}
        pairs: dict[tuple[int, int], set[int]] = {}
        for (a, _), x in self.blocks.items():
            if x.send is not None:
                pairs.setdefault((a, x.send), set()).add(x.channel)
        for (a, b), channels in pairs.items():
            routes = [hops.hops[i].route for i in hops.between(a, b)]
            best = sorted(r for r in routes if worth(r) == min(map(worth, routes)))
            for k, channel in enumerate(sorted(channels)):
                found[a, b, channel] = best[k % len(best)]
        return found

    def pieces(self, rank: int, block: int) -> list[tuple[Operation, int]]:
        """(operation, chunks) of one turn."""
        found = []
        for i, x in enumerate(self.blocks[rank, block].code):
            number = 1 if x.op is Op.NOP else max(1, math.ceil(x.count / self.merge))
            for k in range(number):
                found.append(((rank, block, i, k), min(self.merge, x.count - k * self.merge)))
        return found

    def bytes_of(self, chunks: int, turn: int) -> Fraction:
        last = self.chunk - (self.turns - 1) * self.how.payload
        each = last if turn == self.turns - 1 else min(self.chunk, Fraction(self.how.payload))
        return each * chunks

    def holds(self, route: tuple[int, ...], size: Fraction) -> dict[object, Fraction]:
        held: dict[object, Fraction] = {}
        for i in route:
            t = self.topology
            rows = [(i, t.links[i].bandwidth)]
            rows += [(r.name, r.bandwidth) for r in t.resources if i in r.links]
            for row, speed in rows:
                busy = size / (speed * 1000 * self.how.efficiency)
                held[row] = held.get(row, Fraction(0)) + busy
        return held

    def alpha(self, route: tuple[int, ...]) -> Fraction:
        return sum((self.topology.links[i].latency for i in route), Fraction(0)) * self.how.alpha

    def connection(self, key: tuple[int, int], out: bool) -> object:
        x = self.blocks[key]
        return (key[0], x.send, x.channel) if out else (x.recv, key[0], x.channel)

    @property
    def time(self) -> Fraction:
        order = self.precedence()
        end = Fraction(0)
        while True:
            moved = True
            while moved:
                moved = sum(self.step(key) for key in self.blocks) > 0
                for key in sorted(self.queue, key=lambda k: (self.queue[k], order[self.op(k)])):
                    moved |= self.start(key)
            if all(self.at[k] == self.turns * len(self.code[k]) for k in self.blocks):
                return end
            self.now = min(e[0] for e in self.events)
            due = [e for e in self.events if e[0] == self.now]
            self.events = [e for e in self.events if e[0] != self.now]
            for _, what, about in due:
                if what == "free":
                    self.held.discard(about)
                elif what == "left":
                    self.sending.discard(about)
                    self.at[about] += 1
                elif what == "arrives":
                    self.arrived[about] = self.arrived.get(about, 0) + 1
            end = self.now

    def op(self, key: tuple[int, int]) -> Operation:
        return self.code[key][self.at[key] % len(self.code[key])][0]

    def step(self, key: tuple[int, int]) -> bool:
        """Try to go on with a block; whether anything happened."""
        code = self.code[key]
        if key in self.sending or key in self.queue or self.at[key] == self.turns * len(code):
            return False
        turn, place = divmod(self.at[key], len(code))
        operation, chunks = code[place]
        x = self.blocks[key].code[operation[2]]
        moves = x.count > 0
        if key not in self.paid:
            if operation[3] == 0 and not all(self.done(key[0], w, turn) for w in x.waits):
                return False
            into, out = self.connection(key, False), self.connection(key, True)
            if x.op.receives and moves and self.arrived.get(into, 0) <= self.received.get(into, 0):
                return False
            ahead = self.sent.get(out, 0) - self.received.get(out, 0)
            if x.op.sends and moves and ahead >= self.how.slots:
                return False
            extra = Fraction(self.model.overhead_us)
            if x.op in (Op.COPY, Op.REDUCE) and self.model.local_GBps != math.inf:
                extra += self.bytes_of(chunks, turn) / (1000 * Fraction(self.model.local_GBps))
            self.paid[key] = self.now + extra
            self.events.append((self.now + extra, "paid", key))
        if self.paid[key] > self.now:
            return False
        del self.paid[key]
        if x.op.sends and moves:
            self.queue[key] = self.now
            return True
        if x.op.receives and moves:
            into = self.connection(key, False)
            self.received[into] = self.received.get(into, 0) + 1
        self.at[key] += 1
        return True

    def done(self, rank: int, wait: tuple[int, int], turn: int) -> bool:
        other = (rank, wait[0])
        code = self.code[other]
        last = max(i for i, (o, _) in enumerate(code) if o[2] == wait[1])
        return self.at[other] > turn * len(code) + last

    def start(self, key: tuple[int, int]) -> bool:
        """Send what a block has queued, if nothing of its way is held."""
        turn, place = divmod(self.at[key], len(self.code[key]))
        operation, chunks = self.code[key][place]
        route = self.route[self.connection(key, True)]
        holds = self.holds(route, self.bytes_of(chunks, turn))
        if self.held & holds.keys():
            return False
        del self.queue[key]
        self.sending.add(key)
        self.held |= holds.keys()
        for row, time in holds.items():
            self.events.append((self.now + time, "free", row))
        out = self.connection(key, True)
        self.sent[out] = self.sent.get(out, 0) + 1
        if self.blocks[key].code[operation[2]].op.receives:
            into = self.connection(key, False)
            self.received[into] = self.received.get(into, 0) + 1
        left = self.now + max(holds.values())
        self.events += [(left, "left", key), (left + self.alpha(route), "arrives", out)]
        return True

    def precedence(self) -> dict[Operation, tuple[Fraction, int, Operation]]:
        """Longest way behind it first, then farthest round the ranks, then the block."""
        ends: dict[object, list[Operation]] = {}
        for key, code in self.code.items():
            for o, _ in code:
                x = self.blocks[key].code[o[2]]
                if x.op.receives and x.count:
                    ends.setdefault(self.connection(key, False), []).append(o)
        meets: dict[Operation, Operation] = {}
        chunks_of: dict[Operation, int] = {}
        follows: dict[Operation, list[Operation]] = {}
        for key, code in self.code.items():
            k = 0
            for i, (o, chunks) in enumerate(code):
                chunks_of[o] = chunks
                follows.setdefault(o, [])
                if i + 1 < len(code):
                    follows[o].append(code[i + 1][0])
                x = self.blocks[key].code[o[2]]
                if x.op.sends and x.count:
                    meets[o] = ends[self.connection(key, True)][k]
                    k += 1
                for b, j in x.waits if o[3] == 0 else ():
                    last = [q for q, _ in self.code[key[0], b] if q[2] == j][-1]
                    follows.setdefault(last, []).append(o)

        @cache
        def tail(o: Operation) -> Fraction:
            x = self.blocks[o[:2]].code[o[2]]
            own = Fraction(self.model.overhead_us)
            first_turn = 0 if self.turns > 1 else self.turns - 1
            size = self.bytes_of(chunks_of[o], first_turn)
            if x.op in (Op.COPY, Op.REDUCE) and self.model.local_GBps != math.inf:
                own += size / (1000 * Fraction(self.model.local_GBps))
            best = own
            if o in meets:
                route = self.route[self.connection(o[:2], True)]
                own += max(self.holds(route, size).values())
                best = max(own, own + self.alpha(route) + tail(meets[o]))
            return max([best, *(own + tail(q) for q in follows[o])])

        n = len(self.program.ranks)

        def far(o: Operation) -> int:
            send = self.blocks[o[:2]].send
            return 0 if send is None else (send - o[0]) % n

        return {o: (-tail(o), -far(o), o) for o in follows}

"""Execution of a plan on all GPUs: threads, channels, the network, successive launches.

Scheduling is not fair. A **policy** picks which thread goes next and how far; writes into a peer's
memory arrive when they must (a thread that takes a releasing signal sees all writes before it) or
at any time before; what is posted to a port channel is read and delivered later, puts in any order,
a signal after the puts before it. A relaxed signal brings nothing along. Every GPU begins its next
launch as soon as its own blocks have finished, whatever the others do: its caller then looks at the
output, and fills the buffers anew.

Every thread does the events of its block for itself, as a generator that yields what it waits for.
Which elements of an event it handles is drawn anew for every event and run (small messages keep few
threads busy), so that a missing ``nop`` shows.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ...execute.layout import BufferLayout
from .plan.events import Counter, Does, MemoryPlace, PlanEvent, Unfit, events
from .plan.model import LIMITS, Channel, ExecutionPlan

POLICIES = ("uniform", "bursts", "greedy", "priorities", "latest", "slow rank")
"""Policies that pick the next thread."""

LATENESS = (0.0, 0.02, 0.3, 1.0)
"""Probabilities that a message in transit arrives before a thread goes on."""

SHARES = (
    (slice(0, None, 2), slice(1, None, 2)),
    (slice(1, None, 2), slice(0, None, 2)),
    (slice(None), slice(0, 0)),
    (slice(0, 0), slice(None)),
)
"""The elements of thread 0 and thread 1, in the ways that a run may choose from."""

Awaited = tuple[str, int, Any]
"""Event that a thread waits for: its kind, its rank, and which one."""

STEP: Awaited = ("step", 0, 0)
"""An event is done: the thread goes on."""

LATER: Awaited = ("later", 0, 0)
"""The thread has read, and writes when it is scheduled again."""

MET: Awaited = ("met", 0, 0)
"""The thread waits for others; the last one wakes all."""


# --- memory ---------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Write:
    """Values in transit to the memory of a rank; ``marks`` are set with them."""

    rank: int
    target: AnyArray
    values: AnyArray
    marks: AnyArray | None
    mark: int
    packets: bool
    done: bool = False


class PlanMemory:
    """The buffers of all GPUs in one data type. Scratch is kept from launch to launch.

    The callers' buffers are one array (:mod:`weft.backends.execute.layout` says where everything
    lies); scratch is one array per GPU beside another of **marks**. A packet of a chunk takes two
    cells of scratch: the value, and the mark that says in which launch it was written. A plain
    write leaves mark 0. Under LL scratch therefore has twice the cells, and with double scratch two
    halves that alternate by launch.
    """

    def __init__(
        self, plan: ExecutionPlan, place: BufferLayout, elements: int, dtype: np.dtype[Any]
    ) -> None:
        self.layout, self.elements = place, elements
        self.user: AnyArray = np.zeros(place.rows * elements, dtype)
        self.halves = 2 if plan.double_scratch else 1
        each = 2 if plan.packets else 1
        self.half = [gpu.scratch_chunks * elements * each for gpu in plan.gpus]
        self.scratch = [np.full(size * self.halves, 99, dtype) for size in self.half]
        self.marks = [np.zeros(size * self.halves, np.int64) for size in self.half]

    def reset(self) -> None:
        """Prepare a run: values that an earlier run left in scratch do not count."""
        for values, marks in zip(self.scratch, self.marks, strict=True):
            values.fill(99)
            marks.fill(0)

    def views(self, place: MemoryPlace, launch: int) -> tuple[AnyArray, AnyArray | None]:
        """Return the values of a place and the marks that go with them, in a launch."""
        if place.buffer is not Buffer.SCRATCH:
            column = 0 if place.buffer is Buffer.INPUT else 1
            base = int(self.layout.base[place.rank, column]) * self.elements
            return self.user[base + place.start : base + place.stop], None
        half = 0 if place.first else launch % self.halves
        begin = half * self.half[place.rank]
        values, marks = self.scratch[place.rank], self.marks[place.rank]
        if place.packets:
            low, high = begin + 2 * place.start, begin + 2 * place.stop
            return values[low:high:2], marks[low + 1 : high + 1 : 2]
        low, high = begin + place.start, begin + place.stop
        return values[low:high], marks[low:high]


# --- threads --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Thread:
    """A thread: its event, and its writes since the last meeting of its block."""

    block: BlockRun
    number: int
    pc: int = 0
    launch: int = 0
    turns: Iterator[Awaited] = iter(())
    writes: list[Write] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class BlockRun:
    """A thread block: its events, its threads, and their writes up to their last meeting.

    ``shares``: the number of each event among those whose elements the threads divide.
    """

    rank: int
    number: int
    events: list[PlanEvent]
    shares: list[int]
    threads: list[Thread] = field(default_factory=list)
    arrived: list[Thread] = field(default_factory=list)
    written: list[Write] = field(default_factory=list)


def _require_receivers(plan: ExecutionPlan, own: Sequence[PlanEvent]) -> None:
    """Refuse signals, waits and flushes of switch channels, which have no other end."""
    for event in own:
        if event.does in (Does.GIVE, Does.TAKE, Does.FLUSH):
            step = event.step
            for op, _ in plan.gpus[step.rank].blocks[step.block].ops[step.index].turns():
                if op.channel is Channel.SWITCH and str(op.op) == step.name:
                    raise Unfit(
                        f"`{op.op}` on rank {step.rank}: no switch channel {min(op.ids, default=0)}"
                    )


class PlanMachine:
    """A plan ready to run on memory of one data type.

    ``begin(rank, launch)`` is called before a launch, and ``finish`` after it: it may say what is
    wrong, and that ends the run.
    """

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory) -> None:
        self.plan, self.memory = plan, memory
        self.blocks: list[list[BlockRun]] = []
        self.divided = 0
        for rank, blocks in enumerate(events(plan, memory.elements)):
            self.blocks.append([])
            for number, own in enumerate(blocks):
                _require_receivers(plan, own)
                divided = np.cumsum([bool(e.writes) for e in own]) + self.divided - 1
                made = BlockRun(rank, number, own, divided.tolist())
                made.threads = [Thread(made, k) for k in range(LIMITS.threads)]
                self.divided += sum(bool(e.writes) for e in own)
                self.blocks[-1].append(made)
        self._does: dict[Does, Callable[[Thread, PlanEvent, slice], Iterator[Awaited] | None]] = {
            Does.GIVE: self._give,
            Does.TAKE: self._take,
            Does.MOVE: self._move,
            Does.SUM: self._sum,
            Does.SWITCH: self._switch,
            Does.POST: self._post,
            Does.FORWARD: self._forward,
            Does.FLUSH: self._flush,
        }
        self._clear(random.Random(0))

    def _clear(self, rng: random.Random) -> None:
        self.rng = rng
        self.tokens: dict[Counter, deque[tuple[Write, ...]]] = defaultdict(deque)
        self.posted: dict[Counter, deque[tuple[Any, Counter | None]]] = defaultdict(deque)
        self.queues: list[Counter] = []  # ports with something posted
        self.travelling: list[Write] = []
        self.values = [list(gpu.semaphores) for gpu in self.plan.gpus]
        self.gathered: dict[tuple[int, int], list[Thread]] = {}
        self.waiting: dict[Awaited, list[Thread]] = {}
        self.runnable: list[Thread] = []
        self.shares = rng.choices(SHARES, k=max(1, self.divided))
        self.left = [0] * len(self.blocks)
        self.launches = [0] * len(self.blocks)
        self.steps = 0

    # --- what threads do ------------------------------------------------------------------------

    def _turns(self, t: Thread) -> Iterator[Awaited]:
        """Do the events of a block, as one of its threads."""
        block, fresh = t.block, True
        for t.pc, event in enumerate(block.events):
            if not fresh:
                yield STEP
            fresh = event.does in (Does.MEET, Does.BARRIER)
            if fresh:
                t.pc += 1
                self._meet(t, event)
                yield MET
                continue
            share = self.shares[block.shares[t.pc]][t.number] if event.writes else slice(0)
            waits = self._does[event.does](t, event, share)
            if waits is not None:
                yield from waits

    def _give(self, t: Thread, e: PlanEvent, share: slice) -> None:
        """Thread k raises the k-th counter: at once, or after posted writes."""
        for k in range(t.number, len(e.counters), LIMITS.threads):
            counter = e.counters[k]
            if e.ports:
                self._hand(e.ports[k], None, counter)
                continue
            carried = () if e.relaxed else self._written_by(t)
            if counter[0] == "semaphore":
                self._arrive(carried)
                self.values[counter[1]][counter[2]] += 1
                self._wake(("semaphore", *counter[1:]))
            else:
                self._signal(counter, carried)

    def _take(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Thread k takes from the k-th counter."""
        for counter in e.counters[t.number :: LIMITS.threads]:
            kind, rank, number = counter
            if kind == "semaphore":
                while self.values[rank][number] <= 0:
                    yield counter
                self.values[rank][number] -= 1
                continue
            while not self.tokens[counter]:
                yield "signal", rank, counter
            carried = self.tokens[counter].popleft()
            if not e.relaxed:
                self._arrive(carried)

    def _move(self, t: Thread, e: PlanEvent, share: slice) -> None:
        """Copy each source to its target."""
        for source, sink in zip(e.reads, e.writes, strict=True):
            self._write(t, sink, share, self.memory.views(source, t.launch)[0][share])

    def _sum(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Sum up plain values and packets; write the result to all sinks.

        The plain operands are read when the thread comes here, before it waits for packets.
        """
        plain = [self.memory.views(p, t.launch)[0][share] for p in e.reads if not p.packets]
        total = _total(plain)
        if plain and self._pauses():
            yield LATER
        packets = [p for p in e.reads if p.packets]
        yield from self._packets(t, packets, share)
        arrived = [self.memory.views(p, t.launch)[0][share] for p in packets]
        total = _total(arrived if total is None else [total, *arrived])
        for sink in e.writes:
            self._write(t, sink, share, total)

    def _switch(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Load the sum of all sources (or the one local source, packets once they are there) and
        store it on all members, some time.
        """
        yield from self._packets(t, [p for p in e.reads if p.packets], share)
        total = _total([self.memory.views(p, t.launch)[0][share] for p in e.reads])
        if self._pauses():
            yield LATER
        for sink in e.writes:
            self._travel(t, sink, share, total)

    def _packets(self, t: Thread, places: Iterable[MemoryPlace], share: slice) -> Iterator[Awaited]:
        """Wait until packets of this launch are there."""
        marks = [m[share] for p in places if (m := self.memory.views(p, t.launch)[1]) is not None]
        while any((m != t.launch).any() for m in marks):
            yield "packets", t.block.rank, 0

    def _post(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Thread k posts the k-th put and then its signal, if any; the source is read later."""
        for k in range(t.number, len(e.reads), LIMITS.threads):
            self._hand(e.ports[k], (e.reads[k], e.writes[k], t.launch), None)
            if e.counters:
                self._hand(e.ports[k], None, e.counters[k])
        if e.flushes:
            yield STEP
            yield from self._flush(t, e, share)

    def _forward(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Wait for packets, meet, and post them."""
        yield from self._packets(t, e.reads[:1], share)
        yield STEP
        self._meet(t, e)
        yield MET
        for k in range(t.number, len(e.writes), LIMITS.threads):
            self._hand(e.ports[k], (e.reads[0], e.writes[k], t.launch), None)

    def _flush(self, t: Thread, e: PlanEvent, share: slice) -> Iterator[Awaited]:
        """Thread k waits until everything posted on the k-th port is done."""
        mine = e.ports[t.number :: LIMITS.threads]
        while busy := next((port for port in mine if self.posted[port]), None):
            yield "flush", 0, busy

    # --- what they do it with -------------------------------------------------------------------

    def _pauses(self) -> bool:
        """Test if a thread stops between reading and writing."""
        return self.rng.random() < 0.3

    def _write(self, t: Thread, sink: MemoryPlace, share: slice, values: Any) -> None:
        """Into own memory at once; into a peer's, some time."""
        if sink.rank != t.block.rank:
            self._travel(t, sink, share, values)
            return
        target, marks = self.memory.views(sink, t.launch)
        target[share] = values
        if marks is not None:
            marks[share] = t.launch if sink.packets else 0
            if sink.packets:
                self._wake(("packets", sink.rank, 0))

    def _travel(self, t: Thread, sink: MemoryPlace, share: slice, values: Any) -> None:
        """Into memory some time; packets get the launch's mark."""
        target, marks = self.memory.views(sink, t.launch)
        some = None if marks is None else marks[share]
        mark = t.launch if sink.packets else 0
        write = Write(sink.rank, target[share], values.copy(), some, mark, sink.packets)
        self.travelling.append(write)
        t.writes.append(write)

    def _written_by(self, t: Thread) -> tuple[Write, ...]:
        """Return the writes that a thread's release covers: its own, others' before the meeting.

        What it stored through a switch into its own GPU's memory has arrived when it releases.
        """
        carried = tuple(w for w in (*t.block.written, *t.writes) if not w.done)
        self._arrive(w for w in carried if w.rank == t.block.rank)
        return carried

    def _arrive(self, writes: Iterable[Write]) -> None:
        """Apply pending writes to memory."""
        for write in writes:
            if write.done:
                continue
            write.target[...] = write.values
            if write.marks is not None:
                write.marks[...] = write.mark
            write.done = True
            if write.packets:
                self._wake(("packets", write.rank, 0))

    def _signal(self, counter: Counter, carried: tuple[Write, ...]) -> None:
        """One more signal on the other end of a channel, if it has one."""
        if counter[1] >= 0:
            self.tokens[counter].append(carried)
            self._wake(("signal", counter[1], counter))

    def _hand(self, port: Counter, put: Any, signal: Counter | None) -> None:
        """Hand a put (source, sink, launch), or a signal, to the proxy of a port channel."""
        if not self.posted[port]:
            self.queues.append(port)
        self.posted[port].append((put, signal))

    def _wake(self, key: Awaited) -> None:
        if key in self.waiting:
            self.runnable += self.waiting.pop(key)

    def _meet(self, t: Thread, event: PlanEvent) -> None:
        """Once all threads of a block have met, the writes of each are those of the block."""
        block = t.block
        block.arrived.append(t)
        if len(block.arrived) < LIMITS.threads:
            return
        threads, block.arrived = block.arrived, []
        block.written = [w for w in block.written if not w.done]
        for one in threads:
            block.written += [w for w in one.writes if not w.done]
            one.writes = []
        if event.does is Does.BARRIER:
            number, blocks = event.barrier
            gathered = self.gathered.setdefault((block.rank, number), [])
            gathered += threads
            if len(gathered) < blocks * LIMITS.threads:
                return
            threads = self.gathered.pop((block.rank, number))
            self._arrive([w for b in {one.block for one in threads} for w in b.written])
        for one in threads:
            if one.pc == len(one.block.events):
                self.left[one.block.rank] -= 1
            else:
                self.runnable.append(one)

    # --- the network ----------------------------------------------------------------------------

    def _something_arrives(self) -> bool:
        """Deliver one thing that is on its way; False if nothing is."""
        while self.travelling or self.queues:
            k = int(self.rng.random() * (len(self.travelling) + len(self.queues)))
            if k >= len(self.travelling):
                self._deliver_posted(k - len(self.travelling))
                return True
            write = self.travelling[k]
            self.travelling[k] = self.travelling[-1]
            self.travelling.pop()
            if not write.done:
                self._arrive((write,))
                return True
        return False

    def _deliver_posted(self, k: int) -> None:
        port = self.queues[k]
        queue = self.posted[port]
        puts = 0
        while puts < len(queue) and queue[puts][0] is not None:
            puts += 1
        chosen = int(self.rng.random() * puts)
        put, signal = queue[chosen]
        del queue[chosen]
        if put is not None:
            self._copy(*put)
        elif signal is not None:
            self._signal(signal, ())
        if not queue:
            self.queues[k] = self.queues[-1]
            self.queues.pop()
            self._wake(("flush", 0, port))

    def _copy(self, source: MemoryPlace, sink: MemoryPlace, launch: int) -> None:
        values, marks = self.memory.views(source, launch)
        target, there = self.memory.views(sink, launch)
        target[...] = values
        if there is not None:
            there[...] = marks if source.packets and marks is not None else 0
        if sink.packets:
            self._wake(("packets", sink.rank, 0))

    # --- launches -------------------------------------------------------------------------------

    def _step(self, t: Thread) -> bool:
        """Let a thread do one event, or as much as it can; whether it can go on."""
        self.steps += 1
        key = next(t.turns, None)
        if key is STEP:
            return True
        if key is None:
            self.left[t.block.rank] -= 1
        elif key is LATER:
            self.runnable.append(t)
        elif key is not MET:
            self.waiting.setdefault(key, []).append(t)
        return False

    def _launch(self, rank: int, begin: Callable[[int, int], None]) -> None:
        self.launches[rank] += 1
        begin(rank, self.launches[rank])
        for block in self.blocks[rank]:
            block.written = []
            for t in block.threads:
                t.pc, t.launch, t.writes, t.turns = 0, self.launches[rank], [], self._turns(t)
                if block.events:
                    self.left[rank] += 1
                    self.runnable.append(t)

    def run(
        self,
        rng: random.Random,
        policy: str,
        lateness: float,
        launches: int,
        begin: Callable[[int, int], None],
        finish: Callable[[int, int], str | None],
    ) -> str | None:
        """Run ``launches`` launches on every GPU; return the first failure, or None."""
        self._clear(rng)
        self.memory.reset()
        pick, burst = _policy(policy, self, rng)
        while True:
            if lateness and rng.random() < lateness:
                self._something_arrives()
            if not self.runnable:
                if self._something_arrives() or self._next_launch(launches, begin):
                    continue
                break
            if rng.random() < LIMITS.launch_share:
                self._next_launch(launches, begin)
            t = pick()
            left = burst()
            while self._step(t):
                left -= 1
                if not left:
                    self.runnable.append(t)
                    break
            rank = t.block.rank
            if not self.left[rank]:
                problem = self._finished(rank, finish)
                if problem:
                    return problem
                if self.launches[rank] < launches and rng.random() < 0.7:
                    self._launch(rank, begin)
        if any(self.left):
            return self._explain()
        return self._leftovers() or next(
            (p for r in range(len(self.blocks)) if (p := finish(r, self.launches[r]))), None
        )

    def _finished(self, rank: int, finish: Callable[[int, int], str | None]) -> str | None:
        """End a launch on a rank: complete its own writes, and compare the output."""
        for block in self.blocks[rank]:
            self._arrive(block.written)
            for t in block.threads:
                self._arrive(t.writes)
        return finish(rank, self.launches[rank])

    def _next_launch(self, launches: int, begin: Callable[[int, int], None]) -> bool:
        """Begin the next launch on a GPU that is between two launches."""
        idle = [
            r for r in range(len(self.blocks)) if not self.left[r] and self.launches[r] < launches
        ]
        if idle:
            self._launch(self.rng.choice(idle), begin)
        return bool(idle)

    # --- in words -------------------------------------------------------------------------------

    def _explain(self) -> str:
        told = []
        for (kind, rank, which), threads in self.waiting.items():
            what = "packets" if kind == "packets" else f"semaphore {which} of rank {rank}"
            if kind in ("signal", "flush"):
                channel, owner, k = which
                what = f"a {kind} on {channel} channel {k} of rank {owner}"
            told.append(f"{_where(threads[0])} waits for {what}")
        for block in (b for blocks in self.blocks for b in blocks if b.arrived):
            told.append(f"{_where(block.arrived[0])} waits for another thread at a nop")
        for (rank, number), threads in self.gathered.items():
            told.append(f"rank {rank} block {threads[0].block.number} waits at barrier {number}")
        return "deadlock: " + "; ".join(told[:6])

    def _leftovers(self) -> str | None:
        for counter in sorted(self.tokens, key=lambda c: (c[1], c)):
            if self.tokens[counter]:
                channel, rank, k = counter
                return (
                    f"{len(self.tokens[counter])} signals on {channel} channel {k} of rank {rank} "
                    "are never waited for: the next launch would take them for its own"
                )
        for rank, values in enumerate(self.values):
            for k, value in enumerate(values):
                if value != self.plan.gpus[rank].semaphores[k]:
                    return f"semaphore {k} of rank {rank} ends at {value}"
        return None


def _total(views: list[AnyArray]) -> Any:
    total = None
    for view in views:
        total = view.copy() if total is None else total + view
    return total


def _where(t: Thread) -> str:
    block = t.block
    k = block.events[min(t.pc, len(block.events) - 1)].step.index
    return f"rank {block.rank} block {block.number} operation {k}"


def _policy(
    name: str, m: PlanMachine, rng: random.Random
) -> tuple[Callable[[], Thread], Callable[[], int]]:
    """Take a thread out of those that can run, and how far it goes (0: as far as it can)."""

    def uniform() -> Thread:
        bag = m.runnable
        k = int(rng.random() * len(bag))
        bag[k], bag[-1] = bag[-1], bag[k]
        return bag.pop()

    if name in ("uniform", "bursts", "greedy"):
        burst = {"uniform": lambda: 1, "bursts": lambda: 1 + int(rng.random() * 8)}
        return uniform, burst.get(name, lambda: 0)
    if name == "latest":
        return lambda: m.runnable.pop(), lambda: 0
    everyone = [t for blocks in m.blocks for b in blocks for t in b.threads]
    rank = {id(t): rng.random() for t in everyone}
    if name == "slow rank":
        slow = rng.randrange(len(m.blocks))
        rank = {id(t): rng.random() + (t.block.rank == slow) for t in everyone}

    def first() -> Thread:
        bag = m.runnable
        keys = [rank[id(t)] for t in bag]
        k = keys.index(min(keys))
        bag[k], bag[-1] = bag[-1], bag[k]
        return bag.pop()

    return first, lambda: 1

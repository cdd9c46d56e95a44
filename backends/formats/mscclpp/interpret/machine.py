"""Execution of a plan on all GPUs: threads, channels, the network, successive launches.

Scheduling is not fair. A **policy** picks which thread goes next and how far; writes into a peer's
memory arrive when they must (a thread that takes a releasing signal sees all writes before it) or
at any time before; what is posted to a port channel is read and delivered later, puts in any order,
a signal after the puts before it. A relaxed signal brings nothing along. Every GPU begins its next
launch as soon as its own blocks have finished, whatever the others do: its caller then looks at the
output, and fills the buffers anew.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..plan.model import ExecutionPlan
from .assemble import Assembler
from .memory import MemoryPlace, PlanMemory, Write
from .micro import LATER, SHARES, Barrier, BlockRun, Carried, Key, Meet, Micro, Posted, Thread

POLICIES = ("uniform", "bursts", "greedy", "priorities", "latest", "slow rank")
"""Policies that pick the next thread."""

LATENESS = (0.0, 0.02, 0.3, 1.0)
"""Probabilities that a message in transit arrives before a thread goes on."""

SLOW_HOST = 0.05
"""Probability that a GPU between two launches begins the next one."""

THREADS = 2
"""Threads of a block: two show all that more would."""

_MEETINGS = (Meet, Barrier)


class PlanMachine:
    """A plan ready to run on memory of one data type.

    ``begin(rank, launch)`` is called before a launch, and ``finish`` after it: it may say what is
    wrong, and that ends the run.
    """

    threads = THREADS

    def __init__(self, plan: ExecutionPlan, memory: PlanMemory) -> None:
        self.plan, self.memory = plan, memory
        assembler = Assembler(plan, memory.elements)
        self.blocks: list[list[BlockRun]] = []
        for rank, gpu in enumerate(plan.gpus):
            self.blocks.append([])
            for number, block in enumerate(gpu.blocks):
                made = BlockRun(rank, number, *assembler.block(rank, block))
                made.threads = [Thread(made, k) for k in range(THREADS)]
                self.blocks[-1].append(made)
        self.operations = assembler.operations
        self.other = assembler.wiring.other
        self.names = {v: k for k, v in assembler.wiring.number.items()}
        self._clear(random.Random(0))

    def _clear(self, rng: random.Random) -> None:
        channels = len(self.other)
        self.rng = rng
        self.tokens: list[deque[Carried]] = [deque() for _ in range(channels)]
        self.posted: list[deque[Posted]] = [deque() for _ in range(channels)]
        self.queues: list[int] = []  # channels with something posted
        self.travelling: list[Write] = []
        self.values = [list(gpu.semaphores) for gpu in self.plan.gpus]
        self.gathered: dict[tuple[int, int], list[Thread]] = {}
        self.waiting: dict[Key, list[Thread]] = {}
        self.runnable: list[Thread] = []
        self.shares = rng.choices(SHARES, k=max(1, self.operations))
        self.left = [0] * len(self.blocks)
        self.launches = [0] * len(self.blocks)
        self.steps = 0

    # --- what micro-operations do ---------------------------------------------------------------

    def share(self, operation: int, t: Thread) -> slice:
        """Return the elements of an operation that a thread handles."""
        return self.shares[operation][t.number]

    def pauses(self) -> bool:
        """Test whether a thread stops between reading and writing."""
        return self.rng.random() < 0.3

    def write(self, t: Thread, sink: MemoryPlace, share: slice, values: Any) -> None:
        """Into own memory at once; into a peer's, some time."""
        target, marks = self.memory.views(sink, t.launch)
        some = None if marks is None else marks[share]
        mark = t.launch if sink.packets else 0
        if sink.rank != t.block.rank:
            write = Write(sink.rank, target[share], values.copy(), some, mark, sink.packets)
            self.travelling.append(write)
            t.writes.append(write)
            return
        target[share] = values
        if some is not None:
            some[...] = mark
            if sink.packets:
                self._wake(("packets", sink.rank, 0))

    def multicast(self, t: Thread, sinks: Sequence[MemoryPlace], share: slice, values: Any) -> None:
        """Into all members' memory, the own too, some time; packets get the launch's mark."""
        for sink in sinks:
            target, there = self.memory.views(sink, t.launch)
            some = None if there is None else there[share]
            mark = t.launch if sink.packets else 0
            write = Write(sink.rank, target[share], values.copy(), some, mark, sink.packets)
            self.travelling.append(write)
            t.writes.append(write)

    def written_by(self, t: Thread) -> Carried:
        """Return what a release by a thread covers: its own writes, others' up to the last nop.

        What it stored through a switch into its own GPU's memory has arrived when it releases.
        """
        carried = tuple(w for w in (*t.block.written, *t.writes) if not w.done)
        self.arrive(w for w in carried if w.rank == t.block.rank)
        return carried

    def arrive(self, writes: Iterable[Write]) -> None:
        """Apply pending writes to memory."""
        for write in writes:
            if not write.done:
                write.deliver()
                if write.packets:
                    self._wake(("packets", write.rank, 0))

    def signal(self, target: int, carried: Carried) -> None:
        """One more signal on the other end of a channel."""
        if target >= 0:
            self.tokens[target].append(carried)
            self._wake(("signal", 0, target))

    def post(
        self, port: int, put: tuple[MemoryPlace, MemoryPlace, int] | None, signal: int | None
    ) -> None:
        """Hand something to the proxy of a port channel."""
        if not self.posted[port]:
            self.queues.append(port)
        self.posted[port].append((put, signal))

    def take(self, rank: int, semaphore: int) -> bool:
        """Take one from a semaphore, if there is one."""
        if self.values[rank][semaphore] <= 0:
            return False
        self.values[rank][semaphore] -= 1
        return True

    def give(self, rank: int, semaphore: int) -> None:
        """Give one to a semaphore."""
        self.values[rank][semaphore] += 1
        self._wake(("semaphore", rank, semaphore))

    def _wake(self, key: Key) -> None:
        if key in self.waiting:
            self.runnable += self.waiting.pop(key)

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
                self.arrive((write,))
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
            self.signal(signal, ())
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

    # --- the threads ----------------------------------------------------------------------------

    def _step(self, t: Thread) -> bool:
        """One micro-operation of a thread; whether it can go on."""
        block = t.block
        micro = block.code[t.pc]
        self.steps += 1
        if isinstance(micro, _MEETINGS):
            t.pc += 1
            block.arrived.append(t)
            if len(block.arrived) < THREADS:
                return False
            return self._met(block, micro)
        key = micro.run(self, t)
        if key is LATER:
            self.runnable.append(t)
            return False
        if key is not None:
            self.waiting.setdefault(key, []).append(t)
            return False
        t.pc += 1
        t.progress, t.saved = 0, None
        if t.pc == len(block.code):
            self._ended(t)
            return False
        return True

    def _met(self, block: BlockRun, micro: Micro) -> bool:
        """All threads of a block have met: what each wrote is now what the block wrote."""
        threads, block.arrived = block.arrived, []
        written = [w for w in block.written if not w.done]
        for t in threads:
            written += [w for w in t.writes if not w.done]
            t.writes = []
        block.written = written
        if isinstance(micro, Barrier):
            key = (block.rank, micro.id)
            gathered = self.gathered.setdefault(key, [])
            gathered += threads
            if len(gathered) < micro.blocks * THREADS:
                return False
            threads = self.gathered.pop(key)
            everything = [w for b in {t.block for t in threads} for w in b.written]
            self.arrive(everything)
        for t in threads:
            if t.pc == len(t.block.code):
                self._ended(t)
            else:
                self.runnable.append(t)
        return False

    def _ended(self, t: Thread) -> None:
        self.left[t.block.rank] -= 1

    def _launch(self, rank: int, begin: Callable[[int, int], None]) -> None:
        self.launches[rank] += 1
        begin(rank, self.launches[rank])
        for block in self.blocks[rank]:
            block.written = []
            for t in block.threads:
                t.pc, t.progress, t.saved, t.launch = 0, 0, None, self.launches[rank]
                t.writes = []
                if block.code:
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
        """So many launches on every GPU; what went wrong, or None."""
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
            if rng.random() < SLOW_HOST:
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
            self.arrive(block.written)
            for t in block.threads:
                self.arrive(t.writes)
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
        for key, threads in self.waiting.items():
            for t in threads[:1]:
                told.append(f"{_where(t)} waits for {self._what(key)}")
        for block in (b for blocks in self.blocks for b in blocks if b.arrived):
            told.append(f"{_where(block.arrived[0])} waits for another thread at a nop")
        for (rank, number), threads in self.gathered.items():
            told.append(f"rank {rank} block {threads[0].block.number} waits at barrier {number}")
        return "deadlock: " + "; ".join(told[:6])

    def _what(self, key: Key) -> str:
        kind, rank, number = key
        if kind in ("signal", "flush"):
            owner, channel, k = self.names[number]
            return f"a {kind} on {channel} channel {k} of rank {owner}"
        return "packets" if kind == "packets" else f"semaphore {number} of rank {rank}"

    def _leftovers(self) -> str | None:
        for number, tokens in enumerate(self.tokens):
            if tokens:
                rank, channel, k = self.names[number]
                return (
                    f"{len(tokens)} signals on {channel} channel {k} of rank {rank} are never "
                    "waited for: the next launch would take them for its own"
                )
        for rank, values in enumerate(self.values):
            for k, value in enumerate(values):
                if value != self.plan.gpus[rank].semaphores[k]:
                    return f"semaphore {k} of rank {rank} ends at {value}"
        return None


def _where(t: Thread) -> str:
    block = t.block
    k = block.origin[min(t.pc, len(block.origin) - 1)]
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

"""Happens-before relation of a plan: moments, and the order between them.

Every operation has moments: it starts, it has what it waits for, it ends. The threads of a block
run apart, so that within a block only a ``nop`` (a moment that follows everything before it and
precedes everything after it) or a single thread's own sequence orders operations. A signal
precedes the wait that cannot do without it; a release the acquire; packets the operation that
reads them. **Weak** edges are those of relaxed signals: they say that something happened, and
nothing of what was written before it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Buffer

from ..plan.model import (
    Channel,
    ExecutionPlan,
    LocalChunks,
    Multicast,
    Operation,
    PlanOp,
    RemoteChunks,
    part,
)
from .form import PUTS, packet_sides


@dataclass(slots=True, eq=False)
class Access:
    """An operation touches units ``low … high`` of a buffer of ``owner`` between two moments.

    ``packets``: in units of packets, twice as far apart. ``late``: the network does it. ``chunk``:
    where it begins, for messages.
    """

    owner: int
    buffer: Buffer
    low: int
    high: int
    writes: bool
    packets: bool
    start: int
    end: int
    by: PlanStep
    chunk: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Operation by rank, block, position, and its name."""

    rank: int
    block: int
    index: int
    name: str

    def __str__(self) -> str:
        return f"rank {self.rank} block {self.block} operation {self.index} ({self.name})"


@dataclass(slots=True, eq=False)
class PlanEvent:
    """A signal, wait, release or acquire: its moment, when its block last met, and its thread.

    ``phase`` counts how often the threads of the block had met; events of one block are listed in
    its order, but those of two threads in one phase may happen in any.
    """

    moment: int
    met: int
    block: tuple[int, int]
    phase: int
    thread: int
    by: PlanStep
    relaxed: bool = False
    before: list[int] = field(default_factory=list)


Key = tuple[str, int, int]


@dataclass(eq=False)
class PlanGraph:
    """Moments of a plan and their order.

    Attributes:
        units: units of a chunk; with groups of blocks a chunk has several.
        strong, weak: for every moment those before it.
        step: the operation of each moment, where it has one.
        begin, finish: per rank, the first and last moments of its blocks.
        gives, takes: signals and waits by receiving channel, releases and acquires by semaphore.
    """

    units: int = 1
    strong: list[list[int]] = field(default_factory=list)
    weak: list[list[int]] = field(default_factory=list)
    step: list[PlanStep | None] = field(default_factory=list)
    begin: list[list[int]] = field(default_factory=list)
    finish: list[list[int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    gives: dict[Key, list[PlanEvent]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[Key, list[PlanEvent]] = field(default_factory=lambda: defaultdict(list))
    barriers: dict[tuple[int, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def moment(self, *before: int, step: PlanStep | None = None) -> int:
        """Return a new moment after some others."""
        self.strong.append(list(before))
        self.weak.append([])
        self.step.append(step)
        return len(self.strong) - 1

    def __len__(self) -> int:
        return len(self.strong)


def build(plan: ExecutionPlan, units: int = 1) -> PlanGraph:
    """Return the graph of a plan of sound form; ``units``: alignment units in a chunk."""
    graph = PlanGraph(units)
    ends = _ends(plan)
    for rank, gpu in enumerate(plan.gpus):
        graph.begin.append([])
        graph.finish.append([])
        for number in range(len(gpu.blocks)):
            _PlanWalk(graph, plan, ends, rank, number).run()
    _join_barriers(graph)
    return graph


_Ends = dict[tuple[int, Channel, int], tuple[int, int]]


def _ends(plan: ExecutionPlan) -> _Ends:
    """Return the other end of every channel: the k-th from a to b meets the k-th from b to a."""
    lists: dict[tuple[int, int, Channel], list[int]] = defaultdict(list)
    for rank, gpu in enumerate(plan.gpus):
        for kind in (Channel.MEMORY, Channel.PORT):
            for k, peer in enumerate(gpu.peers(kind)):
                lists[rank, peer, kind].append(k)
    return {
        (rank, kind, k): (peer, other)
        for (rank, peer, kind), mine in lists.items()
        for k, other in zip(mine, lists.get((peer, rank, kind), []), strict=False)
    }


class _PlanWalk:
    """Goes through one block."""

    def __init__(
        self, graph: PlanGraph, plan: ExecutionPlan, ends: _Ends, rank: int, number: int
    ) -> None:
        self.graph, self.plan, self.ends, self.rank, self.number = graph, plan, ends, rank, number
        self.block = plan.gpus[rank].blocks[number]
        self.met = graph.moment()  # where all threads last met
        self.phase = 0
        self.apart: list[int] = []  # what has ended since
        self.thread: dict[int, int] = {}  # the last moment of single threads since
        self.posted: dict[int, list[Access]] = defaultdict(list)  # puts before the next signal
        self.stored: list[int] = []  # ends of own copies of what was stored through switches
        self.settled: list[int] = []  # those before the last meeting: a release waits for them
        self.told = False  # whether there was a release since
        self.turn: int | None = None  # of the pipeline it is in
        graph.begin[rank].append(self.met)

    def run(self) -> None:
        """Add everything the block does."""
        for index, op, turn in (
            (k, *one) for k, whole in enumerate(self.block.ops) for one in whole.turns()
        ):
            self.turn = turn
            step = PlanStep(self.rank, self.number, index, str(op.op))
            if op.op is PlanOp.NOP:
                self._meet(self.graph.moment(step=step))
            elif op.op is PlanOp.BARRIER:
                assert op.barrier
                self._meet(self.graph.moment(step=step))
                self.graph.barriers[self.rank, op.barrier[0]][self.number].append(self.met)
            elif op.op in (PlanOp.SIGNAL, PlanOp.RELAXED_SIGNAL, PlanOp.WAIT, PlanOp.RELAXED_WAIT):
                self._signals(op, step)
            elif op.op in (PlanOp.ACQUIRE, PlanOp.RELEASE):
                side = self.graph.takes if op.op is PlanOp.ACQUIRE else self.graph.gives
                for j, k in enumerate(op.ids):
                    key, moment = ("semaphore", self.rank, k), self._alone(j, step)
                    side[key].append(self._event(moment, j, step))
                    if op.op is PlanOp.RELEASE:
                        self._release(moment)
            elif op.op in PUTS and op.channel is Channel.PORT:
                self._post(op, step)
            elif op.op is PlanOp.READ_PUT_PACKETS and op.channel is Channel.PORT:
                self._forward(op, step)
            elif op.op is not PlanOp.FLUSH:
                self._together(op, step)
        ends = (*self.apart, *self.stored, *self.settled)
        self.graph.finish[self.rank].append(self.graph.moment(self.met, *ends))

    def _release(self, moment: int) -> None:
        """Mark a release: stores through switches before it have come back once it has happened."""
        self.graph.strong[moment] += self.settled
        self.told = True

    def _event(self, moment: int, thread: int, step: PlanStep) -> PlanEvent:
        return PlanEvent(moment, self.met, (self.rank, self.number), self.phase, thread, step)

    def _meet(self, moment: int) -> None:
        self.phase += 1
        self.graph.strong[moment] += [self.met, *self.apart]
        self.met, self.apart, self.thread = moment, [], {}
        self.settled = [*([] if self.told else self.settled), *self.stored]
        self.stored, self.told = [], False

    def _alone(self, j: int, step: PlanStep) -> int:
        """Return a moment of thread j, after what that thread alone did before."""
        moment = self.graph.moment(self.met, step=step)
        if j in self.thread:
            self.graph.strong[moment].append(self.thread[j])
        self._did(j, moment)
        return moment

    def _did(self, j: int, moment: int) -> None:
        self.thread[j] = moment
        self.apart.append(moment)

    def _channel(self, op: Operation, j: int) -> tuple[Key, Key, int]:
        """Return the keys of the own and the other end of a channel, and its number on this GPU."""
        assert op.channel
        number = self.block.channel_ids(op.channel)[op.ids[j]]
        own = (str(op.channel), self.rank, number)
        peer, other = self.ends.get((self.rank, op.channel, number), (-1, number))
        return own, (str(op.channel), peer, other), number

    def _signals(self, op: Operation, step: PlanStep) -> None:
        relaxed = op.channel is Channel.MEMORY and op.op in (
            PlanOp.RELAXED_SIGNAL,
            PlanOp.RELAXED_WAIT,
        )
        for j in range(len(op.ids)):
            own, other, number = self._channel(op, j)
            moment = self._alone(j, step)
            event = self._event(moment, j, step)
            event.relaxed = relaxed
            if op.op in (PlanOp.WAIT, PlanOp.RELAXED_WAIT):
                self.graph.takes[own].append(event)
                continue
            if op.channel is Channel.PORT:
                event.before = [a.end for a in self.posted[number]]
            elif not relaxed:
                self._release(moment)
            self.graph.gives[other].append(event)

    # --- data -----------------------------------------------------------------------------------

    def _access(
        self,
        x: LocalChunks | RemoteChunks,
        op: Operation,
        step: PlanStep,
        start: int,
        end: int,
        *,
        writes: bool,
        packets: bool,
        late: bool = False,
    ) -> Access:
        """Record that an operation touches units of its own GPU's or of a peer's buffer."""
        owner, buffer = self.rank, Buffer.SCRATCH
        if isinstance(x, RemoteChunks):
            kind = op.channel or Channel.MEMORY
            remote = self.plan.gpus[self.rank].remote[self.block.buffer_ids(kind)[x.buffer_id]]
            owner, buffer = remote.rank, remote.buffer
        elif not packets:
            buffer = x.buffer
        if packets:
            buffer = Buffer.SCRATCH
        low, high = part(x, op, self.graph.units, self.turn)
        chunk = low // self.graph.units
        made = Access(owner, buffer, low, high, writes, packets, start, end, step, chunk, late)
        self.graph.accesses.append(made)
        return made

    def _switch(
        self,
        x: Multicast,
        op: Operation,
        step: PlanStep,
        start: int,
        end: int,
        *,
        writes: bool,
        packets: bool,
    ) -> None:
        """Touch the buffers of all members, the own as well.

        What is stored comes back to the issuer through the switch, some time: its own threads see
        it once a release has waited for it. Packets that come back to where they were read are
        there already, value and flag.
        """
        group = self.plan.gpus[self.rank].groups()[
            self.block.channel_ids(Channel.SWITCH)[x.channel_id]
        ]
        low, high = part(x, op, self.graph.units, self.turn)
        chunk = low // self.graph.units
        for owner in group.ranks:
            if packets and owner == self.rank and op.src[0].index == x.index:
                continue
            done = end
            if writes and owner == self.rank:
                done = self.graph.moment(end, step=step)
                self.stored.append(done)
            self.graph.accesses.append(
                Access(owner, group.buffer, low, high, writes, packets, start, done, step, chunk)
            )

    def _together(self, op: Operation, step: PlanStep) -> None:
        """All threads do it: it starts, has the packets it reads, and ends."""
        start = self.graph.moment(self.met, step=step)
        got = self.graph.moment(start, step=step)
        end = self.graph.moment(got, step=step)
        self.apart.append(end)
        sides = packet_sides(op)
        for x, packets in zip(op.src, sides[0], strict=True):
            at = (got, end) if packets else (start, end)
            if isinstance(x, Multicast):
                self._switch(x, op, step, *at, writes=False, packets=packets)
            else:
                self._access(x, op, step, *at, writes=False, packets=packets)
        for x, packets in zip(op.dst, sides[1], strict=True):
            if isinstance(x, Multicast):
                self._switch(x, op, step, got, end, writes=True, packets=packets)
            else:
                self._access(x, op, step, got, end, writes=True, packets=packets)

    def _forward(self, op: Operation, step: PlanStep) -> None:
        """Wait for packets, then post them: the network takes them some time later."""
        start = self.graph.moment(self.met, step=step)
        got = self.graph.moment(start, step=step)
        self.apart.append(got)
        source, *sinks = op.src[0], *op.dst
        assert not isinstance(source, Multicast)
        self._access(source, op, step, got, got, writes=False, packets=True)
        for x in sinks:
            assert not isinstance(x, Multicast)
            done = self.graph.moment(got, step=step)
            self._access(source, op, step, got, done, writes=False, packets=True, late=True)
            self._access(x, op, step, got, done, writes=True, packets=True, late=True)

    def _post(self, op: Operation, step: PlanStep) -> None:
        """Thread j posts the j-th put; the network reads and writes some time later."""
        for j, (x, y) in enumerate(zip(op.src, op.dst, strict=True)):
            _, other, number = self._channel(op, j)
            posted = self._alone(j, step)
            done = self.graph.moment(posted, step=step)
            for operand, writes in ((x, False), (y, True)):
                assert isinstance(operand, LocalChunks | RemoteChunks)
                made = self._access(
                    operand, op, step, posted, done, writes=writes, packets=False, late=True
                )
                self.posted[number].append(made)
            if op.op is not PlanOp.PUT:
                signal = self._event(posted, j, step)
                signal.before = [a.end for a in self.posted[number]]
                self.graph.gives[other].append(signal)
            if op.op is PlanOp.PUT_SIGNAL_FLUSH:
                flushed = self.graph.moment(
                    posted, *(a.end for a in self.posted[number]), step=step
                )
                self._did(j, flushed)


def _join_barriers(graph: PlanGraph) -> None:
    """The k-th barrier of all blocks that use an id is one moment: they wait for each other."""
    for blocks in graph.barriers.values():
        for together in zip(*blocks.values(), strict=False):
            before = [b for m in together for b in graph.strong[m]]
            joint = graph.moment(*before, step=graph.step[together[0]])
            for m in together:
                graph.strong[m] = [joint]

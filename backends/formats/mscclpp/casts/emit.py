"""The plan of a schedule in which switches sum and copy.

All chunks are cut into as many equal parts as there are *lanes*; each lane is a thread block of its
own on every GPU, with channels of its own, and knows nothing of the others. A block does phase
after phase: signals, waits, acts. Multicast objects are shared by the lanes, one for each buffer
and group, set up in one order on all GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import Buffer
from weft.dsl.nouns.schedule import Schedule

from ..lower.emit import NAMES, message_sizes, named_apart
from ..lower.lower import OperationGroup, arrange
from ..plan.model import (
    FACTS,
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    RemoteChunks,
    SwitchGroup,
    ThreadBlock,
)
from .acts import Act, ActKind, Acts, acts_of, cut
from .clocks import ActPhase, SentSignal, ordered
from .fit import refuse_schedule


def cast_plan(
    schedule: Schedule,
    name: str,
    nodes: Sequence[int] | None,
    *,
    in_place: bool,
    lanes: int = 0,
    sizes: SizeRange | None = None,
    dtype: str = "",
    op: str = "sum",
) -> ExecutionPlan:
    """Return the plan of a schedule with casts.

    ``nodes``: the node of each rank (None: all in one). ``lanes``: thread blocks per GPU side by
    side (0: as many as fill the switch). ``dtype``, ``op``: those of the switches' sums.

    Raises:
        UserError: no plan can express it, in words.
    """
    refuse_schedule(schedule, nodes, dtype, op)
    members = max(len({*one.sources, *one.destinations}) for one in schedule.casts)
    lanes = lanes or max(1, FACTS.switch_blocks // members)
    acts = acts_of(schedule, in_place)
    node = list(nodes or [0] * schedule.collective.ranks)
    made = [ordered(phases, node) for phases in cut(acts, lanes)]
    gpus = _LanePlan(acts, made, node).gpus(lanes)
    c = acts.collective
    low, high = message_sizes(c, c.message_chunks * lanes, gpus, sizes, name, packets=False)
    kind = NAMES.get(c.kind, str(c.kind))
    return named_apart(
        ExecutionPlan(
            name,
            kind,
            "Simple",
            in_place,
            gpus,
            alignment=FACTS.vector_bytes,
            min_bytes=low,
            max_bytes=high,
        )
    )


Lane = list[ActPhase]


@dataclass(eq=False)
class _GpuLists:
    """The lists of one GPU to which its blocks refer."""

    channels: dict[Channel, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    groups: list[SwitchGroup] = field(default_factory=list)
    remote: list[tuple[int, Buffer]] = field(default_factory=list)
    access: dict[tuple[int, Buffer], set[Channel]] = field(default_factory=lambda: defaultdict(set))
    semaphores: int = 0

    def semaphore(self) -> int:
        """Return a new semaphore."""
        self.semaphores += 1
        return self.semaphores - 1


class _LanePlan:
    """Makes the GPUs: first the lists that all agree on, then the blocks."""

    def __init__(self, acts: Acts, lanes: Sequence[Lane], node: Sequence[int]) -> None:
        self.acts, self.lanes, self.node = acts, lanes, node
        self.ranks = [_GpuLists() for _ in node]
        pairs: set[tuple[int, int, int]] = set()
        groups: set[tuple[str, tuple[int, ...]]] = set()
        for lane, phases in enumerate(lanes):
            for phase in phases:
                for a, b in _ends(phase):
                    pairs |= {(a, b, lane), (b, a, lane)}
                groups |= {g for act in phase.acts for g in _groups(act)}
        for rank, peer, lane in sorted(pairs):
            self.ranks[rank].channels[self.kind(rank, peer)].append((peer, lane))
        for letter, members in sorted(groups):
            for rank in members:
                self.ranks[rank].groups.append(SwitchGroup(Buffer(letter), members))
        for phases in lanes:
            for act in (a for phase in phases for a in phase.acts if a.kind is ActKind.PUT):
                key = act.onto[0], act.target[0]
                self.ranks[act.rank].access[key].add(self.kind(act.rank, act.onto[0]))
        for state in self.ranks:
            state.remote = sorted(state.access)

    def kind(self, a: int, b: int) -> Channel:
        """Return the type of the channels between two ranks."""
        return Channel.MEMORY if self.node[a] == self.node[b] else Channel.PORT

    def gpus(self, lanes: int) -> tuple[GpuPlan, ...]:
        """Return the GPUs of the plan."""
        c, made = self.acts.collective, []
        for rank, state in enumerate(self.ranks):
            blocks = tuple(
                block
                for lane, phases in enumerate(self.lanes)
                for block in _LaneBlock(self, rank, lane).made(phases)
            )
            channels = [
                PlanChannels(kind, tuple(peer for peer, _ in state.channels[kind]))
                for kind in (Channel.MEMORY, Channel.PORT)
                if state.channels[kind]
            ]
            channels += [
                PlanChannels(Channel.SWITCH, (), g.buffer, (g.ranks,)) for g in state.groups
            ]
            made.append(
                GpuPlan(
                    max(1, c.input_chunks * lanes),
                    max(1, c.output_chunks * lanes),
                    self.acts.scratch[rank] * lanes,
                    blocks,
                    tuple(channels),
                    tuple(RemoteBuffer(*k, tuple(sorted(state.access[k]))) for k in state.remote),
                    (0,) * state.semaphores,
                )
            )
        return tuple(made)


def _ends(phase: ActPhase) -> Iterator[tuple[int, int]]:
    yield from ((t.source, t.target) for t in phase.signals)
    yield from ((a.rank, a.onto[0]) for a in phase.acts if a.kind is ActKind.PUT)


def _groups(act: Act) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield buffer and members of the multicast objects that an act uses."""
    if act.kind is ActKind.SUM:
        yield str(act.sources[0][0]), act.group
    if act.kind in (ActKind.SUM, ActKind.STORE):
        yield str(act.target[0]), act.onto


class _LaneBlock:
    """The blocks of one lane on one GPU: one, or several one after another if it is long."""

    def __init__(self, gpus: _LanePlan, rank: int, lane: int) -> None:
        self.gpus, self.rank, self.lane = gpus, rank, lane
        self.state = gpus.ranks[rank]
        self.used: dict[Channel, list[int]] = defaultdict(list)
        self.buffers: dict[Channel, list[int]] = defaultdict(list)
        self.begun = False

    def made(self, phases: Lane) -> list[ThreadBlock]:
        groups = [g for phase in phases for g in self._phase(phase)]
        parts = arrange(groups, self.state.semaphore, FACTS.operations)
        for kind, ids in self.used.items():
            if len(ids) > FACTS.channels:
                raise UserError(
                    f"rank {self.rank} talks to {len(ids)} others through {kind} channels; a "
                    f"thread block takes {FACTS.channels}",
                    hint="casts of at most 17 members; nvls=off gives a schedule of transfers",
                )
        channels = tuple((kind, tuple(ids)) for kind, ids in self.used.items())
        remote = tuple((kind, tuple(ids)) for kind, ids in self.buffers.items())
        return [ThreadBlock(part, channels, remote) for part in parts]

    def _phase(self, phase: ActPhase) -> Iterator[OperationGroup]:
        sent = [t for t in phase.signals if t.source == self.rank]
        taken = [t for t in phase.signals if t.target == self.rank]
        sync = [*self._signals(sent, sends=True), *self._signals(taken, sends=False)]
        acts = [op for act in phase.acts if act.rank == self.rank for op in self._act(act)]
        if sync:
            yield OperationGroup(tuple(sync))
        if acts and self.begun and not taken:  # nothing else keeps the threads of phases apart
            yield OperationGroup((Operation(PlanOp.NOP),))
        self.begun = self.begun or bool(acts)
        yield from (OperationGroup((op,)) for op in acts)

    def _signals(self, told: Sequence[SentSignal], *, sends: bool) -> Iterator[Operation]:
        """Yield signals, or waits, to eight peers at a time."""
        listed: dict[tuple[Channel, bool], list[int]] = defaultdict(list)
        for one in told:
            peer = one.target if sends else one.source
            kind = self.gpus.kind(self.rank, peer)
            listed[kind, one.data].append(self._channel(kind, peer))
        names = {
            (True, True): PlanOp.SIGNAL,
            (True, False): PlanOp.RELAXED_SIGNAL,
            (False, True): PlanOp.WAIT,
            (False, False): PlanOp.RELAXED_WAIT,
        }
        for (kind, data), ids in listed.items():
            for k in range(0, len(ids), FACTS.channel_ids):
                yield Operation(names[sends, data], kind, tuple(ids[k : k + FACTS.channel_ids]))

    # --- numbers within the block -----------------------------------------------------------------

    def _channel(self, kind: Channel, peer: int) -> int:
        return _position(self.used[kind], self.state.channels[kind].index((peer, self.lane)))

    def _remote(self, kind: Channel, peer: int, buffer: Buffer) -> int:
        return _position(self.buffers[kind], self.state.remote.index((peer, buffer)))

    def _switch(self, buffer: Buffer, ranks: tuple[int, ...]) -> int:
        number = self.state.groups.index(SwitchGroup(buffer, ranks))
        return _position(self.used[Channel.SWITCH], number)

    # --- acts -------------------------------------------------------------------------------------

    def _act(self, act: Act) -> Iterator[Operation]:
        own = tuple(LocalChunks(*place, act.size) for place in act.sources)
        buffer, index = act.target
        if act.kind is ActKind.SUM:
            letter, first = act.sources[0]
            source = Multicast(self._switch(letter, act.group), first, act.size)
            target = Multicast(self._switch(buffer, act.onto), index, act.size)
            yield Operation(
                PlanOp.MULTICAST_REDUCE_STORE, Channel.SWITCH, src=(source,), dst=(target,)
            )
        elif act.kind is ActKind.STORE:
            target = Multicast(self._switch(buffer, act.onto), index, act.size)
            yield Operation(PlanOp.MULTICAST_STORE, Channel.SWITCH, src=own, dst=(target,))
        elif act.kind is ActKind.PUT:
            peer = act.onto[0]
            kind = self.gpus.kind(self.rank, peer)
            ids = (self._channel(kind, peer),) if kind is Channel.PORT else ()
            there = RemoteChunks(self._remote(kind, peer, buffer), index, act.size)
            yield Operation(PlanOp.PUT, kind, ids, src=own, dst=(there,))
        else:
            yield from _own(own, LocalChunks(buffer, index, act.size))


def _own(sources: tuple[LocalChunks, ...], target: LocalChunks) -> Iterator[Operation]:
    """Yield a copy, or sums of at most MAX_SOURCES operands at a time."""
    first, *rest = sources
    if not rest and first != target:
        yield Operation(PlanOp.COPY, src=(first,), dst=(target,))
    for k in range(0, len(rest), FACTS.operands - 1):
        some = tuple(rest[k : k + FACTS.operands - 1])
        yield Operation(PlanOp.REDUCE, src=(first if not k else target, *some), dst=(target,))


def _position(held: list[int], number: int) -> int:
    """Return the place of a number in a list, at the end of which it is put if it is new."""
    if number not in held:
        held.append(number)
    return held.index(number)

"""Minimal set of signals between GPUs that enforces the order of their acts.

Every GPU knows of every other up to which phase it has finished (its *clock*: −2 nothing, −1 its
launch has begun). An act needs to know that all earlier acts on its chunks have ended, and that
the launch of every GPU whose memory it touches has begun; before its phase, GPUs that know send it
a signal. A signal brings all that its sender knew. At the end every GPU must know that no other
touches its memory any more.

Two acts end late. What a GPU stores through a switch comes back to its own memory when a release
has waited for it: a signal to any GPU through a memory channel. A put through a port is read by
the network, and the GPU that it goes to signals when it has arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field

from weft.dsl.base.lazy_dataclass import dataclass

from .acts import Act, ActKind

NOTHING, BEGUN = -2, -1


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal: ``data``: of written data, else only of the begin of the launch."""

    source: int
    target: int
    data: bool


@dataclass(frozen=True, slots=True)
class ActPhase:
    """Signals, and then acts."""

    signals: tuple[SentSignal, ...]
    acts: tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class _TouchedCell:
    """An act on a place ends once ``agent`` has finished ``phase``."""

    agent: int
    phase: int
    writes: bool
    switch: bool = False


ActCell = tuple[int, str, int]


@dataclass(eq=False)
class _LaneClocks:
    node: Sequence[int]

    def __post_init__(self) -> None:
        n = len(self.node)
        self.clock = [[NOTHING] * n for _ in range(n)]
        self.fenced = [NOTHING] * n
        self.touched: dict[ActCell, list[_TouchedCell]] = defaultdict(list)
        self.asked: dict[tuple[int, int], bool] = {}
        self.posted: list[Act] = []

    def port(self, a: int, b: int) -> bool:
        return self.node[a] != self.node[b]

    def ask(self, source: int, target: int, data: bool) -> None:
        """Want a signal before the next phase."""
        if source != target:
            key = source, target
            self.asked[key] = self.asked.get(key, False) or data

    def need(self, rank: int, one: _TouchedCell, phase: int) -> None:
        """A rank must know that an earlier act is over."""
        if one.agent != rank:
            if self.clock[rank][one.agent] < one.phase:
                self.ask(one.agent, rank, data=True)
        elif one.switch and self.fenced[rank] <= one.phase:
            self.ask(rank, self._near(rank), data=True)
            self.fenced[rank] = phase

    def _near(self, rank: int) -> int:
        """Return a rank of the same node."""
        same = [r for r, host in enumerate(self.node) if host == self.node[rank] and r != rank]
        return min(same, key=lambda r: abs(r - rank))

    def tell(self, phase: int) -> tuple[SentSignal, ...]:
        """Send the requested signals; every GPU sends before it waits."""
        before = [list(row) for row in self.clock]
        for (source, target), data in self.asked.items():
            mine, theirs = self.clock[target], before[source]
            known = [
                max(a, b if data else min(b, BEGUN)) for a, b in zip(mine, theirs, strict=True)
            ]
            known[source] = max(known[source], phase - 1 if data else BEGUN)
            self.clock[target] = known
            if data and not self.port(source, target):
                self.fenced[source] = phase
        told = tuple(SentSignal(a, b, data) for (a, b), data in sorted(self.asked.items()))
        self.asked = {}
        return told


@dataclass(eq=False)
class _PhaseOrder:
    clocks: _LaneClocks
    phases: list[ActPhase] = field(default_factory=list)

    def run(self, phases: Sequence[Sequence[Act]]) -> list[ActPhase]:
        for acts in phases:
            self._phase(acts)
        self._end()
        return [p for p in self.phases if p.signals or p.acts]

    def _phase(self, acts: Sequence[Act]) -> None:
        self._arrivals()
        c, number = self.clocks, len(self.phases)
        for act in acts:
            for rank, writes, cell in _cells(act):
                if rank != act.rank and c.clock[act.rank][rank] < BEGUN:
                    c.ask(rank, act.rank, data=False)
                for one in c.touched[cell]:
                    if writes or one.writes:
                        c.need(act.rank, one, number)
        self.phases.append(ActPhase(c.tell(number), tuple(acts)))
        for act in acts:
            self._record(act, number)

    def _record(self, act: Act, number: int) -> None:
        c = self.clocks
        far = act.kind is ActKind.PUT and c.port(act.rank, act.onto[0])
        if far:
            c.posted.append(act)
        for rank, writes, cell in _cells(act):
            if far and not writes:
                continue  # read by the network: recorded when it has arrived
            switch = writes and act.kind in (ActKind.SUM, ActKind.STORE) and rank == act.rank
            c.touched[cell].append(_TouchedCell(act.rank, number, writes, switch))

    def _arrivals(self) -> None:
        """Signal at once to receivers of posted data; with it they stop reading."""
        c, number = self.clocks, len(self.phases)
        if not c.posted:
            return
        for act in c.posted:
            peer = act.onto[0]
            c.ask(act.rank, peer, data=True)
            for _, writes, cell in _cells(act):
                if not writes:
                    c.touched[cell].append(_TouchedCell(peer, number, writes=False))
        c.posted = []
        self.phases.append(ActPhase(c.tell(number), ()))

    def _end(self) -> None:
        """Signal to every GPU that the accesses of others to its memory are over."""
        self._arrivals()
        c, number = self.clocks, len(self.phases)
        for (rank, _, _), touches in c.touched.items():
            for one in touches:
                if one.agent != rank:
                    c.need(rank, one, number)
        self.phases.append(ActPhase(c.tell(number), ()))


def _cells(act: Act) -> Iterator[tuple[int, bool, ActCell]]:
    """Yield rank, whether it is written, and every grain that an act touches."""
    for writes, side in ((False, act.reads()), (True, act.writes())):
        for rank, (buffer, offset) in side:
            for k in range(offset, offset + act.size):
                yield rank, writes, (rank, str(buffer), k)


def ordered(phases: Sequence[Sequence[Act]], node: Sequence[int]) -> list[ActPhase]:
    """Return the phases with the signals that order them; ``node``: that of each rank."""
    return _PhaseOrder(_LaneClocks(node)).run(phases)

"""Time whole calls: rings of 2, 3, … ranks, a call that sends nothing, one rank to several remote.

A message's time between two ranks is start and α in one number. A ring of k ranks makes 2(k - 1)
steps after one start, so rings of several lengths part the two. A large message over two ranks
shows what programs reach of a link's bandwidth; over one channel, what a thread block sends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...formats.p2p.embedded.machine import Shape, call
from ...formats.p2p.embedded.wire import Array, Ends, Wire
from .model import EFFORT, CallPath, CallStep, CallTime, Echo
from .probe import Probe, Tell

FANS = (1, 2, 4, 8)
"""Remote ranks that one rank sends to at once."""

PLAIN = "Simple"
"""Protocol of runtimes that have but one."""


class SomeRanks:
    """The wire of some ranks, numbered from 0, for programs of theirs alone."""

    def __init__(self, wire: Wire, inside: Sequence[int]) -> None:
        self._wire, self._inside = wire, inside
        self.rank, self.ranks = inside.index(wire.rank), len(inside)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def agree(self, call: str) -> None:
        """Ranks outside make no such call: the next messages go on as before."""

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Exchange with the ranks that have these numbers here."""
        self._wire.exchange(number, self._named(sends), self._named(recvs))

    def _named(self, ends: Ends) -> list[tuple[Array, int]]:
        return [(array, self._inside[peer]) for array, peer in ends]


class WireCaller:
    """weft's own programs that a survey times, on any wire, for the ranks that take part.

    Attributes:
        protocols: of the runtime.
        one_channel: it can be set to use one channel.
    """

    protocols: Sequence[str] = (PLAIN,)
    one_channel = False

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._programs: dict[int, tuple[Shape, list[list[str]]]] = {}

    def ring(self, inside: Sequence[int], asked: CallTime) -> Callable[[], None]:
        """Return the classic allreduce over a ring of these ranks, of the bytes of ``asked``, as
        emitted files make it. All ranks of the job request it; those outside do not call it."""
        count = len(inside)
        if count not in self._programs:  # rank 0 compiles it for all
            told = self.probe.share(None if self.probe.rank else _compiled(count))
            self._programs[count] = Shape(**told["shape"]), told["code"]
        shape, code = self._programs[count]
        if self.probe.rank not in inside:
            return lambda: None
        wire = SomeRanks(self.probe.wire, inside)
        # A number for each rank at least, ``small_bytes`` a step.
        send, recv = (self._numbers(max(len(inside), asked.bytes // 8)) for _ in range(2))
        return lambda: call(wire, shape, code, send, recv)

    def empty(self) -> Callable[[], None]:
        """Return a call that sends nothing: of a program without rounds."""
        shape = Shape(1, 1, 1, 1, (0,))
        wire = SomeRanks(self.probe.wire, [self.probe.rank])
        send, recv = self._numbers(1), self._numbers(1)
        return lambda: call(wire, shape, [[]], send, recv)

    def _numbers(self, count: int) -> Array:
        return self.probe.to_device(np.ones(count))


def _compiled(ranks: int) -> dict[str, Any]:
    from weft.synth.engines.classic.text import named_algorithm  # one rank of many needs engines

    from ...formats.p2p.compile import compile_script
    from ...formats.p2p.emit import shape_of
    from ...formats.p2p.text import write

    text = f"classic:ring{{collective=allreduce,ranks={ranks}}}"
    script = compile_script(named_algorithm(text).algorithm)
    return {"shape": shape_of(script), "code": [[write(x) for x in own] for own in script.ranks]}


def call_times(
    probe: Probe, caller: WireCaller, groups: Sequence[Sequence[int]], tell: Tell
) -> tuple[CallTime, ...]:
    """Measure on all ranks; the times, on rank 0, which is in the first group."""
    tell("calls")
    leaders = [group[0] for group in groups]
    ways = ((CallPath.INSIDE, groups[0]), (CallPath.BETWEEN, leaders))  # over one rank of each
    asked: list[AskedRing] = [
        (CallTime(CallStep.RING, way, protocol, count, EFFORT.small_bytes, 0.0), ranks[:count])
        for protocol in caller.protocols
        for way, ranks in ways
        for count in range(2, min(len(ranks), EFFORT.ring_ranks) + 1)
    ]
    calls = [caller.ring(inside, one) for one, inside in asked]
    asked.append((CallTime(CallStep.EMPTY, CallPath.NONE, PLAIN, 1, 0, 0.0), (0,)))
    calls.append(caller.empty())
    found = _timed(probe, asked, calls, EFFORT.calls, EFFORT.call_rounds)
    large: list[AskedRing] = [
        (CallTime(CallStep.LARGE, way, PLAIN, 2, EFFORT.call_bytes, 0.0, channels), ranks[:2])
        for way, ranks in ways
        if len(ranks) > 1
        for channels in ((0, 1) if caller.one_channel else (0,))
    ]
    rings = [caller.ring(inside, one) for one, inside in large]
    found += _timed(probe, large, rings, 1, EFFORT.large_call_rounds)
    return (*found, *_fans(probe, groups))


def _timed(
    probe: Probe, asked: Sequence[AskedRing], calls: Sequence[Callable[[], None]], row: int, of: int
) -> list[CallTime]:
    """Return the medians of ``of`` rounds over the calls, each ``row`` times in a row."""
    rows = [
        [probe.calls(inside, go, row) for (_, inside), go in zip(asked, calls, strict=True)]
        for _ in range(of)
    ]
    us = np.median(rows, axis=0).tolist() if not probe.rank else []
    return [replace(one, us=float(x)) for (one, _), x in zip(asked, us, strict=False)]


AskedRing = tuple[CallTime, Sequence[int]]
"""A call without its time, and its ranks."""


def _fans(probe: Probe, groups: Sequence[Sequence[int]]) -> list[CallTime]:
    """Return the times of one rank to several of other groups, there and back."""
    remote = [rank for group in groups[1:] for rank in group]
    first = groups[0][0]
    counts = [count for count in FANS if count <= len(remote)]
    sessions = [(Echo(tuple((first, r) for r in remote[:n]), EFFORT.small_bytes),) for n in counts]
    if len(counts) < 2:
        return []
    times, order = [[EFFORT.calls]] * len(counts), range(len(counts))
    rows = [
        probe.collect(probe.sessions(sessions, times, order)) for _ in range(EFFORT.call_rounds)
    ]
    if probe.rank:
        return []
    us, at, found = np.median(rows, axis=0), 0, []
    for count in counts:
        time = float(us[at : at + count].max())
        found.append(
            CallTime(CallStep.FAN, CallPath.BETWEEN, PLAIN, count, EFFORT.small_bytes, time)
        )
        at += count
    return found

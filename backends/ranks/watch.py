"""Calls that are watched: when each round of a rank began and ended, without changing the file.

A copy of the file's module is loaded, and its ``call`` gets a wire that takes the time around every
exchange. Nothing of this is there in the calls that are timed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..formats.p2p.execute import loaded

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Passed:
    """One round of one rank: µs from the call's beginning, and the other ends of its messages."""

    round: int
    start_us: float
    end_us: float
    to: tuple[int, ...]
    source: tuple[int, ...]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Passed:
        """From its dictionary."""
        ends = (tuple(data[key]) for key in ("to", "source"))
        return Passed(data["round"], data["start_us"], data["end_us"], *ends)


@dataclass(frozen=True, slots=True)
class Watch:
    """What one rank did in a call: its rounds, and the µs of the whole call."""

    us: float
    rounds: tuple[Passed, ...]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Watch:
        """From its dictionary."""
        return Watch(data["us"], tuple(map(Passed.of, data["rounds"])))


class _Watched:
    """A wire that notes its exchanges: (round, start, end, targets, sources)."""

    def __init__(self, wire: Any, clock: Clock, log: list[tuple[Any, ...]]) -> None:
        self._wire, self._clock, self._log = wire, clock, log

    def exchange(self, number: int, sends: Sequence[Any], recvs: Sequence[Any]) -> None:
        begin = self._clock()
        self._wire.exchange(number, sends, recvs)
        ends = (tuple(peer for _, peer in some) for some in (sends, recvs))
        self._log.append((number, begin, self._clock(), *ends))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


class Watched:
    """A file loaded once more, on whose calls somebody watches."""

    def __init__(self, text: str, clock: Clock) -> None:
        self.program: types.ModuleType = loaded(text)
        self._log: list[tuple[Any, ...]] = []
        plain = self.program.call

        def call(wire: Any, *rest: Any) -> None:
            plain(_Watched(wire, clock, self._log), *rest)

        self.program.__dict__["call"] = call

    def forget(self) -> None:
        """What was noted so far."""
        self._log.clear()

    def seen(self, begin: float, end: float) -> Watch:
        """What was noted of a call, in times from its beginning."""
        rounds = tuple(
            Passed(number, 1e6 * (a - begin), 1e6 * (b - begin), to, source)
            for number, a, b, to, source in self._log
        )
        return Watch(1e6 * (end - begin), rounds)

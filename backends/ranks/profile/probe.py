"""Time echoes on one rank over any transport; ranks without a part in an echo stay idle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats

from ...formats.p2p.embedded.wire import Array, Wire
from .model import EFFORT, Echo, Flow, ProbeLimits, Session
from .noise import standard_errors

THERE, BACK, MEET, GO, TURN, GIVE, LENGTH, TEXT = range(1, 9)
"""Numbers of exchanges, by purpose."""


class Probe:
    """One rank's part in a series of echoes.

    ``patient`` is a second wire between the same ranks, for long waits: where runtimes poll, it
    sleeps, so that ranks whose turn it is not leave the cores to the others.
    """

    def __init__(
        self,
        wire: Wire,
        patient: Wire,
        to_device: Callable[[Any], Array],
        to_host: Callable[[Array], Any],
        batches: int,
    ) -> None:
        """``to_device`` and ``to_host`` copy NumPy arrays to what the wire carries, and back."""
        self.wire, self.patient = wire, patient
        self.rank, self.ranks = wire.rank, wire.ranks
        self.to_device, self.to_host, self.batches = to_device, to_host, batches
        self._memory: dict[bool, Array] = {}
        self._byte, self._other = self._ones(1), self._ones(1)

    def session(self, session: Session, times: Sequence[int]) -> list[Floats]:
        """Time each echo ``times`` times in a row: µs of each flow, 0 where others send it.

        Where there are several flows, all have the time until the last of them is through.
        """
        inside = ranks_of(session)
        if self.rank not in inside:
            return [np.zeros(len(echo.flows)) for echo in session]
        self._meet(self.patient, inside)
        pairs = zip(session, times, strict=True)
        found = [self._echo(echo, count, inside) for echo, count in pairs]
        self._meet(self.wire, inside)
        return found

    def sessions(
        self, sessions: Sequence[Session], times: Sequence[Sequence[int]], order: Sequence[int]
    ) -> Floats:
        """One session at a time, in an order: µs of every flow, in the order of the sessions."""
        found: dict[int, list[Floats]] = {}
        leads = [ranks_of(sessions[number])[0] for number in order]
        for place, number in enumerate(order):
            before, after = leads[place - 1 if place else 0], leads[place]
            if before != after and self.rank == before:  # the turn goes from first rank to first
                self.patient.exchange(TURN, [(self._byte, after)], [])
            elif before != after and self.rank == after:
                self.patient.exchange(TURN, [], [(self._other, before)])
            found[number] = self.session(sessions[number], times[number])
        return np.concatenate([row for number in range(len(sessions)) for row in found[number]])

    def calls(self, inside: Sequence[int], call: Callable[[], None], times: int) -> float:
        """µs of a call that these ranks make together, many times in a row; 0 on the others.

        The quickest batch counts, from when the ranks have met until this one is through.
        """
        if self.rank not in inside:
            return 0.0
        self._meet(self.patient, inside)
        best = np.inf
        for _ in range(self.batches):
            self._meet(self.wire, inside)
            begin = self.wire.clock()
            for _ in range(times):
                call()
            best = min(best, (self.wire.clock() - begin) / times)
        return float(best * 1e6)

    def _echo(self, echo: Echo, times: int, inside: Sequence[int]) -> Floats:
        there = self._ends(echo.flows, echo.bytes)
        back = self._ends([flow[::-1] for flow in echo.flows], 1)
        own = np.array([float(a == self.rank) for a, _ in echo.flows])
        best = np.inf
        for _ in range(self.batches):
            self._meet(self.wire, inside)
            begin = self.wire.clock()
            if any((*there, *back)):
                for _ in range(times):
                    self.wire.exchange(THERE, *there)
                    self.wire.exchange(BACK, *back)
            if len(echo.flows) > 1:  # else each rank would count its own luckiest batch
                self._meet(self.wire, inside)
            best = min(best, (self.wire.clock() - begin) / times)
        return own * best * 1e6

    def _meet(self, wire: Wire, inside: Sequence[int]) -> None:
        """Wait for these ranks: all signal the first, which signals all."""
        first, *others = inside
        if not others:  # torch refuses to exchange nothing
            return
        if self.rank == first:
            wire.exchange(MEET, [], [(self._other, rank) for rank in others])
            wire.exchange(GO, [(self._byte, rank) for rank in others], [])
        else:
            wire.exchange(MEET, [(self._byte, first)], [])
            wire.exchange(GO, [], [(self._other, first)])

    def _ends(
        self, flows: Sequence[Flow], size: int
    ) -> tuple[list[tuple[Array, int]], list[tuple[Array, int]]]:
        """This rank's sends and receives of some flows, each with memory of its own."""
        sends = [b for a, b in flows if a == self.rank]
        recvs = [a for a, b in flows if b == self.rank]

        def parts(peers: list[int], sent: bool) -> list[tuple[Array, int]]:
            whole = self._room(size * len(peers), sent)
            return [(whole[i * size : (i + 1) * size], peer) for i, peer in enumerate(peers)]

        return parts(sends, True), parts(recvs, False)

    def _room(self, size: int, sent: bool) -> Array:
        """Memory, touched once so that it is there, and not the same for both directions."""
        if sent not in self._memory or len(self._memory[sent]) < size:
            self._memory[sent] = self._ones(size)
        return self._memory[sent]

    def _ones(self, size: int) -> Array:
        return self.to_device(np.ones(size, np.uint8))

    def sum_rate(self) -> float:
        """Bytes of a result that this rank sums in a µs: the quickest of some."""
        a, b, out = (
            self.to_device(np.ones(EFFORT.summed_bytes // 4, np.float32)) for _ in range(3)
        )
        best = np.inf
        for _ in range(10):
            begin = self.wire.clock()
            self.wire.combine("sum", out, a, b)
            best = min(best, self.wire.clock() - begin)
        return EFFORT.summed_bytes / max(best * 1e6, 1e-3)

    def collect(self, own: Floats) -> Floats:
        """Return the sum over all ranks, on rank 0; the rank's own on the others."""
        if self.rank:
            self.patient.exchange(GIVE, [(self._raw(own), 0)], [])
            return own
        parts = [self._raw(own) for _ in range(1, self.ranks)]
        self.patient.exchange(GIVE, [], [(part, r) for r, part in enumerate(parts, 1)])
        others = [np.frombuffer(self.to_host(x).tobytes(), np.float64) for x in parts]
        return own + np.sum(others, axis=0) if others else own

    def share(self, thing: Any = None) -> Any:
        """Rank 0's value, for every rank; of JSON."""
        size = np.zeros(1)
        if self.rank:
            head = self._raw(size)
            self.patient.exchange(LENGTH, [], [(head, 0)])
            count = int(np.frombuffer(self.to_host(head).tobytes(), np.float64)[0])
            body = self._ones(count)
            self.patient.exchange(TEXT, [], [(body, 0)])
            return json.loads(self.to_host(body).tobytes())
        text = json.dumps(thing).encode()
        size[0] = len(text)
        head, body = self._raw(size), self.to_device(np.frombuffer(text, np.uint8).copy())
        self.patient.exchange(LENGTH, [(head, r) for r in range(1, self.ranks)], [])
        self.patient.exchange(TEXT, [(body, r) for r in range(1, self.ranks)], [])
        return json.loads(text)

    def _raw(self, numbers: Floats) -> Array:
        return self.to_device(np.frombuffer(numbers.tobytes(), np.uint8).copy())


def ranks_of(session: Session) -> list[int]:
    """Those that take part, in order."""
    return sorted({rank for echo in session for flow in echo.flows for rank in flow})


Tell = Callable[[str], None]


def sweep_all(
    probe: Probe,
    sessions: Sequence[Session],
    effort: ProbeLimits,
    until: float,
    seed: int,
    tell: Tell,
) -> Floats:
    """µs of every flow of every echo, in their order, a row for each sweep: shape (sweeps, flows).

    The whole table is known to rank 0 only. ``until``: the clock's seconds when to stop.
    """
    ones = [[1] * len(session) for session in sessions]
    first = probe.collect(probe.sessions(sessions, ones, range(len(sessions))))
    times = probe.share(_times(sessions, first, effort))
    rows: list[Floats] = []
    go_on = True
    while go_on:
        order = np.random.default_rng([seed, len(rows)]).permutation(len(sessions))
        rows.append(probe.collect(probe.sessions(sessions, times, order.tolist())))
        table = np.array(rows)
        go_on = probe.share(not _enough(table, effort, probe.wire.clock() > until))
        if not probe.rank:
            tell(f"sweep {len(rows)}")
    return table


def _enough(table: Floats, effort: ProbeLimits, late: bool) -> bool:
    sweeps = len(table)
    if sweeps < effort.least:
        return False
    if late or sweeps >= effort.most:
        return True
    return bool(np.median(standard_errors(np.log(np.maximum(table, 1e-9)).T)) <= effort.error)


def _times(sessions: Sequence[Session], us: Floats, effort: ProbeLimits) -> list[list[int]]:
    """Return the number of echoes for a batch of the desired duration."""
    at, result = 0, []
    for session in sessions:
        counts = []
        for echo in session:
            longest = float(us[at : at + len(echo.flows)].max(initial=0.0))
            wanted = int(effort.batch_seconds * 1e6 / max(longest, 1e-3))
            counts.append(min(effort.most_in_batch, max(1, wanted)))
            at += len(echo.flows)
        result.append(counts)
    return result

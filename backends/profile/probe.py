"""The rank's side: time echoes over any wire, all ranks in step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..p2p.wire import Array, Wire
from .model import Echo, Flow, Timing

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.float64]

BATCHES = 15
"""Batches of an echo; the quickest counts, as noise only ever adds (McVoy and Staelin, lmbench)."""

BATCH_SECONDS = 5e-4
"""What a batch should take, so that the clock's grain and a barrier are small beside it."""

MOST_IN_BATCH = 200

STABLE = 0.1
"""An echo whose batches spread more is measured again, :data:`ATTEMPTS` times at most."""

ATTEMPTS = 3


class Probe:
    """One rank's part in a series of echoes."""

    def __init__(
        self, wire: Wire, to_device: Callable[[Bytes], Array], to_host: Callable[[Array], Bytes]
    ) -> None:
        """``to_device`` and ``to_host`` copy bytes between NumPy and what the wire carries."""
        self.wire, self.to_device, self.to_host = wire, to_device, to_host
        self.memory: dict[tuple[int, bool], Array] = {}

    def measure(
        self, echoes: Sequence[Echo], tell: Callable[[int], None] = lambda _: None
    ) -> list[Timing]:
        """Time all of them. Every rank gets the answer."""
        found = []
        for number, echo in enumerate(echoes):
            tell(number)
            for _ in range(ATTEMPTS):
                timing = self._timing(echo)
                if timing.spread <= STABLE:
                    break
            found.append(timing)
        return found

    def _timing(self, echo: Echo) -> Timing:
        """The quickest of some batches, at the senders; the same on every rank."""
        first = self._batch(echo, 1)
        length = float(self._everybody([max(first, default=0.0)]).max())
        times = min(MOST_IN_BATCH, max(1, int(BATCH_SECONDS / max(length, 1e-9))))
        rows = np.array([self._batch(echo, times) for _ in range(BATCHES)]).reshape(BATCHES, -1)
        mine = np.zeros(2 * len(echo.flows))
        own = [i for i, (a, _) in enumerate(echo.flows) if a == self.wire.rank]
        if own:
            least, quarter = np.percentile(rows, [0, 25], axis=0)
            mine[own] = least * 1e6
            mine[np.array(own) + len(echo.flows)] = quarter / np.maximum(least, 1e-12) - 1
        table = self._everybody(mine.tolist()).sum(axis=0)  # each flow has one sender
        us, spread = np.split(table, 2)
        return Timing(echo, tuple(us.tolist()), float(spread.max()))

    def _batch(self, echo: Echo, times: int) -> list[float]:
        """Seconds per echo of this rank's own flows, in their order."""
        there = self._ends(echo.flows, echo.bytes)
        back = self._ends([flow[::-1] for flow in echo.flows], 1)
        own = sum(1 for a, _ in echo.flows if a == self.wire.rank)
        self.wire.barrier()
        begin = self.wire.clock()
        if any((*there, *back)):
            for _ in range(times):
                self.wire.exchange(1, *there)
                self.wire.exchange(2, *back)
        return [(self.wire.clock() - begin) / times] * own

    def _ends(
        self, flows: Sequence[Flow], size: int
    ) -> tuple[list[tuple[Array, int]], list[tuple[Array, int]]]:
        """This rank's sends and receives of some flows, each with memory of its own."""
        sends = [b for a, b in flows if a == self.wire.rank]
        recvs = [a for a, b in flows if b == self.wire.rank]

        def parts(peers: list[int], sent: bool) -> list[tuple[Array, int]]:
            whole = self._room(size * len(peers), sent)
            return [(whole[i * size : (i + 1) * size], peer) for i, peer in enumerate(peers)]

        return parts(sends, True), parts(recvs, False)

    def _room(self, size: int, sent: bool) -> Array:
        """Memory that is there already, and not the same for what is sent and received."""
        if (size, sent) not in self.memory:
            self.memory[size, sent] = self.to_device(np.zeros(size, np.uint8))
        return self.memory[size, sent]

    def _everybody(self, numbers: Sequence[float]) -> Numbers:
        """The numbers of all ranks, a row each: everybody sends to rank 0, which sends to all."""
        ranks, count = self.wire.ranks, len(numbers)
        own = np.array(numbers, np.float64)
        table = np.zeros((ranks, count))
        if self.wire.rank:
            whole = self._raw(table)
            self.wire.exchange(3, [(self._raw(own), 0)], [])
            self.wire.exchange(4, [], [(whole, 0)])
            return self._numbers(whole).reshape(ranks, count)
        parts = [self._raw(own) for _ in range(1, ranks)]
        self.wire.exchange(3, [], [(part, r) for r, part in enumerate(parts, 1)])
        table[:] = [own, *map(self._numbers, parts)]
        whole = self._raw(table)
        self.wire.exchange(4, [(whole, r) for r in range(1, ranks)], [])
        return table

    def _raw(self, numbers: Numbers) -> Array:
        return self.to_device(np.frombuffer(numbers.tobytes(), np.uint8).copy())

    def _numbers(self, array: Array) -> Numbers:
        return np.frombuffer(self.to_host(array).tobytes(), np.float64)

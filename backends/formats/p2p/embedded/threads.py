"""Ranks as threads of one process: the default, and the judge of scripts.

It is strict where runtimes are lax: messages match by order alone, their lengths and types are
compared, and a rank that waits in vain is named with the one it waits for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from .arrays import Arrays
from .wire import Array, Ends


class Hub:
    """What connects the threads of all ranks."""

    def __init__(self, ranks: int, timeout: float = 60.0) -> None:
        self.ranks = ranks
        self.timeout = timeout
        self.failed = threading.Event()
        self.meet = threading.Barrier(ranks)
        self._lock = threading.Lock()
        self._lines: dict[tuple[int, int], queue.SimpleQueue[tuple[int, Array]]] = {}

    def line(self, source: int, target: int) -> queue.SimpleQueue[tuple[int, Array]]:
        """The messages under way from one rank to another."""
        with self._lock:
            return self._lines.setdefault((source, target), queue.SimpleQueue())

    def left(self) -> list[tuple[int, int]]:
        """Pairs of ranks with messages that nobody took."""
        return sorted(pair for pair, line in self._lines.items() if not line.empty())

    def run(self, main: Callable[[Threads], None]) -> None:
        """Run ``main`` on a wire of each rank; raises what the first rank to fail raised."""
        errors: list[BaseException] = []

        def body(rank: int) -> None:
            try:
                main(Threads(self, rank))
            except BaseException as error:  # a thread must not die without a word
                if not self.failed.is_set():
                    errors.append(error)
                    self.failed.set()
                    self.meet.abort()

        threads = [threading.Thread(target=body, args=(r,), daemon=True) for r in range(self.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


class Threads(Arrays):
    """One rank's end of a :class:`Hub`."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.ranks = hub, rank, hub.ranks

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Put copies of what is sent on their lines, then take what is due."""
        for array, peer in sends:
            self.hub.line(self.rank, peer).put((number, array.copy()))
        for array, peer in recvs:
            sent, message = self._take(number, peer)
            if (sent, len(message), message.dtype) != (number, len(array), array.dtype):
                raise RuntimeError(
                    f"rank {self.rank}, round {number}: rank {peer} sent {len(message)} elements "
                    f"of {message.dtype} in its round {sent}; {len(array)} of {array.dtype} are due"
                )
            array[...] = message

    def _take(self, number: int, peer: int) -> tuple[int, Array]:
        end = time.monotonic() + self.hub.timeout
        while not self.hub.failed.is_set():
            try:
                return self.hub.line(peer, self.rank).get(timeout=0.2)
            except queue.Empty:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"rank {self.rank}, round {number}: nothing came from rank {peer}"
                    ) from None
        raise RuntimeError("another rank failed")

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.hub.meet.wait(self.hub.timeout)

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

"""A machine of planted α and β whose time is no clock's: ranks are threads, each with its own time.

A message starts when both its ends are there and nothing that it needs is held (first come, first
served), holds what it needs for its bytes, and is there α later. When all threads wait, the message
that can start first is carried out; so what happens does not depend on who runs when.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from until import HANGS

from weft.backends.formats.p2p.embedded.arrays import Arrays
from weft.backends.ranks.profile.probe import BACK, THERE
from weft.dsl.nouns.topology import Topology


@dataclass(frozen=True)
class Machine:
    """µs and µs per byte of each direction; names of what each shares, µs per byte of it.

    ``costs``: µs that every message holds the cores of the whole machine. ``noise``: standard
    deviation of a time's logarithm. ``outliers``: the share of messages that take up to 20 times
    as long.
    """

    alpha: np.ndarray
    beta: np.ndarray
    uses: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    shared: dict[str, float] = field(default_factory=dict)
    costs: float = 0.0
    noise: float = 0.0
    outliers: float = 0.0
    seed: int = 0

    @property
    def ranks(self) -> int:
        return len(self.alpha)


def flat(ranks: int, alpha: float = 2.0, GBps: float = 10.0, **more: object) -> Machine:
    """All pairs alike."""
    full = np.ones((ranks, ranks))
    return Machine(full * alpha, full / (GBps * 1000), **more)


def resources_of(machine: Topology) -> set[tuple[str, float]]:
    return {(r.name, float(r.bandwidth)) for r in machine.resources}


@dataclass
class _Post:
    """One rank's exchange: how many of its messages are not through, and when it is done.

    Its thread sleeps on a lock of its own: to wake all ranks for each of them took most of the
    time of the tests.
    """

    time: float
    left: int
    end: float
    through: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.through.acquire()


class VirtualHub:
    """Carries out what all ranks wait for."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.rng = np.random.default_rng(machine.seed)
        self.lock = threading.Lock()
        self.live = machine.ranks
        self.waiting = 0  # ranks whose exchange is not through
        self.posts: dict[int, _Post] = {}
        self.sends: dict[tuple[int, int], list] = {}
        self.recvs: dict[tuple[int, int], list] = {}
        self.free: dict[object, float] = {}
        self.error: BaseException | None = None

    def run(self, main: Callable[[VirtualWire], None]) -> None:
        """Run ``main`` on every rank; raises what a rank raised."""

        def body(rank: int) -> None:
            on_one_core()
            try:
                main(VirtualWire(self, rank))
            except BaseException as error:
                with self.lock:
                    self._fail(error)
            with self.lock:
                self.live -= 1
                self._carry_on()

        threads = [threading.Thread(target=body, args=(r,), daemon=True) for r in range(self.live)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error:
            raise self.error

    def exchange(
        self, rank: int, time: float, sends: Sequence[tuple], recvs: Sequence[tuple]
    ) -> float:
        """Post, and wait; the time when all of it is through."""
        with self.lock:
            if self.error:
                raise RuntimeError("another rank failed") from self.error
            post = self.posts[rank] = _Post(time, len(sends) + len(recvs), time)
            self.waiting += 1
            for number, array, peer in sends:
                self.sends.setdefault((rank, peer), []).append((number, array, post))
            for number, array, peer in recvs:
                self.recvs.setdefault((peer, rank), []).append((number, array, post))
            self._carry_on()
        if not post.through.acquire(timeout=HANGS):
            raise TimeoutError(f"virtual rank {rank} waits in vain")
        if self.error:
            raise RuntimeError("another rank failed") from self.error
        return post.end

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            for post in self.posts.values():
                if post.left:
                    post.through.release()

    def _carry_on(self) -> None:
        """While everybody waits: the message that can start first."""
        while not self.error and self.live and self.waiting == self.live:
            best = None
            for flow, sent in self.sends.items():
                due = self.recvs.get(flow)
                if due:
                    ready = max(sent[0][2].time, due[0][2].time)
                    start = max([ready, *(self.free.get(x, 0.0) for x in self._needs(flow))])
                    best = min(best or (np.inf,), (start, ready, flow))
            if best is None:
                self._fail(RuntimeError("deadlock"))
                break
            self._carry(best[2], best[0])

    def _needs(self, flow: tuple[int, int]) -> tuple[object, ...]:
        cores = ("cores",) if self.machine.costs else ()
        return (flow, *self.machine.uses.get(flow, ()), *cores)

    def _carry(self, flow: tuple[int, int], start: float) -> None:
        m = self.machine
        number, data, sender = _first(self.sends, flow)
        other, place, receiver = _first(self.recvs, flow)
        assert (number, len(data)) == (other, len(place))
        if number not in (THERE, BACK):  # nobody looks at what echoes bring
            place[...] = data
        factor = np.exp(m.noise * self.rng.standard_normal()) if m.noise else 1.0
        if m.outliers and self.rng.random() < m.outliers:
            factor *= self.rng.uniform(2, 20)
        end = start
        for need in self._needs(flow):
            beta = m.beta[flow] if need == flow else m.shared.get(need, 0.0)
            cost = m.costs if need == "cores" else 0.0
            self.free[need] = start + factor * (cost + beta * data.nbytes)
            end = max(end, self.free[need])
        end += factor * m.alpha[flow]
        for post in (sender, receiver):
            post.left -= 1
            post.end = max(post.end, end)
            if not post.left:
                self.waiting -= 1
                post.through.release()


def on_one_core() -> None:
    """Keep the calling thread on one core: one rank at a time has work, and to hand the
    interpreter's lock to another core takes longer than most of that work."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def _first(messages: dict[tuple[int, int], list], flow: tuple[int, int]) -> tuple:
    """Take the first message of a flow; flows without any are not kept, for all are looked at."""
    queue = messages[flow]
    found = queue.pop(0)
    if not queue:
        del messages[flow]
    return found


class VirtualWire(Arrays):
    """One rank's end."""

    def __init__(self, hub: VirtualHub, rank: int) -> None:
        self.hub, self.rank, self.ranks, self.time = hub, rank, hub.machine.ranks, 0.0

    def exchange(self, number, sends, recvs) -> None:
        if sends or recvs:
            out = [(number, array, peer) for array, peer in sends]
            into = [(number, array, peer) for array, peer in recvs]
            self.time = self.hub.exchange(self.rank, self.time, out, into)

    def combine(self, op, out, a, b) -> None:
        self.time += out.nbytes / 5000
        super().combine(op, out, a, b)

    def clock(self) -> float:
        return self.time * 1e-6

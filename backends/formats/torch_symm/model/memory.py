"""A model of weakly ordered memory: release and acquire with scopes, on all GPUs of a program.

Happens-before is kept by vector clocks (Lamport 1978; Mattern 1989), as race detectors keep it
(Flanagan and Freund, FastTrack, PLDI 2009). Each thread block has two **threads**, since two show
what more would; the lanes of a tile are divided between them anew for every tile. Only

* a block's barrier orders its two threads,
* a releasing store that an acquiring load reads orders them, if the scope of both includes the
  other (``gpu`` is for one rank only): release-acquire synchronization as in C++ and PTX,
* launches of one rank follow each other, and its host's copies are between them.

Two plain accesses to a word, of which one writes and which nothing orders, are a **race**. Where
races are not reported, a read that races returns the new or the old value at random, so that wrong
order becomes a wrong result. Relaxed stores (packets, relaxed flags) travel: they arrive one by
one, in any order except for one word, at the latest before a release of their block.

What the model leaves out: loads that are delayed past later stores of their thread (load
buffering), values out of thin air, mixed-size access, and that a GPU may stop a block for good.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.lazy_dataclass import dataclass

from ...mscclpp.plan.model import LIMITS

WORD = 4
"""Bytes of a word: addresses are in bytes."""


class MemoryRace(Exception):
    """Two accesses that nothing orders."""


@dataclass(slots=True, eq=False)
class BlockThreads:
    """The threads of a block: their clocks' first row; which lanes are whose; where it is.

    ``cut``: of the lanes of a tile the part that is thread 0's. ``pending``: relaxed stores that
    have not arrived. ``polled``: the flag or packet read last, and the state of the rank's memory.
    """

    rank: int
    block: int
    first: int
    cut: float = 0.5
    pending: int = 0
    polled: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        return f"rank {self.rank} block {self.block}"


@dataclass(slots=True, eq=False)
class Travelling:
    """Relaxed stores of one thread on their way."""

    by: BlockThreads
    words: Ints
    values: AnyArray


@dataclass(eq=False)
class WeakMemory:
    """All words of all GPUs, the writers and readers of each, and the clocks of all threads.

    ``owner``: per word, the rank whose memory it is in; -1: constants. ``blocks``: of all ranks.
    ``report``: raise :class:`MemoryRace` at a race; else let it have its effect. ``across``: ranks
    read each other's memory (by a switch), so that readers of all ranks are kept for each word.
    """

    words: AnyArray
    owner: Ints
    blocks: Sequence[BlockThreads]
    rng: random.Random
    report: bool = True
    lateness: float = 0.5
    across: bool = False

    clock: Ints = field(init=False)
    writer: Ints = field(init=False)
    written: Ints = field(init=False)
    before: AnyArray = field(init=False)
    read: Ints = field(init=False)
    released: dict[int, tuple[Ints, int, str]] = field(init=False)
    travelling: list[Travelling] = field(init=False)
    version: Ints = field(init=False)

    def __post_init__(self) -> None:
        threads = LIMITS.threads * len(self.blocks)
        self.clock = np.zeros((threads, threads), np.int32)
        np.fill_diagonal(self.clock, 1)
        self.writer = np.zeros(len(self.words), np.int32)
        self.written = np.zeros(len(self.words), np.int32)
        self.before = self.words.copy()
        self.mine = [
            np.array(
                [b.first + k for b in self.blocks if b.rank == r for k in range(LIMITS.threads)]
            )
            for r in range(max((b.rank for b in self.blocks), default=-1) + 1)
        ]
        self.readers = [np.arange(threads)] * len(self.mine) if self.across else self.mine
        self.place = {int(t): k for rows in self.readers for k, t in enumerate(rows)}
        most = max(map(len, self.readers), default=0)
        self.read = np.zeros((most, len(self.words)), np.int32)
        self.released, self.travelling = {}, []
        self.version = np.zeros(len(self.mine) + 1, np.int64)

    # --- plain accesses -------------------------------------------------------------------------

    def _shares(self, by: BlockThreads, words: Ints, unit: int) -> list[tuple[int, Ints]]:
        """Return the words that each thread of a block handles; all of them do a scalar one."""
        if len(words) == unit:
            return [(by.first, words), (by.first + 1, words)]
        cut = unit * round(by.cut * len(words) / unit)
        return [(by.first, words[:cut]), (by.first + 1, words[cut:])]

    def load(self, by: BlockThreads, words: Ints, unit: int = 1) -> AnyArray:
        """Return plain words as threads of a block read them; ``unit``: words of a number."""
        if self.owner[words[0]] < 0:
            return self.words[words]
        values = self.words[words].copy()
        for thread, own in self._shares(by, words, unit):
            if not len(own):
                continue
            known = self.clock[thread, self.writer[own]] >= self.written[own]
            if not known.all():
                word = int(own[int(np.argmin(known))])
                self._race(by, "reads", word, int(self.writer[word]))
                old = ~known & (self.rng.random() < self.lateness)
                some = np.isin(words, own[old])
                values[some] = self.before[words[some]]
            self.read[self.place[thread], own] = self.clock[thread, thread]
        return values

    def store(self, by: BlockThreads, words: Ints, values: AnyArray, unit: int = 1) -> None:
        """Store plain words; a scalar is stored by thread 0."""
        shares = self._shares(by, words, unit)[: 1 if len(words) == unit else LIMITS.threads]
        owner = int(self.owner[words[0]])
        for thread, own in shares:
            if not len(own):
                continue
            clock = self.clock[thread]
            known = clock[self.writer[own]] >= self.written[own]
            if not known.all():
                word = int(own[int(np.argmin(known))])
                self._race(by, "writes", word, int(self.writer[word]))
            rows = self.readers[owner]
            over = self.read[: len(rows), own] <= clock[rows][:, None]
            if not over.all():
                row, column = (int(k[0]) for k in np.nonzero(~over))
                self._race(by, "overwrites, which may still be read:", int(own[column]), rows[row])
            self.before[own] = self.words[own]
            self.writer[own], self.written[own] = thread, clock[thread]
        self.words[words] = values
        self.version[owner] += 1

    def _race(self, by: BlockThreads, does: str, word: int, other: int) -> None:
        if self.report:
            whose = self.blocks[int(other) // LIMITS.threads]
            raise MemoryRace(
                f"{by} {does} word {word} of rank {self.owner[word]}, unordered with {whose}"
            )

    # --- atomic accesses ------------------------------------------------------------------------

    def send(self, by: BlockThreads, words: Ints, values: AnyArray) -> None:
        """Store words in pairs (packets) or singly (flags), relaxed: they arrive later."""
        for low, high in self._portions(len(words)):
            self.travelling.append(Travelling(by, words[low:high], values[low:high].copy()))
            by.pending += 1

    def _portions(self, count: int) -> list[tuple[int, int]]:
        """Cut some packets, each two words, into up to three portions."""
        cuts = sorted({0, count, *(2 * self.rng.randrange(count // 2 + 1) for _ in range(2))})
        return list(pairwise(cuts))

    def peek(self, words: Ints) -> AnyArray:
        """Return words that are read relaxed: those that have arrived."""
        return self.words[words]

    def arrive(self, by: BlockThreads | None = None) -> bool:
        """Deliver one portion that travels, or all of a block; False if nothing does."""
        if by is not None:
            if by.pending:
                for one in [one for one in self.travelling if one.by is by]:
                    self._deliver(one)
            return True
        if not self.travelling:
            return False
        self._deliver(self.travelling[self.rng.randrange(len(self.travelling))])
        return True

    def _deliver(self, one: Travelling) -> None:
        """Deliver a portion, after those before it that have a word in common (coherence)."""
        at = self.travelling.index(one)
        earlier = [x for x in self.travelling[:at] if np.intersect1d(x.words, one.words).size]
        for each in [*earlier, one]:
            if each not in self.travelling:
                continue
            self.words[each.words] = each.values
            for word in each.words.tolist():
                self.released.pop(word, None)
            each.by.pending -= 1
            self.travelling.remove(each)
            self.version[self.owner[each.words[0]]] += 1

    def exchange(self, by: BlockThreads, word: int, value: Any, order: str, scope: str) -> Any:
        """Store a flag (thread 0 does); with release, all that the thread knows goes with it."""
        if order == "relaxed":
            self.travelling.append(Travelling(by, np.array([word]), np.array([value])))
            by.pending += 1
            return self.words[word]
        return self._update(by, word, value, order, scope, chain=False)

    def add(self, by: BlockThreads, word: int, value: int, order: str, scope: str) -> Any:
        """Add to a flag and return its old value; adding 0 is a load."""
        old = self.words[word]
        if order in ("acquire", "acq_rel"):
            self._acquire(by, word, scope)
        if int(value):
            with np.errstate(over="ignore"):
                self._update(by, word, old + np.int32(value), order, scope, chain=True)
        return old

    def _update(
        self, by: BlockThreads, word: int, value: Any, order: str, scope: str, *, chain: bool
    ) -> Any:
        old = self.words[word]
        before = self.released.pop(word, None)
        if order in ("release", "acq_rel"):
            self.arrive(by)
            clock = self.clock[by.first].copy()
            if chain and before is not None:
                np.maximum(clock, before[0], out=clock)
            self.released[word] = clock, by.rank, scope
            self.clock[by.first, by.first] += 1
        self.words[word] = value
        self.version[self.owner[word]] += 1
        return old

    def _acquire(self, by: BlockThreads, word: int, scope: str) -> None:
        """Thread 0 acquires the writes of the release that it reads, if the scopes include both."""
        if word not in self.released:
            return
        clock, rank, reach = self.released[word]
        if rank == by.rank or scope == reach == "sys":
            np.maximum(self.clock[by.first], clock, out=self.clock[by.first])

    # --- order ----------------------------------------------------------------------------------

    def meet(self, by: BlockThreads) -> None:
        """The threads of a block meet: each sees the writes of the other."""
        self._join(np.arange(by.first, by.first + LIMITS.threads))

    def _join(self, rows: Ints) -> None:
        self.clock[rows] = self.clock[rows].max(axis=0)
        self.clock[rows, rows] += 1

    def between(self, rank: int) -> None:
        """A launch of a rank has ended, and its host or its next launch begins."""
        for block in self.blocks:
            if block.rank == rank:
                self.arrive(block)
        self._join(self.mine[rank])

    def host(self, rank: int) -> BlockThreads:
        """Return the threads as which a rank's host reads and writes between launches."""
        return next(block for block in self.blocks if block.rank == rank)

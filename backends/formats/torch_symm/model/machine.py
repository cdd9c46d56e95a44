"""Launches of an emitted kernel on all ranks at once, in adverse orders, compared with the result.

Nothing looks at a clock: a seeded generator picks the next block, how far it goes, and what of the
relaxed stores arrives. A rank begins its next launch when its own blocks have ended, whatever the
others do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective

from ....execute.execute import Execution
from ....execute.layout import Data, data, layout
from ...mscclpp.plan.model import LIMITS, ExecutionPlan
from .language import ASLEEP, STEP, Language, TileValue, functions
from .memory import WORD, BlockThreads, MemoryRace, WeakMemory

ORIGIN = 64
"""Address of the first word."""

LAST = (1 << 31) - 1
"""The largest number of a launch: the next one is negative."""

Running = tuple[BlockThreads, Iterator[str]]
"""A block, and the rest of its turns."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of a run besides the file: words of a chunk and a tile, launches, type, start.

    ``turn``: launches before the first (flags wrap around). ``report``: see :class:`WeakMemory`.
    """

    length: int = 2
    tile: int = 4
    launches: int = 3
    dtype: str = "int32"
    turn: int = 0
    report: bool = True
    most_turns: int = 20_000_000  # of blocks; then a run is given up, a deadlock ends earlier


def run_kernel(
    text: str,
    plan: ExecutionPlan,
    collective: Collective,
    *,
    orders: int,
    dtypes: Sequence[str] = ("int32",),
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a file's kernel in many orders on all ranks, and compare every result."""
    known = [name for name in dtypes if hasattr(Language, name)]
    if plan.packets:
        known = [name for name in known if np.dtype(name).itemsize <= WORD]  # what a packet holds
    known = known or ["int32"]
    turns = 0
    for number in range(orders):
        tell(f"execute the kernel, {number + 1} of {orders}")
        trial = Trial(dtype=known[number % len(known)], turn=(0, LAST - 1)[number % 2])
        try:
            run = KernelRun(text, plan, collective, trial, (seed << 20) + number)
            problem = run.go()
        except Exception as error:  # of the text of the file, which may have been edited
            problem = f"{type(error).__name__}: {error!s:.200}"
            return Execution(False, f"the kernel: {problem} (order {number})", number + 1, turns)
        turns += run.turns
        if problem:
            return Execution(False, f"the kernel: {problem} (order {number})", number + 1, turns)
    detail = f"the kernel's text by the memory model in {count(orders, 'order')}: all right"
    return Execution(True, detail, orders, turns)


class KernelRun:
    """One execution of a file's kernel on all ranks, by the stand-in of Triton's language."""

    def __init__(
        self, text: str, plan: ExecutionPlan, collective: Collective, trial: Trial, seed: int
    ) -> None:
        self.trial, self.rng, self.turns = trial, random.Random(seed), 0
        nowhere = WeakMemory(
            np.zeros(4, np.int32), np.zeros(4, np.int64), [BlockThreads(0, 0, 0)], self.rng
        )
        self.tl = Language(nowhere, ORIGIN)
        self.kernel = self._functions(text)
        self.code, flags = self.kernel["assembled"]()
        self._lay_out(flags)
        c = collective
        self.place = layout(c, [0] * c.ranks, in_place=plan.in_place)
        self.kind = np.dtype(trial.dtype)
        self.each = trial.length * self.word // self.kind.itemsize
        numbers = np.random.default_rng(seed)
        self.values = [
            data(self.place, self.kind, self.each, numbers) for _ in range(trial.launches)
        ]

    def _functions(self, text: str) -> dict[str, Any]:
        """Return the file's functions and constants by name."""
        return functions(text, self.tl)

    # --- memory ---------------------------------------------------------------------------------

    def _lay_out(self, flags: int) -> None:
        k, trial = self.kernel, self.trial
        ranks, blocks = k["RANKS"], k["BLOCKS"]
        self.word = 8 if np.dtype(trial.dtype).itemsize == 8 else WORD
        each = trial.length * self.word // WORD
        packets = k["HEADER"]["protocol"] == "LL"
        sizes = [n * each for n in k["CHUNKS"]]
        sizes[2] *= 4 if packets else 1
        sizes = [-(-n // 4) * 4 for n in (*sizes, flags)]
        tables = [] if k["HEADER"]["specialised"] else self._tables(blocks)
        starts = np.cumsum([0, *(-(-len(t) // 4) * 4 for t in tables), 2 * 4 * ranks])
        first = int(starts[-1])
        per_rank = sum(sizes)
        words = np.zeros(first + ranks * per_rank, np.int32)
        owner = np.repeat(np.arange(-1, ranks), [first, *[per_rank] * ranks])
        self.base = first + per_rank * np.arange(ranks)[:, None] + np.cumsum([0, *sizes[:3]])
        for table, start in zip(tables, starts, strict=False):
            words[start : start + len(table)] = table
        bases = (ORIGIN + WORD * self.base).astype(np.int64).ravel()
        words[starts[-2] : starts[-2] + 2 * len(bases)] = bases.view(np.int32)
        for rank in range(ranks):
            at = self.base[rank, 3]
            words[self.base[rank, 2] : at] = 0x5EAD
            words[at : at + flags] = 0
            words[at : at + blocks] = np.int32(trial.turn)
        self._preset(words)
        self.half = WORD * sizes[2] // 2 if packets else 0
        self.addresses = [ORIGIN + WORD * int(s) for s in starts[:-1]]
        per_rank_blocks = [max(1, len(code)) for code in self.code]  # a launch has one, idle or not
        self.blocks = [
            BlockThreads(r, b, 0) for r, n in enumerate(per_rank_blocks) for b in range(n)
        ]
        for number, block in enumerate(self.blocks):
            block.first = LIMITS.threads * number
        self.memory = WeakMemory(
            words, owner, self.blocks, self.rng, trial.report, across="CAST" in self.kernel
        )
        self.tl.memory = self.memory

    def _preset(self, words: AnyArray) -> None:
        """Flags as they are after ``turn`` launches: every counter has been raised so often."""
        if not self.trial.turn:
            return
        flags = range(2, len(self.kernel["KINDS"]))  # kinds before and after move data
        for blocks in self.code:
            for op in (op for block in blocks for op in block if op[0] in flags):
                _, peer, slot, _, count = op
                with np.errstate(over="ignore"):
                    words[self.base[peer, 3] + slot] = np.int32(self.trial.turn) * np.int32(count)

    def _tables(self, most: int) -> list[Ints]:
        """The code of all ranks, and where each block's begins, as the file itself makes them."""
        lines = [line for blocks in self.code for line in [*blocks, *[()] * (most - len(blocks))]]
        flat = [[x for op in line for x in (len(op) + 1, *op)] for line in lines]
        return [
            np.array([x for one in flat for x in one], np.int64),
            np.cumsum([0, *map(len, flat)]),
        ]

    def _rows(self, rank: int, side: int) -> tuple[Ints, Ints]:
        """Return the words of a rank's input or output, and the rows of the data that they hold."""
        buffer, first, count = self.kernel["PLACES"][rank][side]
        each = self.trial.length * self.word // WORD
        start = int(self.base[rank, "ios".index(buffer)]) + first * each
        return np.arange(start, start + count * each), int(self.place.base[rank, side]) + np.arange(
            count
        )

    # --- launches -------------------------------------------------------------------------------

    def _begin(self, rank: int, value: Data) -> list[Running]:
        """The host fills the buffers; then the blocks begin."""
        memory = self.memory
        memory.between(rank)
        host = memory.host(rank)
        for side in (1, 0):
            words, rows = self._rows(rank, side)
            host.cut = 1.0
            memory.store(
                host, words, np.ascontiguousarray(value.before[rows]).view(np.int32).ravel()
            )
        memory.between(rank)
        mine = [block for block in self.blocks if block.rank == rank]
        return [(block, self._block(block)) for block in mine]

    def _block(self, block: BlockThreads) -> Iterator[str]:
        run: Iterator[str] = self.kernel["run"](*self._arguments(block.rank))
        return run

    def _arguments(self, rank: int) -> tuple[Any, ...]:
        k, tl = self.kernel, self.tl
        words = tl.int64 if self.word == 8 else tl.int32
        addresses = [self._pointer(a, tl.int32) for a in self.addresses[:-1]]
        bases = self._pointer(self.addresses[-1], tl.int64)
        length, half = self._scalar(self.trial.length, tl.int32), self._scalar(self.half, tl.int64)
        kind = getattr(tl, self.trial.dtype)
        common: tuple[Any, ...] = (
            bases,
            length,
            half,
            k["BLOCKS"],
            words,
            kind,
            "sum",
            self.trial.tile,
            False,
        )
        common += ("",) if "sums" in k["HEADER"] else ()  # no load-reduce: by loads from all ranks
        if k["HEADER"]["specialised"]:
            return rank, *common
        return *addresses, self._scalar(rank, tl.int32), *common

    def _pointer(self, address: int, kind: Any) -> Any:
        return TileValue(np.int64(address), self.tl.pointer_type(kind))

    def _scalar(self, value: int, kind: Any) -> Any:
        return TileValue(kind.numpy(value))

    def _wrong(self, rank: int, launch: int, value: Data) -> str | None:
        """Compare the output of a rank, as its host reads it, with the definition."""
        self.memory.between(rank)
        host = self.memory.host(rank)
        host.cut = 1.0
        words, rows = self._rows(rank, 1)
        got = self.memory.load(host, words).view(self.kind).reshape(len(rows), self.each)
        known = np.isin(value.rows, rows)
        wanted = value.expected[known]
        same = (got[value.rows[known] - rows[0]] == wanted).all(axis=1)
        if not same.all():
            k = int(value.rows[known][int(np.argmin(same))]) - int(rows[0])
            return f"rank {rank} o[{k}] is wrong after launch {launch + 1}"
        return None

    def go(self) -> str | None:
        """Run all launches; return the fault, or None."""
        try:
            with np.errstate(over="ignore"):
                return self._go()
        except MemoryRace as race:
            return f"race: {race}"

    def _go(self) -> str | None:
        ranks, launches = self.kernel["RANKS"], self.trial.launches
        launched, left = [0] * ranks, [0] * ranks
        ready: list[Running] = []
        asleep: list[Running] = []
        pick = self._policy()
        for _ in range(self.trial.most_turns):
            if self.rng.random() < self.early:
                self.memory.arrive()
            idle = [r for r in range(ranks) if not left[r] and launched[r] < launches]
            if idle and (not ready or self.rng.random() < 0.2):
                rank = self.rng.choice(idle)
                begun = self._begin(rank, self.values[launched[rank]])
                launched[rank] += 1
                left[rank] = len(begun)
                ready += begun
                continue
            if not ready:
                ready, asleep = self._woken(asleep)
                if ready or self.memory.arrive():
                    continue
                break
            k = pick(ready)
            block, turns = ready[k]
            end = self._turn(block, turns)
            if end is STEP:
                continue
            ready[k] = ready[-1]
            ready.pop()
            if end is ASLEEP:
                woken, asleep = self._woken([*asleep, (block, turns)])
                ready += woken
                continue
            left[block.rank] -= 1
            if not left[block.rank]:
                launch = launched[block.rank] - 1
                problem = self._wrong(block.rank, launch, self.values[launch])
                if problem:
                    return problem
        return f"deadlock: {asleep[0][0]} waits for ever" if asleep or ready else None

    def _policy(self) -> Callable[[list[Running]], int]:
        """Return the scheduler of blocks: any, or the first by priorities that change at times.

        Blocks of low priority are left behind as far as the program allows (Burckhardt et al., A
        randomized scheduler with probabilistic guarantees of finding bugs, ASPLOS 2010).
        """
        rng = self.rng
        self.early = rng.choice((0.0, 0.05, 0.5))
        if rng.random() < 0.4:
            return lambda ready: rng.randrange(len(ready))
        rank = {block.first: rng.random() for block in self.blocks}
        changes = rng.choice((0.0, 0.001, 0.01))

        def first(ready: list[Running]) -> int:
            if rng.random() < changes:
                rank[rng.choice(ready)[0].first] = rng.random()
            return min(range(len(ready)), key=lambda k: rank[ready[k][0].first])

        return first

    def _turn(self, block: BlockThreads, turns: Iterator[str]) -> str | None:
        """Let a block go on for a while: until it sleeps or ends, or for some steps."""
        self.tl.by = block
        self.turns += 1
        steps = self.rng.choice((1, 8, 64, 512))
        for end in turns:
            steps -= 1
            if end is ASLEEP or not steps:
                return end
        return None

    def _woken(self, asleep: list[Running]) -> tuple[list[Running], list[Running]]:
        """Return those for which something is new, and the others."""
        version = self.memory.version
        new = [one for one in asleep if one[0].polled[1] != version[one[0].rank]]
        return new, [one for one in asleep if one[0].polled[1] == version[one[0].rank]]

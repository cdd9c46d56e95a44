"""Execute a code for all ranks on NumPy data, in many orders, and judge the result.

The reference for every runner. It compares each output chunk that the postcondition names, exactly,
and, out of place, the whole input; every message must be received, and no block may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.dsl.base.arrays import AnyArray, Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.jit import fast
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import READS_SRC, REDUCE, WRITES_DST, Code, Program
from weft.dsl.nouns.runtime import ADDRESSABLE_CHUNKS

from ..judge.events import Control, MessageShape, assemble, touched
from . import kernel
from .layout import BufferLayout, Data, data, layout, number_type, poison, unfit


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """Limits of the execution of a program on data."""

    operations: int = 20_000_000  # of one run: larger programs are refused
    message_bytes: int = 1 << 28  # of a rank: the interpreter is too slow for larger ones
    conflicting_pairs: int = 2_000_000  # beyond which equal traces are executed again


LIMITS = ExecutionLimits()


@dataclass(frozen=True, slots=True)
class Execution:
    """Result of executing: ``ok``, one sentence, and how much was done."""

    ok: bool
    detail: str
    interleavings: int = 0
    operations: int = 0


def execute(
    code: Code,
    collective: Collective,
    *,
    in_place: bool = False,
    shape: MessageShape | None = None,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    padded: int = 0,
    tell: Callable[[int], None] = lambda _: None,
) -> Execution:
    """Run a code in many orders and compare with the collective's postcondition.

    ``collective`` is in chunks of the code; ``padded`` as in :func:`layout`. Every order is
    run on every data type, unless one of the same trace was (see :class:`.Traces`). Stops at the
    first failure. ``tell`` is called with the number of every order, from 1.

    Raises:
        UserError: an unknown data type; in place makes no sense for this collective.
    """
    shape = shape or MessageShape()
    scratch = np.minimum(code.chunks[:, 2], ADDRESSABLE_CHUNKS)
    place = layout(collective, scratch, in_place=in_place, padded=padded)
    problem = unfit(code, place)
    if problem:
        return Execution(False, problem)
    if shape.iterations * int(np.maximum(code.count, 1).sum()) > LIMITS.operations:
        return Execution(False, f"more than {LIMITS.operations} operations are not executed")
    machine = assemble(code, shape)
    rng = np.random.default_rng(seed)
    values = [data(place, carried(number_type(name)), shape.elements, rng) for name in dtypes]
    memories = [BufferMemory(machine, place, v.before) for v in values]
    operations, traces = 0, Traces(machine, place)
    for number in range(interleavings):
        tell(number + 1)
        policy = POLICIES[number % len(POLICIES)]
        run = interleave(machine, policy, (seed << 20) + number)
        operations += len(run.order)
        detail = explain(machine, run) if run.stuck else unread(machine, run)
        if detail is None and traces.fresh(run.order):
            detail = _compare(machine, run, place, memories, values)
        if detail is not None:
            return Execution(
                False, f"{detail} (order {number}, {policy}; {shape})", number + 1, operations
            )
    return Execution(
        True, f"{interleavings} interleavings right; {shape}", interleavings, operations
    )


def _compare(
    machine: Control,
    run: Interleaving,
    place: BufferLayout,
    memories: list[BufferMemory],
    values: list[Data],
) -> str | None:
    """Replay an order on the data of each type; return the fault of the result, or None."""
    for memory, value in zip(memories, values, strict=True):
        memory.reset()
        memory.replay(run.order)
        found = memory.rows[value.rows]
        if not np.array_equal(found, value.expected):
            return _difference(place, value, found)
        if len(value.kept):
            bits = f"u{value.before.dtype.itemsize}"
            same = memory.rows[value.kept].view(bits) == value.before[value.kept].view(bits)
            if not same.all():
                row = int(value.kept[np.argmin(same.all(axis=1))])
                return f"{place.name(row)} was overwritten: the input must not change"
    return None


def _difference(place: BufferLayout, value: Data, found: AnyArray) -> str:
    wrong = found != value.expected
    row, element = (int(i) for i in np.argwhere(wrong)[0])
    got, want = found[row, element], value.expected[row, element]
    kind = value.before.dtype
    unwritten = np.isnan(got) if kind.kind == "f" else got == poison(kind)
    shown = "was never written, or from what was not" if unwritten else f"is {got}"
    return (
        f"{place.name(int(value.rows[row]))} element {element} {shown}; expected {want} "
        f"({int(wrong.any(axis=1).sum())} of {len(wrong)} chunks are wrong, {value.before.dtype})"
    )


def run_program(
    program: Program,
    *,
    elements_per_chunk: int = 5,
    dtypes: Sequence[str] = ("float32", "int32"),
    interleavings: int = 200,
    seed: int = 0,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a program in its placement; see :func:`run_all`."""
    pieces, rest = divmod(program.message_chunks, program.collective.message_chunks)
    if rest or not pieces:
        raise UserError(
            f"expected a multiple of the collective's {program.collective.message_chunks} chunks, "
            f"got {program.message_chunks}",
            where=program.name,
        )
    return run_all(
        program,
        program.collective.split(pieces),
        (program.in_place,),
        elements_per_chunk,
        dtypes,
        interleavings,
        seed,
        0,
        tell=tell,
    )


def run_all(
    code: Code,
    collective: Collective,
    placements: Sequence[bool],
    elements: int,
    dtypes: Sequence[str],
    interleavings: int,
    seed: int,
    padded: int,
    least_merge: int = 1,
    tell: ProgressCallback = silent,
) -> Execution:
    """Execute a code in some placements, on small, middle and large messages.

    The interleavings of a placement are divided among the ways in which a message can be cut: every
    chunk its own operation, several turns of the loop, and many chunks in one operation. A hang in
    a cut of fewer than ``least_merge`` chunks an operation does not count. ``tell`` is called with
    the current one.
    """
    if elements < 1 or interleavings < 1:
        raise UserError("at least one element per chunk and one interleaving are needed")
    runs = operations = 0
    unused = ""
    least_merge = min(least_merge, max(1, int(code.count.max(initial=1))))
    shapes = _shapes(code, elements, interleavings)
    total = len(placements) * sum(share for share, _ in shapes)
    for in_place in placements:
        for share, shape in shapes:
            result = execute(
                code,
                collective,
                in_place=in_place,
                shape=shape,
                dtypes=dtypes,
                interleavings=share,
                seed=seed,
                padded=padded,
                tell=partial(_counted, tell, runs, total),
            )
            runs, operations = runs + result.interleavings, operations + result.operations
            if shape.merge < least_merge and result.detail.startswith("deadlock"):
                unused = f"; hangs only above maxBytes, with {shape.merge} chunks per operation"
                continue
            if not result.ok:
                how = "in place" if in_place else "out of place"
                return Execution(False, f"{how}: {result.detail}", runs, operations)
    how = " and ".join("in place" if p else "out of place" for p in placements)
    detail = f"{how}, {runs} interleavings, {', '.join(dtypes)}: all results right{unused}"
    return Execution(True, detail, runs, operations)


def _counted(tell: ProgressCallback, before: int, total: int, number: int) -> None:
    tell(f"execute {before + number} of {total}")


def _shapes(code: Code, elements: int, interleavings: int) -> list[tuple[int, MessageShape]]:
    """Ways to cut the message, and how many of the interleavings each gets (at least one)."""
    shapes = [MessageShape(elements, elements, 1)]
    if elements > 1:
        shapes.append(MessageShape(elements, -(-elements // 3), 1))
    longest = int(code.count.max(initial=1))
    if longest > 1:
        shapes.append(MessageShape(elements, elements, longest))
    share = max(1, interleavings // len(shapes))
    first = max(1, interleavings - share * (len(shapes) - 1))
    return [(first if i == 0 else share, shape) for i, shape in enumerate(shapes)]


def carried(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that stands for one without arithmetic in the compiled loop.

    Values are small integers (:func:`~.layout.data`), which a wider type holds as exactly.
    """
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype


class BufferMemory:
    """All buffers and FIFO slots for one data type.

    Attributes:
        rows: shape (chunks of all buffers, elements); see :class:`~.layout.BufferLayout`.
    """

    def __init__(self, machine: Control, place: BufferLayout, before: AnyArray) -> None:
        self._before = before
        self.rows = before.copy()
        longest = int(machine.operations.count.max(initial=0))
        payload = machine.shape.payload
        slots = len(machine.connections) * machine.depth
        self._slots = np.zeros((slots, longest, payload), before.dtype)
        self._value = np.empty((longest, payload), before.dtype)
        self._columns = _columns(machine, place)

    def reset(self) -> None:
        """Back to the state before the call."""
        np.copyto(self.rows, self._before)

    def replay(self, order: npt.ArrayLike) -> None:
        """Do the data movement of operations in an order that the control allowed."""
        moved = [self.rows, self._slots, self._value]
        if self.rows.dtype.kind == "u":  # sums of integers wrap alike with and without a sign
            moved = [words.view(f"i{words.itemsize}") for words in moved]
        fast(kernel).replay(np.asarray(order, np.int64), *moved, *self._columns)


def _columns(machine: Control, place: BufferLayout) -> tuple[Ints, ...]:
    """Return the reads and writes of each operation, as :func:`.kernel.replay` takes it."""
    code, o, shape = machine.code, machine.operations, machine.shape
    t = o.transfer
    rank = code.block_rank[o.block]
    column = o.iteration * shape.payload
    width = np.minimum(shape.payload, shape.elements - column)
    reads, writes, sums = READS_SRC[code.op[t]], WRITES_DST[code.op[t]], code.op[t] == REDUCE
    start = place.base[rank, code.src_buffer[t]] + o.first
    src = np.where(reads, start + code.src_offset[t], -1)
    dst = np.where(writes, place.base[rank, code.dst_buffer[t]] + code.dst_offset[t] + o.first, -1)
    into = machine.recv_on[o.block] * machine.depth + o.into % machine.depth
    out = machine.send_on[o.block] * machine.depth + o.out % machine.depth
    # Further sources lie in the same buffer as the first.
    more, end = code.more_start[t], np.where(sums, code.more_start[t + 1], code.more_start[t])
    return (
        o.count,
        column,
        width,
        src,
        dst,
        np.where(o.receives, into, -1),
        np.where(o.sends, out, -1),
        sums.astype(np.int64),
        start,
        more,
        end,
        code.more_offset.copy(),  # one that may be written: the loop is compiled for such
    )


# Orders of operations that the runtime could take: the scheduler of the interpreter.
#
# An order is drawn by a **policy**: which of the enabled blocks goes next, and for how long. Random
# choice alone rarely starves a block long enough to show a race, so some policies are adversarial
# (fixed random priorities, as in probabilistic concurrency testing; run one as far as possible).

POLICIES = ("uniform", "bursts", "greedy", "priorities", "latest", "earliest")
"""Policies that pick the next block: any, for one operation; any, for a few; any, as far as it
comes; by fixed random priorities; the block enabled last, as far as it comes; the first."""


@dataclass(frozen=True)
class Interleaving:
    """One order; ``stuck``: nothing was enabled before all blocks had finished.

    ``at``: the next operation of each block; ``counters``: their values at the end.
    """

    order: Ints
    stuck: bool
    at: Ints
    counters: Ints


def interleave(machine: Control, policy: str, seed: int) -> Interleaving:
    """Draw one order. O(operations log blocks)."""
    needs, effects = machine.needs, machine.effects
    order = np.empty(len(machine.operations), np.int64)
    at, counters = machine.begin.copy(), machine.counters.copy()
    columns = [machine.begin, machine.end, needs.start, needs.counter, needs.value]
    columns += [effects.start, effects.counter, effects.value, counters, at, order]
    done = fast(kernel).draw(*columns, POLICIES.index(policy), seed % (1 << 32))
    return Interleaving(order[:done], done < len(order), at, counters)


def explain(machine: Control, run: Interleaving) -> str:
    """Explain a run that is stuck: a cycle of waits if there is one, else the blocks."""
    code = machine.code
    stuck = [b for b in range(code.blocks) if run.at[b] < machine.end[b]]
    reasons: dict[int, tuple[int, str]] = {}
    for block in stuck:
        other, why = _reason(machine, run, block)
        here = code.describe(int(machine.operations.transfer[run.at[block]]))
        reasons[block] = (other, f"{here} waits for {why}")
    chain, seen = [stuck[0]], {stuck[0]}
    while (other := reasons[chain[-1]][0]) in reasons and other not in seen:
        chain.append(other)
        seen.add(other)
    if other in seen:
        chain = chain[chain.index(other) :]
    return "deadlock: " + "; ".join(reasons[b][1] for b in chain[:12])


def _reason(machine: Control, run: Interleaving, block: int) -> tuple[int, str]:
    """Return the block that a stuck block waits for (-1: none), and in words."""
    i = int(run.at[block])
    counter = next(c for c, least in machine.needs.of(i) if run.counters[c] < least)
    flags = 2 * len(machine.connections)
    if counter >= flags:
        other = counter - flags
        return other, f"a flag of {_position(machine, run, other)}"
    number, waits_for_slot = divmod(counter, 2)
    source, target, channel = machine.connections[number].tolist()
    ends = machine.recv_on if waits_for_slot else machine.send_on
    other = next(iter(np.flatnonzero(ends == number).tolist()), -1)
    where = _position(machine, run, other) if other >= 0 else "a block that does not exist"
    what = (
        f"a free slot (message {machine.operations.out[i]}) to rank {target}"
        if waits_for_slot
        else f"message {machine.operations.into[i]} from rank {source}"
    )
    return other, f"{what} on channel {channel}, where {where}"


def _position(machine: Control, run: Interleaving, block: int) -> str:
    code = machine.code
    if run.at[block] == machine.end[block]:
        return f"{code.describe_block(block)} has finished"
    return f"{code.describe(int(machine.operations.transfer[run.at[block]]))} is next"


def unread(machine: Control, run: Interleaving) -> str | None:
    """Return a text on a message that was not received, or None."""
    named = np.concatenate([machine.send_on, machine.recv_on])
    for number in dict.fromkeys(named[named >= 0].tolist()):
        source, target, channel = machine.connections[number].tolist()
        sent, received = run.counters[2 * number : 2 * number + 2].tolist()
        if sent != received:
            return (
                f"{sent - received} messages from rank {source} to rank {target} on channel "
                f"{channel} are never received"
            )
    return None


class Traces:
    """Distinguishes the traces of a machine's orders.

    Two orders in which every pair of conflicting accesses (one chunk, one of them a write) comes
    the same way round read and write the same values (they are one *trace*, in Mazurkiewicz's
    sense), so an order whose trace was executed before need not be executed again. A program
    without races has a single trace. Messages need no pairs: the k-th is read by the k-th receive
    in every order, and its slot is free by then.
    """

    def __init__(self, machine: Control, place: BufferLayout) -> None:
        found = _pairs(machine, place)
        self._known = found is not None
        self._first, self._second = found if found is not None else (_NONE, _NONE)
        self._when = np.empty(len(machine.operations), np.int64)
        self._seen: set[bytes] = set()

    def fresh(self, order: Ints) -> bool:
        """Test if an order is of a trace that was not met before."""
        if not self._known:
            return True
        self._when[order] = np.arange(len(order))
        key = np.packbits(self._when[self._first] < self._when[self._second]).tobytes()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


_NONE: Ints = np.zeros(0, np.int64)


def _pairs(machine: Control, place: BufferLayout) -> tuple[Ints, Ints] | None:
    """Conflicting operations of different blocks, or None if there are too many."""
    who, cell, writes = _accesses(machine, place)
    order = np.argsort(cell, kind="stable")
    who, cell, writes = who[order], cell[order], writes[order]
    start = np.flatnonzero(np.diff(cell, prepend=-1))
    size = np.diff(start, append=len(cell))
    group = np.repeat(np.arange(len(start)), size)
    writer = np.flatnonzero(writes)
    many = size[group[writer]]  # a writer is paired with all of its cell
    if int(many.sum()) > LIMITS.conflicting_pairs:
        return None
    one = np.repeat(writer, many)
    other = np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many) + start[group[one]]
    first, second = who[one], who[other]
    block = machine.operations.block
    apart = block[first] != block[second]
    names = np.sort(first[apart] * len(block) + second[apart])
    names = names[np.diff(names, prepend=-1) > 0]  # np.unique makes a hash table: 30 times as long
    return names // max(1, len(block)), names % max(1, len(block))


def _accesses(machine: Control, place: BufferLayout) -> tuple[Ints, Ints, Ints]:
    """Columns of operation, cell (chunk and iteration) and whether it is written."""
    code, o = machine.code, machine.operations
    sides = touched(code, o)
    who = np.concatenate([at for at, _, _ in sides])
    buffer, first = (np.concatenate([side[k] for side in sides]) for k in (1, 2))
    row = place.base[code.block_rank[o.block[who]], buffer] + first
    written = np.repeat([0, 0, 1], [len(at) for at, _, _ in sides])
    count = o.count[who]
    chunk = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    who, row, written = (np.repeat(x, count) for x in (who, row, written))
    return who, (row + chunk) * machine.shape.iterations + o.iteration[who], written

"""Orders of operations that the runtime could take: the scheduler of the interpreter.

An order is drawn by a **policy**: which of the enabled blocks goes next, and for how long. Random
choice alone rarely starves a block long enough to show a race, so some policies are adversarial
(fixed random priorities, as in probabilistic concurrency testing; run one as far as possible).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.jit import fast, watched
from weft.dsl.base.lazy_dataclass import dataclass

from ..judge.events import Control, touched
from . import kernel
from .layout import BufferLayout

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


def interleave(machine: Control, policy: str, seed: int, *, compiled: bool = True) -> Interleaving:
    """Draw one order, the same whether ``compiled`` or not. O(operations log blocks)."""
    needs, effects = machine.needs, machine.effects
    order = np.empty(len(machine.operations), np.int64)
    at, counters = machine.begin.copy(), machine.counters.copy()
    columns: list[Any] = [machine.begin, machine.end, needs.start, needs.counter, needs.value]
    columns += [effects.start, effects.counter, effects.value, counters, at, order]
    which = POLICIES.index(policy), seed % (1 << 32)
    if compiled:
        done = fast(kernel).draw(*columns, *which)
    else:
        listed = [column.tolist() for column in columns]
        done = watched(kernel, np=_own_numpy()).draw(*listed, *which)
        counters, at, order = (np.array(column, np.int64) for column in listed[-3:])
    return Interleaving(order[:done], done < len(order), at, counters)


def _own_numpy() -> SimpleNamespace:
    """NumPy with a generator of its own, which draws what numba's does: a Mersenne Twister."""
    return SimpleNamespace(**{**vars(np), "random": np.random.RandomState(0)})


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


MOST_PAIRS = 2_000_000
"""With more conflicting pairs every order is executed."""


class Traces:
    """Tells the traces of a machine's orders apart.

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
        """Test whether an order is of a trace that was not met before."""
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
    if int(many.sum()) > MOST_PAIRS:
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

"""Orders of operations that the runtime could take: the scheduler of the interpreter.

An order is drawn by a **policy**: which of the enabled blocks goes next, and for how long. Random
choice alone rarely starves a block long enough to show a race, so some policies are adversarial
(fixed random priorities, as in probabilistic concurrency testing; run one as far as possible).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.dsl.base.arrays import Ints

from .machine import Machine

POLICIES = ("uniform", "bursts", "greedy", "priorities", "latest", "earliest")
"""How the next block is picked: any, for one operation; any, for a few; any, as far as it comes;
by fixed random priorities; that which was enabled last, as far as it comes; the first."""


@dataclass(frozen=True)
class Run:
    """One order; ``stuck``: nothing was enabled before all blocks had finished.

    ``at``: the next operation of each block; ``counters``: their values at the end.
    """

    order: Ints
    stuck: bool
    at: Ints
    counters: Ints


def interleave(machine: Machine, policy: str, seed: int) -> Run:
    """Draw one order. O(operations log blocks)."""
    from .kernel import draw

    needs, effects = machine.needs, machine.effects
    order = np.empty(len(machine.operations), np.int64)
    at, counters = machine.begin.copy(), machine.counters.copy()
    done = draw(
        machine.begin,
        machine.end,
        needs.start,
        needs.counter,
        needs.value,
        effects.start,
        effects.counter,
        effects.value,
        counters,
        at,
        order,
        POLICIES.index(policy),
        seed % (1 << 32),
    )
    return Run(order[:done], done < len(order), at, counters)


def explain(machine: Machine, run: Run) -> str:
    """Who waits for whom when a run is stuck: a cycle if there is one, else the blocks."""
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


def _reason(machine: Machine, run: Run, block: int) -> tuple[int, str]:
    """The block that a stuck block waits for (-1: none), and in words."""
    i = int(run.at[block])
    counter = next(c for c, least in machine.needs.of(i) if run.counters[c] < least)
    flags = 2 * len(machine.connections)
    if counter >= flags:
        other = counter - flags
        return other, f"a flag of {_position(machine, run, other)}"
    number, waits_for_slot = divmod(counter, 2)
    source, target, channel = next(k for k, v in machine.connections.items() if v == number)
    ends = machine.recv_on if waits_for_slot else machine.send_on
    other = next(iter(np.flatnonzero(ends == number).tolist()), -1)
    where = _position(machine, run, other) if other >= 0 else "a block that does not exist"
    what = (
        f"a free slot (message {machine.operations.out[i]}) to rank {target}"
        if waits_for_slot
        else f"message {machine.operations.into[i]} from rank {source}"
    )
    return other, f"{what} on channel {channel}, where {where}"


def _position(machine: Machine, run: Run, block: int) -> str:
    code = machine.code
    if run.at[block] == machine.end[block]:
        return f"{code.describe_block(block)} has finished"
    return f"{code.describe(int(machine.operations.transfer[run.at[block]]))} is next"


def unread(machine: Machine, run: Run) -> str | None:
    """A message that nobody took, in words, or None."""
    for (source, target, channel), number in machine.connections.items():
        sent, received = run.counters[2 * number : 2 * number + 2].tolist()
        if sent != received:
            return (
                f"{sent - received} messages from rank {source} to rank {target} on channel "
                f"{channel} are never received"
            )
    return None

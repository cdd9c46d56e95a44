"""Orders of operations that the runtime could take: the scheduler of the interpreter.

An order is drawn by a **policy**: which of the enabled blocks goes next, and for how long. Random
choice alone rarely starves a block long enough to show a race, so some policies are adversarial
(fixed random priorities, as in probabilistic concurrency testing; run one as far as possible).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from .machine import Machine

POLICIES = ("uniform", "bursts", "greedy", "priorities", "latest", "earliest")
"""How the next block is picked; see :func:`_policy`."""


@dataclass(frozen=True)
class Run:
    """One order; ``stuck``: nothing was enabled before all blocks had finished.

    ``at``: the next operation of each block; ``counters``: their values at the end.
    """

    order: list[int]
    stuck: bool
    at: list[int]
    counters: list[int]


def interleave(machine: Machine, policy: str, rng: random.Random) -> Run:
    """Draw one order. O(operations); about a µs each."""
    needs, effects, end = machine.needs, machine.effects, machine.end
    counters = list(machine.counters)
    at = list(machine.begin)
    waiting: list[list[int]] = [[] for _ in counters]
    order: list[int] = []
    done = order.append
    take, put, burst = _policy(policy, machine.listing.blocks, rng)
    enabled = 0

    def wait_or_put(block: int) -> int:
        """1 if the block can go on, else 0 and it is noted what it waits for."""
        for counter, least in needs[at[block]]:
            if counters[counter] < least:
                waiting[counter].append(block)
                return 0
        put(block)
        return 1

    for block in range(machine.listing.blocks):
        if at[block] < end[block]:
            enabled += wait_or_put(block)
    while enabled:
        block = take()
        i, stop, left = at[block], end[block], burst()
        while True:
            done(i)
            i += 1
            for counter, value in effects[i - 1]:
                counters[counter] = value
                if waiting[counter]:
                    woken, waiting[counter] = waiting[counter], []
                    for other in woken:
                        enabled += wait_or_put(other)
            if i == stop:
                enabled -= 1
                break
            blocked = False
            for counter, least in needs[i]:
                if counters[counter] < least:
                    waiting[counter].append(block)
                    blocked = True
                    break
            if blocked:
                enabled -= 1
                break
            left -= 1
            if not left:
                put(block)
                break
        at[block] = i
    return Run(order, at != list(end), at, counters)


def _policy(
    name: str, blocks: int, rng: random.Random
) -> tuple[Callable[[], int], Callable[[int], None], Callable[[], int]]:
    """Take a block, put one back, and how many operations it may do at most (0: no limit)."""
    draw = rng.random
    bag: list[int] = []
    if name == "priorities":
        rank = list(range(blocks))
        rng.shuffle(rank)
        of_rank = sorted(range(blocks), key=rank.__getitem__)
        return (
            lambda: of_rank[heapq.heappop(bag)],
            lambda block: heapq.heappush(bag, rank[block]),
            lambda: 1,
        )
    if name == "latest":
        return bag.pop, bag.append, lambda: 0
    if name == "earliest":
        return lambda: heapq.heappop(bag), lambda block: heapq.heappush(bag, block), lambda: 1

    def take() -> int:
        last = bag.pop()
        j = int(draw() * (len(bag) + 1))
        if j == len(bag):
            return last
        block = bag[j]
        bag[j] = last
        return block

    limits: dict[str, Callable[[], int]] = {
        "uniform": lambda: 1, "greedy": lambda: 0, "bursts": lambda: 1 + int(draw() * 8),
    }  # fmt: skip
    return take, bag.append, limits[name]


def explain(machine: Machine, run: Run) -> str:
    """Who waits for whom when a run is stuck: a cycle if there is one, else the blocks."""
    code = machine.listing
    stuck = [b for b in range(code.blocks) if run.at[b] < machine.end[b]]
    reasons: dict[int, tuple[int, str]] = {}
    for block in stuck:
        other, why = _reason(machine, run, block)
        here = code.describe(machine.operations[run.at[block]].transfer)
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
    i = run.at[block]
    counter = next(c for c, least in machine.needs[i] if run.counters[c] < least)
    flags = 2 * len(machine.connections)
    if counter >= flags:
        other = counter - flags
        return other, f"a flag of {_position(machine, run, other)}"
    number, waits_for_slot = divmod(counter, 2)
    source, target, channel = next(k for k, v in machine.connections.items() if v == number)
    operation = machine.operations[i]
    ends = machine.recv_on if waits_for_slot else machine.send_on
    other = ends.index(number) if number in ends else -1
    where = _position(machine, run, other) if other >= 0 else "a block that does not exist"
    what = (
        f"a free slot (message {operation.out}) to rank {target}" if waits_for_slot
        else f"message {operation.into} from rank {source}"
    )  # fmt: skip
    return other, f"{what} on channel {channel}, where {where}"


def _position(machine: Machine, run: Run, block: int) -> str:
    code = machine.listing
    if run.at[block] == machine.end[block]:
        return f"{code.describe_block(block)} has finished"
    return f"{code.describe(machine.operations[run.at[block]].transfer)} is next"


def unread(machine: Machine, run: Run) -> str | None:
    """A message that nobody took, in words, or None."""
    for (source, target, channel), number in machine.connections.items():
        sent, received = run.counters[2 * number], run.counters[2 * number + 1]
        if sent != received:
            return (
                f"{sent - received} messages from rank {source} to rank {target} on channel "
                f"{channel} are never received"
            )
    return None

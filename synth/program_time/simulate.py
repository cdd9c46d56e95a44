"""How long a program takes: its thread blocks, FIFOs and loop iterations on α–β links.

The rule (``docs/simulation.md`` states it in full). A message of M bytes is cut as the runtime does
(:class:`~weft.synth.program_time.model.RuntimeModel`): every **iteration** moves one payload of
each chunk, and an instruction of *count* chunks is ⌈count / merge⌉ **operations**. A thread block
runs its operations in order, iteration after iteration; nothing else keeps iterations apart, so
they overlap as they do in the runtime.

* An operation *starts* when the instructions it waits for are done in this iteration, the message
  it receives has arrived, and the FIFO it sends into has a free slot.
* A message then *queues* for its route: the quickest one from rank to rank. It is sent when every
  link and shared resource of it is free, first come first served; it occupies each for
  bytes ÷ (bandwidth · efficiency) from then on, holds its block until the slowest is done, and
  arrives α later.
* A receive is done, and its slot free, when the message is there and the operation has started;
  one that also sends frees it when its own message starts.
* Local operations take no time, unless the model says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from weft.dsl.errors import BadTopology, CheckFailed
from weft.dsl.program import Program, Protocol
from weft.dsl.topology import Topology
from weft.dsl.units import format_bytes

from ..simulate import Timing, bus_factor
from .costs import costs_of
from .events import Activity, Machine
from .model import MSCCL, Cut, RuntimeModel
from .operations import Ints, Operations, operations_of
from .precedence import precedence
from .steady import FEWEST_TURNS, Steady

Floats = npt.NDArray[np.float64]

MOST_OPERATIONS = 2_000_000
LEAST_TURNS = 8
"""Iterations that are always simulated, however large the program."""

__all__ = ["Activity", "ProgramSimulation", "simulate_program"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramSimulation(Timing):
    """What a program does with its time.

    Attributes:
        cut: iterations and operations that the size makes.
        operations: all operations of all iterations.
        simulated: how many of them were simulated one by one; the others repeat these.
        busy_us: how long each row was occupied: links, then shared resources.
        block_rank, block_id: whose thread block it is, and its number there.
        spent_us: shape (blocks, activities): how long each block did what (:class:`Activity`).
        finish_us: when each block had done its last operation.
    """

    cut: Cut
    operations: int
    simulated: int
    busy_us: Floats
    block_rank: Ints
    block_id: Ints
    spent_us: Floats
    finish_us: Floats


def simulate_program(
    program: Program,
    topology: Topology,
    message_bytes: int,
    model: RuntimeModel = MSCCL,
    *,
    protocol: Protocol | None = None,
    bound_us: float | None = None,
    most_operations: int = MOST_OPERATIONS,
) -> ProgramSimulation:
    """Run a program for a message of M bytes (see :attr:`Collective.message_chunks`).

    ``protocol`` replaces the program's own. Rank r of the program is rank r of the topology.
    Cost: about 10 µs for each operation that is simulated. Iterations that repeat a state are
    skipped, exactly (:mod:`.steady`); if after ``most_operations`` (or 8 iterations) no state has
    come back, the rest is extrapolated (``exact`` is false).

    Raises:
        UserError: a size below one byte, or a protocol that the runtime does not have.
        BadTopology: another number of ranks, or two ranks that exchange messages and are not
            joined by links and switches.
        CheckFailed: the program cannot end; says which operations are stuck, and why.
    """
    if protocol is not None:
        program = replace(program, protocol=protocol)
    ranks = len(program.ranks)
    if topology.ranks != ranks:
        raise BadTopology(
            f"the program is for {ranks} ranks, and {topology.name} has {topology.ranks}",
            hint="name the process group" if topology.ranks > ranks else "",
        )
    cut = model.cut(program, message_bytes)
    operations = operations_of(program, cut.merge)
    costs = costs_of(operations, topology, cut, model, program.protocol)
    order = precedence(operations, costs, ranks)
    slots = model.protocol(program.protocol).slots

    def run(turns: int, most: float) -> _Run | None:
        return _run(Machine(operations, costs, order, slots=slots, turns=turns), most)

    most = max(most_operations, LEAST_TURNS * operations.size)
    try:
        found = run(cut.iterations, most) or _longer(run, cut.iterations, most // operations.size)
    except CheckFailed as error:
        error.where = f"a message of {format_bytes(message_bytes)}"
        raise
    return ProgramSimulation(
        message_bytes=message_bytes, time_us=float(found.finish.max(initial=0)),
        bus_factor=bus_factor(program.collective), bound_us=bound_us,
        cut=cut, operations=operations.size * cut.iterations, simulated=found.simulated,
        exact=found.exact, busy_us=found.busy, block_rank=operations.block_rank,
        block_id=operations.block_id, spent_us=found.spent.T, finish_us=found.finish,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of a run, in µs."""

    busy: Floats
    spent: Floats
    finish: Floats
    simulated: int
    exact: bool = True


def _run(machine: Machine, most: float) -> _Run | None:
    """Run to the end; None if that would take more operations than ``most``.

    Raises:
        CheckFailed: it never ends.
    """
    machine.start()
    steady = Steady(machine) if machine.turns >= FEWEST_TURNS else None
    while machine.left:
        if not machine.advance():
            raise _stuck(machine)
        if steady and steady.look() and steady.simulated > most:
            return None
    skipped = steady.skipped if steady else 0
    unit = machine.costs.unit
    return _Run(
        _in_us([machine.busy], unit)[0], _in_us(machine.spent[: Activity.DONE], unit),
        _in_us([machine.finished], unit)[0],
        machine.operations.size * machine.turns - skipped,
    )  # fmt: skip


def _longer(run: Callable[[int, float], _Run | None], turns: int, most: int) -> _Run:
    """A straight line through two shorter runs, of half and all turns that may be simulated."""
    half, full = run(most // 2, math.inf), run(most, math.inf)
    assert half is not None
    assert full is not None
    share = (turns - most) / (most - most // 2)
    busy, spent, finish = (
        b + (b - a) * share
        for a, b in (
            (half.busy, full.busy), (half.spent, full.spent), (half.finish, full.finish),
        )
    )  # fmt: skip
    return _Run(busy, spent, finish, half.simulated + full.simulated, exact=False)


def _in_us(ticks: list[list[int]], unit: int) -> Floats:
    return np.array([[t / unit for t in row] for row in ticks], np.float64)


_NAMED = 6


def _stuck(machine: Machine) -> CheckFailed:
    """The blocked operations, and what each waits for."""
    o = machine.operations
    stuck = [b for b in range(o.blocks) if machine.turn[b] < machine.turns]
    told = [_why(machine, o, b) for b in stuck[:_NAMED]]
    if len(stuck) > _NAMED:
        told.append(f"… {len(stuck) - _NAMED} more")
    return CheckFailed(
        f"the program never ends; blocked: {'; '.join(told)}",
        hint="`weft check` tells which operations wait for each other",
    )


def _why(machine: Machine, o: Operations, block: int) -> str:
    op = machine.at[block]
    turn = f" in iteration {machine.turn[block]}" if machine.turn[block] else ""
    match machine.doing[block]:
        case Activity.MESSAGE:
            need = f"a message from rank {o.connections[machine.into[block]][0]}"
        case Activity.SLOT:
            need = f"a free slot to rank {o.connections[machine.out[block]][1]}"
        case _:
            other, done = next(
                (b, n) for b, n in machine.waits[op]
                if not machine.reached(b, machine.turn[block], n)
            )  # fmt: skip
            step = o.instruction[o.first[other] + done - 1]
            need = f"step {step} of tb {o.block_id[other]}"
    return f"{o.describe(block, op)}{turn} waits for {need}"

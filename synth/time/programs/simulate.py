"""How long a program takes: its thread blocks, FIFOs and loop iterations on α–β links.

The rule (``docs/simulation.md`` states it in full). A message of M bytes is cut as the runtime does
(:class:`~weft.synth.time.programs.model.RuntimeModel`): every **iteration** moves one payload of
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
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology

from ..schedule_time import Timing, bus_factor
from .events import Activity, Machine
from .layout import FITS
from .model import MSCCL, Cut, RuntimeModel
from .operations import Operations
from .precedence import precedence
from .prepared import Prepared
from .steady import FEWEST_TURNS, Running, Steady

MOST_OPERATIONS = 2_000_000
MOST_COMPILED = 16_000_000
"""The same where the compiled loop runs."""

FEW_OPERATIONS = 20_000
"""Fewer are done before the compiled loop is loaded."""

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
    most_operations: int | None = None,
) -> ProgramSimulation:
    """Run a program for a message of M bytes (see :attr:`Collective.message_chunks`).

    ``protocol`` replaces the program's own. Rank r of the program is rank r of the topology.
    Iterations that repeat a state are skipped, exactly (:mod:`.steady`); if after
    ``most_operations`` (or 8 iterations) no state has come back, the rest is extrapolated
    (``exact`` is false); by default these are 2 million, or 16 million in the compiled loop. That
    one takes over after :data:`FEW_OPERATIONS`, if the ticks of the run fit 64 bits. An operation
    takes some 10 µs before that, and 1 in it; the results are the same, to the last tick.

    Many sizes of one program are quicker with a :class:`~.clock.ProgramClock`.

    Raises:
        UserError: a size below one byte, or a protocol that the runtime does not have.
        BadTopology: another number of ranks, or two ranks that exchange messages and are not
            joined by links and switches.
        CheckFailed: the program cannot end; says which operations are stuck, and why.
    """
    prepared = Prepared(program, topology, model)
    return simulate_prepared(
        prepared, message_bytes, protocol, bound_us=bound_us, most_operations=most_operations
    )


def simulate_prepared(
    prepared: Prepared,
    message_bytes: int,
    protocol: Protocol | None = None,
    *,
    bound_us: float | None = None,
    most_operations: int | None = None,
    few: int = FEW_OPERATIONS,
) -> ProgramSimulation:
    """As :func:`simulate_program`; what was prepared before is used."""
    protocol = protocol or prepared.program.protocol
    cut = prepared.cut(message_bytes, protocol)
    operations = prepared.operations(cut)
    try:
        found = Runs(prepared, cut, protocol, few).find(most_operations)
    except CheckFailed as error:
        error.where = f"a message of {format_bytes(message_bytes)}"
        raise
    return ProgramSimulation(
        message_bytes=message_bytes,
        time_us=float(found.finish.max(initial=0)),
        bus_factor=bus_factor(prepared.program.collective),
        bound_us=bound_us,
        cut=cut,
        operations=operations.size * cut.iterations,
        simulated=found.simulated,
        exact=found.exact,
        busy_us=found.busy,
        block_rank=operations.block_rank,
        block_id=operations.block_id,
        spent_us=found.spent.T,
        finish_us=found.finish,
    )


class Runs:
    """Runs of one cut of a message, by the machine in Python and by the compiled one.

    ``few``: operations that are worth no loading of the compiled one. ``rounded``: where exact
    ticks do not fit 64 bits, take coarser ones, and not the machine in Python.
    """

    def __init__(
        self, prepared: Prepared, cut: Cut, protocol: Protocol, few: int, *, rounded: bool = False
    ) -> None:
        self.prepared, self.cut, self.protocol, self.few = prepared, cut, protocol, few
        self.size, self.rounded = prepared.operations(cut).size, rounded
        self.slots = prepared.model.protocol(protocol).slots
        self.ticks = prepared.ticks(cut, protocol)
        self._arguments: tuple[Any, ...] | None = None

    def find(self, most_operations: int | None) -> _Run:
        """All iterations, the last ones extrapolated if there are too many.

        Raises:
            CheckFailed: they never end.
        """
        turns, least = self.cut.iterations, LEAST_TURNS * self.size
        if least <= self.few:
            most = min(self.few, max(most_operations or self.few, least))
            if found := _run(self._machine(turns), most):
                return found
        default = MOST_COMPILED if self._fits(turns) else MOST_OPERATIONS
        most = max(most_operations or default, least)
        return self._run(turns, most) or _longer(self._run, turns, most // self.size)

    def _run(self, turns: int, most: float) -> _Run | None:
        if self.size * turns <= self.few or not self._fits(turns):
            return _run(self._machine(turns), most)
        from .compiled import CompiledMachine

        layout = self.prepared.layout(self.cut)
        try:
            return _run(CompiledMachine(layout, self.ticks, slots=self.slots, turns=turns), most)
        except _Stalled:
            return _run(self._machine(turns), math.inf)  # says why

    def _machine(self, turns: int) -> Machine:
        if self._arguments is None:
            operations = self.prepared.operations(self.cut)
            costs = self.prepared.costs(self.cut, self.protocol)
            order = precedence(operations, costs, self.prepared.topology.ranks)
            self._arguments = operations, costs, order
        return Machine(*self._arguments, slots=self.slots, turns=turns)

    def _fits(self, turns: int) -> bool:
        """Whether ticks of 64 bits do; with ``rounded`` they do afterwards."""
        longest = self.prepared.layout(self.cut).longest(self.ticks, turns)
        if longest < FITS:
            return True
        if not self.rounded:
            return False
        unit = math.ldexp(1, math.frexp(FITS / (longest / self.ticks.unit))[1] - 2)
        self.ticks = self.prepared.ticks(self.cut, self.protocol, int(max(1, unit)))
        return self.prepared.layout(self.cut).longest(self.ticks, turns) < FITS


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of a run, in µs."""

    busy: Floats
    spent: Floats
    finish: Floats
    simulated: int
    exact: bool = True


class _Stalled(Exception):
    """The compiled loop came to a halt; the machine in Python can say why."""


def run_to_end(machine: Running, most: float) -> int | None:
    """Run a machine until all blocks are done; how many operations were skipped as repeating.

    None if more operations than ``most`` would have to be simulated.

    Raises:
        CheckFailed: it never ends.
    """
    machine.start()
    steady = Steady(machine) if machine.turns >= FEWEST_TURNS else None
    while machine.left:
        if steady and not isinstance(machine, Machine):
            machine.watch(steady.watched, steady.seen)
        if not machine.advance():
            raise _stuck(machine) if isinstance(machine, Machine) else _Stalled
        if steady and steady.look() and steady.simulated > most:
            return None
    return steady.skipped if steady else 0


def _run(machine: Running, most: float) -> _Run | None:
    """Run to the end; None if that would take more operations than ``most``."""
    skipped = run_to_end(machine, most)
    if skipped is None:
        return None
    unit = machine.costs.unit if isinstance(machine, Machine) else machine.unit
    return _Run(
        _in_us([machine.busy], unit)[0],
        _in_us(machine.spent[: Activity.DONE], unit),
        _in_us([machine.finished], unit)[0],
        machine.operations.size * machine.turns - skipped,
    )


def _longer(run: Callable[[int, float], _Run | None], turns: int, most: int) -> _Run:
    """A straight line through two shorter runs, of half and all turns that may be simulated."""
    half, full = run(most // 2, math.inf), run(most, math.inf)
    assert half is not None
    assert full is not None
    share = (turns - most) / (most - most // 2)
    busy, spent, finish = (
        b + (b - a) * share
        for a, b in (
            (half.busy, full.busy),
            (half.spent, full.spent),
            (half.finish, full.finish),
        )
    )
    return _Run(busy, spent, finish, half.simulated + full.simulated, exact=False)


def _in_us(ticks: Any, unit: int) -> Floats:
    return np.array([[int(t) / unit for t in row] for row in ticks], np.float64)


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
                (b, n)
                for b, n in machine.waits[op]
                if not machine.reached(b, machine.turn[block], n)
            )
            step = o.instruction[o.first[other] + done - 1]
            need = f"step {step} of tb {o.block_id[other]}"
    return f"{o.describe(block, op)}{turn} waits for {need}"

"""Simulated time of a program: thread blocks, FIFOs and loop iterations on α–β links.

The rule (``docs/simulation.md`` states it in full). A message of M bytes is cut as the runtime does
(:class:`~weft.synth.time.runtime_model.RuntimeModel`): every **iteration** moves one payload of
each chunk, and an instruction of *count* chunks is ⌈count / merge⌉ **operations**. A thread block
runs its operations in order, iteration after iteration; nothing else keeps iterations apart, so
they overlap as they do in the runtime.

* An operation *starts* when the instructions it waits for are done in this iteration, the message
  it receives has arrived, and the FIFO it sends into has a free slot.
* A message then *queues* for its route: the fastest one from rank to rank. It is sent when every
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
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.errors import CheckFailed, require_type
from weft.dsl.base.integers import integer, plain
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import LARGEST_MESSAGE, format_bytes
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.topology import Topology

from . import program_kernel as k
from .calibrated import named_model
from .program_machine import FEWEST_TURNS, Activity, Machine, Steady
from .program_tables import FITS, PreparedProgram, bytes_moved
from .runtime_model import Cut, RuntimeModel
from .schedule_time import SimulatedTime, bus_factor

MOST_OPERATIONS = 2_000_000
MOST_COMPILED = 16_000_000
"""The same where the compiled kernel runs."""

LEAST_TURNS = 8
"""Iterations that are always simulated, however large the program."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ProgramSimulation(SimulatedTime):
    """Simulated time of a program, and the activities that it is spent on."""

    start_us: float  # what the call takes before its first operation; other times are from then on
    cut: Cut  # iterations and operations that the size makes
    operations: int  # all operations of all iterations
    simulated: int  # how many of them were simulated one by one; the others repeat these
    busy_us: Floats  # how long each resource was occupied: links, then shared ones
    # block_rank, block_id: whose thread block it is, and its number there
    block_rank: Ints
    block_id: Ints
    spent_us: Floats  # shape (blocks, activities): how long each block did what (Activity)
    finish_us: Floats  # when each block had done its last operation


def simulate_program(
    program: Program,
    topology: Topology,
    message_bytes: int,
    model: RuntimeModel | None = None,
    *,
    protocol: Protocol | None = None,
    bound_us: float | None = None,
    most_operations: int | None = None,
) -> ProgramSimulation:
    """Run a program for a message of M bytes (see :attr:`Collective.message_chunks`).

    ``model``: that of MSCCL on the machine, calibrated, where none is given. ``protocol`` replaces
    the program's own. Rank r of the program is rank r of the topology.
    Iterations that repeat a state are skipped, exactly (:class:`.Steady`); if after
    ``most_operations`` (or 8 iterations) no state has come back, the rest is extrapolated
    (``exact`` is false); by default these are 16 million, or 2 million where the ticks of the run
    do not fit 64 bits. An operation takes some 20 µs there, and 1 elsewhere.

    For many sizes of one program a :class:`ProgramClock` is faster.

    Raises:
        UserError: a size below one byte, or a protocol that the runtime does not have.
        BadTopology: another number of ranks, or two ranks that exchange messages and are not
            joined by links and switches.
        CheckFailed: the program cannot end; says which operations are stuck, and why.
    """
    require_type(program, Program, "the program to simulate", "weft.compile(schedule) makes one")
    require_type(topology, Topology, "topology", 'weft.topology("dgx1")')
    return ProgramClock(program, topology, model).simulate(
        integer(message_bytes, "message size", high=LARGEST_MESSAGE),
        protocol,
        bound_us=plain(bound_us),
        most_operations=most_operations,
    )


class ProgramClock:
    """Times a program on a machine; work that does not depend on the size is done once.

    All runs are made by the compiled kernel, if they can be.

    Raises:
        BadTopology: another number of ranks than the program's.
    """

    def __init__(
        self, program: Program, topology: Topology, model: RuntimeModel | None = None
    ) -> None:
        self._prepared = PreparedProgram(program, topology, model or named_model(topology))

    def time_us(
        self,
        message_bytes: int,
        protocol: Protocol | None = None,
        *,
        limit: float = math.inf,
        most_operations: int | None = None,
        few: int = 0,
    ) -> float:
        """Return µs until the last block is done; as :func:`simulate_program`, but quick.

        ``limit``: a run that takes longer than this is given up, and is infinite.

        That is the exact time wherever exact ticks fit 64 bits, or it takes at most ``few``
        operations. Else ticks are the finest power
        of two of a µs that fits: what a chunk holds a link is off by half a tick, and messages
        that are ready at the same instant may be served in another order.

        Raises:
            UserError, BadTopology, CheckFailed: as :func:`simulate_program`.
        """
        model = self._prepared.model
        protocol = protocol or self._prepared.program.protocol
        limit = max(0.0, limit - float(model.protocol(protocol).start_us))
        try:
            _, run = self._run(message_bytes, protocol, most_operations, few, True, limit)
        except _GivenUp:
            return math.inf
        return model.total_us(protocol, float(run.us(lambda x: [x.finished]).max(initial=0)))

    def _run(
        self,
        message_bytes: int,
        protocol: Protocol,
        most_operations: int | None,
        few: int = 0,
        rounded: bool = False,
        limit: float = math.inf,
    ) -> tuple[Cut, _MachineRun]:
        cut = self._prepared.cut(message_bytes, protocol)
        try:
            runs = _Runs(self._prepared, cut, protocol, few, rounded, limit)
            return cut, runs.find(most_operations)
        except CheckFailed as error:
            error.where = f"a message of {format_bytes(message_bytes)}"
            raise

    def least_us(self, message_bytes: int, protocol: Protocol) -> float:
        """Lower bound in µs on every run: the time that its bytes hold the busiest resource.

        Of one program, more instances move the same bytes.
        """
        cut = self._prepared.cut(message_bytes, protocol)
        ticks = self._prepared.ticks(cut, protocol)
        us = ticks.row[0].astype(float) / ticks.unit  # of a piece of a chunk, on each resource
        pieces = bytes_moved(self._prepared, cut) / float(cut.piece)
        return float((pieces * us).max(initial=0.0))

    def simulate(
        self,
        message_bytes: int,
        protocol: Protocol | None = None,
        *,
        bound_us: float | None = None,
        most_operations: int | None = None,
    ) -> ProgramSimulation:
        """As :func:`simulate_program`, with the same errors."""
        prepared = self._prepared
        protocol = protocol or prepared.program.protocol
        cut, found = self._run(message_bytes, protocol, most_operations)
        operations = prepared.operations(cut)
        finish = found.us(lambda x: [x.finished]).ravel()
        return ProgramSimulation(
            message_bytes=message_bytes,
            time_us=prepared.model.total_us(protocol, float(finish.max(initial=0))),
            start_us=float(prepared.model.protocol(protocol).start_us),
            bus_factor=bus_factor(prepared.program.collective),
            bound_us=bound_us,
            cut=cut,
            operations=operations.size * cut.iterations,
            simulated=found.simulated,
            exact=found.half is None,
            busy_us=found.us(lambda x: [x.busy]).ravel(),
            block_rank=operations.program.block_rank,
            block_id=operations.program.block_index,
            spent_us=found.us(lambda x: x.spent[: Activity.DONE]).T,
            finish_us=finish,
        )


class _GivenUp(Exception):
    """A run takes longer than its limit."""


class _Runs:
    """Runs of one cut of a message, compiled where ticks fit 64 bits.

    ``rounded``: where exact ticks do not fit, take coarser ones for more than ``few`` operations,
    and not the plain kernel. ``limit``: µs after which a run is given up.
    """

    def __init__(
        self,
        prepared: PreparedProgram,
        cut: Cut,
        protocol: Protocol,
        few: int,
        rounded: bool,
        limit: float,
    ) -> None:
        self.prepared, self.cut, self.protocol, self.few = prepared, cut, protocol, few
        self.limit, self.fitting = limit, False
        self.size, self.rounded = prepared.operations(cut).size, rounded
        self.slots = prepared.model.protocol(protocol).slots
        self.ticks = prepared.ticks(cut, protocol)

    def find(self, most_operations: int | None) -> _MachineRun:
        """All iterations, the last ones extrapolated if there are too many.

        Raises:
            CheckFailed: they never end.
        """
        turns, least = self.cut.iterations, LEAST_TURNS * self.size
        if least <= self.few and not self._exact(turns):
            most = min(self.few, max(most_operations or self.few, least))
            if found := self._run(turns, most, compiled=False):
                return found
        default = MOST_COMPILED if self._fits(turns) else MOST_OPERATIONS
        most = max(most_operations or default, least)
        if found := self._quickest(turns, most):
            return found
        # Of more turns than may be simulated: a line through two shorter runs.
        turn = most // self.size
        half, full = self._quickest(turn // 2, math.inf), self._quickest(turn, math.inf)
        assert half is not None
        assert full is not None
        share = (turns - turn) / (turn - turn // 2)
        return _MachineRun(full.machine, half.simulated + full.simulated, half.machine, share)

    def _quickest(self, turns: int, most: float) -> _MachineRun | None:
        return self._run(turns, most, compiled=self._fits(turns))

    def _run(self, turns: int, most: float, *, compiled: bool) -> _MachineRun | None:
        """Run to the end; None if that would take more operations than ``most``."""
        layout = self.prepared.layout(self.cut)
        machine = Machine(layout, self.ticks, slots=self.slots, turns=turns, compiled=compiled)
        machine.limit(self.limit)
        skipped = run_to_end(machine, most)
        return None if skipped is None else _MachineRun(machine, self.size * turns - skipped)

    def _fits(self, turns: int) -> bool:
        """Return True if ticks fit 64 bits; with ``rounded`` they do afterwards."""
        if turns == self.cut.iterations and self.fitting:
            return True
        fits = self._fitted(turns)
        self.fitting = fits and turns == self.cut.iterations
        return fits

    def _exact(self, turns: int) -> bool:
        return self.prepared.layout(self.cut).longest(self.ticks, turns) < FITS

    def _fitted(self, turns: int) -> bool:
        if self._exact(turns):
            return True
        if not self.rounded:
            return False
        longest = self.prepared.layout(self.cut).longest(self.ticks, turns)
        unit = math.ldexp(1, math.frexp(FITS / (longest / self.ticks.unit))[1] - 2)
        self.ticks = self.prepared.ticks(self.cut, self.protocol, int(max(1, unit)))
        return self.prepared.layout(self.cut).longest(self.ticks, turns) < FITS


@dataclass(frozen=True, eq=False)
class _MachineRun:
    """The result of a run; µs are found from its ticks when they are read."""

    machine: Machine  # at its end
    simulated: int  # operations that were run one by one
    # half, share: a shorter run, and the share of this one's length that lies beyond it on a
    # straight line through both; 0: it is over
    half: Machine | None = None
    share: float = 0

    def us(self, ticks: Callable[[Machine], Any]) -> Floats:
        """Return some ticks of the machine in µs."""
        full = _in_us(ticks(self.machine), self.machine.unit)
        if self.half is None:
            return full
        return full + (full - _in_us(ticks(self.half), self.half.unit)) * self.share


def run_to_end(machine: Machine, most: float) -> int | None:
    """Run a machine until all blocks are done; how many operations were skipped as repeating.

    None if more operations than ``most`` would have to be simulated.

    Raises:
        CheckFailed: it never ends. _GivenUp: it does not end before its limit.
    """
    machine.start()
    steady = Steady(machine) if machine.turns >= FEWEST_TURNS else None
    while machine.left:
        if steady:
            machine.watch(steady.watched, steady.seen)
        if not machine.advance():
            raise _stuck(machine)
        if machine.late:
            raise _GivenUp
        if steady and steady.look() and steady.simulated > most:
            return None
    return steady.skipped if steady else 0


def _in_us(ticks: Any, unit: int) -> Floats:
    return np.array([[int(t) / unit for t in row] for row in ticks], np.float64)


_NAMED = 6


def _stuck(machine: Machine) -> CheckFailed:
    turn = machine.turn
    stuck = [b for b in range(machine.operations.blocks) if turn[b] < machine.turns]
    named = [_why(machine, b, turn) for b in stuck[:_NAMED]]
    if len(stuck) > _NAMED:
        named.append(f"… {len(stuck) - _NAMED} more")
    return CheckFailed(
        f"the program never ends; blocked: {'; '.join(named)}",
        hint="`weft check` tells which operations wait for each other",
    )


def _why(machine: Machine, block: int, turn: list[int]) -> str:
    o, at = machine.operations, machine.at(block)
    op = machine.operation(at)
    when = f" in iteration {turn[block]}" if turn[block] else ""
    match machine.m[at + k.DOING]:
        case Activity.MESSAGE:
            need = f"a message from rank {o.connections[o.into[block]][0]}"
        case Activity.SLOT:
            need = f"a free slot to rank {o.connections[o.out[block]][1]}"
        case _:
            other, done = next(
                (b, n) for b, n in o.waits_of(op) if not _reached(machine, b, turn, turn[block], n)
            )
            step = o.step_of(o.first[other] + done - 1)
            need = f"step {step} of tb {o.program.block_index[other]}"
    return f"{o.describe(op)}{when} waits for {need}"


def _reached(machine: Machine, block: int, turns: list[int], turn: int, need: int) -> bool:
    """Return True if a block has done ``need`` operations of a turn."""
    done = machine.operation(machine.at(block)) - machine.first[block]
    return turns[block] > turn or (turns[block] == turn and done >= need)

"""Time of a compiled program by program simulation, beside its schedule or what came in.

A schedule's own time leaves out what the runtime does: blocks that wait, FIFOs, the loop over long
messages. All work here is bounded, in operations and not by a clock, so that the same question has
the same answer on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import microseconds, number
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import MSCCLPP, P2P
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds.programs import models_of, program_machine
from weft.synth.time.calibrated import USUAL_CHOICE, ModelChoice
from weft.synth.time.program_time import LEAST_TURNS, ProgramClock, simulate_program
from weft.synth.time.runtime_model import RuntimeModel
from weft.synth.time.schedule_time import simulate

from .request import Request, shape
from .source import CompileSource, Emitter


@dataclass(frozen=True, slots=True)
class TimingLimits:
    """Limits of programs and schedules that are timed beside a compilation."""

    ranks: int = 64
    operations: int = 150_000  # in a turn of the loop, of all ranks: more take long to compile, too
    simulated: int = 250_000  # operations of a run
    plain_operations: int = 1_000  # in a race, done in exact ticks even if these exceed 64 bits
    served: int = 1_000_000  # transfers times segments of a schedule


LIMITS = TimingLimits()

USUAL_SIZES = SizeRange(1 << 10, 1 << 30)
"""Messages, in bytes, at whose ends forms of a program are compared where nothing names any."""


@dataclass(frozen=True, slots=True)
class ProgramTiming:
    """Time of a program at a size, beside its schedule.

    ``start_us``: the part of a program's time that is the start of the call.
    """

    message_bytes: int
    program_us: float
    schedule_us: float | None
    start_us: float = 0.0

    @property
    def text(self) -> str:
        """In words, beside the schedule's own time."""
        told = f"{microseconds(self.program_us)} µs at {format_bytes(self.message_bytes)} as a "
        told += "program, simulated"
        if self.start_us:
            told += f", {microseconds(self.start_us)} of them its start"
        if not self.schedule_us:
            return told
        more = (self.program_us - self.start_us) / self.schedule_us - 1
        which = f"{abs(more):.1%} {'more' if more >= 0 else 'less'} than"
        rest = "the rest is " if self.start_us else ""
        return f"{told}: {rest}{which} the schedule's {microseconds(self.schedule_us)} µs"

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``time`` of ``compile``."""
        return {
            "bytes": self.message_bytes,
            "program_us": number(self.program_us),
            "start_us": number(self.start_us),
            "schedule_us": number(self.schedule_us),
        }


@dataclass(frozen=True, slots=True)
class ProgramTimer:
    """Clock of programs on a machine, at one size."""

    topology: Topology
    message_bytes: int
    model: RuntimeModel

    def raced_us(self, program: Program, limit: float) -> tuple[float, int]:
        """Return the µs of a program in a race, infinite beyond a limit; and the operations that
        are simulated at most.

        Raises:
            UserError: it is too large, or the model lacks it.
        """
        turn = self.operations(program)
        if turn > LIMITS.operations:
            raise UserError(f"{turn} operations are more than {LIMITS.operations}")
        turns = self.model.cut(program, self.message_bytes).iterations
        us = ProgramClock(program, self.topology, self.model).time_us(
            self.message_bytes,
            limit=limit,
            most_operations=LIMITS.simulated,
            few=LIMITS.plain_operations,
        )
        return us, min(turn * turns, max(LIMITS.simulated, LEAST_TURNS * turn))

    def program_us(self, program: Program) -> float | None:
        """Return the time of a program in µs; None if it is too large, or the model lacks it."""
        try:
            if self.operations(program) > LIMITS.operations:
                return None
            return simulate_program(
                program,
                self.topology,
                self.message_bytes,
                self.model,
                most_operations=LIMITS.simulated,
            ).time_us
        except UserError:
            return None

    def operations(self, program: Program) -> int:
        """Operations in one turn of the loop, of all ranks.

        Raises:
            UserError: the runtime does not have the program's protocol.
        """
        merge = self.model.cut(program, self.message_bytes).merge
        return int((-(-np.maximum(1, program.count) // merge)).sum())

    def start_us(self, program: Program) -> float:
        """Return the µs of a call's start, before its first operation."""
        return float(self.model.protocol(program.protocol).start_us)

    def schedule_us(self, schedule: Schedule | None) -> float | None:
        """Return the time of a schedule in µs; None without a schedule, or for a large one."""
        if schedule is None or len(schedule) * schedule.segments > LIMITS.served:
            return None
        return simulate(schedule, self.message_bytes).time_us


def clock_for(
    source: CompileSource,
    backend: Emitter,
    target: str,
    sizes: SizeRange | None,
    model: ModelChoice = USUAL_CHOICE,
) -> ProgramTimer | str:
    """Return the clock for the source; without a clock, the missing part in words."""
    schedule, topology = source.schedule, source.topology
    if schedule is not None and len(schedule.casts):
        return "switches sum or copy in it"
    if isinstance(source.noun, Program):
        sizes = sizes or source.sizes or USUAL_SIZES
    size = sizes.high if sizes else schedule.bytes if schedule else None
    runtime = backend.timed_runtime(target)
    if runtime is None:
        return f"the simulation knows the runtimes of msccl-xml, not of {backend.name}"
    if topology is None:
        return "nothing names the machine (-t MACHINE)"
    if size is None:
        return "no message size is given: --size names it"
    if topology.ranks > LIMITS.ranks:
        return f"{topology.ranks} ranks are more than the {LIMITS.ranks} that are simulated"
    by = model.on(topology, models_of(topology, runtime)[0])
    if runtime == P2P.name:
        return ProgramTimer(program_machine(topology, runtime, by, Protocol.SIMPLE), size, by)
    return ProgramTimer(topology, size, by.unlooped() if runtime == MSCCLPP else by)


def timing_of(
    made: Request, code: object, source: CompileSource, backend: Emitter, clock: ProgramTimer
) -> ProgramTiming | None:
    """Return the time of what was made beside its schedule; None: it cannot be timed."""
    us = clock.schedule_us(source.schedule)
    if isinstance(code, Program):
        taken = clock.program_us(code)
        start = clock.start_us(code) if taken is not None else 0.0
    else:
        taken = backend.rounds_us(made, clock.topology, clock.message_bytes)
        start = float(clock.model.protocol(Protocol.SIMPLE).start_us)
        taken = None if taken is None else start + taken
    return None if taken is None else ProgramTiming(clock.message_bytes, taken, us, start)


# --- given programs beside their compiled ones ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recompiled:
    """A program from elsewhere and the one compiled anew from it: both times, and which is written.

    Attributes:
        us: bytes of a message, and µs of both at it; empty where they are not timed.
        kept: the program as it came is written.
        why: why nothing is timed, or why a quicker program is not written as it came; else empty.
    """

    came: Program
    made: Program
    us: tuple[tuple[int, float, float], ...] = ()
    kept: bool = False
    why: str = ""

    @property
    def times(self) -> str:
        """Both times, in words."""
        return "; ".join(
            f"at {format_bytes(n)} {microseconds(came)} µs as it came, "
            f"{microseconds(made)} µs compiled anew"
            for n, came, made in self.us
        )

    @property
    def changed(self) -> dict[str, list[object]]:
        """Properties in which the programs differ: value as it came, value as compiled anew."""
        came, made = shape(self.came), shape(self.made)
        return {key: [came[key], made[key]] for key in came if came[key] != made[key]}

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``recompiled`` of ``compile``."""
        return {
            "written": "as it came" if self.kept else "compiled anew",
            "sizes": [
                {"bytes": n, "came_us": number(came), "made_us": number(made)}
                for n, came, made in self.us
            ],
            "changed": self.changed,
            "why": self.why,
        }


def compared(
    forms: Sequence[Program], clock: ProgramTimer, sizes: SizeRange
) -> dict[int, list[float]]:
    """Return the µs of each form at both ends of some sizes, without ends at which one of them
    cannot be timed."""
    found: dict[int, list[float]] = {}
    for size in (sizes.low, sizes.high):
        at = replace(clock, message_bytes=size)
        with suppress(CheckFailed):  # a form hangs at a size that it is not for
            us = [at.program_us(one) for one in forms]
            found |= {size: [x for x in us if x is not None]} if None not in us else {}
    return found


def least_worst(times: Iterable[Sequence[float]]) -> int:
    """Return the form that is least behind the best one at any size, the first one on ties.

    ``times``: for each size the µs of each form.
    """
    behind = [max(each) for each in zip(*([t / min(us) for t in us] for us in times), strict=True)]
    return behind.index(min(behind))

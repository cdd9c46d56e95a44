"""Time of a compiled program by program simulation, and the choice between forms of it.

A schedule's own time leaves out what the runtime does: blocks that wait, FIFOs, the loop over long
messages. All work here is bounded, in operations and not by a clock, so that the same question has
the same answer on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback
from weft.dsl.base.tables import microseconds, number
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import USUAL_CHOICE, ModelChoice
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import RuntimeModel
from weft.synth.time.schedule_time import simulate

from .compile import CompileOptions
from .request import shape
from .source import CompileSource, Emitter

MOST_RANKS = 64
MOST_OPERATIONS = 50_000
"""Operations in one turn of the loop, of all ranks: beyond, compiling and simulating take long."""

MOST_SIMULATED = 250_000
MOST_SERVED = 1_000_000
"""Transfers times segments of a schedule that is simulated."""

TRIED = (2, 4, 8)
WORTH_IT = 1.05
"""Least speed-up for which more instances are proposed: each takes thread blocks."""

USUAL_SIZES = SizeRange(1 << 10, 1 << 30)
"""Messages, in bytes, at whose ends forms of a program are compared where nothing names any."""

SLOWER = 1.1
"""Ratio of a program's time to its schedule's above which more instances are tried."""


@dataclass(frozen=True, slots=True)
class ProgramTiming:
    """Time of a program at a size, beside its schedule and other numbers of instances.

    ``tried``: µs by number of instances, its own among them, where others were compiled too.
    ``start_us``: the part of a program's time that is the start of the call. ``expected_us``: what
    the schedule would take with that start, and the α and bandwidths of the model (None: unknown).
    """

    message_bytes: int
    program_us: float
    schedule_us: float | None
    tried: dict[int, float]
    start_us: float = 0.0
    expected_us: float | None = None

    @property
    def fastest(self) -> int | None:
        """The fastest instance count, the smaller on ties; None where none was tried."""
        return quickest(self.tried) if self.tried else None

    @property
    def hint(self) -> str | None:
        """Flag for the fastest number of instances, if that is clearly quicker; else None."""
        best = self.fastest
        if best is None or self.program_us < WORTH_IT * self.tried[best]:
            return None
        return f"--instances {best}: {microseconds(self.tried[best])} µs"

    @property
    def slow(self) -> bool:
        """True if the program is much slower than its schedule."""
        return self.expected_us is not None and self.program_us > SLOWER * self.expected_us

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

    @property
    def trials(self) -> str:
        """All that were tried, in words."""
        return ", ".join(f"{n}: {microseconds(us)} µs" for n, us in sorted(self.tried.items()))

    def to_json(self) -> dict[str, Any]:
        """Return the entry ``time`` of ``compile``."""
        return {
            "bytes": self.message_bytes,
            "program_us": number(self.program_us),
            "start_us": number(self.start_us),
            "schedule_us": number(self.schedule_us),
            "tried": [{"instances": n, "us": number(us)} for n, us in sorted(self.tried.items())],
            "fastest": self.fastest,
        }


@dataclass(frozen=True, slots=True)
class ProgramTimer:
    """Clock of programs on a machine, at one size."""

    topology: Topology
    message_bytes: int
    model: RuntimeModel

    def program_us(self, program: Program) -> float | None:
        """Return the time of a program in µs; None if it is too large, or the model lacks it."""
        try:
            if self.operations(program) > MOST_OPERATIONS:
                return None
            return simulate_program(
                program,
                self.topology,
                self.message_bytes,
                self.model,
                most_operations=MOST_SIMULATED,
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

    def expected_us(self, schedule: Schedule, us: float, program: Program) -> float:
        """Return about what a schedule of this time takes with the start, α and bandwidths of the
        model; more is what its thread blocks cost."""
        if self.model.media is None:
            return us
        how = self.model.protocol(program.protocol)
        reach = min(self.model.media.reach.values(), default=Fraction(1)) * how.efficiency
        alpha = max(how.alpha_us.values(), default=Fraction(0)) * schedule.steps
        return self.start_us(program) + max(0.0, float(alpha)) + us / float(reach)

    def schedule_us(self, schedule: Schedule | None) -> float | None:
        """Return the time of a schedule in µs; None without a schedule, or for a large one."""
        if schedule is None or len(schedule) * schedule.segments > MOST_SERVED:
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
    if topology.ranks > MOST_RANKS:
        return f"{topology.ranks} ranks are more than the {MOST_RANKS} that are simulated"
    return ProgramTimer(topology, size, model.on(topology, runtime))


def timing_of(
    program: Program,
    source: CompileSource,
    backend: Emitter,
    clock: ProgramTimer,
    options: CompileOptions,
    tried: dict[int, float],
    tell: ProgressCallback,
) -> ProgramTiming | None:
    """Return the time of a program; if far above the schedule's, also try more instances.

    ``tried``: the former trials.
    """
    tell("simulate")
    taken = clock.program_us(program)
    if taken is None:
        return None
    us = clock.schedule_us(source.schedule)
    expected = None
    if source.schedule is not None and us is not None:
        expected = clock.expected_us(source.schedule, us, program)
    found = ProgramTiming(clock.message_bytes, taken, us, tried, clock.start_us(program), expected)
    if tried or not found.slow or any(one.name == "instances" for one in options.passes):
        return found
    now = options.instances if isinstance(options.instances, int) else 1
    size = clock.operations(program)
    more = [n for n in TRIED if n > now and size * n <= MOST_OPERATIONS * now]
    others = trials(more, source, backend, clock, options, tell)
    return replace(found, tried={now: taken, **others}) if others else found


def trials(
    counts: Iterable[int],
    source: CompileSource,
    backend: Emitter,
    clock: ProgramTimer,
    options: CompileOptions,
    tell: ProgressCallback,
) -> dict[int, float]:
    """Return µs by number of instances, for those that fit the target."""
    found: dict[int, float] = {}
    quiet = replace(options, verify=None, observe=None, tell=None)
    for count in counts:
        tell(f"try --instances {count}")
        try:
            program = source.compile(replace(quiet, instances=count))
            backend.emit(program, options.target, None)
        except UserError:  # no room, and more of them need more
            break
        taken = clock.program_us(program)
        if taken is None:
            break
        found[count] = taken
    return found


def all_instances(
    source: CompileSource,
    backend: Emitter,
    clock: ProgramTimer | str,
    options: CompileOptions,
    tell: ProgressCallback,
) -> dict[int, float]:
    """Return the µs of 1, 2, 4 and 8 instances, for ``--instances auto``.

    Raises:
        UserError: that cannot be determined.
    """
    found = {}
    if not isinstance(clock, str):
        found = trials((1, *TRIED), source, backend, clock, options, tell)
    if not found:
        why = clock if isinstance(clock, str) else "the program is too large to be simulated"
        raise UserError(
            f"--instances auto cannot choose: {why}", where="--instances auto", hint="name a number"
        )
    return found


def quickest(tried: dict[int, float]) -> int:
    """Return the fastest instance count; the smaller on ties."""
    return min(tried, key=lambda n: (tried[n], n))


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

"""Input of the compiler: a schedule, fitted to its format, an algorithm or a program.

A runtime of MSCCL XML slices chunks by itself; a plan is run once, on whole chunks. Both know
chunks of one size only, and limit their number in a buffer: unequal shares are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from fractions import Fraction
from typing import Any, Protocol

from weft.dsl.base.errors import UserError, require_type
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.program import Protocol as WireProtocol
from weft.dsl.nouns.runtime import Target
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule, refuse_casts
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.packing.trees.quantize import quantize
from weft.synth.judge.verify import require_valid

from ..check.checker import check_program
from ..check.findings import require_good
from . import compile as passes
from .analyses.unroll import MOST_GRAINS as MOST_MOVED
from .compile import CompileOptions
from .pipeline import DEFAULT_PASSES
from .request import ProvedArtefact, Request

FORMAT = "msccl-xml"
"""Default format."""

MOST_GRAINS = 1024
"""Chunks of a message, for formats of equal chunks: calls must have sizes that divide into them."""

BY_OFFSETS = "program"
"""Format without limits on chunks: it is executed with byte offsets."""

BY_MESSAGES = ("chakra-et", "goal")
"""Formats in which each message has a size of its own, for one size of the whole."""


def binary(chunks: int, message_chunks: int) -> bool:
    """Return True if ``message_chunks`` is ``chunks`` times a power of two.

    MSCCL's runtimes pass a file over, in silence, for messages that do not divide into its chunks,
    and most messages are round in binary.
    """
    factor, rest = divmod(message_chunks, chunks)
    return not rest and not factor & (factor - 1)


@dataclass(frozen=True, slots=True)
class ConversionRemark:
    """Remark on the conversion of the input, as text and for ``--json``; ``text`` takes the result:
    a program, or a script of a point-to-point format."""

    label: str
    text: Callable[[object], str]
    facts: dict[str, Any] = field(default_factory=dict)


def fitted(schedule: Schedule, to: str, segments: int) -> tuple[Schedule, list[ConversionRemark]]:
    """The schedule with shares that ``to`` can express in ``segments`` pieces, and the loss."""
    if not schedule.collective.sizes or to in BY_MESSAGES:
        return schedule, []
    collective = schedule.collective.coarsest()
    grains = collective.message_chunks
    most = MOST_GRAINS // segments
    if to == BY_OFFSETS:
        # Exactly, as far as the checkers can look at every grain.
        moved = int(collective.grains[schedule.chunk].sum()) * segments
        most = max(most, grains if moved <= MOST_MOVED else grains * MOST_MOVED // moved)
    if grains <= most:
        return schedule, []
    quantized, loss = quantize(schedule, most)
    kept = quantized.collective.coarsest().message_chunks
    text = (
        f"unequal shares rounded to {kept} chunks of the message (exact: {grains}); "
        f"the busiest link is busy for {float(100 * loss):.3g} % longer"
    )
    facts = {"quantized": {"chunks": kept, "exact": grains, "loss": float(loss)}}
    return quantized, [ConversionRemark("Rounded", lambda _: text, facts)]


def sliced(schedule: Schedule, to: str, target: str, pieces: int) -> list[ConversionRemark]:
    """Return remarks on the slices of a schedule that is cut into ``pieces`` per chunk here."""
    if (schedule.segments == 1 and pieces == 1) or to in BY_MESSAGES:
        return []  # formats of messages choose the pieces, and say how many
    slices = schedule.segments

    def text(program: object) -> str:
        if pieces > 1:
            return f"every chunk is cut into {pieces} pieces that follow each other"
        if to == "msccl-xml" and isinstance(program, Program):
            return _looped(program, target, slices, schedule.bytes)
        if to == BY_OFFSETS:
            return f"the program is what is done to each of the schedule's {slices} segments"
        return (
            f"{to} cannot loop: the schedule's {slices} segments are run as one; "
            f"--segments N cuts every chunk into N pieces"
        )

    return [ConversionRemark("Sliced", text, {"segments": slices, "pieces": pieces})]


def _looped(program: Program, target: str, slices: int, size: int | None) -> str:
    """The loop that the runtime makes of the slices, at the size that the schedule is for."""
    payload = target_of(target).payload[program.protocol]
    text = f"the runtime slices chunks itself: the schedule's {slices} segments are its loop"
    if size is None:
        return f"{text}, {format_bytes(payload)} of every chunk at a time"
    chunk = Fraction(size, program.message_chunks)
    turns = -(-chunk // payload)
    text += f", at {format_bytes(size)} "
    if turns == 1:
        # The size of a chunk may be a fraction: in whole bytes where it is none.
        each = f" of {format_bytes(int(chunk))}" if chunk.denominator == 1 else ""
        return f"{text}one turn with every chunk{each} whole"
    text += f"{turns} turns with {format_bytes(payload)} of every chunk each"
    return f"{text}, coarser than those segments" if turns < slices else text


# --- sources --------------------------------------------------------------------------------------

Noun = Schedule | Algorithm | Program
"""Nouns that can be compiled."""


class Emitter(Protocol):
    """Interface of a format for the front end: name, text of a program, artefact of a request."""

    @property
    def name(self) -> str:
        """As in ``--to``."""
        ...

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocols that its artefacts can express."""
        ...

    @property
    def thread_blocks(self) -> bool:
        """Return True if its artefacts are made of thread blocks."""
        ...

    def rounds_us(self, request: Request, topology: Topology, message_bytes: int) -> float | None:
        """Return the µs of an artefact without thread blocks; None: it is timed as a program."""
        ...

    def require_fit(self, program: Program, target: Target) -> None:
        """Refuse a program that no artefact can hold, as far as that is known without one."""
        ...

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """Return the text of an artefact for messages of these sizes."""
        ...

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        """Return the artefact of something to compile, judged from its text."""
        ...

    def timed_runtime(self, target: str) -> str | None:
        """Return the runtime whose model times its programs; None: without one."""
        ...

    def files(self, text: str, where: str, prefix: str = "") -> dict[str, bytes]:
        """Return the files in an artefact, named without their prefix; none if it is one."""
        ...


@dataclass(frozen=True, slots=True)
class CompileSource:
    """Something to compile, found good: its passes, collective, and the sizes and machine it is
    for, where they are known.

    ``schedule``: the given one, where it is one.
    ``remarks``: changes of a schedule that the format cannot express as it is.
    ``noun``: the noun to compile, for formats without thread blocks.
    """

    compile: Callable[[CompileOptions], Program]
    collective: Collective
    noun: Noun
    sizes: SizeRange | None = None
    topology: Topology | None = None
    schedule: Schedule | None = None
    remarks: tuple[ConversionRemark, ...] = ()


def of_schedule(
    given: Schedule, to: str = FORMAT, target: str = "msccl", segments: int = 1, parts: int = 1
) -> CompileSource:
    """Return a schedule, verified, with shares that the format ``to`` can express, in pieces.

    Raises:
        CheckFailed: it is wrong. UserError: switches sum or copy in it, which the format lacks.
    """
    require_valid(given)
    if len(given.casts):
        return _with_casts(given, to)
    schedule, remarks = fitted(given, to, segments * parts)
    if schedule is not given:
        require_valid(schedule)
    remarks += sliced(schedule, to, target, segments)
    return CompileSource(
        lambda o: passes.lower_schedule(schedule, o),
        schedule.collective.coarsest().in_grains(),
        schedule,
        topology=schedule.topology,
        schedule=given,
        remarks=tuple(remarks),
    )


def _with_casts(given: Schedule, to: str) -> CompileSource:
    """Return a schedule with casts for a format that expresses them; they need no thread blocks."""
    format = BACKENDS.load(to)
    if not getattr(format, "casts", False):
        why = getattr(format, "no_casts", "")
        what = f"{to} cannot express what switches sum or copy"
        refuse_casts(given, f"{what} ({why})" if why else what, CASTS_ELSEWHERE)
    collective = given.collective.coarsest().in_grains()
    if collective.message_chunks > MOST_GRAINS:
        raise UserError(
            f"the shares of the schedule are {collective.message_chunks} chunks; {MOST_GRAINS} "
            "are followed where switches sum or copy",
            where=f"{given.collective} on {given.topology.name}",
            hint="coarser shares: fewer trees, or a machine of equal links",
        )

    def program(options: CompileOptions) -> Program:
        return passes.lower_schedule(given, options)

    return CompileSource(program, collective, given, topology=given.topology, schedule=given)


def cut(source: CompileSource, to: str, o: CompileOptions) -> CompileSource:
    """Return a schedule with shares that can be cut as the options say; all else as it is."""
    given = source.schedule
    if given is None or len(given.casts):
        return source
    return of_schedule(given, to, o.target.name, o.segments or 1, o.parts or 1)


CASTS_ELSEWHERE = (
    "--to mscclpp-json or torch-symm says it within a node (sm_90 or later), --to torch-calls "
    "leaves an allreduce to the library's own calls; nvls=off, sharp=off or "
    "--capable 'SWITCH=none' gives a schedule of transfers for every format"
)


def refuse_lowering(options: CompileOptions) -> None:
    """Refuse options of lowering without effect on a schedule with casts.

    Raises:
        UserError: one is given.
    """
    told = {
        "--lanes": bool(options.lanes),
        "--segments": (options.segments or 1) != 1,
        "--passes": options.passes != DEFAULT_PASSES,
        "--print-after": options.observe is not None,
    }
    for flag, given in told.items():
        if given:
            raise UserError(
                f"{flag} says nothing about a schedule in which switches sum or copy",
                hint="its acts become thread blocks at once; --instances N are N side by side",
            )
    if options.protocol not in (None, WireProtocol.SIMPLE):
        raise UserError(
            f"expected protocol Simple, got {options.protocol}: a load-reduce would sum "
            "the flags of packets",
            hint="--protocol Simple",
        )


def of_algorithm(algorithm: Algorithm, topology: Topology | None = None) -> CompileSource:
    """Return an algorithm, which was proved when it was built."""
    return CompileSource(
        lambda o: passes.lower_algorithm(algorithm, o),
        algorithm.collective,
        algorithm,
        topology=topology,
    )


def of_program(
    program: Program, sizes: SizeRange | None = None, topology: Topology | None = None
) -> CompileSource:
    """Return a program that the caller has checked."""
    return CompileSource(
        lambda o: passes.lower_program(program, o),
        program.collective,
        program,
        sizes=sizes,
        topology=topology,
    )


def source_of(
    noun: Noun,
    to: str = FORMAT,
    options: CompileOptions | None = None,
    topology: Topology | None = None,
) -> CompileSource:
    """Return a schedule, an algorithm or a program, checked.

    Raises:
        CheckFailed: it is wrong.
    """
    if isinstance(noun, Schedule):
        o = options or CompileOptions()
        return of_schedule(noun, to.partition("{")[0], o.target.name, o.segments or 1)
    if isinstance(noun, Algorithm):
        return of_algorithm(noun, topology)
    hint = "or a Schedule or an Algorithm"
    require_type(noun, Program, "what is compiled", hint)
    require_good(check_program(noun), "program")
    return of_program(noun, topology=topology)

"""The compiler's front end: work of ``weft compile`` and the public functions around the passes.

A schedule's unequal shares are fitted to the format, every pass is proved, the artefact is emitted
and judged from its text. :mod:`~weft.backends.compile.compile` runs the passes alone, for callers
that judge their programs themselves.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.files import write_files, write_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import silent
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Program
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import USUAL_CHOICE, ModelChoice

from ..check.checker import check_program
from ..check.findings import require_good
from .compile import AUTO, CompileOptions
from .instances import (
    USUAL_SIZES,
    ProgramTimer,
    ProgramTiming,
    Recompiled,
    all_instances,
    clock_for,
    compared,
    least_worst,
    quickest,
    timing_of,
)
from .pipeline import DEFAULT_PASSES
from .request import ProvedArtefact, Request
from .source import (
    FORMAT,
    CompileSource,
    ConversionRemark,
    Emitter,
    Noun,
    refuse_lowering,
    source_of,
)


@dataclass(frozen=True, slots=True)
class CompileResult:
    """An artefact and the program written into it, both judged; its simulated time, where known.

    ``recompiled``: of a program from elsewhere, what came in beside what it was made.
    """

    made: ProvedArtefact
    backend: Emitter
    remarks: tuple[ConversionRemark, ...] = ()
    timing: ProgramTiming | None = None
    recompiled: Recompiled | None = None

    def __repr__(self) -> str:
        return f"<CompileResult: {self.made.lowered}>"

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.made.text

    @property
    def program(self) -> Any:
        """The ``Program`` in it; the rounds of each rank in a point-to-point program."""
        return self.made.code

    def write(self, output: str | Path, *, force: bool = False) -> dict[str, bytes]:
        """Write the file (``-``: to standard output), or the files of a format of several, whose
        prefix is ``output``; return the several, by what follows the prefix.

        Raises:
            UserError: one exists without ``force``, or cannot be written.
        """
        name = str(output)
        files = {} if name == "-" else self.backend.files(self.text, "the artefact", name)
        if files:
            write_files(output, files, force=force)
        else:
            write_text(output, self.text, force=force)
        return files


def proved(options: CompileOptions) -> CompileOptions:
    """The options, with the program checker after every pass unless they name another judge."""
    return options if options.verify else replace(options, verify=_prove)


def _prove(program: Program) -> None:
    require_good(check_program(program), "program")


def artefact_of(
    source: CompileSource,
    backend: Emitter,
    options: CompileOptions,
    sizes: SizeRange | None = None,
    about: Request | None = None,
    model: ModelChoice = USUAL_CHOICE,
) -> CompileResult:
    """Compile, emit and judge: every pass is proved, the artefact is read back and checked.

    ``options.instances`` may be ``"auto"``: the number is chosen by simulation at the largest size.
    A program from elsewhere is written as it came where that is quicker than what is made of it.
    ``about``: where the source is from and goes to, for formats that write it into the file.
    ``model``: by which programs are timed.

    Raises:
        CheckFailed: a checker rejects a program on the way, or the text.
        UserError: the target cannot express it, an option makes no sense, or nothing tells the
            fastest number of instances.
    """
    tell = options.tell or silent
    settled = _settled(source, backend, proved(options), sizes, model)
    clock, options = settled.clock, settled.options
    made, recompiled = made_of(source, backend, options, sizes, about), None
    if isinstance(source.noun, Program):
        made, recompiled = _quicker(made, source, backend, settled, sizes, about)
    timing = None
    if not isinstance(clock, str):
        timing = timing_of(made.code, source, backend, clock, options, settled.tried, tell)
    return CompileResult(made, backend, source.remarks, timing, recompiled)


def _quicker(
    made: ProvedArtefact,
    source: CompileSource,
    backend: Emitter,
    settled: _Settled,
    sizes: SizeRange | None,
    about: Request | None,
) -> tuple[ProvedArtefact, Recompiled]:
    """Return what a program was made, or the program as it came where that is quicker and may be
    written; and both times."""
    came, o, clock = source.noun, settled.options, settled.clock
    assert isinstance(came, Program)
    found = Recompiled(came, made.code if isinstance(made.code, Program) else came)
    if isinstance(clock, str):
        return made, replace(found, why=clock)
    # On ties the one compiled anew, which is written as every other program.
    us = compared((found.made, came), clock, sizes or source.sizes or USUAL_SIZES)
    if not us:
        return made, replace(found, why="a program cannot be simulated on this machine")
    found = replace(found, us=tuple((n, one, other) for n, (other, one) in us.items()))
    if not least_worst(us.values()):
        return made, found
    instances = None if settled.tried else o.instances  # tried: auto
    asked = (o.protocol or came.protocol, instances, o.lanes, o.passes)
    if asked != (came.protocol, None, 0, DEFAULT_PASSES):
        return made, replace(found, why="flags say how it is compiled")
    named = replace(came, name=o.name or came.name)
    try:
        kept = made_of(replace(source, compile=lambda _: named), backend, o, sizes, about)
    except (CheckFailed, UserError) as error:
        return made, replace(found, why=error.message)
    return kept, replace(found, kept=True)


@dataclass(frozen=True, slots=True)
class _Settled:
    """Options with a number of instances, the clock that chose it (or what it lacks), the trials:
    µs by number of instances."""

    options: CompileOptions
    clock: ProgramTimer | str
    tried: dict[int, float]


def _settled(
    source: CompileSource,
    backend: Emitter,
    options: CompileOptions,
    sizes: SizeRange | None,
    model: ModelChoice,
) -> _Settled:
    clock = clock_for(source, backend, options.target.name, sizes, model)
    tried: dict[int, float] = {}
    if options.instances == AUTO:
        tried = all_instances(source, backend, clock, options, options.tell or silent)
        options = replace(options, instances=quickest(tried))
    return _Settled(options, clock, tried)


def made_of(
    source: CompileSource,
    backend: Emitter,
    options: CompileOptions,
    sizes: SizeRange | None,
    about: Request | None = None,
) -> ProvedArtefact:
    """Return the artefact, judged; nothing is simulated.

    Raises:
        CheckFailed: a checker rejects a program on the way, or the text.
        UserError: the target cannot express it, or an option makes no sense.
    """
    if isinstance(source.noun, Schedule) and len(source.noun.casts):
        refuse_lowering(options)
    request = replace(
        about or Request(to=backend.name),
        noun=source.noun,
        program=lambda: source.compile(proved(options)),
        target=options.target,
        sizes=sizes or source.sizes,
        name=options.name,
        in_place=options.in_place,
        segments=options.segments,
        instances=options.instances if isinstance(options.instances, int) else 0,
    )
    return backend.make(request, options.tell or silent)


# --- the public face ------------------------------------------------------------------------------

Sizes = SizeRange | int | None
"""Bytes of the messages that an artefact is for; None: as the format has it."""


def artefact(
    noun: Noun,
    to: str = FORMAT,
    options: CompileOptions | None = None,
    *,
    sizes: Sizes = None,
    topology: Topology | None = None,
) -> CompileResult:
    """Compile to a format as ``weft compile`` does: the text is that of the file it writes.

    ``to``: a format, perhaps with options (``weft list backends``). ``sizes``: bytes of the
    messages that the artefact is for. ``topology``: the machine of an algorithm or a program, by
    which ``CompileOptions(instances="auto")`` chooses; a schedule has its own.

    Raises:
        CheckFailed: the noun is wrong, or a checker rejects a program on the way, or the text.
        UserError: the format or the target cannot express it, or an option makes no sense.
    """
    o = options or CompileOptions()
    source = source_of(noun, to, o, topology)
    return artefact_of(source, _backend(to, source), o, _range(sizes))


def compile_schedule(
    schedule: Schedule,
    options: CompileOptions | None = None,
    *,
    to: str | None = None,
    sizes: Sizes = None,
) -> Program:
    """The program of a schedule as ``weft compile --to TO`` makes it: unequal shares are fitted,
    and every pass is proved.

    ``to``: also emit this format, and check the artefact; None: any format of equal chunks may be
    emitted later.

    Raises:
        CheckFailed: the schedule is wrong, or a checker rejects a program on the way.
        UserError: something the format or the target cannot express, in words.
    """
    return _program(schedule, options, to, sizes, None)


def compile_algorithm(
    algorithm: Algorithm,
    options: CompileOptions | None = None,
    *,
    to: str | None = None,
    sizes: Sizes = None,
    topology: Topology | None = None,
) -> Program:
    """Return the program of an algorithm as ``weft compile --to TO`` makes it: see
    :func:`compile_schedule`; ``topology`` as for :func:`artefact`."""
    return _program(algorithm, options, to, sizes, topology)


def compile_program(
    program: Program,
    options: CompileOptions | None = None,
    *,
    to: str | None = None,
    sizes: Sizes = None,
    topology: Topology | None = None,
) -> Program:
    """Return a program from elsewhere, compiled anew as ``weft compile --to TO`` does: see
    :func:`compile_schedule`; ``topology`` as for :func:`artefact`."""
    return _program(program, options, to, sizes, topology)


def _program(
    noun: Noun,
    options: CompileOptions | None,
    to: str | None,
    sizes: Sizes,
    topology: Topology | None,
) -> Program:
    if to is not None:
        found = artefact(noun, to, options, sizes=sizes, topology=topology).program
        if isinstance(found, Program):
            return found
    o = options or CompileOptions()
    source = source_of(noun, FORMAT, o, topology)
    backend = _backend(FORMAT, source)
    settled = _settled(source, backend, proved(o), _range(sizes), USUAL_CHOICE)
    return source.compile(settled.options)


def _backend(to: str, source: CompileSource) -> Emitter:
    """A format by name, for the machine of the source where that makes a difference."""
    backend: Any = BACKENDS.make(to, "to")
    made: Emitter = backend.on(source.topology) if source.topology is not None else backend
    return made


def _range(sizes: Sizes) -> SizeRange | None:
    return SizeRange(sizes, sizes) if isinstance(sizes, int) else sizes

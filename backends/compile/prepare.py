"""The compiler's front end: work of ``weft compile`` and the public functions around the passes.

A schedule's unequal shares are fitted to the format, every pass is proved, the artefact is emitted
and judged from its text. :mod:`~weft.backends.compile.compile` runs the passes alone, for callers
that judge their programs themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

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
from .choice import ChosenForm, chosen_form
from .compile import AUTO, CompileOptions
from .pipeline import DEFAULT_PASSES
from .request import ProvedArtefact, Request
from .source import FORMAT, CompileSource, Emitter, Noun, cut, refuse_lowering, source_of
from .timing import (
    USUAL_SIZES,
    ProgramTimer,
    ProgramTiming,
    Recompiled,
    clock_for,
    compared,
    least_worst,
    timing_of,
)


@dataclass(frozen=True, slots=True)
class CompileResult:
    """An artefact and the program written into it, both judged; its simulated time, where known.

    ``source``: what was compiled. ``choice``: the form that a race chose. ``recompiled``: of a
    program from elsewhere, what came in beside what it was made.
    """

    made: ProvedArtefact
    backend: Emitter
    source: CompileSource
    timing: ProgramTiming | None = None
    choice: ChosenForm | None = None
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

    What the options leave open is chosen by simulation (:mod:`.choice`); of the forms that win,
    the first that the format takes is written.
    A program from elsewhere is written as it came where that is quicker than what is made of it.
    ``about``: where the source is from and goes to, for formats that write it into the file.
    ``model``: by which programs are timed.

    Raises:
        CheckFailed: a checker rejects a program on the way, or the text.
        UserError: the target cannot express it, an option makes no sense, or nothing tells the
            fastest number of instances.
    """
    options = proved(options)
    raced = _Raced.of(source, backend, options, sizes, model)
    choice, shaped, made = raced.first(
        lambda shaped, o: made_of(shaped, backend, o, sizes, about), source, backend
    )
    recompiled = None
    if isinstance(source.noun, Program):
        made, recompiled = _quicker(made, source, backend, raced, sizes, about)
    timing = None
    if not isinstance(raced.clock, str):
        (options.tell or silent)("simulate")
        segments = (choice.options if choice else options).segments or 1
        request = Request(shaped.noun, in_place=options.in_place, segments=segments)
        timing = timing_of(request, made.code, source, backend, raced.clock)
    return CompileResult(made, backend, shaped, timing, choice, recompiled)


def _quicker(
    made: ProvedArtefact,
    source: CompileSource,
    backend: Emitter,
    raced: _Raced,
    sizes: SizeRange | None,
    about: Request | None,
) -> tuple[ProvedArtefact, Recompiled]:
    """Return what a program was made, or the program as it came where that is quicker and may be
    written; and both times."""
    came, o, clock = source.noun, raced.options, raced.clock
    assert isinstance(came, Program)
    found = Recompiled(came, made.code if isinstance(made.code, Program) else came)
    if isinstance(clock, str):
        return made, replace(found, why=clock)
    if not backend.thread_blocks:
        return made, replace(found, why="it becomes rounds of messages, without thread blocks")
    # On ties the one compiled anew, which is written as every other program.
    us = compared((found.made, came), clock, sizes or source.sizes or USUAL_SIZES)
    if not us:
        return made, replace(found, why="a program cannot be simulated on this machine")
    found = replace(found, us=tuple((n, one, other) for n, (other, one) in us.items()))
    if not least_worst(us.values()):
        return made, found
    instances = None if o.instances == AUTO else o.instances
    asked = (o.protocol or came.protocol, instances, o.lanes or 0, o.passes)
    if asked != (came.protocol, None, 0, DEFAULT_PASSES):
        return made, replace(found, why="flags say how it is compiled")
    named = replace(came, name=o.name or came.name)
    try:
        kept = made_of(replace(source, compile=lambda _: named), backend, o, sizes, about)
    except (CheckFailed, UserError) as error:
        return made, replace(found, why=error.message)
    return kept, replace(found, kept=True)


@dataclass(frozen=True, slots=True)
class _Raced:
    """Options as a user gave them, the clock (or what it lacks), and the form that won a race."""

    options: CompileOptions
    clock: ProgramTimer | str
    choice: ChosenForm | None

    @staticmethod
    def of(
        source: CompileSource,
        backend: Emitter,
        options: CompileOptions,
        sizes: SizeRange | None,
        model: ModelChoice,
    ) -> _Raced:
        """Race forms, where that can be.

        Raises:
            UserError: the number of instances must be raced, and cannot.
        """
        (options.tell or silent)("race forms")
        clock = clock_for(source, backend, options.target.name, sizes, model)
        choice = None
        told = sizes or source.schedule or options.instances == AUTO  # else sizes are usual ones
        if not isinstance(clock, str) and told:
            choice = chosen_form(source, backend, clock, options, sizes)
        if options.instances == AUTO and choice is None:
            why = clock if isinstance(clock, str) else "the program is too large to be simulated"
            raise UserError(
                f"--instances auto cannot choose: {why}",
                where="--instances auto",
                hint="name a number",
            )
        return _Raced(options, clock, choice)

    def first(
        self,
        make: Callable[[CompileSource, CompileOptions], _Made],
        source: CompileSource,
        backend: Emitter,
    ) -> tuple[ChosenForm | None, CompileSource, _Made]:
        """Return the first form that can be made, of the best and at last of the fixed one.

        Raises:
            CheckFailed: a checker rejects one.
            UserError: the fixed form cannot be made either.
        """
        for choice in self.choice.each() if self.choice else ():
            shaped = cut(source, backend.name, choice.options)
            with suppress(UserError):
                return choice, shaped, make(shaped, choice.options)
        fixed = self.options
        if fixed.instances == AUTO:
            fixed = replace(fixed, instances=None)
        shaped = cut(source, backend.name, fixed)
        return None, shaped, make(shaped, fixed)


_Made = TypeVar("_Made")


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
        segments=options.segments or 1,
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
    which forms are raced; a schedule has its own.

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
    raced = _Raced.of(source, backend, proved(o), _range(sizes), USUAL_CHOICE)
    return raced.first(lambda shaped, chosen: shaped.compile(chosen), source, backend)[2]


def _backend(to: str, source: CompileSource) -> Emitter:
    """A format by name, for the machine of the source where that makes a difference."""
    backend: Any = BACKENDS.make(to, "to")
    made: Emitter = backend.on(source.topology) if source.topology is not None else backend
    return made


def _range(sizes: Sizes) -> SizeRange | None:
    return SizeRange(sizes, sizes) if isinstance(sizes, int) else sizes

"""Lowering of schedules, algorithms and programs to a target, shared by several verbs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from weft import __version__
from weft.dsl.base.errors import UnknownName, UserError, an
from weft.dsl.base.progress import Telling
from weft.dsl.base.registry import PASSES

from ..formats.format import DEFAULT
from .flags.files import LOWERING
from .noun import Kind, Subject, asked_of
from .nouns import FormatNoun, not_whole

if TYPE_CHECKING:
    from weft.dsl.nouns.program import Program

    from ..compile.compile import CompileOptions
    from ..compile.source import Source


def source_of(subject: Subject, args: argparse.Namespace) -> Source:
    """Return the verified contents of a file, and the way to compile it.

    Raises:
        UserError: nothing that can be compiled, or an option makes no sense for it.
        CheckFailed: it is wrong.
    """
    if subject.kind is Kind.SCHEDULE:
        return _schedule(subject, args)
    if args.segments != 1:
        raise UserError(f"--segments is for schedules, not {an(subject.kind)}", where=subject.where)
    if subject.kind is Kind.ALGORITHM:
        return _algorithm(subject, args)
    if subject.format is not None:
        return _artefact(subject, args)
    if subject.kind is Kind.LIBRARY:
        raise not_whole(subject, "compiled")
    raise UserError(
        f"a schedule, an algorithm or a program is needed, not {an(subject.kind)}",
        where=subject.where,
    )


def _schedule(subject: Subject, args: argparse.Namespace) -> Source:
    from ..compile.source import of_schedule

    to = str(getattr(args, "to", DEFAULT)).partition("{")[0]
    return of_schedule(subject.schedule(), to, args.target, args.segments)


def _algorithm(subject: Subject, args: argparse.Namespace) -> Source:
    from ..compile.source import of_algorithm

    algorithm = subject.algorithm(in_place=args.in_place or None)
    return of_algorithm(algorithm, subject.machine())


def _artefact(subject: Subject, args: argparse.Namespace) -> Source:
    """Return the program in an artefact."""
    from weft.dsl.base.units import SizeRange

    from ..compile.source import of_program

    assert isinstance(subject.noun, FormatNoun)
    held = subject.noun.held(subject, asked_of(args, target=None), "compiled")
    program = held.program
    sizes = None
    if held.high is not None:
        sizes = SizeRange(max(1, held.low or 0), max(1, held.high))
    return of_program(program, sizes)


def given_flags(args: argparse.Namespace) -> list[str]:
    """Return the names of the lowering flags that were given, in their order."""
    return [name for name, value in LOWERING.items() if getattr(args, name) != value]


def provenance_of(subject: Subject, source: Source) -> tuple[str, ...]:
    """Return the provenance of a source as lines of text."""
    lines = [f"Made by weft {__version__} from {subject.named or subject.where}."]
    if source.topology is not None:
        lines.append(f"Machine: {source.topology.name}, digest {source.topology.digest()[:16]}.")
    if source.schedule is not None:
        known = source.schedule.provenance
        keys = ("engine", "found_by", "seed", "problem", "cites")
        lines += [f"{key}: {known[key]}" for key in keys if known.get(key) is not None]
    return tuple(lines)


def compiled_as(subject: Subject) -> str | None:
    """Return the IR form in which a subject enters the passes; None if it cannot be compiled."""
    if subject.format is not None:
        return "program" if subject.format.compiled else None
    return str(subject.kind) if subject.kind in (Kind.SCHEDULE, Kind.ALGORITHM) else None


def require_listed(options: CompileOptions) -> None:
    """Refuse ``--print-after`` of a pass that did not run."""
    if isinstance(options.observe, _Lister):
        options.observe.require_seen()


def options_of(args: argparse.Namespace, subject: Subject, tell: Telling) -> CompileOptions:
    """Return the compiler options that the flags select; stages are reported to ``tell``.

    Raises:
        UserError: unknown passes, passes without effect here, or one option given twice.
    """
    from weft.dsl.nouns.program import Protocol
    from weft.dsl.nouns.runtime import target

    from ..compile.compile import CompileOptions
    from ..compile.pipeline import DEFAULT_PASSES, parse_passes, require_applicable

    passes = DEFAULT_PASSES
    if args.passes:
        passes = parse_passes(args.passes)
        require_applicable(passes, compiled_as(subject) or "", args.passes)
        named = [one for one in passes if one.name == "instances"]
        if named and args.instances is not None:
            raise UserError("--instances is said twice, by -p too", where="--instances")
    lister = _Lister(args.print_after) if args.print_after else None
    return CompileOptions(
        target=target(args.target),
        instances=args.instances,
        in_place=bool(args.in_place),
        protocol=Protocol(args.protocol) if args.protocol else None,
        lanes=args.lanes,
        segments=args.segments,
        name=args.name,
        passes=passes,
        observe=lister,
        tell=tell,
    )


class _Lister:
    """Printer of programs after passes, on stderr."""

    def __init__(self, wanted: str) -> None:
        if wanted != "all" and wanted not in PASSES.names():
            raise UnknownName("pass", wanted, ["all", *PASSES.names()], where="--print-after")
        self.wanted, self.seen = wanted, False

    def __call__(self, name: str, program: Program) -> None:
        from ..formats.listings import program_text

        if self.wanted in ("all", name):
            self.seen = True
            print(f"# after {name}\n{program_text(program)}\n", file=sys.stderr, flush=True)

    def require_seen(self) -> None:
        """Refuse a pass that did not run."""
        if not self.seen:
            raise UserError(f"the pass {self.wanted} does not run here", where="--print-after")

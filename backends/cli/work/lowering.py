"""Lowering of schedules, algorithms and programs to a target, shared by several verbs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft import __version__
from weft.dsl.base.errors import UnknownName, UserError, an
from weft.dsl.base.progress import ProgressCallback
from weft.dsl.base.registry import PASSES
from weft.dsl.base.spans import printable
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import target

from ...compile.compile import CompileOptions
from ...compile.pipeline import (
    DEFAULT_PASSES,
    SETTINGS,
    parse_passes,
    parse_settings,
    require_applicable,
)
from ...compile.prepare import made_of
from ...compile.source import CompileSource, cut, of_algorithm, of_program, of_schedule
from ...formats.format import DEFAULT, Format
from ...formats.listings import program_text
from ..flags.files import CompileFlags, RunFlags
from ..inputs.machines import read_topology
from ..nouns.noun import FileKind, Subject, asked_of, not_whole
from ..nouns.program_noun import FormatNoun


def source_of(subject: Subject, args: CompileFlags | RunFlags, to: str = DEFAULT) -> CompileSource:
    """Return the verified contents of a file, and the way to compile it; ``to``: the format where
    no flag names one.

    Raises:
        UserError: nothing that can be compiled, or an option makes no sense for it.
        CheckFailed: it is wrong.
    """
    if subject.kind is FileKind.SCHEDULE:
        to = args.to.partition("{")[0] if isinstance(args, CompileFlags) else to
        return of_schedule(subject.schedule(), to, args.target, args.segments or 1)
    if args.segments not in (None, 1):
        raise UserError(f"--segments is for schedules, not {an(subject.kind)}", where=subject.where)
    if subject.kind is FileKind.ALGORITHM:
        algorithm = subject.algorithm(in_place=args.in_place or None)
        return of_algorithm(algorithm, subject.machine())
    if subject.format is not None:
        assert isinstance(subject.noun, FormatNoun)
        asked = asked_of(args, protocol=args.protocol, in_place=args.in_place)
        held = subject.noun.held(subject, asked, "compiled")
        sizes = None if held.high is None else SizeRange(max(1, held.low or 0), max(1, held.high))
        return of_program(held.program, sizes)
    if subject.kind is FileKind.LIBRARY:
        raise not_whole(subject, "compiled")
    raise UserError(
        f"expected a schedule, an algorithm or a program, got {an(subject.kind)}",
        where=subject.where,
    )


def on_machine(source: CompileSource, subject: Subject, named: str | None) -> CompileSource:
    """Return the source on the machine that ``-t`` names; unchanged where none is named.

    Raises:
        UserError: the file states its machine, or the one named has another number of ranks.
    """
    if named is None:
        return source
    if source.topology is not None:
        raise UserError(
            f"-t is for files that state no machine; this one is for {source.topology.name}",
            where=subject.where,
            hint="leave -t out",
        )
    topology, ranks = read_topology(named), source.collective.ranks
    if topology.ranks != ranks:
        raise UserError(
            f"expected a machine of {count(ranks, 'rank')}, got {topology.ranks} of "
            f"{topology.name}",
            where=f"-t {named}",
            hint="name the machine that the program is for",
        )
    return replace(source, topology=topology)


def provenance_of(subject: Subject, source: CompileSource) -> tuple[str, ...]:
    """Return the provenance of a source as lines of text."""
    lines = [f"Made by weft {__version__} from {subject.named or subject.where}."]
    if source.topology is not None:
        lines.append(f"Machine: {source.topology.name}, digest {source.topology.digest()[:16]}.")
    if source.schedule is not None:
        known = source.schedule.provenance
        keys = ("engine", "found_by", "seed", "problem", "cites")
        lines += [f"{key}: {known[key]}" for key in keys if known.get(key) is not None]
    return tuple(lines)


def require_listed(options: CompileOptions) -> None:
    """Refuse ``--print-after`` of a pass that did not run."""
    if isinstance(options.observe, _Lister):
        options.observe.require_seen()


def options_of(
    args: CompileFlags | RunFlags, subject: Subject, tell: ProgressCallback
) -> CompileOptions:
    """Return the compiler options that the flags select; stages are reported to ``tell``.

    Raises:
        UserError: unknown passes, passes without effect here, or one option given twice.
    """
    passes, settings = DEFAULT_PASSES, {}
    if args.passes and (settings := parse_settings(args.passes) or {}):
        _refuse_settings(settings, args, subject)
    elif args.passes:
        passes = parse_passes(args.passes)
        require_applicable(passes, subject.compiled_form or "", args.passes)
        named = [one for one in passes if one.name == "instances"]
        if named and args.instances is not None:
            raise UserError("--instances is said twice, by -p too", where="--instances")
    lister = _Lister(args.print_after) if args.print_after else None
    made = CompileOptions(
        target=target(args.target),
        form=getattr(args, "form", "fixed"),
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
    return replace(made, **{SETTINGS[key]: value for key, value in settings.items()})


def _refuse_settings(
    settings: Mapping[str, Any], args: CompileFlags | RunFlags, subject: Subject
) -> None:
    """Refuse settings of passes without effect, or that are given twice."""
    if "channels.lanes" in settings and args.lanes is not None:
        raise UserError("--lanes is said twice, by -p too", where="--lanes")
    lower = [key for key in settings if key.startswith("lower.")]
    if lower and subject.kind is not FileKind.SCHEDULE:
        raise UserError(f"{lower[0]} is for schedules, not {an(subject.kind)}", where="-p")


def text_of(
    subject: Subject, format: Format, args: RunFlags, tell: ProgressCallback
) -> tuple[str, Collective]:
    """Return the artefact compiled from a file, and the collective it must achieve.

    Raises:
        UserError: the file cannot be compiled, or an option does not affect it.
    """
    source = source_of(subject, args, format.name)
    options = options_of(args, subject, tell)
    if source.topology is not None:
        format = format.on(source.topology)
    source = cut(source, format.name, options)
    text = made_of(source, format, options, None).text
    require_listed(options)
    return text, source.collective


class _Lister:
    def __init__(self, wanted: str) -> None:
        if wanted != "all" and wanted not in PASSES.names():
            raise UnknownName("pass", wanted, ["all", *PASSES.names()], where="--print-after")
        self.wanted, self.seen = wanted, False

    def __call__(self, name: str, program: Program) -> None:
        if self.wanted in ("all", name):
            self.seen = True
            text = f"# after {name}\n{program_text(program)}\n"
            print(printable(text), file=sys.stderr, flush=True)

    def require_seen(self) -> None:
        """Refuse a pass that did not run."""
        if not self.seen:
            raise UserError(f"the pass {self.wanted} does not run here", where="--print-after")

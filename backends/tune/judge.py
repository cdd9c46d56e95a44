"""Judge of libraries: every file by its text alone, and the manifest's claims by the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from weft.dsl.base.errors import CheckFailed, WeftError
from weft.dsl.base.files import read_text
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import Artefact, Library, Tuned, TunedPlan
from weft.dsl.nouns.runtime import RUNTIMES
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.schedule import read as read_schedule
from weft.synth.judge.verify import verify

from ..check.checker import check_program
from ..check.checks import Check
from ..check.findings import Finding, errors
from ..compile.analyses.unroll import same_question
from ..formats.format import ProgramFormat, format_named
from ..formats.msccl.check import check_xml, sizes_of
from ..formats.msccl.read import XmlAlgo
from ..formats.msccl.read.collective import NAMES, fit
from ..formats.mscclpp.check import check_plan
from ..formats.mscclpp.interpret import run_plan
from ..formats.mscclpp.plan.model import ExecutionPlan
from ..formats.mscclpp.plan.read import read_plan
from ..formats.torch_symm.judge import judge as judge_symm
from ..formats.torch_symm.read import read_program
from .claims import Claims
from .folder import XML, XmlFiles

MOST_EXECUTED = 32
"""Largest number of ranks of MSCCL++ plans that are executed when a library is checked."""


def judge(library: Library, folder: Path, target: str | None = None) -> list[Check]:
    """Return a check for every file that a library in a folder names, for gaps between the sizes
    in them, and for the claims of its manifest.

    The manifest's statements on a file are not used: collective, placement and sizes are read
    from the file itself, and times and bounds found again. ``target``: the runtime that MSCCL XML
    is judged for, if another than it was made for.
    """
    plans = [plan for one in library.tuned for plan in one.plans]
    size = f"{count(len(plans), 'plan')} on {library.topology.name}"
    checks = [Check("form", True, f"{size}, no gap and no overlap in the manifest")]
    for one in library.tuned:
        schedules: dict[str, Schedule] = {}
        files = XmlFiles(folder)
        for plan in one.plans:
            checks += _plan(library, one, plan, files, target, schedules)
        checks += _ranges(library, one, files)
        checks += Claims(library, one, files, schedules).checks()
    checks += _strangers(plans, folder)
    return checks


def _strangers(plans: Sequence[TunedPlan], folder: Path) -> Iterator[Check]:
    """Yield a check for foreign files in folders whose runtime loads all files, and fails on
    others."""
    named = {a.file for plan in plans for a in plan.artefacts}
    loaded = {
        (folder / a.file).parent
        for plan in plans
        for a in plan.artefacts
        if a.format == XML and a.target in RUNTIMES and RUNTIMES[a.target].loads_folder
    }
    for place in sorted(loaded):
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            name = file.relative_to(folder).as_posix()
            if name not in named:
                yield Check(
                    "folder",
                    False,
                    f"{name}: not of this library, and the runtime loads every file there",
                )


def _plan(
    library: Library,
    one: Tuned,
    plan: TunedPlan,
    files: XmlFiles,
    target: str | None,
    read: dict[str, Schedule],
) -> Iterator[Check]:
    """Yield the checks of a plan's schedule and files; a right schedule is added to ``read``."""
    try:
        schedule = read_schedule(files.folder / plan.schedule)
        problems = [str(p) for p in verify(schedule).problems]
        if not same_question(schedule.collective, one.collective):
            problems.append(f"it is {schedule.collective}, not {one.collective}")
        if schedule.topology.digest() != library.topology.digest():
            problems.append("it is for another machine")
        if not problems:
            read[plan.schedule] = schedule
    except WeftError as error:
        problems = [error.message]
    told = problems[0] if problems else "achieves its collective"
    yield Check("schedule", not problems, f"{plan.schedule}: {told}")
    for artefact in plan.artefacts:
        named = replace(artefact, target=target) if target and artefact.format == XML else artefact
        yield _artefact(files, named, one.collective)


def _artefact(files: XmlFiles, artefact: Artefact, collective: Collective) -> Check:
    name, format = artefact.file, artefact.format
    try:
        judge = _xml_findings if format == XML else _own_findings
        found = errors(judge(files, artefact, collective))
    except WeftError as error:
        return Check(format, False, f"{name}: {error.message}")
    return Check(format, not found, f"{name}: {found[0].told if found else 'proved'}")


def _own_findings(files: XmlFiles, artefact: Artefact, collective: Collective) -> Sequence[Finding]:
    """Return the findings for a plan, a program or a script of the library.

    A script is read, not executed: it comes from an unknown source.
    """
    where = artefact.file
    text = read_text(files.folder / where)
    if artefact.format == "mscclpp-json":
        return _plan_findings(text, artefact, collective)
    found: Sequence[Finding]
    if artefact.format == "torch-symm":
        symm, found = judge_symm(text, where)
        asked, in_place = symm.collective, symm.plan.in_place
        if not errors(found) and collective.ranks <= MOST_EXECUTED:
            _require_result(symm.plan, collective)
    elif isinstance(format := format_named(artefact.format, where), ProgramFormat):
        program = format.program(text, where)
        asked, in_place = program.collective, program.in_place
        found = check_program(program, artefact.target or None)
    else:
        found = format.findings(text, where, artefact.target or None)
        asked = format.collective(text, where)
        in_place = artefact.in_place and not format.any_buffers
    if not same_question(asked, collective):
        raise CheckFailed(f"it is {asked}, not {collective}")
    if in_place != artefact.in_place:
        raise CheckFailed(f"it is not for buffers {_place(artefact)}")
    return found


def _plan_findings(text: str, artefact: Artefact, collective: Collective) -> Sequence[Finding]:
    """Return the findings for an MSCCL++ plan, by execution, since it does not state its root."""
    plan = read_plan(text, artefact.file)
    if plan.in_place != artefact.in_place:
        raise CheckFailed(f"it is not for buffers {_place(artefact)}")
    found = check_plan(plan)
    if not errors(found) and collective.ranks <= MOST_EXECUTED:
        _require_result(plan, collective)
    return found


def _require_result(plan: ExecutionPlan, collective: Collective) -> None:
    done = run_plan(plan, collective.coarsest().in_grains(), orders=2)
    if not done.ok:
        raise CheckFailed(f"it does not achieve {collective}: {done.detail}")


def _place(artefact: Artefact) -> str:
    return "in place" if artefact.in_place else "out of place"


def _xml_findings(files: XmlFiles, artefact: Artefact, collective: Collective) -> Sequence[Finding]:
    """Return the findings for an MSCCL XML file, against the collective that the library states.

    ``coll`` names no root, and nothing at all of a custom collective.
    """
    algo = files.algo(artefact.file)
    if NAMES.get(algo.coll, collective.kind) is not collective.kind:
        raise CheckFailed(f"it is {algo.coll}, not {collective.kind}")
    if artefact.in_place not in algo.placements:
        raise CheckFailed(f"it is not for buffers {_place(artefact)}")
    return check_xml(algo, artefact.target or None, fit(collective, algo))


def _ranges(library: Library, one: Tuned, files: XmlFiles) -> Iterator[Check]:
    """Check that the sizes written into files of one kind join, by the rule of their reader."""
    kinds = {(a.format, a.target, a.in_place) for plan in one.plans for a in plan.artefacts}
    for format, target, in_place in sorted(kinds):
        named = [
            (a.file, (plan.low, plan.high))
            for plan in one.plans
            for a in plan.artefacts
            if (a.format, a.target, a.in_place) == (format, target, in_place)
        ]
        try:
            ends = [_sizes_in(files, file, format, target) for file, _ in named]
        except WeftError:
            continue  # reported where the file was judged
        ranges = sorted(e for e in ends if e is not None)
        if not ranges:
            continue  # a format that does not state it
        wrong = [f"{a[1]} is followed by {b[0]}" for a, b in pairwise(ranges) if b[0] != a[1] + 1]
        if (ranges[0][0], ranges[-1][1]) != (library.low, library.high):
            wrong.append(f"they are for {ranges[0][0]} to {ranges[-1][1]} bytes")
        wrong += [
            f"{file} is for {end[0]} to {end[1]} bytes, and in the manifest for {said[0]} to "
            f"{said[1]}"
            for (file, said), end in zip(named, ends, strict=True)
            if end is not None and end != said
        ]
        place = "in place" if in_place else "out of place"
        rule = f"{one.name}, {format}{f' for {target}' if target else ''}, {place}"
        told = wrong[0] if wrong else f"{ranges[0][0]} to {ranges[-1][1]} bytes without a gap"
        if format == XML:
            told += _divisible([files.algo(file) for file, _ in named])
        yield Check("sizes", not wrong, f"{rule}: {told}")


def _divisible(algos: Sequence[XmlAlgo]) -> str:
    """Return the multiples that messages must be of; a runtime skips a file at other sizes."""
    chunks = {algo.message_chunks for algo in algos}
    return f", multiples of {' and '.join(map(str, sorted(chunks)))} elements"


def _sizes_in(files: XmlFiles, file: str, format: str, target: str) -> tuple[int, int] | None:
    """Return the least and largest message for which a runtime takes a file; None if not stated."""
    if format == XML:
        sizes = sizes_of(files.algo(file), target_of(target))
        return sizes.low, sizes.high or 0
    if format in ("mscclpp-json", "torch-symm"):
        text = read_text(files.folder / file)
        plan = read_plan(text, file) if format != "torch-symm" else read_program(text, "").plan
        return plan.min_bytes, plan.max_bytes
    return None

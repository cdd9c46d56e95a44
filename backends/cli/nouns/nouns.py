"""Noun of each kind of file; those with heavy tools are loaded when such a file is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile
from weft.dsl.base.tables import count
from weft.dsl.nouns.hops import hop_distances

from ...check.checks import Check
from ...formats.listings import Sheets
from ...report.report import TIMED, shown
from ...report.sheets import library_sheets, results_sheets, topology_sheets
from ...report.text import collective_text, topology_text
from ..flags.files import CheckFlags, DiffFlags, SimulateFlags
from ..inputs.libraries import library_facts, library_text, recipes
from ..inputs.machines import facts_of, machine_line
from ..output.console import Console
from .noun import FileKind, Noun, SimulationSetup, Subject, not_whole


def noun_of(kind: FileKind) -> Noun:
    """Return the noun of a kind of file; that of an artefact is a ``FormatNoun``."""
    match kind:
        case FileKind.SCHEDULE:
            from .schedule_noun import ScheduleNoun

            return ScheduleNoun()
        case FileKind.ALGORITHM:
            from .algorithm_noun import AlgorithmNoun

            return AlgorithmNoun()
        case FileKind.SKETCH:
            from .sketch_noun import SketchNoun

            return SketchNoun()
        case FileKind.STREAM:
            from .stream_noun import StreamNoun

            return StreamNoun()
        case FileKind.WORKLOAD:
            from .workload_noun import WorkloadNoun

            return WorkloadNoun()
        case FileKind.PLAN:
            from .plan_noun import PlanNoun

            return PlanNoun()
        case FileKind.TOPOLOGY:
            return TopologyNoun()
        case FileKind.COLLECTIVE:
            return CollectiveNoun()
        case FileKind.LIBRARY:
            return LibraryNoun()
        case FileKind.RESULT:
            return ResultNoun()


class TopologyNoun(Noun):
    """Machines, in any of the formats that are imported."""

    kind = FileKind.TOPOLOGY

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check that every rank reaches every other; add the assumptions made."""
        topology = subject.topology()
        checks = [Check("form", True, machine_line(topology))]
        distance = hop_distances(topology)
        lost = [(a, b) for a, b in zip(*(distance < 0).nonzero(), strict=True)]
        if lost:
            a, b = lost[0]
            detail = f"rank {a} cannot reach rank {b}"
            detail += f" (and {len(lost) - 1} more such pairs)" if len(lost) > 1 else ""
            checks.append(Check("connected", False, detail))
        else:
            far = count(int(distance.max()), "hop")
            checks.append(Check("connected", True, f"every rank within {far}"))
        return checks + [Check("note", True, note) for note in topology.notes]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return facts, kinds of links, and bandwidths between ranks."""
        topology = subject.topology()
        return topology_text(topology), facts_of(topology)

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return facts, nodes, and the capacities of links and shared resources."""
        return topology_sheets(subject.topology())


class CollectiveNoun(Noun):
    """Collectives defined by the user, as JSON or in Python."""

    kind = FileKind.COLLECTIVE

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check the form of the collective."""
        return [Check("form", True, str(subject.collective()))]

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the chunks, with their places before and after."""
        collective = subject.collective()
        return collective_text(collective), {
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
            "chunks": collective.chunks,
        }


class LibraryNoun(Noun):
    """Libraries of tuned plans, by their manifest."""

    kind = FileKind.LIBRARY

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Check every file that the library names, and its claims."""
        from ...tune.judge import judge  # loads all checkers

        return judge(subject.library(), Path(subject.where).parent, args.target)

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the plans by size."""
        library = subject.library()
        return library_text(library), library_facts(library)

    def details(self, subject: Subject) -> str:
        """Return the exact recipes of the plans."""
        return recipes(subject.library())

    def timed(self, subject: Subject, args: SimulateFlags) -> SimulationSetup:
        """Raise an error: a library is many files."""
        raise not_whole(subject, "simulated")

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return facts, plans and times."""
        return library_sheets(subject.library())


class ResultNoun(Noun):
    """Results that ``--json`` of ``bench``, ``run``, ``simulate`` or ``bound`` printed."""

    kind = FileKind.RESULT

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the table that the verb printed, without marks."""
        text = _of_answer(subject, lambda data: shown(data["sizes"], *TIMED))
        return text, {"sizes": subject.data["sizes"]}

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return the facts and times that a verb printed."""
        found: Sheets = _of_answer(subject, results_sheets)
        return found


def _of_answer(subject: Subject, make: Callable[[Any], Any]) -> Any:
    try:
        return make(subject.data)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadFile(
            "not what a verb printed with --json: sizes have bytes and us", where=subject.where
        ) from None

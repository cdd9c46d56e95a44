"""Base class of nouns (kinds of files), and the input file of a verb.

A noun serves most verbs: check, show, simulate, compare. Pages and drawings need heavier
tools and stand in modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from weft.dsl.base.errors import UserError, an
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange, parse_size_range
from weft.dsl.catalogue import imported
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.schedule import load as load_schedule
from weft.dsl.nouns.topology import Topology

from ...check.checks import Check
from ...formats.format import Format, Requirements
from ...formats.listings import Sheets
from ...report.sheets import text_sheets
from ..flags.files import CheckFlags, DiffFlags, SimulateFlags
from ..flags.shared import CollectiveChoice, Flags, Ranks
from ..flags.values import LIMITS
from ..inputs.inputs import NamedCollective, collective_for, collective_from
from ..output.console import Console

if TYPE_CHECKING:
    from weft.dsl.nouns.algorithm import Algorithm
    from weft.dsl.nouns.library import Library
    from weft.dsl.nouns.workload import Workload
    from weft.dsl.nouns.workload_plan import WorkloadPlan
    from weft.synth.bounds import RuntimeBound

USUAL_SIZES = "1KiB:1GiB"
CLASSIC = "classic:"
"""Prefix of the names of classic algorithms."""


class FileKind(StrEnum):
    """Kinds of files that are not artefacts of a format."""

    SCHEDULE = "schedule"
    TOPOLOGY = "topology"
    COLLECTIVE = "collective"
    ALGORITHM = "algorithm"
    SKETCH = "sketch"
    LIBRARY = "library"
    STREAM = "stream"
    RESULT = "result"
    WORKLOAD = "workload"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Subject:
    """One input file: its noun, its text, and its JSON if it has any.

    ``named`` is the user's text: for a topology perhaps with options after the path.
    """

    noun: Noun
    text: str
    where: str
    data: Any = None
    named: str = ""

    @property
    def kind(self) -> str:
        """Return the kind as ``--json`` names it: a ``FileKind``, or the name of a format."""
        return self.noun.kind

    @property
    def format(self) -> Format | None:
        """Return the format of an artefact; None for other files."""
        return self.noun.format

    @property
    def is_script(self) -> bool:
        """Return True for a file that processes of a runtime execute."""
        return self.format is not None and bool(self.format.runtime)

    @property
    def compiled_form(self) -> str | None:
        """Return the IR form in which the file enters the passes; None if it is not compiled."""
        if self.format is not None:
            return "program" if self.format.compiled else None
        compiled = self.kind in (FileKind.SCHEDULE, FileKind.ALGORITHM)
        return str(self.kind) if compiled else None

    def schedule(self) -> Schedule:
        """Return the schedule in the file, well formed but not verified."""
        return load_schedule(self.data, self.where)

    def collective(self) -> Collective:
        """Return the collective in the file; a Python file describes one."""
        return (
            collective_from(self.where)
            if self.data is None
            else Collective.from_json(self.data, self.where)
        )

    def library(self) -> Library:
        """Return the library in the file; the files it names are in the same folder."""
        from weft.dsl.nouns.library import load  # few verbs read one

        return load(self.data, self.where)

    def algorithm(self, *, in_place: bool | None = None) -> Algorithm:
        """Return the algorithm that a Python file describes or a name selects, or a classic one."""
        return self.noun.algorithm(self, in_place=in_place)

    def workload(self) -> Workload:
        """Return the workload in the file, of any format."""
        from weft.dsl.importers.workloads import read  # few verbs read one

        if self.where == "<stdin>":
            return read.workload_in(self.text, self.where)
        return read.read_workload(read.WorkloadSource(self.where))

    def plan(self) -> WorkloadPlan:
        """Return the plan of a workload in the file, well formed but not judged."""
        from weft.dsl.nouns.workload_plan import load  # few verbs read one

        return load(self.data, self.where)

    def machine(self) -> Topology | None:
        """Return the machine that a file or a name states; None without one."""
        return self.noun.machine(self)

    def topology(self) -> Topology:
        """Return the topology in the file, of any format, or that of a catalogue name."""
        return imported(self.text, self.named) if self.text else topology_named(self.named)


@dataclass(frozen=True, slots=True)
class SimulationSetup:
    """Input of a simulation: machine, collective, time by size, lower bound (µs), usual sizes.

    ``collective``, ``sizes``: None where a file states none: it has one time, of size 0.
    ``told``: the report of ``-v`` on the model. ``remark``: a line below the table. ``least``: the
    least time of any program in the runtime by size, where it is known.
    """

    topology: Topology
    collective: Collective | None
    evaluate: Callable[[int, Any], Any]
    facts: dict[str, Any]
    sizes: SizeRange | None
    explain: Callable[[Any], str] = lambda _: ""
    told: str = ""
    remark: str = ""
    least: Callable[[int], RuntimeBound] | None = None


def asked_of(
    args: CollectiveChoice,
    *,
    target: str | None = None,
    protocol: str | None = None,
    in_place: bool = False,
    may_hang: bool = False,
) -> Requirements:
    """Return the flags of a verb that apply to an artefact: ``-c``, ``--root``, ``--target`` …"""

    def resolve(name: str | None, ranks: int) -> Collective | None:
        named = args.collective or name
        if named is None:
            return None
        chosen = NamedCollective(named, _numbers(args.root), _numbers(args.roots))
        return collective_for(chosen, tuple(range(ranks)))

    rooted = args.root is not None or args.roots is not None
    return Requirements(
        target=target,
        protocol=protocol,
        in_place=in_place,
        resolve=resolve,
        rooted=rooted and args.collective is None,
        may_hang=may_hang,
    )


def _numbers(ranks: Ranks | None) -> tuple[int, ...] | None:
    """Return roots by number: a file's ranks lack names."""
    for rank in ranks or ():
        if isinstance(rank, str):
            raise UserError(f"{rank!r} is not a rank of this file", hint="roots are numbers here")
    return None if ranks is None else tuple(int(rank) for rank in ranks)


class Noun:
    """Kind of file; a question that a subclass does not implement raises an error.

    ``kind`` is its name in ``--json``.
    """

    kind: ClassVar[str] = ""
    format: Format | None = None
    """Format of an artefact."""
    asks_collective = False
    """True if ``-c`` and ``--root`` may state the collective of its files."""

    def check(self, subject: Subject, args: CheckFlags, console: Console) -> list[Check]:
        """Return the checks that ``weft check`` prints."""
        raise UserError(f"{an(self.kind)} is not checked", where=subject.where)

    def show(self, subject: Subject) -> tuple[str, dict[str, Any]]:
        """Return the file as text, and its facts for ``--json``."""
        return subject.text.rstrip("\n"), {"text": subject.text}

    def details(self, subject: Subject) -> str:
        """Return the lines that ``weft show -v`` prints beside the text, perhaps none."""
        return ""

    def sheets(self, subject: Subject, args: DiffFlags, console: Console) -> Sheets:
        """Return the sheets that ``weft diff`` compares; by default the lines of ``weft show``."""
        return text_sheets(self.show(subject)[0])

    def timed(self, subject: Subject, args: SimulateFlags) -> SimulationSetup:
        """Return the input of ``weft simulate``."""
        raise UserError(
            f"expected a schedule, an algorithm or a program, got {an(self.kind)}",
            where=subject.where,
        )

    def algorithm(self, subject: Subject, *, in_place: bool | None = None) -> Algorithm:
        """Return the algorithm that a file describes or a name selects."""
        raise UserError(f"expected an algorithm, got {an(self.kind)}", where=subject.where)

    def machine(self, subject: Subject) -> Topology | None:
        """Return the machine that the file or its name states; None without one."""
        return None


def refuse_flags(flags: Flags, names: tuple[str, ...], why: str, subject: Subject) -> None:
    """Refuse flags without effect for this kind of file.

    Raises:
        UserError: one was given.
    """
    if given := flags.given(names):
        raise UserError(f"--{given[0].replace('_', '-')} {why}", where=subject.where)


MODEL_FLAGS = ("model", "timing")
"""Flags of the model by which programs are timed."""


def refuse_model(flags: Flags, subject: Subject) -> None:
    """Refuse flags of the model of programs for a file that it does not time.

    Raises:
        UserError: one was given.
    """
    why = f"is of the times of programs; {an(subject.kind)} has none"
    refuse_flags(flags, MODEL_FLAGS, why, subject)


def refuse_collective(flags: Flags, subject: Subject) -> None:
    """Refuse flags that name a collective or roots for a file that states its own.

    Raises:
        UserError: one was given.
    """
    if flags.given(("collective", "root", "roots")):
        raise UserError(
            "-c and --root say what an MSCCL XML file or an MSCCL++ plan is for",
            where=subject.where,
            hint="leave them out: other files say it themselves",
        )


def require_given(*flags: tuple[str, object]) -> None:
    """Require the flags of a problem, where no schedule is named that has its own.

    Raises:
        UserError: one was not given.
    """
    if missing := [name for name, value in flags if value is None]:
        raise UserError(
            f"the following arguments are required: {', '.join(missing)}",
            hint="or the file of a schedule; weft explain also takes a sketch that names both",
        )


def schedule_of(subject: Subject, otherwise: str) -> Schedule:
    """Return the schedule in a file; ``otherwise``: flags that state a problem without one.

    Raises:
        UserError: it is of another kind.
    """
    if subject.kind is not FileKind.SCHEDULE:
        raise UserError(
            f"expected a schedule, got {an(subject.kind)}", where=subject.where, hint=otherwise
        )
    return subject.schedule()


def compared_sizes(args: DiffFlags) -> tuple[int, ...]:
    """Return the message sizes for which ``weft diff`` compares times."""
    if args.size:
        return args.size.powers()
    return parse_size_range(USUAL_SIZES).powers()[:: LIMITS.compared_stride]


def not_whole(subject: Subject, done: str) -> UserError:
    """Return the error for an operation on single files that was requested for a library."""
    return UserError(
        f"a library is not {done} as a whole",
        where=subject.where,
        hint="name one of the files in its folder; `weft show` lists its plans",
    )

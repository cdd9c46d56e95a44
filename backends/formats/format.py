"""The protocol of formats: everything that a verb of the command line needs of one.

A format is a frozen dataclass whose fields are its options, registered under its ``name`` (entry
points ``weft.backends``). :class:`Format` refuses in words what a format cannot do.
:class:`ProgramFormat` is for files that hold a whole program: from ``read``, ``emit`` and
``recognizes`` follows all the rest, so that such a format takes ten lines.

Tools of a format (readers, checkers, interpreters) are imported inside its methods, since each
question needs few of them. Our files are recognized without their formats (:mod:`.recognition`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft.dsl.base.errors import BrokenPlugin, CheckFailed, Missing, PluginFault, UserError, an
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import expect, fault, plugin_of, warn
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.tables import count

from ..check.checks import Check, of_findings, of_report
from ..check.findings import errors, require_good
from ..compile.request import ProvedArtefact, Request, shape
from .listings import program_sheets, program_text
from .recognition import RECOGNIZERS, own_format

if TYPE_CHECKING:
    from weft.dsl.base.units import SizeRange
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.program import Program
    from weft.dsl.nouns.runtime import Target
    from weft.dsl.nouns.topology import Topology

    from ..check.checks import Check
    from ..check.findings import Finding
    from ..execute.execute import Execution
    from .listings import Sheets

DEFAULT = "msccl-xml"
"""The format to which files are compiled where none is named, and in which they are executed."""

WITH_CASTS = "mscclpp-json"
"""The format in which schedules whose switches sum or copy are executed."""

FOR_THREAD_BLOCKS = ("instances", "lanes", "protocol", "passes", "print_after")
"""Lowering flags without effect in formats without thread blocks."""

GOOD = "no wrong address, unmatched message, deadlock, race or broken limit"


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements on an artefact that command-line flags give.

    ``resolve``: the collective of ``-c`` for a number of ranks, or of the name given here; None
    where flags name none. ``rooted``: roots are given, and no collective. ``may_hang``: deadlocks
    are not reported here; a simulation finds them, because they depend on the message size.
    """

    target: str | None = None
    protocol: str | None = None
    in_place: bool = False
    resolve: Callable[[str | None, int], Collective | None] = lambda name, ranks: None
    rooted: bool = False
    may_hang: bool = False


@dataclass(frozen=True, slots=True)
class ExecutionRequest:
    """Execution of an artefact: data types, interleavings, seed, bytes of the message.

    ``given``: names of compilation flags that were given although the input is an artefact
    already. ``collective``: the one to compare with; None: the one that the artefact declares.
    ``steps``: operations to execute at most where a format interprets them one by one, in fewer
    interleavings (2 at least); None: the format's own limit.
    """

    dtypes: tuple[str, ...] = ("float32", "int32")
    interleavings: int = 200
    seed: int = 0
    message_bytes: int | None = None
    given: tuple[str, ...] = ()
    collective: Collective | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """Checks and execution of an artefact: the findings, the collective's name, the ranks."""

    checks: list[Check]
    collective: str
    ranks: int


@dataclass(frozen=True, slots=True)
class ProgramContent:
    """The program in an artefact, found good.

    ``low``, ``high``: the message sizes (bytes) that it is valid for. ``facts``: for its page.
    """

    program: Program
    low: int | None = None
    high: int | None = None
    remarks: tuple[str, ...] = ()
    facts: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class FileTiming:
    """Timing rule of an artefact that holds no program: a function from size and machine to µs.

    ``collective``: None: the artefact does not say, nor for which size it is (0). ``sizes``: the
    message sizes (bytes) that it is for. ``time_us``: µs of a size on a machine.
    """

    collective: Collective | None
    ranks: int
    sizes: tuple[int, ...]
    rule: str
    time_us: Callable[[int, Topology], float]


def executed_if_good(found: Sequence[Finding], execute: Callable[[], Execution]) -> list[Check]:
    """Return the checks of findings, and, if none is an error, of the execution."""
    checks = of_findings(found, "no error found")
    if all(c.ok for c in checks):
        done = execute()
        checks.append(Check("execution", done.ok, done.detail))
    return checks


class Format:
    """A format of artefacts. Verbs that a subclass lacks are refused, naming it and the format."""

    __slots__ = ()

    name: ClassVar[str] = ""
    cites: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    """The kind of its files in ``--json`` (default: the name)."""
    noun: ClassVar[str] = ""
    """A file of it in an error (default: ``NAME file``)."""
    suffix: ClassVar[str] = ".txt"
    """The end of its files' names in a library (``.py``: must be Python, ``.xml``: XML)."""
    several: ClassVar[bool] = False
    """An artefact is several files, and ``-o`` gives the prefix of their names."""
    says_kind: ClassVar[bool] = False
    """Its files are JSON with ``"weft": KIND``."""
    asks_collective: ClassVar[bool] = False
    """Its files need not name their collective: ``-c`` and ``--root`` may."""
    compiled: ClassVar[bool] = False
    """Its files hold a program, which can be compiled."""
    protocols: ClassVar[tuple[str, ...]] = ("Simple", "LL", "LL128")
    """Protocols that its artefacts can express, where they express any."""
    any_buffers: ClassVar[bool] = False
    """One artefact serves callers whose output is their input, and others."""
    thread_blocks: ClassVar[bool] = True
    """Its artefacts are made of thread blocks, so that flags of lowering mean something."""
    peer_access: ClassVar[bool] = False
    """Its artefacts read and write the memory of other GPUs."""
    casts: ClassVar[bool] = False
    """Its artefacts can express sums and copies by switches."""
    no_casts: ClassVar[str] = ""
    """Why they cannot, in a clause."""
    interpreted: ClassVar[bool] = True
    """Its files are executed as they are, and not compiled to another format first."""
    elsewhere: ClassVar[str] = ""
    """The command that runs its files on the hardware, and which hardware, in words."""
    runtime: ClassVar[str] = ""
    """The runtime (``weft run --on``) whose processes execute its files; empty: NumPy."""
    most_executed: ClassVar[int | None] = None
    """Ranks up to which an artefact is executed at all (None: any number, if requested)."""

    def __init_subclass__(cls) -> None:
        """The kind and the noun, where the class does not name them."""
        super().__init_subclass__()
        cls.kind = cls.kind or cls.name
        cls.noun = cls.noun or (f"{cls.name} file" if cls.name else "")

    @classmethod
    def availability(cls) -> str | None:
        """None if it can be used here, else the reason and the installation; cheap."""
        return None

    def lacks(self, done: str, where: str = "") -> UserError:
        """Return the error for something that the format does not do with its files."""
        able = ["checked"] if self.defines("findings") or self.defines("check") else []
        able += ["run"] if self.defines("run") or self.defines("findings", "execute") else []
        able += ["compiled"] if self.compiled and self.defines("held") else []
        listed = ", ".join([*able, "shown"])
        listed = " and ".join(listed.rsplit(", ", 1))
        return UserError(
            f"{an(self.noun)} can be {listed}, not {done}",
            where=where or None,
            hint="name the schedule, algorithm or program it was made from",
        )

    def defines(self, *methods: str) -> bool:
        """Return True if the class defines all of these methods itself."""
        return all(getattr(type(self), name) is not getattr(Format, name) for name in methods)

    # --- files ------------------------------------------------------------------------------------

    def recognizes(self, text: str, data: object) -> bool:
        """Return True if a file is of this format; ``data``: its JSON, None if it is not JSON."""
        if self.name in RECOGNIZERS:
            return RECOGNIZERS[self.name](text, data)
        return self.says_kind and isinstance(data, dict) and data.get("weft") == self.kind

    def read(self, text: str, where: str) -> Any:
        """Return the artefact in a file: well formed, not proved.

        Raises:
            BadFile, or another UserError: it is not well formed, or a name in it is unknown.
        """
        raise self.lacks("read", where)

    def held(self, text: str, where: str, asked: Requirements) -> ProgramContent:
        """Return the program in a file, found good.

        Raises:
            UserError: the format holds none, or flags contradict it.
            CheckFailed: it is wrong.
        """
        raise self.lacks("compiled", where)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        """Return the lines of ``weft check``: the form, then the findings.

        Raises:
            BadFile: it is not well formed.
        """
        found = self.findings(text, where, asked.target)
        return [Check("form", True, self.noun), *of_findings(found, GOOD)]

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        """Return the findings of an artefact, from its text alone."""
        raise self.lacks("checked", where)

    def run(
        self,
        text: str,
        where: str,
        asked: Requirements,
        request: ExecutionRequest,
        tell: ProgressCallback = silent,
    ) -> ExecutionReport:
        """Check an artefact and execute it, for ``weft run``."""
        if not self.defines("findings", "execute"):
            raise self.lacks("run", where)
        if request.given:
            flag = request.given[0].replace("_", "-")
            raise UserError(f"--{flag} says nothing about {an(self.noun)}", where=where)
        wanted = request.collective or self.collective(text, where)
        tell("check")
        checks = executed_if_good(
            self.findings(text, where, asked.target),
            lambda: self.execute(text, where, replace(request, collective=wanted), tell),
        )
        return ExecutionReport(checks, wanted.name or str(wanted.kind), wanted.ranks)

    def require_runtime(self, text: str, where: str) -> None:
        """Refuse a file that is for another runtime than this format's, where runtimes differ.

        Raises:
            UserError: it is.
        """

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        """Execute the artefact on real data and compare with the collective."""
        raise self.lacks("run", where)

    def collective(self, text: str, where: str) -> Collective:
        """Return the collective that an artefact declares; used by :meth:`run` only."""
        raise UserError(
            f"{an(self.noun)} does not state its collective, so that no result can be compared",
            where=where,
        )

    def files(self, text: str, where: str, prefix: str = "") -> dict[str, bytes]:
        """Return the files of an artefact, by what follows the prefix that ``-o`` names; empty
        where it is one file with that text."""
        return {}

    def timing(self, text: str, where: str) -> FileTiming | None:
        """Return how the artefact is timed where it holds no program; None: it is not.

        Raises:
            UserError, CheckFailed: it states no collective, or is wrong.
        """
        return None

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        """Return an artefact as text for people, and its facts for ``--json``."""
        return text.rstrip("\n"), {}

    def sheets(self, text: str, where: str) -> Sheets | None:
        """Return the sheets that ``weft diff`` compares; None: the lines of :meth:`show`."""
        return None

    # --- compiling --------------------------------------------------------------------------------

    def on(self, topology: Topology) -> Self:
        """Return the format for a machine, where artefacts depend on it."""
        return self

    def assumed(self, ranks: int, machine: str | None = None) -> str | None:
        """Return a text on assumptions about the machine, and the flags that replace them.

        ``machine``: the topology that was given to :meth:`on`, if there is one.
        """
        return None

    def refuse_flags(self, given: Sequence[str], where: str) -> None:
        """Refuse flags of lowering (those given) without effect in this format.

        Raises:
            UserError: one was given.
        """
        for flag in () if self.thread_blocks else FOR_THREAD_BLOCKS:
            if flag in given:
                raise UserError(
                    f"--{flag.replace('_', '-')} says nothing about {an(self.noun)}",
                    where=where,
                    hint="it has no thread blocks; leave it out",
                )

    def timed_runtime(self, target: str) -> str | None:
        """Return the runtime whose model times programs of this format; None: without one."""
        return None

    def rounds_us(self, request: Request, topology: Topology, message_bytes: int) -> float | None:
        """Return the µs of an artefact without thread blocks; None: it is timed as a program.

        Raises:
            UserError, CheckFailed: it cannot be made.
        """
        return None

    def require_fit(self, program: Program, target: Target) -> None:
        """Refuse a program that no artefact can hold, as far as that is known without one.

        Raises:
            UserError: it does not fit.
        """

    def sizes_remark(self, program: Program, chunks: int) -> str:
        """Message sizes at which a runtime passes a file over, in words; ``chunks``: what the
        collective has by itself."""
        return ""

    def checked(self, target: str) -> str:
        """Return in words which properties of an artefact were checked for a target."""
        return f"program and {self.name}"

    def emit(self, program: Program, target: Target, sizes: SizeRange | None) -> str:
        """Return the text of the artefact for messages of these sizes (None: the format's default).

        Raises:
            UserError: the format cannot express the program.
        """
        raise self.lacks("written")

    def emit_for(self, request: Request, program: Program) -> str:
        """Return the text of the artefact of a request, where its provenance is in the text.

        Raises:
            UserError: the format cannot express the program.
        """
        assert request.target is not None
        return self.emit(program, request.target, request.sizes)

    def make(self, request: Request, tell: ProgressCallback = silent) -> ProvedArtefact:
        """Compile something to this format; the artefact is judged from its text.

        Raises:
            CheckFailed: a checker rejects the program, or the text.
            UserError: the format cannot express it.
        """
        assert request.program is not None
        assert request.target is not None
        program = request.program()
        tell("emit")
        text = expect(str, self.emit_for(request, program), self, "emit")
        tell("check artefact")
        self._require_good(text, program, request.target.name)
        known = shape(program)
        lowered = (
            f"{count(program.instructions, 'instruction')}, "
            f"{count(program.channels, 'channel')}, "
            f"at most {count(known['thread_blocks'], 'thread block')} per rank"
        )
        collective = program.collective
        facts = {
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
            "to": request.to,
            "target": request.target.name,
            **known,
        }
        check = Check("program", True, "no error found")
        return ProvedArtefact(
            text, program, lowered, self.checked(request.target.name), check, facts
        )

    def _require_good(self, text: str, program: Program, target: str) -> None:
        from ..check.checker import check_program

        if not self.defines("findings"):
            return
        plugin = plugin_of(self)
        try:
            require_good(self.findings(text, "the artefact", target), "artefact")
        except (CheckFailed, UserError) as error:
            if plugin is None or errors(check_program(program, target)):
                raise
            wrong = fault(plugin, f"emitted a wrong file: {error.message}")
            wrong.where = error.where
            raise wrong from None


class ProgramFormat(Format, ABC):
    """A format whose files hold a whole program: :meth:`read` gives a ``Program``."""

    __slots__ = ()

    compiled: ClassVar[bool] = True
    interpreted: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """Refuse a class that writes files which no verb would know again."""
        super().__init_subclass__()
        known = cls.says_kind or cls.name in RECOGNIZERS
        if cls.name and not known and cls.recognizes is Format.recognizes:
            raise TypeError(f"{cls.__name__} lacks recognizes")

    @abstractmethod
    def read(self, text: str, where: str) -> Program:
        """Return the program in a file, not proved; errors as of :meth:`Format.read`."""

    def program(self, text: str, where: str) -> Program:
        """Return the program in a file; the result of another package is checked."""
        from weft.dsl.nouns.program import Program

        return expect(Program, self.read(text, where), self, "read")

    def collective(self, text: str, where: str) -> Collective:
        return self.program(text, where).collective

    def held(self, text: str, where: str, asked: Requirements) -> ProgramContent:
        from ..check.checker import check_program

        program = self.program(text, where)
        require_good(check_program(program), where)
        return ProgramContent(program)

    def check(self, text: str, where: str, asked: Requirements) -> list[Check]:
        from ..check.checker import report_program

        program = self.program(text, where)
        size = f"{program.collective}, {count(program.instructions, 'instruction')}"
        report = report_program(program, asked.target)
        return [Check("form", True, size), *of_report(report, GOOD)]

    def findings(self, text: str, where: str, target: str | None) -> Sequence[Finding]:
        from ..check.checker import check_program

        return check_program(self.program(text, where), target)

    def execute(
        self, text: str, where: str, request: ExecutionRequest, tell: ProgressCallback = silent
    ) -> Execution:
        from ..execute.execute import run_program

        program = self.program(text, where)
        return run_program(
            program, interleavings=request.interleavings, seed=request.seed, tell=tell
        )

    def show(self, text: str, where: str) -> tuple[str, dict[str, Any]]:
        program = self.program(text, where)
        collective = program.collective
        return program_text(program), {
            "name": program.name,
            "instructions": program.instructions,
            "collective": collective.name or str(collective.kind),
            "ranks": collective.ranks,
        }

    def sheets(self, text: str, where: str) -> Sheets | None:
        return program_sheets(self.program(text, where))


def format_named(text: str, origin: str = "--to") -> Format:
    """Return the format of ``name{option=value}``.

    Raises:
        UserError: an unknown name or option. BrokenPlugin: a plug-in that is not a format.
    """
    made = BACKENDS.make(text, origin)
    plugin = plugin_of(made)
    if plugin is not None and not isinstance(made, Format):
        raise BrokenPlugin(
            f"{plugin} is not a format: {type(made).__qualname__} does not derive from "
            f"{Format.__module__}.Format",
            hint=f"fix or uninstall {plugin.author}",
        )
    assert isinstance(made, Format)
    return made


def recognized(text: str, data: object, *, plugins: bool = False) -> Format | None:
    """The format of a file, if one recognizes it: one of ours, or (``plugins``) an outsider's.

    Of ours only the format of the file is loaded. Looking for plug-ins reads the metadata of all
    installed packages (50 ms), so that they are queried only for files that none of ours knows.
    """
    if not plugins:
        own = own_format(text, data)
        return None if own is None else format_named(own)
    for one in _loaded(plugins):
        try:
            if one.recognizes(text, data):
                return one
        except PluginFault as error:
            warn(f"{error.message}; it is passed over", error.__cause__)
    return None


def own_kinds() -> tuple[str, ...]:
    """Kinds of our formats' files that say them in their key ``weft``."""
    return tuple(one.kind for one in _loaded(plugins=False) if one.says_kind)


def of_runtime(runtime: str) -> Format:
    """Return the first format whose files a runtime (``weft run --on``) executes."""
    return next(one for one in _loaded(plugins=False) if one.runtime == runtime)


def _loaded(plugins: bool) -> Iterator[Format]:
    """Formats with default options, ours or those of plug-ins, as far as they can be loaded."""
    for name in BACKENDS.plugins() if plugins else BACKENDS.builtin:
        try:
            yield format_named(name)
        except (UserError, Missing, PluginFault) as error:
            if not plugins:
                raise
            warn(f"{error.message}; the format {name!r} is passed over", error.__cause__)

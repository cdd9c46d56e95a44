"""Commands as functions: ``weft.plan``, ``weft.place``, ``weft.failures`` and others.

Each runs the command of its name in this process, with its options as arguments (``down_rank=3``
for ``--down-rank 3``), and returns an :class:`Answer`. A noun may stand for a file, and sizes are
numbers of bytes or texts such as ``"1MiB"``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from weft.dsl.base.errors import UnknownName, WeftError, WrongType
from weft.dsl.base.integers import plain
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.schedule import write as write_schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.nouns.workload import Workload

from ..cli.flags.shared import SEVERAL, Flags
from ..cli.frame.entry import run_verb
from ..cli.frame.parser import VerbParser, flags_of
from ..cli.output.console import Console, Exit
from .arguments import Machine, Movement, Size

File: TypeAlias = str | PathLike[str]
"""A path, or a name that the command takes in its place (of the catalogue)."""

_UNITS = {"size": "B", "sizes": "B", "solver_memory": "B", "time": "s"}
"""Units of options that are numbers in Python."""


@dataclass(frozen=True, eq=False)
class Answer(Mapping[str, Any]):
    """The answer of a command: a mapping of the keys of ``--json``, and its text.

    Attributes:
        text: what the command prints, or the drawing that it makes.
        notes: (label, text) of each line that it says on the way: what was read and assumed.
        ok: False for a negative answer: files differ, a library's files did not run.
    """

    facts: Mapping[str, Any]
    text: str
    notes: tuple[tuple[str, str], ...]
    ok: bool

    def __getitem__(self, key: str) -> Any:
        return self.facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.facts)

    def __len__(self) -> int:
        return len(self.facts)

    def __repr__(self) -> str:
        drawn = self.facts.get("format")
        return f"<Answer: {drawn}, {len(self.text)} characters>" if drawn else self.text


def plan(
    *workloads: Workload | File,
    topology: Machine | None = None,
    bound: bool = False,
    shift: bool = False,
    effort: float | None = None,
    seed: int | None = None,
    output: File | None = None,
    force: bool = False,
    **options: Any,
) -> Answer:
    """Order a whole job in time, or find schedules for collectives that start together.

    ``bound``: only the bound of these. ``shift``: of several jobs, when each should start.

    Raises:
        UserError: a wrong argument or file. NothingFound: no engine solves some collective.
    """
    _require(workloads, "workload")
    given = {"topology": topology, "bound": bound, "shift": shift, "effort": effort, "seed": seed}
    return _answer("plan", workloads, {**given, "output": output, "force": force, **options})


def place(
    workload: Workload | File,
    topology: Machine,
    axes: Mapping[str, int] | None = None,
    **options: Any,
) -> Answer:
    """Rank all placements of the axes of a job on a machine, the best first.

    ``axes``: names and sizes, the first one fastest, where the workload states none.

    Raises:
        UserError: a wrong argument or file, or axes that do not fit the machine.
    """
    return _answer("place", (workload,), {"topology": topology, "axes": axes, **options})


def failures(
    topology: Machine,
    collective: Movement,
    *,
    size: Size | None = None,
    synth: bool = False,
    **options: Any,
) -> Answer:
    """Rank the links and NICs of a machine by the loss of a collective when one fails.

    ``size``: also times at it. ``synth``: schedules for the worst failures.

    Raises:
        UserError: a wrong argument. NothingFound: no schedule within the effort.
    """
    given = {"topology": topology, "collective": collective, "size": size, "synth": synth}
    return _answer("failures", (), {**given, **options})


def explain(
    what: Schedule | File | None = None,
    *,
    topology: Machine | None = None,
    collective: Movement | None = None,
    sketch: str | None = None,
    size: Size | None = None,
    **options: Any,
) -> Answer:
    """Explain the limits of a schedule, or rules of a sketch that exclude each other, with costs.

    Raises:
        UserError: a wrong argument or file. Infeasible: rules exclude each other.
    """
    given = {"topology": topology, "collective": collective, "sketch": sketch, "size": size}
    return _answer("explain", () if what is None else (what,), {**given, **options})


def deploy(
    library: Library | File, *, output: File | None = None, force: bool = False, **options: Any
) -> Answer:
    """Return settings and launch lines with which a runtime uses a library, and how to prove it.

    ``output``: a folder for them. ``at``: the library's folder on all hosts.

    Raises:
        UserError: a wrong argument, or no library.
    """
    return _answer("deploy", (library,), {"output": output, "force": force, **options})


def verify_run(
    *files: File,
    library: Library | File | None = None,
    topology: Machine | None = None,
    output: File | None = None,
    **options: Any,
) -> Answer:
    """Judge by logs of nccl-tests whether a library's files ran, and how near predictions are.

    ``output``: a file for the machine with the measured numbers.

    Raises:
        UserError: a wrong argument, or a file that is not such a log.
    """
    _require(files, "log of nccl-tests")
    given = {"library": library, "topology": topology, "output": output}
    return _answer("verify-run", files, {**given, **options})


def resynth(library: Library | File, output: File, **options: Any) -> Answer:
    """Tune a library again for a machine that has lost something: ``down_rank=3`` and others.

    Raises:
        UserError: a wrong argument, or no library. NothingFound: no plan is left.
    """
    return _answer("resynth", (library,), {"output": output, **options})


def profile(output: File, on: str = "numpy", ranks: int | None = None, **options: Any) -> Answer:
    """Measure a machine and write its topology to a file, for ``weft.topology(output)``.

    ``on``: where ranks run: ``numpy`` (threads), ``mpi``, ``torch``, ``nccl``.

    Raises:
        UserError: a wrong argument. Missing: the runtime is not installed.
    """
    return _answer("profile", (), {"output": output, "on": on, "ranks": ranks, **options})


def diff(before: Any, after: Any, **options: Any) -> Answer:
    """Compare two nouns or files of one kind; ``ok``: they are equal.

    Raises:
        UserError: a wrong argument, or things of unlike kinds.
    """
    return _answer("diff", (before, after), options)


def show(
    what: Any,
    format: str = "text",
    *,
    topology: Machine | None = None,
    size: Size | None = None,
    **options: Any,
) -> Answer:
    """Print any noun or file, or draw it: ``html``, ``svg``, ``dot``, ``perfetto``; see ``text``.

    ``size``: also times at it, on ``topology`` where that is not in the file.

    Raises:
        UserError: a wrong argument or file, or a format that cannot draw it.
    """
    given = {"format": format, "topology": topology, "size": size, **options}
    if format == "text" or options.get("output") is not None:
        return _answer("show", (what,), given)
    with tempfile.TemporaryDirectory() as folder:
        drawing = Path(folder) / f"drawing.{format}"
        found = _answer("show", (what,), {**given, "output": drawing})
        facts = {key: value for key, value in found.items() if key != "file"}
        return Answer(facts, drawing.read_text("utf-8"), found.notes, found.ok)


# --- running a command ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _AnswerConsole(Console):
    """Console that keeps the output of a command."""

    results: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)

    def result(self, text: str, data: Mapping[str, Any]) -> None:
        self.results.append((text, data))

    def say(self, label: str, text: str) -> None:
        self.said.append((label, text))

    def warn(self, text: str) -> None:
        self.said.append(("Warning", text))


def _require(given: Sequence[Any], what: str) -> None:
    if not given:
        raise WrongType(f"expected a {what}, got none", hint="the first argument is its file")


def _answer(verb: str, given: Sequence[Any], options: Mapping[str, Any]) -> Answer:
    """Run a command with the words that stand for its arguments."""
    flags = flags_of(verb)
    assert isinstance(flags, type)
    usual = {one.name for one in fields(Flags)}
    named = [one for one in fields(flags) if one.metadata["names"] and one.name not in usual]
    known = {one.name: one.metadata for one in named}
    console = _AnswerConsole(quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        words: list[str] = []
        for name, value in options.items():
            if name not in known:
                raise UnknownName(f"argument of weft.{verb.replace('-', '_')}", name, known)
            words += _option(known[name], name, plain(value), folder)
        texts = [_text(one, folder) for one in given]
        words += ["--", *texts] if texts else []
        args = VerbParser(prog=f"weft {verb}").parse_args(words)
        args.verb = verb
        try:
            code = run_verb(args, console)
        except WeftError as error:
            if isinstance(error.where, str) and error.where.startswith(folder):
                error.where = None  # the file of a noun
            raise
    text, facts = console.results[-1] if console.results else ("", {})
    return Answer(facts, text, tuple(console.said), code == Exit.DONE)


def _option(spec: Mapping[str, Any], name: str, value: Any, folder: str) -> Iterator[str]:
    flag = spec["names"][-1]
    if isinstance(value, bool) and spec["spec"].get("action") == "store_true":
        yield from [flag] * value
    elif isinstance(value, list | tuple) and spec["spec"].get("action") in SEVERAL:
        yield from (f"{flag}={_text(one, folder)}" for one in value)
    elif isinstance(value, Mapping):
        yield f"{flag}={','.join(f'{key}={plain(one)}' for key, one in value.items())}"
    elif isinstance(value, int | float) and name in _UNITS:
        yield f"{flag}={value}{_UNITS[name]}"
    elif isinstance(value, tuple) and name in _UNITS:
        yield f"{flag}={':'.join(one if isinstance(one, str) else f'{one}B' for one in value)}"
    elif value is not None:
        yield f"{flag}={_text(value, folder)}"


def _text(value: Any, folder: str) -> str:
    """Return the text of an argument; a noun is written to a file."""
    value = plain(value)
    if isinstance(value, str | PathLike | int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list | tuple | range):
        return ",".join(_text(one, folder) for one in value)
    place = Path(tempfile.mkdtemp(dir=folder)) / "noun.json"
    if isinstance(value, Schedule):
        write_schedule(place, value)
    elif isinstance(value, Library):
        place = place.with_suffix("")
        value.write(place)
    elif isinstance(value, Topology | Workload | Collective):
        place.write_text(json.dumps(value.to_json()), "utf-8")
    else:
        raise WrongType(
            f"expected a path, machine, collective, schedule, workload or library, got "
            f"{type(value).__name__}",
        )
    return str(place)

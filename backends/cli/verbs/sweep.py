"""``weft sweep``: many searches as one list of jobs, here or on a cluster."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.dsl.base.errors import BadFile, UnknownName, UserError, WeftError
from weft.dsl.base.files import Fields, parse_toml, read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import require_data
from weft.dsl.base.tables import count, table
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Kind

from ...jobs.cluster import cluster
from ...jobs.fingerprint import fingerprint
from ...jobs.local import local
from ...sweep.cache import Cache, default_folder
from ...sweep.folder import opened
from ...sweep.question import Label, SketchSource, SweepQuestion
from ...sweep.run import run as sweep
from ..flags.search import SweepFlags, SynthFlags
from ..flags.shared import OBJECTIVES
from ..flags.values import (
    DEFAULTS,
    LIMITS,
    amount,
    ranks,
    seconds,
    several_sizes,
    split_arguments,
    whole,
)
from ..inputs.inputs import canonical, is_file, make_problem, read_problem
from ..inputs.machines import read_topology
from ..inputs.sketches import read_sketch, translated
from ..output.console import Console, Exit, columns
from ..output.progress import LiveLine, interruptible, live_line

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.topology import Topology

    from ...jobs.executor import Executor
    from ...sweep.question import SweepQuestion
    from ...sweep.run import SweepResult


ANSWERS = ("optimal", "feasible", "infeasible", "nothing", "refused")


def run(args: SweepFlags, console: Console) -> int:
    if args.cluster and args.jobs:
        raise UserError(
            "--jobs is for this machine",
            hint="the workers of a cluster say how many jobs they take: dask worker --nworkers N",
        )
    plan = plan_of(args)
    questions = questions_of(plan, console)
    console.say("Read", f"{count(len(questions), 'job')}, effort {plan.effort:g} each")
    # Loaded after the arguments are checked: they take a moment.
    code = fingerprint()
    keys = frozenset(question.key(code) for question in questions)
    progress = SweepProgress(console)
    limit = args.deadline or LIMITS.sweep_seconds * plan.effort + 60

    def executor() -> Executor:
        if args.cluster:
            return cluster(args.cluster, threads=plan.threads, code=code)
        return local(args.jobs, threads=plan.threads, code=code)

    opening = opened(Path(args.output), keys, force=args.force) if args.output else nullcontext()
    with interruptible(progress, console), opening as folder, live_line(progress, console):
        result = sweep(
            questions,
            code,
            executor,
            progress,
            deadline=limit,
            cache=_cache(args, code),
            folder=folder,
        )
    with interruptible(progress, console, finishing=True):
        return _tell(args, result, progress, console)


def _cache(args: SweepFlags, code: str) -> Cache | None:
    if args.no_cache:
        if args.cache:
            raise UserError("--cache and --no-cache exclude each other")
        return None
    folder = Path(args.cache) if args.cache else default_folder()
    if folder.exists() and not folder.is_dir():
        raise UserError("expected a folder for the cache, got a file", where=str(folder))
    return Cache(folder, code)


# --- words ----------------------------------------------------------------------------------------


def _tell(args: SweepFlags, result: SweepResult, progress: SweepProgress, console: Console) -> int:
    answered = [row for row in result.rows if row["status"] in ANSWERS]
    if result.pending and not answered:
        if not args.output:
            raise KeyboardInterrupt
        told = WeftError(
            "interrupted before any job had an answer",
            where=args.output,
            hint="the same command goes on",
        )
        console.fail(told.render(), {"status": "interrupted", "error": told.to_json()})
        return Exit.INTERRUPTED
    known = [
        f"{result.cached} from the cache" if result.cached else "",
        f"{result.kept} kept" if result.kept else "",
    ]
    words = ", ".join(
        filter(None, [f"{count(result.ran, 'job')} in {progress.seconds:.1f}s", *known])
    )
    console.say("Ran", words)
    if args.output:
        console.say("Wrote", args.output)
    whole = len(answered) == len(result.rows)
    seconds = [result.seconds.get(row["key"]) for row in result.rows]
    console.result(
        _text(result),
        {
            "status": "interrupted" if result.pending else "ok" if whole else "incomplete",
            "jobs": [
                {**row, "seconds": s and round(s, 3)}
                for row, s in zip(result.rows, seconds, strict=True)
            ],
            "ran": result.ran,
            "cached": result.cached,
            "kept": result.kept,
            "pending": result.pending,
            "output": args.output,
        },
    )
    return _ending(args, result, len(answered), console)


def _ending(args: SweepFlags, result: SweepResult, answered: int, console: Console) -> int:
    if result.pending:
        lost = args.no_cache and not args.output
        then = "nothing is kept" if lost else "the same command goes on"
        jobs = count(len(result.rows), "job")
        console.warn(f"stopped: {result.pending} of {jobs} not run; {then}")
    for status in ("late", "lost", "broken", "unavailable"):
        rows = [row for row in result.rows if row["status"] == status]
        if rows:
            console.warn(f"{count(len(rows), 'job')} {status}: {rows[0]['why']}")
    if any(row["status"] == "broken" for row in result.rows):
        return Exit.BUG
    return Exit.DONE if answered + result.pending == len(result.rows) else Exit.NOTHING_FOUND


def _text(result: SweepResult) -> str:
    rows = result.rows
    unit = "GB/s" if rows[0]["objective"] == "bandwidth" else "µs"
    shown: dict[str, list[object]] = {
        "topology": [r["topology"] for r in rows],
        "collective": [" ".join(filter(None, (r["collective"], r.get("more")))) for r in rows],
        "sketch": [r["sketch"] or "-" for r in rows],
        "engine": [r["engine"] for r in rows],
        "size": [format_bytes(r["bytes"]) if r["bytes"] else "-" for r in rows],
        "seed": [r["seed"] for r in rows],
        "status": [r["status"] for r in rows],
        unit: [r["value"] for r in rows],
        f"bound {unit}": [r["bound"] for r in rows],
        "gap": [None if r["gap"] is None else f"{r['gap']:.2%}" for r in rows],
        "points": [len(r["points"]) for r in rows],
        "best": [_best(r, rows) for r in rows],
        "why": [r["why"] for r in rows],
    }
    idle = [
        name
        for name in ("sketch", "size", "seed", "best", unit, f"bound {unit}", "why")
        if len({str(x) for x in shown[name]}) == 1
        and (name == "seed" or str(shown[name][0]) in ("-", "None", ""))
    ]
    kept = {name: values for name, values in shown.items() if name not in idle}
    return table(tuple(kept), zip(*kept.values(), strict=True), width=columns())


def _best(row: dict[str, Any], rows: tuple[dict[str, Any], ...]) -> str:
    """Return ``best`` for the best row of several with the same problem; else nothing."""
    if row["value"] is None:
        return ""
    same = [r["value"] for r in rows if r["value"] is not None and _asked(r) == _asked(row)]
    most = max if row["objective"] == "bandwidth" else min
    return "best" if len(same) > 1 and row["value"] == most(same) else ""


def _asked(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row.get(key) for key in ("topology", "collective", "bytes", "more"))


class SweepProgress(LiveLine):
    """Display of progress, a :class:`~weft.backends.sweep.run.Watcher`; Ctrl-C stops the sweep."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._jobs = self._known = self._ended = self._begun = 0
        self._states: Counter[str] = Counter()

    def begins(self, jobs: int, known: int) -> None:
        """Record the number of jobs and of known answers, as :class:`Watcher` defines."""
        self._jobs, self._known, self._started = jobs, known, time.monotonic()

    def started(self, question: SweepQuestion, where: str) -> None:
        """Record the start of a job, as :class:`Watcher` defines."""
        self._begun += 1
        self._console.detail(f"  {self.seconds:6.1f}s  starts {question.label.stem()} on {where}")

    def ended(self, question: SweepQuestion, row: dict[str, Any], seconds: float) -> None:
        """Record the end of a job, as :class:`Watcher` defines."""
        self._ended += 1
        self._states[row["status"]] += 1
        what = f"{row['status']:<10} {question.label.stem()} in {seconds:.1f}s"
        self._console.detail(f"  {self.seconds:6.1f}s  {what}")

    def warn(self, text: str) -> None:
        """Print a warning, as :class:`Watcher` defines."""
        self._console.warn(text)

    def line(self) -> str:
        """Return the line ``Sweeping  37 of 200 jobs (12 known)  25 optimal  about 40s left``."""
        done = self._known + self._ended
        states = "  ".join(f"{n} {state}" for state, n in self._states.most_common())
        left = self._jobs - done
        about = f"  about {self.seconds / self._ended * left:.0f}s left" if self._ended else ""
        ending = "  (stopping)" if self.stopped else about
        return (
            f"Sweeping  {done} of {count(self._jobs, 'job')} ({self._known} known)  "
            f"{states}{ending}"
        )


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One job, with its parameters as the texts that were given."""

    topology: str
    collective: str
    sketch: str = ""
    engine: str = ""
    bytes: int | None = None
    seed: int = 0
    root: str = ""
    roots: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """All jobs of a sweep, and their common settings."""

    settings: tuple[Setting, ...]
    objective: str
    effort: float
    seconds: float | None
    threads: int


def plan_of(args: SweepFlags) -> SweepPlan:
    """Return the jobs that a command line states; flags replace the values of the file.

    Raises:
        UserError: the file is wrong, something is missing, or nothing is left.
    """
    file = _read(args.file) if args.file else _File()
    flags = {
        "topologies": args.topology,
        "collectives": args.collective,
        "sketches": args.sketch,
        "engines": args.engine,
        "sizes": tuple(sorted({size for some in args.size or () for size in some})),
        "seeds": args.seed,
    }
    axes = {**file.axes, **{name: values for name, values in flags.items() if values}}
    missing = [
        flag
        for name, flag in (("topologies", "-t"), ("collectives", "-c"))
        if not axes.get(name) and not file.jobs
    ]
    if missing:
        raise UserError(
            f"the following arguments are required: {', '.join(missing)}",
            hint="or a file that lists them",
        )
    product = list(_product(axes))
    settings = [
        one
        for one in product
        if not any(
            all(getattr(one, name) in values for name, values in rule.items())
            for rule in file.exclude
        )
    ]
    settings = list(dict.fromkeys([*settings, *(_completed(job, axes) for job in file.jobs)]))
    if not settings:
        raise UserError("expected a job or more, got none", hint="exclude fewer")
    usual = "time" if all(s.bytes is not None for s in settings) else "frontier"
    objective = args.objective or file.objective or usual
    if objective == "time" and any(s.bytes is None for s in settings):
        raise UserError("the objective time needs message sizes", hint="--size 1KiB:1GiB")
    return SweepPlan(
        tuple(settings),
        objective,
        args.effort or file.effort or DEFAULTS.effort,
        args.time or file.seconds or None,
        args.threads or file.threads or 2,
    )


def _product(axes: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield every combination, the topologies in the outer loop."""
    parts: list[Sequence[Any]] = [
        axes.get(name) or default
        for name, default in (
            ("topologies", ()),
            ("collectives", ()),
            ("sketches", ("",)),
            ("engines", ("",)),
            ("sizes", (None,)),
            ("seeds", (0,)),
        )
    ]
    jobs = math.prod(map(len, parts))
    if jobs > LIMITS.sweep_jobs:
        raise UserError(f"{jobs} jobs", hint=f"at most {LIMITS.sweep_jobs} are done in one sweep")
    return (Setting(*one) for one in itertools.product(*parts))


def _completed(job: Mapping[str, Any], axes: Mapping[str, Any]) -> Setting:
    """Return a job of the file; missing keys are taken from the sweep where it has one value."""
    given = dict(job)
    for name, axis in (
        ("topology", "topologies"),
        ("collective", "collectives"),
        ("engine", "engines"),
        ("bytes", "sizes"),
    ):
        values: Sequence[Any] = axes.get(axis) or ()
        if name not in given and len(values) == 1:
            given[name] = values[0]
    lacks = [name for name in ("topology", "collective") if name not in given]
    if lacks:
        raise UserError(f"a job without {' and '.join(lacks)}", hint="name it in its [[job]]")
    return Setting(**given)


# --- the file -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    axes: dict[str, Any] = field(default_factory=dict)
    exclude: tuple[Mapping[str, Any], ...] = ()
    jobs: tuple[Mapping[str, Any], ...] = ()
    objective: str = ""
    effort: float = 0.0
    seconds: float = 0.0
    threads: int = 0


def _read(path: str) -> _File:
    """Read the file of a sweep; every key is known, or an error suggests the right one."""
    where = "<stdin>" if path == "-" else path
    fields = Fields(parse_toml(read_text(path), where), where)
    axes: dict[str, Any] = {
        name: _texts(fields.get(name, list, []), name, where)
        for name in ("topologies", "collectives", "sketches", "engines")
    }
    sizes = _texts(fields.get("sizes", list, []), "sizes", where)
    axes["sizes"] = tuple(
        dict.fromkeys(x for text in sizes for x in _at(where, several_sizes, text))
    )
    axes["seeds"] = tuple(_at(where, whole(0), str(x)) for x in fields.get("seeds", list, []))
    objective = fields.get("objective", str, "")
    if objective and objective not in OBJECTIVES:
        raise UnknownName("objective", objective, OBJECTIVES, where=where)
    effort, cut_off = fields.get("effort", (int, float), None), fields.get("time", str, "")
    found = _File(
        axes,
        tuple(_rule(x, where) for x in fields.get("exclude", list, [])),
        tuple(_job(x, where) for x in fields.get("job", list, [])),
        objective,
        _at(where, amount, str(effort)) if effort is not None else 0.0,
        _at(where, seconds, cut_off) if cut_off else 0.0,
        fields.get("threads", int, 0),
    )
    fields.finish(ignore=())
    return found


def _texts(values: list[Any], name: str, where: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise BadFile(f"{name!r} must be a list of texts", where=where)
    for value in values:
        require_data(value, where, "it with -t, -c, -s or -e")
    return tuple(values)


def _rule(data: Any, where: str) -> Mapping[str, Any]:
    fields = Fields(data, f"{where}: exclude")
    rule: dict[str, Any] = {}
    for name in ("topology", "collective", "sketch", "engine", "size"):
        value = fields.get(name, (str, list), None) if name in data else None
        if value is None:
            continue
        texts = _texts(value if isinstance(value, list) else [value], name, where)
        if name == "size":
            rule["bytes"] = tuple(x for text in texts for x in _at(where, several_sizes, text))
        else:
            rule[name] = texts
    fields.finish(ignore=())
    if not rule:
        raise BadFile("it excludes everything", where=f"{where}: exclude")
    return rule


def _job(data: Any, where: str) -> Mapping[str, Any]:
    fields = Fields(data, f"{where}: job")
    job: dict[str, Any] = {}
    for name in ("topology", "collective", "sketch", "engine", "roots", "group"):
        if value := fields.get(name, str, ""):
            (job[name],) = _texts([value], name, where)
    root = fields.get("root", (int, str), "")
    if root != "":
        job["root"] = str(root)
    if size := fields.get("size", str, ""):
        found = _at(where, several_sizes, size)
        if len(found) != 1:
            raise BadFile("a job has one size", where=f"{where}: job")
        job["bytes"] = found[0]
    if seed := fields.get("seed", int, 0):
        job["seed"] = _at(where, whole(0), str(seed))
    fields.finish(ignore=())
    return job


def _at(where: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except UserError as error:
        error.where = error.where or where
        raise


# --- requests -------------------------------------------------------------------------------------


def questions_of(plan: SweepPlan, console: Console) -> list[SweepQuestion]:
    """Return the questions of all jobs; names and files are read here only.

    A combination that makes no sense (a sketch for another machine, a root that is not there) is
    a question too, with the reason why it is refused.

    Raises:
        UserError: a name is unknown, or a file wrong, in every combination.
    """
    for text in dict.fromkeys(s.topology for s in plan.settings):
        if text == "-":
            raise UserError("a sweep reads its machines more than once", hint="name a file")
        read_topology(text)
    for text in dict.fromkeys(s.collective for s in plan.settings):
        if not is_file(text) and canonical(text) not in set(Kind):
            raise UnknownName("collective", text, Kind)
    for text in dict.fromkeys(s.sketch for s in plan.settings if s.sketch):
        source = find_sketch(split_arguments(text)[0])
        if not source.text.lstrip().startswith("{"):
            parse(source.text, source.name)
    for text in dict.fromkeys(s.engine for s in plan.settings if s.engine):
        ENGINES.make(text, "--engine")
    held: dict[Setting, tuple[Topology, Collective]] = {}
    return [_question(one, plan, held, console) for one in plan.settings]


def _question(
    one: Setting,
    plan: SweepPlan,
    held: dict[Setting, tuple[Topology, Collective]],
    console: Console,
) -> SweepQuestion:
    more = ",".join(f"{k}={v}" for k in ("root", "roots", "group") if (v := getattr(one, k)))
    label = Label(
        one.topology,
        one.collective,
        one.sketch,
        one.engine or "portfolio",
        one.bytes,
        plan.objective,
        one.seed,
        more,
    )
    count = None
    try:
        args = SynthFlags(
            topology=one.topology,
            collective=one.collective,
            sketch=one.sketch or None,
            group=ranks(one.group) if one.group else None,
            root=ranks(one.root) if one.root else None,
            roots=ranks(one.roots) if one.roots else None,
            objective=plan.objective,
            size=SizeRange(one.bytes, one.bytes) if one.bytes else None,
        )
        plain = replace(one, engine="", bytes=None, seed=0)
        if plain not in held:
            held[plain] = read_problem(args, args.sketch)
        topology, collective = held[plain]
        count = topology.ranks
        sketch, text = None, None
        if one.sketch:
            text, sketch = _sketch(one.sketch, topology, collective)
            if not one.engine and sketch.engine:
                label = replace(label, engine=sketch.engine)
        problem = make_problem(args, topology, collective, sketch)
        return SweepQuestion.of(
            label,
            problem,
            text,
            label.engine,
            effort=plan.effort,
            seconds=plan.seconds,
            threads=plan.threads,
        )
    except UserError as error:
        console.detail(f"  refused {label.stem()}: {error.message}")
        return SweepQuestion.none(label, count, plan.effort, error.message)


def _sketch(text: str, topology: Topology, collective: Collective) -> tuple[SketchSource, Any]:
    """Return a sketch as a text in weft's language, and its rules on a machine."""
    name, arguments = split_arguments(text)
    source = find_sketch(name)
    found = source.text
    if found.lstrip().startswith("{"):
        found = translated(found, source.name, topology, str(collective.kind)).text
    rules = read_sketch(text, topology, collective, Console(quiet=True))
    return SketchSource(source.name, found, tuple(sorted(arguments.items()))), rules

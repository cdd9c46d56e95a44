"""Jobs of a sweep, from flags and a TOML file, and the questions they become."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from weft.dsl.base.errors import BadFile, UnknownName, UserError
from weft.dsl.base.files import Fields, parse_toml, read_text
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.spec import require_data
from weft.dsl.base.units import SizeRange
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import Kind

from ...sweep.question import Label, SketchSource, SweepQuestion
from ..flags.search import SweepFlags, SynthFlags
from ..flags.shared import EFFORT, OBJECTIVES
from ..flags.values import amount, ranks, seconds, several_sizes, split_arguments, whole
from ..inputs.inputs import canonical, is_file, make_problem, read_problem
from ..inputs.machines import read_topology
from ..inputs.sketches import read_sketch, translated
from ..output.console import Console

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.topology import Topology


T = TypeVar("T")

MOST = 100_000
"""Largest number of jobs; a longer list is taken for a mistake."""


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
        raise UserError("no job is left", hint="what is excluded?")
    usual = "time" if all(s.bytes is not None for s in settings) else "frontier"
    objective = args.objective or file.objective or usual
    if objective == "time" and any(s.bytes is None for s in settings):
        raise UserError("the objective time needs message sizes", hint="--size 1KiB:1GiB")
    return SweepPlan(
        tuple(settings),
        objective,
        args.effort or file.effort or EFFORT,
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
    if jobs > MOST:
        raise UserError(f"{jobs} jobs", hint=f"at most {MOST} are done in one sweep")
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
        UserError: a name is unknown, or a file wrong, whatever it is combined with.
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

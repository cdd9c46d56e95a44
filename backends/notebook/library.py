"""``weft.tune``: a library of plans, made by processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import check_replaceable, write_folder
from weft.dsl.base.integers import integer
from weft.dsl.base.registry import ENGINES
from weft.dsl.language.load import find_sketch
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.topology import Topology

from ..cli.flags.values import split_arguments
from ..deploy.settings import XML, machine_loader, machine_target
from ..jobs.executor import Executor
from ..jobs.local import local
from ..report.html.library_page import REPORT, library_html
from ..tune.artefacts import Wanted, require_expressible, require_formats
from ..tune.asks import Named
from ..tune.folder import files_in, texts_of
from ..tune.manifest import stem_of
from ..tune.options import TuneOptions, provenance, timing_of
from ..tune.tune import tune as tune_one
from .arguments import (
    Machine,
    Movement,
    Size,
    collective_of,
    machine_of,
    positive,
    range_of,
    seconds_of,
)


def tune(
    topology: Machine,
    collectives: Movement | Iterable[Movement],
    sizes: Size | Iterable[Size] = "1KiB:1GiB",
    *,
    effort: float = 3.0,
    time: float | str | None = None,
    seed: int = 0,
    within: float = 0.03,
    to: str | Sequence[str] | None = None,
    target: str | None = None,
    engines: str | Sequence[str] = (),
    sketches: Sequence[str] = (),
    jobs: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    tell: Callable[[str, str], None] = lambda *_: None,
) -> Library:
    """Return the best plan for every message size, as ``weft tune`` does; its files are with it.

    ``effort`` and ``time`` are of each question to an engine; ``within``: a plan may be so much
    slower than the best at a size, so that fewer plans do. ``to``: formats of the plans;
    ``target``: the runtime of MSCCL XML; by default the best that is built for the machine's GPUs.
    ``jobs``: processes. ``output``: also write the folder; ``force``: replace the library there.
    ``tell`` is called with a label and a text for each finished step.

    Raises:
        UserError: a wrong argument, or a folder that holds files of others.
        NothingFound: no engine has a schedule.
    """
    machine = machine_of(topology)
    found = _asked(collectives, machine)
    engines = [engines] if isinstance(engines, str) else engines
    for text in engines:
        ENGINES.make(text, "engines")
    options = TuneOptions(
        range_of(sizes),
        _wanted([to] if isinstance(to, str) else to, target, machine, found),
        positive(within, "within", "a share such as 0.03, for 3 %", zero=True),
        positive(effort, "effort", "a number, 3"),
        seconds_of(time),
        integer(seed, "seed"),
        engines=tuple(engines),
        sketches=tuple(_sketch(text) for text in sketches),
    )
    if output is not None:
        output, known = str(output), files_in(str(output))
        replaces = known | {REPORT} if known else known
        check_replaceable(Path(output), output, force=force, replaces=replaces)
    with local(None if jobs is None else integer(jobs, "jobs")) as pool:
        made = [tune_one(machine, one, options, partial(_answers, pool), tell) for one in found]
    library = Library(
        machine.name,
        machine,
        options.sizes.low,
        options.sizes.high,
        timing_of(options),
        tuple(one.tuned for one in made),
        provenance(options, sketches),
    )
    files = texts_of(library, [one.files for one in made])
    files[REPORT] = library_html(library, files)
    if output is not None:
        write_folder(str(output), files, force=force, replaces={*replaces, REPORT})
    return replace(library, files=files)


def _asked(collectives: Movement | Iterable[Movement], machine: Topology) -> list[Collective]:
    several = isinstance(collectives, Iterable) and not isinstance(collectives, str)
    asked: Any = collectives if several else [collectives]
    found = [collective_of(one, machine.ranks) for one in asked]
    if len(set(map(stem_of, found))) < len(found) or not found:
        raise UserError("collectives must be given, and each once")
    return found


def _wanted(
    formats: Sequence[str] | None,
    target: str | None,
    machine: Topology,
    asked: Sequence[Collective],
) -> Wanted:
    """Return the wanted files; the runtime is by default built for the machine's GPUs."""
    if formats is None:
        formats = [XML if target else machine_loader(machine).format]
    wanted = Wanted(require_formats(formats), target or machine_target(machine))
    for one in asked:
        require_expressible(wanted, one)
    return wanted


def _sketch(text: str) -> Named:
    name, values = split_arguments(text)
    return Named(name, find_sketch(name).text, tuple(values.items()))


def _answers(pool: Executor, _: str, function: str, arguments: Sequence[Any]) -> list[Any]:
    return [answer.get() for answer in pool.answers(function, arguments)]

"""``weft tune``: the best plan for every message size, as a library of checked files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import check_replaceable, write_folder
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import ENGINES
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.library import Library
from weft.dsl.nouns.runtime import LOADERS

from ...deploy.settings import XML, fitting, is_amd, machine_loader, machine_target
from ...jobs.job import Ending
from ...jobs.local import local
from ...report.back_ends import UNKNOWN_GPUS
from ...report.html.library_page import REPORT, library_html
from ...report.model_numbers import assumed_json, assumed_text
from ...tune.artefacts import Wanted, require_expressible, require_formats
from ...tune.asks import Named
from ...tune.folder import files_in, texts_of
from ...tune.library_model import library_model
from ...tune.manifest import TuneResult, stem_of
from ...tune.measure import Measuring
from ...tune.options import TuneOptions, provenance, timing_of
from ...tune.timing import Interrupted
from ...tune.tune import tune
from ..flags.search import PLACES, TuneFlags, TuningFlags
from ..flags.shared import DownFlags, ProblemFlags
from ..flags.values import split_arguments
from ..inputs.inputs import read_problem, takes_root
from ..inputs.libraries import assumed_of, library_facts, recipes, tables
from ..inputs.machines import machine_line
from ..inputs.models import chosen_model, timed_machine
from ..output.console import Console, Exit
from ..output.outputs import require_writable
from ..output.progress import interruptible, live_line
from ..output.stages import StageProgress

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.topology import Topology

    from ...jobs.executor import Executor, Step


def run(args: TuneFlags, console: Console) -> int:
    check_library_output(args)
    topology, collectives = _read(args, console)
    topology = timed_machine(topology, args)
    options = options_of(args, topology, collectives)
    _tell_target(args, options, topology, console)
    asked = ((one, options) for one in collectives)
    made, pool = tuned(topology, asked, len(collectives), args.jobs, console)
    library = Library(
        topology.name,
        topology,
        args.sizes.low,
        args.sizes.high,
        timing_of(options),
        tuple(m.tuned for m in made),
        provenance(options, args.sketch),
    )
    return finish(library, [m.files for m in made], args, console, pool)


def tuned(
    topology: Topology,
    asked: Iterable[tuple[Collective, TuneOptions]],
    expected: int,
    jobs: int | None,
    console: Console,
) -> tuple[list[TuneResult], TuningPool]:
    """Return the results of collectives, fewer where interrupted, and the pool that ran the jobs.

    Raises:
        Interrupted: before the first result.
    """
    made: list[TuneResult] = []
    with TuningPool(console, jobs, "Tuning") as pool:
        for one, options in asked:
            pool.about = one.name or str(one.kind)
            try:
                made.append(tune(topology, one, options, pool.jobs, console.say, pool.tell))
            except Interrupted:
                if not made:
                    raise
            if pool.stopped:
                break
    if len(made) < expected:
        console.warn(f"interrupted: {count(expected - len(made), 'collective')} left out")
    return made, pool


@dataclass(frozen=True)
class TunedProblemFlags(DownFlags, ProblemFlags):
    """Problem flags of one of the collectives."""


def _read(args: TuneFlags, console: Console) -> tuple[Topology, list[Collective]]:
    found = []
    texts = list(dict.fromkeys(args.collective))
    for text in texts:
        # Roots apply to the collectives that have any; with none of these, they are an error.
        for_others = not takes_root(text) and any(map(takes_root, texts))
        asked = TunedProblemFlags(
            topology=args.topology,
            group=args.group,
            collective=text,
            root=None if for_others else args.root,
            roots=None if for_others else args.roots,
            down=args.down,
            down_nic=args.down_nic,
            down_rank=args.down_rank,
        )
        topology, collective = read_problem(asked)
        found.append(collective)
    if len(set(map(stem_of, found))) < len(found):
        raise UserError("two collectives have one name", where="-c", hint="rename one of them")
    console.say("Read", f"{machine_line(topology)}; {', '.join(map(str, found))}")
    return topology, found


def options_of(
    args: TuningFlags, topology: Topology, collectives: Sequence[Collective]
) -> TuneOptions:
    """Return the options of tuning that the flags state.

    Raises:
        UserError: unknown engines, formats or sketches, a sketch that does not fit, or files that
            no runtime takes.
    """
    for text in args.engine:
        ENGINES.make(text, "--engine")
    measuring = Measuring(args.measure) if args.measure else None
    usual = XML if args.target else machine_loader(topology).format
    usual = measuring.format if measuring else usual
    formats = require_formats(_formats(usual if args.to is None else args.to))
    assert args.placement is not None
    wanted = Wanted(formats, args.target or machine_target(topology), PLACES[args.placement])
    for one in collectives if measuring is None else ():
        require_expressible(wanted, one)
    for protocol in args.protocols:
        if name := wanted.without(protocol):
            told = f"files of {name} have no {protocol}"
            raise UserError(told, where="--protocols", hint="Simple,LL")
    if (args.model or args.timing) and measuring:
        raise UserError("--model is for simulation, and --measure runs schedules")
    named = tuple(_sketch(text, topology) for text in args.sketch)
    return TuneOptions(
        args.sizes if isinstance(args, TuneFlags) else SizeRange(1, 1),
        wanted,
        args.within,
        args.effort,
        args.time,
        args.seed,
        args.protocols,
        tuple(args.engine),
        named,
        measuring=measuring,
        model=chosen_model(args).name,
    )


def _tell_target(
    args: TuneFlags, options: TuneOptions, topology: Topology, console: Console
) -> None:
    """Say for which runtime the files are where no flag names it, and which others fit; warn where
    it is not built for the machine's GPUs."""
    wanted, family, fit = options.wanted, topology.timing.family, fitting(topology)
    made = [x for x in LOADERS.values() if x.format in wanted.names]
    chosen = next((x for x in made if x.format != XML or x.name == wanted.runtime), None)
    if chosen is None:
        return
    others = ", ".join(x.flag for x in fit if x is not chosen)
    if (args.target if chosen.format == XML else args.to) is None:
        why = f"for {family}" if chosen.built(family, is_amd(topology)) else UNKNOWN_GPUS
        also = f"; {others} {'fits' if ',' not in others else 'fit'} too" if others else ""
        console.say("Chosen", f"{chosen.flag}: {chosen.title}, {why}{also}")
    if chosen.built(family, is_amd(topology)) is False:
        also = f"; instead: {others}" if others else ""
        why_not = chosen.why_not_on(family, is_amd(topology))
        told = f"{chosen.name} is not known to run on {family or 'these GPUs'}"
        console.warn(f"{told}: {why_not}{also}")


def _formats(text: str) -> list[str]:
    """Split ``msccl-xml,mpi`` at commas; those inside braces belong to options."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    return [word.strip() for word in (*found, text[start:]) if word.strip()]


def _sketch(text: str, topology: Topology) -> Named:
    from ..inputs.sketches import text_on_machine  # Lark takes 100 ms to load

    name, arguments = split_arguments(text)
    return Named(name, text_on_machine(name, arguments, topology), tuple(arguments.items()))


def finish(
    library: Library,
    files: Sequence[Any],
    args: TuningFlags,
    console: Console,
    pool: TuningPool,
    more: str = "",
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Write the folder, print the table and ``more``; return the exit code.

    One Ctrl-C keeps the plans found so far.
    """
    taken = pool.seconds
    plans = sum(len(t.plans) for t in library.tuned)
    with interruptible(pool, console, finishing=True):
        texts = texts_of(library, files)
        texts[REPORT] = library_html(library, texts)
        console.say("Tuned", f"{count(plans, 'plan')} in {taken:.1f}s, each checked and executed")
        model = library_model(library)
        if told := assumed_of(library):
            console.say("Assumed", told)
            console.detail(assumed_text(model))
        console.detail(recipes(library))
        if args.output:
            write_folder(args.output, texts, force=args.force, replaces=replaceable(args.output))
            console.say("Wrote", f"{len(texts)} files in {args.output}")
            console.say(
                "Next", f"weft deploy {args.output}: what makes a runtime use it, and proof"
            )
        else:
            console.say("Hint", "nothing was written: -o FOLDER keeps the library")
        console.result(
            "\n\n".join(filter(None, (tables(library), more))),
            {
                "status": "ok",
                **library_facts(library),
                **assumed_json(model),
                "seconds": round(taken, 3),
                "file": args.output,
                **(facts or {}),
            },
        )
    return Exit.DONE


class TuningPool:
    """TuningPool of processes for the jobs of tuning, with a progress line.

    Ctrl-C ends the current round; its results are raced and written. A second one aborts.
    """

    def __init__(self, console: Console, workers: int | None, word: str) -> None:
        self._console, self._workers, self._word = console, workers, word
        self._stack = ExitStack()
        self._started = time.monotonic()
        self._pool: Executor | None = None
        self._stopping = False
        self.stopped = False
        self.about = ""

    @property
    def seconds(self) -> float:
        """Return the wall time since the start, in seconds."""
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        self._stages = StageProgress(self._console, self._word)
        self._pool = self._stack.enter_context(local(self._workers))
        self._stack.enter_context(live_line(self._stages, self._console))
        self._stack.enter_context(interruptible(self, self._console))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def stop(self) -> None:
        """Request the end of the current round."""
        self.stopped = self._stopping = True

    def tell(self, text: str) -> None:
        """Show a progress message of measuring ranks."""
        self._stages(f"{self.about}: {text}")

    def jobs(self, label: str, function: str, arguments: Sequence[Any]) -> list[Any]:
        """Run jobs; see :data:`weft.backends.tune.race.MapJobs`."""
        assert self._pool is not None
        what = f"{self.about}: {label}"
        self._stages(f"{what} 0 of {len(arguments)}")

        def progress(step: Step) -> None:
            self._stages(f"{what} {step.ended} of {step.jobs}")

        told = self._pool.answers(
            function, arguments, progress=progress, cancelled=lambda: self._stopping
        )
        self._stopping = False
        return [None if a.ending is Ending.CANCELLED else a.get() for a in told]


# --- the folder -----------------------------------------------------------------------------------


def check_library_output(args: TuningFlags) -> None:
    """Check the output folder before a long race.

    Raises:
        UserError: the folder cannot be written, or holds files of others.
    """
    if args.output is None:
        return
    if args.output == "-":
        raise UserError("a library is a folder: stdout takes one file", hint="-o DIR")
    path = Path(args.output)
    require_writable(path, args.output)
    if path.exists() and not path.is_dir():
        raise UserError(
            "expected a folder for the library, got a file", where=args.output, hint="name a folder"
        )
    check_replaceable(path, args.output, force=args.force, replaces=replaceable(args.output))


def replaceable(folder: str) -> frozenset[str]:
    """Return the files, as paths in a folder, that an earlier library there has written."""
    found = files_in(folder)
    return found | {REPORT} if found else found

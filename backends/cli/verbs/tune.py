"""``weft tune``: the best plan for every message size, as a library of checked files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange, parse_size_range

from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_down, ranks, read_problem, seconds, sizes, takes_root, valued, whole
from ..libraries import library_facts, tables
from ..progress import finishing
from ..sketches import split_arguments
from ..tuning import Pool, check_library_output, library_texts, replaceable

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.library import Library
    from weft.dsl.nouns.topology import Topology

    from ...tune.asks import Named
    from ...tune.options import TuneOptions

EXAMPLES = """examples:
  weft tune -t dgx1 -c allgather -o dgx1-library
  weft tune -t ndv2:nodes=2 -c allreduce -c alltoall --sizes 1KiB:1GiB -o library
  weft tune -t measured.json -c allreduce --target rccl --to msccl-xml,mpi -o library
  weft tune -t machine.json -c allreduce --measure mpi -o library"""

DEFAULT_SIZES = "1KiB:1GiB"
SECONDS = 10.0
"""Of each question to an engine."""
PLACES = {"both": (False, True), "out": (False,), "in": (True,)}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    problem = parser.add_argument_group("problem")
    problem.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        required=True,
        help="a catalogue name (dgx1, torus:4x4), a file, or -",
    )
    problem.add_argument(
        "-c",
        "--collective",
        metavar="COLL",
        required=True,
        action="append",
        help="allreduce, allgather …, or a file; may be given more than once",
    )
    problem.add_argument(
        "--group",
        metavar="R,R",
        type=valued("--group", ranks),
        help="process group: ranks of the topology",
    )
    problem.add_argument(
        "--root",
        metavar="R",
        type=valued("--root", ranks),
        help="root of rooted collectives (default: 0)",
    )
    problem.add_argument(
        "--roots",
        metavar="R,R",
        type=valued("--roots", ranks),
        help="roots of multiroot collectives (default: all)",
    )
    problem.add_argument(
        "--sizes",
        metavar="LOW:HIGH",
        type=valued("--sizes", sizes),
        default=parse_size_range(DEFAULT_SIZES),
        help=f"messages that it is for (default: {DEFAULT_SIZES})",
    )
    add_down(parser)
    add_tuning(parser, SECONDS)


def add_tuning(parser: argparse.ArgumentParser, per_question: float) -> None:
    """The flags that tuning has wherever it is done; ``per_question``: seconds by default."""
    race = parser.add_argument_group("race")
    race.add_argument(
        "-s",
        "--sketch",
        metavar="SKETCH",
        action="append",
        default=[],
        help="joins those of the shelf that fit; may be given more than once",
    )
    race.add_argument(
        "-e",
        "--engine",
        metavar="ENGINE",
        action="append",
        default=[],
        help="ask this engine at every size, instead of the usual ones",
    )
    race.add_argument(
        "--within",
        metavar="PERCENT",
        type=valued("--within", percent),
        default=0.03,
        help="what a plan may lose against the best at a size, so that "
        "there are few; never against the baseline (default: 3%%)",
    )
    race.add_argument(
        "--protocols",
        metavar="P,P",
        type=valued("--protocols", _protocols),
        default=(),
        help="Simple, LL, LL128 (default: the runtime's)",
    )
    race.add_argument(
        "--time",
        metavar="TIME",
        type=valued("--time", seconds),
        default=per_question,
        help=f"of each question to an engine (default: {per_question:g}s)",
    )
    race.add_argument(
        "--seed",
        metavar="N",
        type=valued("--seed", whole(0)),
        default=0,
        help="of every random choice (default: 0)",
    )
    race.add_argument(
        "--measure",
        choices=("mpi", "torch", "nccl"),
        metavar="RUNTIME",
        help="run the schedules on mpi, torch or nccl, instead of simulating their programs",
    )
    race.add_argument(
        "--jobs",
        metavar="N",
        type=valued("--jobs", whole(1, 1024)),
        help="processes (default: one per core)",
    )
    files = parser.add_argument_group("files")
    files.add_argument(
        "--to",
        metavar="BACKEND,…",
        help="formats of the plans; `weft list backends` (default: msccl-xml, or "
        "that of --measure)",
    )
    files.add_argument(
        "--target",
        choices=("msccl", "rccl", "executor"),
        default="msccl",
        help="the runtime of MSCCL XML (default: msccl)",
    )
    files.add_argument(
        "--placement",
        choices=tuple(PLACES),
        default="both",
        help="plans for separate buffers, for one that is both, or a file for each (default: both)",
    )
    files.add_argument(
        "-o", "--output", metavar="DIR", help="the library's folder (default: write nothing)"
    )
    files.add_argument("-f", "--force", action="store_true", help="replace the library in DIR")


def percent(text: str) -> float:
    """``3%`` or ``0.03`` as a share.

    Raises:
        UserError: something else, or 100 % and more.
    """
    digits = text.strip().removesuffix("%")
    try:
        share = float(digits) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise UserError(f"{text[:40]!r} is no share", hint="write for example 3%") from None
    if not 0 <= share < 1:
        raise UserError(f"{text[:40]!r} is outside 0% … 100%", hint="write for example 3%")
    return share


def _protocols(text: str) -> tuple[str, ...]:
    from weft.dsl.nouns.program import protocol_of

    return tuple(dict.fromkeys(str(protocol_of(word.strip())) for word in text.split(",")))


def run(args: argparse.Namespace, console: Console) -> int:
    """Tune every collective, print the plans, write the library."""
    check_library_output(args)
    topology, collectives = _read(args, console)
    options = options_of(args, topology, collectives)
    # Loaded when the question is known to be right: they take a second.
    from weft.dsl.nouns.library import Library

    from ...tune.manifest import Made
    from ...tune.race import Interrupted
    from ...tune.tune import tune

    made: list[Made] = []
    with Pool(console, args.jobs, "Tuning") as pool:
        for one in collectives:
            pool.about = one.name or str(one.kind)
            try:
                made.append(tune(topology, one, options, pool.jobs, console.say, pool.tell))
            except Interrupted:
                if not made:
                    raise
            if pool.stopped:
                break
    if len(made) < len(collectives):
        console.warn(f"interrupted: {count(len(collectives) - len(made), 'collective')} left out")
    library = Library(
        topology.name,
        topology,
        args.sizes.low,
        args.sizes.high,
        timing_of(options),
        tuple(m.tuned for m in made),
        provenance(args),
    )
    return finish(library, [m.files for m in made], args, console, pool)


def _read(args: argparse.Namespace, console: Console) -> tuple[Topology, list[Collective]]:
    from ...tune.names import stem_of
    from ..machines import machine_line

    found = []
    texts = list(dict.fromkeys(args.collective))
    for text in texts:
        # Roots are for those that have any; where none has, one is told so.
        for_others = not takes_root(text) and any(map(takes_root, texts))
        roots = {"root": None, "roots": None} if for_others else {}
        asked = argparse.Namespace(**{**vars(args), "collective": text, "sketch": None, **roots})
        topology, collective = read_problem(asked)
        found.append(collective)
    if len(set(map(stem_of, found))) < len(found):
        raise UserError("two collectives have one name", where="-c", hint="rename one of them")
    console.say("Read", f"{machine_line(topology)}; {', '.join(map(str, found))}")
    return topology, found


def options_of(
    args: argparse.Namespace, topology: Topology, collectives: Sequence[Collective]
) -> TuneOptions:
    """What the flags ask of tuning.

    Raises:
        UserError: unknown engines, formats or sketches, a sketch that does not fit, or files that
            no runtime takes.
    """
    from weft.dsl.base.registry import ENGINES

    from ...tune.artefacts import Wanted, require_expressible, require_formats
    from ...tune.measure import Measuring
    from ...tune.options import TuneOptions

    for text in args.engine:
        ENGINES.make(text, "--engine")
    measuring = Measuring(args.measure) if args.measure else None
    usual = measuring.format if measuring else "msccl-xml"
    formats = require_formats(_formats(usual if args.to is None else args.to))
    wanted = Wanted(formats, args.target, PLACES[args.placement])
    for one in collectives if measuring is None else ():
        require_expressible(wanted, one)
    if "LL128" in args.protocols and "mscclpp-json" in formats:
        raise UserError("MSCCL++ plans have no LL128", where="--protocols", hint="Simple,LL")
    named = tuple(_sketch(text, topology) for text in args.sketch)
    return TuneOptions(
        getattr(args, "sizes", None) or SizeRange(1, 1),
        wanted,
        args.within,
        args.time,
        args.seed,
        args.protocols,
        tuple(args.engine),
        named,
        measuring=measuring,
    )


def _formats(text: str) -> list[str]:
    """``msccl-xml,mpi``; commas inside braces belong to options."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            found.append(text[start:at])
            start = at + 1
    return [word.strip() for word in (*found, text[start:]) if word.strip()]


def _sketch(text: str, topology: Topology) -> Named:
    from weft.dsl.language.elaborate import elaborate
    from weft.dsl.language.load import find_sketch
    from weft.dsl.language.parse import parse

    from ...tune.asks import Named

    name, arguments = split_arguments(text)
    source = find_sketch(name)
    elaborate(parse(source.text, source.name), topology, arguments)
    return Named(name, source.text, tuple(arguments.items()))


def timing_of(options: TuneOptions) -> dict[str, Any]:
    """How candidates were timed, for the manifest."""
    if how := options.measuring:
        return {"by": "measurement", "on": how.on, "turns": how.repeat, "within": options.within}
    return {
        "by": "simulation",
        "runtime": options.wanted.runtime,
        "protocols": list(options.raced_protocols),
        "within": options.within,
    }


def provenance(args: argparse.Namespace) -> dict[str, Any]:
    """What is needed to make the library again."""
    from weft.dsl.base.version import version

    return {
        "weft": version(),
        "seed": args.seed,
        "seconds_per_question": args.time,
        "sketches": list(args.sketch),
        "engines": list(args.engine),
    }


def finish(
    library: Library,
    files: Sequence[Any],
    args: argparse.Namespace,
    console: Console,
    pool: Pool,
    more: str = "",
    facts: Mapping[str, Any] | None = None,
) -> int:
    """Write the folder, print the table, and ``more``; the exit code. One Ctrl-C does not undo what
    has been found."""
    from weft.dsl.base.files import write_folder

    taken = pool.seconds
    plans = sum(len(t.plans) for t in library.tuned)
    with finishing(pool, console):
        texts = library_texts(library, files)
        console.say("Tuned", f"{count(plans, 'plan')} in {taken:.1f}s, each checked and executed")
        if args.output:
            write_folder(args.output, texts, force=args.force, replaces=replaceable(args.output))
            console.say("Wrote", f"{len(texts)} files in {args.output}")
        console.result(
            "\n\n".join(filter(None, (tables(library), more))),
            {
                "status": "ok",
                **library_facts(library),
                "seconds": round(taken, 3),
                "file": args.output,
                **(facts or {}),
            },
        )
    return Exit.DONE

"""Flags of the verbs that search: synth, sweep, bound, failures, explain, tune, resynth."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange, parse_bytes, parse_microseconds, parse_size_range

from . import shared
from .shared import (
    OBJECTIVES,
    CapableFlags,
    DownFlags,
    MaybeProblemFlags,
    ModelFlags,
    ProblemFlags,
    RelayFlags,
    WorkloadFlags,
    flag,
    unset,
)
from .values import DEFAULTS, axes, ranks, seconds, several_sizes, sizes, whole

TIMED = ("msccl", "rccl", "executor", "portable", "mscclpp", "nccl", "p2p")  # nouns.runtime.TIMED
search = partial(flag, group="search")
in_files = partial(flag, group="files")


@dataclass(frozen=True)
class SynthFlags(DownFlags, RelayFlags, ProblemFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft synth -t dgx1 -c allgather -o frontier/          every Pareto point, one file each
  weft synth -t dgx1 -c allgather --objective latency -o fast.json
  weft synth -t dgx-a100:nodes=16 -c allreduce --objective time --size 256MiB -o ar.json
  weft synth -t dgx1 -c allgather --sizes 1KiB:1GiB     the least time by size and pieces, proved
  weft synth -t ring:8 -c broadcast --root 3 -e 'exact{solver=z3}' --time 5min -o out/
  weft synth -t torus:100x100 -c allgather -e greedy --stream -o stream/"""

    sketch: str | None = search(
        "-s",
        "--sketch",
        metavar="SKETCH",
        help="a name or a file, with parameters: dgx2_relay:nodes=2; or TACCL's or TE-CCL's JSON",
    )
    engine: str | None = search(
        "-e",
        "--engine",
        metavar="ENGINE",
        help="portfolio (the best of all), exact, packing, greedy, classic, "
        "exact{option=value} … (default: the sketch's, or portfolio)",
    )
    objective: str = search(
        "--objective",
        choices=OBJECTIVES,
        default="frontier",
        help="default: frontier; time needs --size",
    )
    size: SizeRange | None = shared.size(group="search")
    effort: float = shared.effort("the search", DEFAULTS.effort, group="search")
    time: float | None = shared.cut_off("the search", group="search")
    threads: int = shared.count("--threads", 1024, "solver threads (default: 2)", 2, group="search")
    solver_memory: int | None = shared.solver_memory(group="search")
    seed: int = shared.seed("of every random choice", group="search")
    require_optimal: bool = search(
        "--require-optimal",
        action="store_true",
        help="exit with 3 unless the answer is proved best; messages then cost nothing",
    )
    message_cost: Fraction | None = search(
        "--message-cost",
        metavar="TIME",
        parse=parse_microseconds,
        help="of each message beside its bytes, where slices, orders and schedules are chosen "
        "(default: 10ns; with --require-optimal 0us)",
    )
    stream: bool = search(
        "--stream",
        action="store_true",
        help="allgather for very many ranks, with -e greedy: written to the folder "
        "OUT as it is made",
    )
    memory: SizeRange | None = search(
        "--memory", metavar="SIZE", parse=sizes, help="what --stream may use (default: 8GiB)"
    )
    sizes: SizeRange | None = search(
        "--sizes",
        metavar="SIZES",
        parse=sizes,
        help="with --objective frontier: the least time at each size, 1KiB:1GiB, by the number of "
        "pieces, with proofs (engine intervals)",
    )
    output: str | None = shared.output(
        "a folder (frontier), a file, or - (default: write nothing)", group="files"
    )
    force: bool = shared.force("overwrite OUT and LOG", group="files")
    log: str | None = in_files(
        "--log",
        metavar="LOG",
        writes=True,
        help="a line of JSON for every schedule found, for weft show --format html",
    )


AXES = "axes, each of them as often as you like"

Texts = tuple[str, ...]


axis = partial(flag, group=AXES)


@dataclass(frozen=True)
class SweepFlags(CapableFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft sweep -t ring:8 -t torus:4x4 -c allgather -c allreduce --size 1KiB:1GiB -o out/
  weft sweep -t dgx1 -c allreduce -e packing -e classic -e exact --size 64KiB --jobs 4
  weft sweep jobs.toml -o out/                  the axes, jobs by themselves, what is left out
  weft sweep jobs.toml -o out/                  again: goes on where it was stopped
  weft sweep jobs.toml -o out/ --cluster tcp://head:8786"""

    file: str | None = flag(metavar="FILE", nargs="?", help="a TOML file that lists the jobs")
    topology: Texts = shared.topology(group=AXES, action="append", help=None)
    collective: Texts = axis("-c", "--collective", metavar="COLL", action="append")
    sketch: Texts = axis(
        "-s", "--sketch", metavar="SKETCH", action="append", help="'' for none, beside others"
    )
    engine: Texts = axis(
        "-e",
        "--engine",
        metavar="ENGINE",
        action="append",
        help="default: the sketch's, or portfolio",
    )
    size: tuple[tuple[int, ...], ...] = axis(
        "--size",
        metavar="SIZE",
        action="append",
        parse=several_sizes,
        help="sizes, or ranges by powers of two: 64KiB,1MiB:1GiB",
    )
    seed: tuple[int, ...] = axis("--seed", metavar="N", action="append", parse=whole(0))
    objective: str | None = flag(
        "--objective",
        choices=OBJECTIVES,
        group="each job",
        help="default: time where there are sizes, else frontier",
    )
    effort: float | None = shared.effort("each search", shown=DEFAULTS.effort, group="each job")
    time: float | None = shared.cut_off("each search", group="each job")
    threads: int | None = shared.count(
        "--threads", 1024, "solver threads (default: 2)", group="each job"
    )
    solver_memory: int | None = shared.solver_memory(group="each job")
    deadline: float | None = flag(
        "--deadline",
        metavar="TIME",
        parse=seconds,
        group="each job",
        help="when it is killed (default: 10s of wall time for each unit of --effort, and 60s)",
    )
    jobs: int | None = shared.count(
        "--jobs", 4096, "at a time, on this machine (default: one per core)", group="where"
    )
    cluster: str | None = flag(
        "--cluster",
        metavar="ADDRESS",
        group="where",
        help="the scheduler of a Dask cluster: tcp://host:8786",
    )
    output: str | None = shared.output(
        "a folder: sweep.json, schedules, a journal (default: none)", "DIR", group="files"
    )
    force: bool = shared.force("replace another sweep in DIR", group="files")
    cache: str | None = in_files(
        "--cache",
        metavar="DIR",
        help="answers by what they depend on (default: $WEFT_CACHE, or weft in the user's cache)",
    )
    no_cache: bool = in_files("--no-cache", action="store_true", help="neither read nor write it")


@dataclass(frozen=True)
class BoundFlags(DownFlags, RelayFlags, ModelFlags, MaybeProblemFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft bound -t dgx1 -c allgather
  weft bound -t dgx-a100:nodes=2 -c allreduce --size 1KiB:1GiB
  weft bound -t dgx-h100 -c allreduce --size 64MiB --runtime executor
  weft bound -t ndv2:nodes=2 -c allgather --size 64KiB --pieces 1   whole chunks only
  weft bound allgather.json"""

    file: str | None = flag(
        metavar="SCHEDULE",
        nargs="?",
        help="a schedule, for its machine, collective and size (instead of -t and -c)",
    )
    size: SizeRange | None = shared.size()
    pieces: int | None = shared.count(
        "--pieces",
        1024,
        "also the least time at --size of schedules that cut each unit into K equal pieces and "
        "forward a piece only when all of it has arrived (of a schedule: its own)",
        metavar="K",
    )
    runtime: str | None = flag(
        "--runtime",
        choices=TIMED,
        help="also the least time of any program of this runtime at --size: with its start, α and "
        "the bandwidths that it reaches",
    )


what_if = partial(flag, group="what if")


@dataclass(frozen=True)
class FailuresFlags(DownFlags, ProblemFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft failures -t dgx1 -c allgather
  weft failures -t ndv2:nodes=2 -c allreduce --size 1MiB
  weft failures -t dgx1 -c allreduce --down gpu0-gpu1     what the next one would cost
  weft failures -t dgx1 -c allgather --synth --worst 2    what schedules attain then"""

    size: SizeRange | None = shared.size(group="what if")
    directions: bool = what_if(
        "--directions",
        action="store_true",
        help="links one by one, not both ways of a cable at once",
    )
    synth: bool = what_if(
        "--synth",
        action="store_true",
        help="also find schedules for the worst failures that disconnect no rank",
    )
    worst: int | None = shared.count(
        "--worst",
        1000,
        f"how many of them (default: {DEFAULTS.worst})",
        metavar="K",
        group="what if",
    )
    engine: str = what_if(
        "-e",
        "--engine",
        metavar="ENGINE",
        default="portfolio",
        help="engine of these searches (default: portfolio)",
    )
    effort: float = shared.effort("each search", 10.0, group="what if")
    time: float | None = shared.cut_off("each search", group="what if")
    solver_memory: int | None = shared.solver_memory(group="what if")
    seed: int = shared.seed("of every random choice", group="what if")


@dataclass(frozen=True)
class ExplainFlags(MaybeProblemFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft explain -t dgx1 -c allgather -s mine.sketch      which rules exclude each other, or cost what
  weft explain -t ndv2:nodes=2 -c allgather -s ndv2_relay --size 1KiB:1GiB
  weft explain mine.sketch --at 1MiB --within 9us       which lines make 9 µs impossible
  weft explain allgather.json --size 1MiB               what binds the schedule"""

    file: str | None = flag(
        metavar="SCHEDULE|SKETCH",
        nargs="?",
        help="a schedule (instead of -t, -c and -s); or a sketch (instead of -s), on the machine "
        "and for the collective that it names, or those of -t and -c",
    )
    sketch: str | None = flag(
        "-s",
        "--sketch",
        metavar="SKETCH",
        help="the sketch to explain: a name or a file, with parameters: dgx2_relay:nodes=2",
    )
    size: SizeRange | None = shared.size()
    at: int | None = flag(
        "--at", metavar="SIZE", parse=parse_bytes, help="message size for --within: 1MiB"
    )
    within: Fraction | None = flag(
        "--within",
        metavar="TIME",
        parse=parse_microseconds,
        help="find a minimal set of lines of the sketch that together make TIME (9us) impossible, "
        "and the time without each of them",
    )
    effort: float = shared.effort(
        "proofs: that no schedule obeys a sketch, where rules one by one do not tell, or that none "
        "ends in time",
        10.0,
    )
    time: float | None = shared.cut_off("those proofs")
    solver_memory: int | None = shared.solver_memory()


DEFAULT_SIZES = "1KiB:1GiB"
PLACES = {"both": (False, True), "out": (False,), "in": (True,)}


def percent(text: str) -> float:
    """Parse ``3%`` or ``0.03`` as a fraction.

    Raises:
        UserError: something else, or 100 % and more.
    """
    digits = text.strip().removesuffix("%")
    try:
        share = float(digits) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise UserError(f"{text[:40]!r} is not a percentage", hint="write for example 3%") from None
    if not 0 <= share < 1:
        raise UserError(f"{text[:40]!r} is outside 0% … 100%", hint="write for example 3%")
    return share


def _protocols(text: str) -> tuple[str, ...]:
    from weft.dsl.nouns.program import protocol_of  # loads NumPy

    return tuple(dict.fromkeys(str(protocol_of(word.strip())) for word in text.split(",")))


race = partial(flag, group="race")


def within(default: float) -> Any:
    """Flag ``--within`` with its default."""
    return race(
        "--within",
        metavar="PERCENT",
        parse=percent,
        default=default,
        help="a plan may be this much slower than the best at a size, so that "
        "fewer plans do; never slower than the baseline (default: 3%%)",
    )


def per_question(default: float) -> Any:
    """Flag ``--effort`` with its default."""
    return shared.effort("each question to an engine", default, group="race")


in_problem = partial(flag, group="problem")


@dataclass(frozen=True)
class SeveralProblemsFlags(CapableFlags):
    """A machine, collectives on it and message sizes."""

    topology: str = shared.topology(group="problem", required=True)
    collective: tuple[str, ...] = in_problem(
        "-c",
        "--collective",
        metavar="COLL",
        required=True,
        action="append",
        help="allreduce, allgather …, or a file; may be given more than once",
    )
    group: shared.Ranks | None = in_problem(
        "--group", metavar="R,R", parse=ranks, help="process group: ranks of the topology"
    )
    root: shared.Ranks | None = in_problem(
        "--root", metavar="R", parse=ranks, help="root of rooted collectives (default: 0)"
    )
    roots: shared.Ranks | None = in_problem(
        "--roots", metavar="R,R", parse=ranks, help="roots of multiroot collectives (default: all)"
    )
    sizes: SizeRange = in_problem(
        "--sizes",
        metavar="LOW:HIGH",
        parse=sizes,
        default=parse_size_range(DEFAULT_SIZES),
        help=f"messages that it is for (default: {DEFAULT_SIZES})",
    )


@dataclass(frozen=True)
class TuningFlags(ModelFlags, DownFlags):
    """Flags of tuning wherever it is done."""

    sketch: tuple[str, ...] = race(
        "-s",
        "--sketch",
        metavar="SKETCH",
        action="append",
        help="try this sketch too, besides weft's own that fit; may be given more than once",
    )
    engine: tuple[str, ...] = race(
        "-e",
        "--engine",
        metavar="ENGINE",
        action="append",
        help="ask this engine at every size, instead of the usual ones",
    )
    within: float = within(0.03)
    protocols: tuple[str, ...] = race(
        "--protocols",
        metavar="P,P",
        parse=_protocols,
        default=(),
        help="Simple, LL, LL128 (default: the runtime's)",
    )
    effort: float = per_question(DEFAULTS.tune_effort)
    time: float | None = shared.cut_off("each question", group="race")
    solver_memory: int | None = shared.solver_memory(group="race")
    seed: int = shared.seed("of every random choice", group="race")
    measure: str | None = race(
        "--measure",
        choices=("mpi", "torch", "nccl", "jax"),
        metavar="RUNTIME",
        help="run the schedules on mpi, torch, nccl or jax, instead of simulating their programs",
    )
    jobs: int | None = shared.count(
        "--jobs", 1024, "processes (default: one per core)", group="race"
    )
    to: str | None = in_files(
        "--to",
        metavar="BACKEND,…",
        help="formats of the plans; `weft list backends` (default: that of the runtime which "
        "`weft doctor --machine` lists first, or that of --measure)",
    )
    target: str | None = in_files(
        "--target",
        choices=("msccl", "rccl", "executor"),
        help="the runtime of MSCCL XML (default: the best one built for the machine's GPUs, else "
        "executor)",
    )
    placement: str | None = in_files(
        "--placement",
        choices=tuple(PLACES),
        default="both",
        help="plans for separate buffers, for one that is both, or a file for each (default: both)",
    )
    output: str | None = shared.output(
        "the library's folder (default: write nothing)", "DIR", group="files"
    )
    force: bool = shared.force("replace the library in DIR", group="files")


@dataclass(frozen=True)
class TuneFlags(TuningFlags, SeveralProblemsFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft tune -t dgx1 -c allgather -o dgx1-library
  weft tune -t ndv2:nodes=2 -c allreduce -c alltoall --sizes 1KiB:1GiB -o library
  weft tune -t measured.json -c allreduce --target rccl --to msccl-xml,mpi -o library
  weft tune -t machine.json -c allreduce --measure mpi -o library"""


@dataclass(frozen=True)
class ResynthFlags(TuningFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft resynth library --down gpu0-gpu3 -o mended
  weft resynth library --down-nic host0.nic3 --time 5s -o mended
  weft resynth library --down-rank 5 -o smaller"""

    library: str = flag(
        metavar="LIBRARY",
        help="the folder that weft tune wrote; --to, --target, --placement and "
        "--protocols are as they were for it, unless they are given",
    )
    within: float = within(DEFAULTS.resynth_within)
    effort: float = per_question(DEFAULTS.tune_effort)
    time: float | None = shared.cut_off("each question", group="race")
    target: str | None = unset(TuningFlags, "target")
    placement: str | None = unset(TuningFlags, "placement")


@dataclass(frozen=True)
class PlanFlags(WorkloadFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft plan step.json
  weft plan step.json -o plan.json --json
  weft plan groups.json -t dgx-a100:nodes=4 -o plan/   collectives at once: bound and schedules
  weft plan reshard:0..7/1,8..15/8,800MB -t dgx-a100:nodes=2
  weft plan first.json second.json --shift"""

    workloads: tuple[str, ...] = flag(
        metavar="WORKLOAD",
        nargs="+",
        help="files of workloads (several: with --shift), -, or reshard:FROM,TO,SIZE[,RELAYS]",
    )
    topology: str | None = shared.topology(help="the machine, where collectives need one")
    shift: bool = flag(
        "--shift", action="store_true", help="shift jobs in time so that they share resources best"
    )
    bound: bool = flag(
        "--bound", action="store_true", help="of collectives at once only the bound, no schedules"
    )
    judge: int | None = flag(
        "--judge",
        metavar="PIECES",
        parse=whole(1, 64),
        help="let CP-SAT judge the order too, with each communication cut in PIECES pieces",
    )
    effort: float = shared.effort("moves in the order", DEFAULTS.order_effort)
    seed: int = shared.seed("of the moves")
    output: str | None = shared.output(
        "a file for the plan; of collectives at once a folder: one schedule for all, and one each"
    )
    force: bool = shared.force()


@dataclass(frozen=True)
class PlaceFlags(WorkloadFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft place step.json -t dgx-a100:nodes=4
  weft place groups.csv -t dgx-a100:nodes=4 --axes ep=8,dp=4 --json"""

    workload: str = flag(metavar="WORKLOAD", help="a file of a workload, or -")
    topology: str = shared.topology(required=True)
    axes: tuple[tuple[str, int], ...] | None = flag(
        "--axes",
        metavar="NAME=SIZE,…",
        parse=axes,
        help="axes by which the ranks of the workload are numbered, the first one fastest: with "
        "tp=8,dp=4 a rank is tp + 8·dp (default: the axes that the workload states)",
    )

"""Flags of the verbs that take a file: check, compile, simulate, run, show, diff."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Self

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange, parse_bandwidth, parse_microseconds

from . import shared
from .shared import CollectiveFlags, Flags, MaybeProblemFlags, ModelFlags, flag, unset
from .values import DEFAULTS, LIMITS, seconds, several_sizes, sizes, whole

AUTO = "auto"
"""Value of ``--instances`` that chooses the number by simulation."""

FORMAT = "msccl-xml"
"""Default format of ``--to``."""

RUNTIMES = ("msccl", "rccl", "executor")
TARGETS = (*RUNTIMES, "portable")
PROTOCOLS = ("Simple", "LL", "LL128")

FORMS = ("race", "fixed")

ON = ("numpy", "mpi", "torch", "nccl", "jax")
"""Values of ``--on``: threads of this process, processes of a runtime, GPUs, devices of JAX."""

SHOWN = ("text", "perfetto", "dot", "svg", "html")


# --- lowering -------------------------------------------------------------------------------------


lowering = partial(flag, group="lowering")


def instances(parse: Any, more: str = "") -> Any:
    """Flag ``--instances``: parallel copies of the program."""
    return lowering(
        "--instances",
        metavar="N",
        parse=parse,
        help=f"copies side by side (default: 1, or what the algorithm asks for{more})",
    )


@dataclass(frozen=True)
class LoweringFlags(Flags):
    """Flags of lowering to a program."""

    target: Any = lowering(
        "--target",
        choices=TARGETS,
        default="msccl",
        help="the runtime whose limits hold, or portable: all of them (default: msccl)",
    )
    instances: Any = instances(whole(1, 64))
    lanes: Any = lowering(
        "--lanes",
        metavar="N",
        parse=whole(0, 32),
        default=None,
        help="channels per connection (0: as fusing needs)",
    )
    segments: Any = lowering(
        "--segments",
        metavar="N",
        parse=whole(1, 1024),
        default=None,
        help="pieces of every chunk of a schedule, one behind the other (1: the runtime slices)",
    )
    protocol: str | None = lowering(
        "--protocol", choices=PROTOCOLS, help="default: Simple, or that of the algorithm or program"
    )
    in_place: bool = lowering(
        "--in-place", action="store_true", help="input and output are one buffer"
    )
    passes: str | None = lowering(
        "-p",
        "--passes",
        metavar="PASSES",
        help="e.g. aggregate,channels{lanes=2},fuse,sync,prune; `weft list passes` (default: all); "
        "or settings of them: threadblocks.policy=none,lower.order=steps",
    )
    print_after: Any = lowering(
        "--print-after",
        metavar="PASS",
        default="",
        help="list the program after this pass, or after all, on stderr",
    )
    name: Any = lowering(
        "--name", metavar="NAME", default="", help="name of the artefact (default: from its input)"
    )

    def lowering_given(self) -> tuple[str, ...]:
        """Return the names of the lowering flags that differ from their defaults, in order."""
        return tuple(name for name, value in LOWERING.items() if getattr(self, name) != value)


LOWERING: dict[str, Any] = {
    one: {x.name: x.default for x in fields(LoweringFlags)}[one]
    for one in (
        "instances",
        "lanes",
        "protocol",
        "passes",
        "print_after",
        "name",
        "segments",
        "target",
    )
}
"""Names of the lowering flags, with their defaults."""


# --- verbs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompileFlags(ModelFlags, CollectiveFlags, LoweringFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft compile allgather.json --to msccl-xml -o allgather.xml
  weft compile allgather.json --to msccl-xml --in-place --instances 2 --target rccl -o ag.xml
  weft compile ring.py:allreduce{ranks=8} -o ring.xml
  weft compile 'classic:ring{collective=allreduce,ranks=8}' -o ring.xml
  weft compile 'classic:two_step{on=dgx-a100:nodes=2}' -o alltoall.xml
  weft compile from-elsewhere.xml --target rccl -t mi300x --size 64MiB -o for-rccl.xml"""

    file: str = flag(
        metavar="FILE",
        help="a schedule, an algorithm (FILE.py, "
        "FILE.py:NAME{option=…}, classic:NAME{option=…}), MSCCL XML, a program, "
        "or -",
    )
    to: str = flag(
        "--to",
        metavar="BACKEND",
        default=FORMAT,
        help=f"the artefact; `weft list backends` (default: {FORMAT})",
    )
    instances: Any = instances(
        lambda text: AUTO if text == AUTO else whole(1, 64)(text),
        "; auto: by a race, or an error",
    )
    form: Any = lowering(
        "--form",
        choices=FORMS,
        default="race",
        help="race: what no flag names (instances, segments, protocol, lanes, settings of passes) "
        "is as simulates fastest at the size, where machine and size are known; fixed: the "
        "defaults (default: race)",
    )
    size: SizeRange | None = shared.size()
    topology: str | None = shared.topology(
        help="the machine of a program or an algorithm, to time it: a program that is quicker as "
        "it came is written so (a schedule states its machine)"
    )
    output: str = shared.output("a file (default: -)", default="-")
    force: bool = shared.force()
    no_run: bool = flag(
        "--no-run", action="store_true", help="do not execute the artefact before writing it"
    )
    interleavings: int | None = shared.count(
        "--interleavings",
        100_000,
        f"orders of that execution (default: {DEFAULTS.orders}; none beyond "
        f"{LIMITS.executed_ranks} ranks)",
    )
    seed: int = shared.seed("of the orders and the data")


REAL = "real ranks (--on mpi, torch, nccl, jax; point-to-point programs)"


@dataclass(frozen=True)
class RanksFlags(Flags):
    """Flags that apply only to real ranks."""

    topology: str | None = shared.topology(
        group=REAL,
        help="predict a schedule's time with the costs of this machine "
        "(default: those in the schedule)",
    )
    repeat: int | None = shared.count(
        "--repeat",
        100_000,
        f"timed calls of each size and type (default: {DEFAULTS.repeat})",
        group=REAL,
    )
    timeout: float | None = flag(
        "--timeout",
        metavar="TIME",
        parse=seconds,
        group=REAL,
        help="how long a rank waits for another (default: 60s)",
    )
    trace: str | None = flag(
        "--trace",
        metavar="OUT",
        writes=True,
        group=REAL,
        help="record every rank's rounds in one call more of each size and type, "
        "for `weft show --measured OUT`",
    )
    force: bool = shared.force(group=REAL)


@dataclass(frozen=True)
class RunFlags(LoweringFlags, RanksFlags, CollectiveFlags):
    """Flags of ``weft run``; one of lowering is None where it was not given, since an artefact is
    lowered already."""

    EXAMPLES: ClassVar[str] = """examples:
  weft run allgather.xml --on numpy
  weft run custom.xml --on numpy -c gather --root 2
  weft run allgather.json --on numpy --in-place --interleavings 200
  weft run allreduce.json --on mpi --size 1KiB:1MiB --dtype float32,bfloat16 --repeat 20
  weft run allreduce.py --on torch --size 64MiB --timeout 60s --json"""

    file: str = flag(
        metavar="FILE",
        help="MSCCL XML, an MSCCL++ plan, a schedule, "
        "an algorithm (FILE.py), a program, a point-to-point program, "
        "or -",
    )
    on: str = flag(
        "--on",
        choices=ON,
        default="numpy",
        help="what executes it: numpy in this process, real processes of mpi or torch, "
        "GPUs by nccl, or the devices of jax (default: numpy)",
    )
    dtype: str = flag(
        "--dtype",
        metavar="TYPE,TYPE",
        default="float32,int32",
        help="data types (default: float32,int32)",
    )
    interleavings: int = shared.count(
        "--interleavings", 1_000_000, "orders of execution (default: 200)", 200
    )
    seed: int = shared.seed("of the orders and the data")
    target: Any = unset(LoweringFlags, "target")
    lanes: Any = unset(LoweringFlags, "lanes")
    segments: Any = unset(LoweringFlags, "segments")
    print_after: Any = unset(LoweringFlags, "print_after")
    name: Any = unset(LoweringFlags, "name")
    size: tuple[int, ...] | None = flag(
        "--size",
        metavar="SIZE,SIZE",
        parse=several_sizes,
        help="message sizes or ranges: 1MiB, 1KiB,64KiB, 1KiB:1GiB",
    )

    def with_defaults(self) -> Self:
        """Return the flags with the defaults of those of lowering that were not given."""
        missing: dict[str, Any] = {
            name: value for name, value in LOWERING.items() if getattr(self, name) is None
        }
        return replace(self, **missing)


@dataclass(frozen=True)
class CheckFlags(CollectiveFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft check allgather.json
  weft check algo.xml
  weft check custom.xml -c gather --root 2
  weft check my.sketch --json
  weft check ring.py:allreduce{ranks=8}
exit code 1 if a check fails"""

    file: str = flag(
        metavar="FILE",
        help="a schedule, algorithm, program, MSCCL XML, "
        "MSCCL++ plan, point-to-point program, sketch, topology or collective "
        "(told by its content), the folder of a library or a stream, "
        "or -",
    )
    sketch: str | None = flag(
        "-s", "--sketch", metavar="SKETCH", help="a schedule must obey this sketch too"
    )
    topology: str | None = shared.topology(
        help="the machine for a sketch (default: the one it names)"
    )
    target: str | None = flag(
        "--target",
        choices=TARGETS,
        help="the runtime an XML program is for (default: any), or portable: all of them",
    )


RULE = "rule for schedules (default: cut-through, α occupies nothing)"
RUNTIME = "runtime of programs"


rule = partial(flag, group=RULE)
of_runtime = partial(flag, group=RUNTIME)


@dataclass(frozen=True)
class SimulateFlags(ModelFlags, MaybeProblemFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft simulate allgather.json --size 1KiB:1GiB
  weft simulate allgather.json -t measured.json --size 1MiB --alpha-occupies
  weft simulate allgather.xml -t dgx1 --size 1KiB:1GiB --protocol LL
  weft simulate allgather.xml -t dgx1 --timing start.Simple=7 -v
  weft simulate allgather.xml -t dgx1 --model datasheet"""

    file: str = flag(metavar="FILE", help="a schedule, an algorithm, a program or MSCCL XML, or -")
    size: SizeRange | None = shared.size()
    overhead: Fraction = flag(
        "--overhead",
        metavar="TIME",
        default=Fraction(0),
        parse=parse_microseconds,
        help="of every message: added to its occupancy; of every operation "
        "of a program: added to its block's time (default: 0us)",
    )
    alpha_occupies: bool = rule(
        "--alpha-occupies",
        action="store_true",
        help="α holds the links too, as TACCL and TACOS count",
    )
    store_and_forward: bool = rule(
        "--store-and-forward",
        action="store_true",
        help="switches send on what they have received whole",
    )
    barrier: bool = rule(
        "--barrier", action="store_true", help="a step waits for all earlier ones, as SCCL counts"
    )
    protocol: str | None = of_runtime(
        "--protocol", choices=PROTOCOLS, help="instead of the program's own"
    )
    target: str | None = of_runtime(
        "--target", choices=RUNTIMES, help="whose payloads are reckoned with (default: msccl)"
    )
    local_bandwidth: Any = of_runtime(
        "--local-bandwidth",
        metavar="BW",
        parse=parse_bandwidth,
        help="of copies and sums inside a GPU (default: as calibrated)",
    )


DRAWING = "what is simulated, and where files go"


def _one_size(text: str) -> int:
    """Parse one message size, not a range."""
    size = sizes(text)
    if size.low != size.high:
        raise UserError(f"{text[:40]!r} is a range, and one message is drawn")
    return size.low


drawing = partial(flag, group=DRAWING)


@dataclass(frozen=True)
class ShowFlags(ModelFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft show allgather.json
  weft show dgx1
  weft show algo.xml
  weft show allgather.json --format perfetto --size 1MiB -o trace.json"""

    file: str = flag(
        metavar="FILE",
        help="a file, a catalogue name, "
        "the folder of a library or a stream, of schedules (html), "
        "or -",
    )
    other: str | None = flag(
        metavar="FILE2", nargs="?", help="a second schedule, beside the first (html)"
    )
    format: str = flag("--format", choices=SHOWN, default="text", help="default: text")
    topology: str | None = shared.topology(
        group=DRAWING,
        help="the machine of an algorithm or a program; for a schedule, other costs than its own",
    )
    size: int | None = drawing(
        "--size",
        metavar="SIZE",
        parse=_one_size,
        help="of the message (default: what the schedule was made for, or 1MiB)",
    )
    measured: str | None = drawing(
        "--measured",
        metavar="TRACE",
        help="beside it, what `weft run --trace TRACE` recorded (perfetto)",
    )
    log: str | None = drawing(
        "--log", metavar="LOG", help="what `weft synth --log LOG` wrote, beside it (html)"
    )
    output: str = shared.output("a file (default: -)", default="-", group=DRAWING)
    force: bool = shared.force(group=DRAWING)


@dataclass(frozen=True)
class DiffFlags(ModelFlags):
    EXAMPLES: ClassVar[str] = """examples:
  weft diff old.json new.json
  weft diff ring.xml tree.xml -t dgx1 --size 1KiB:64MiB
  weft diff dgx1 measured.json --json
  weft diff monday/ tuesday/"""

    before: str = flag(metavar="A", help="a file, a folder of a library, a catalogue name, or -")
    after: str = flag(metavar="B", help="another one of the same kind")
    topology: str | None = shared.topology(
        help="simulate both on this machine (programs and algorithms are only timed on one)"
    )
    size: SizeRange | None = shared.size()

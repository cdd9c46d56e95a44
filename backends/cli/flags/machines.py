"""Flags of the verbs that look at machines and at weft itself.

profile, bench, list, completion, doctor, serve.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import REGISTRIES
from weft.dsl.base.units import SizeRange, parse_microseconds, parse_size_range

from . import shared
from .shared import Flags, flag
from .values import DEFAULTS, LIMITS, seconds, whole

SIZES = "1KiB:16MiB"

FRAMEWORKS = ("torch", "jax", "cupy", "mpi", "nccl")
"""Frameworks of users' programs; ``nccl``: they call NCCL or RCCL themselves."""


@dataclass(frozen=True)
class ProfileFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft profile --on mpi --ranks 8 -o machine.json
  weft profile --on torch --ranks 4 --time 30s -o machine.json --json
  mpiexec -n 64 weft profile --on mpi -o cluster.json"""

    on: str = flag(
        "--on",
        choices=("mpi", "torch", "nccl", "numpy"),
        required=True,
        help="the runtime whose messages are timed",
    )
    ranks: int | None = flag(
        "--ranks",
        metavar="N",
        parse=whole(2, LIMITS.profile_ranks),
        help=f"ranks to start (default: {DEFAULTS.profile_ranks}; not for ranks that mpiexec or "
        "torchrun started)",
    )
    time: float = shared.time(
        "measure until numbers are stable, at most about so long (default: 60s)", 60.0
    )
    seed: int = shared.seed("of the order of measurements")
    name: str | None = flag("--name", metavar="NAME", help="of the topology")
    family: str = flag(
        "--family",
        metavar="NAME",
        default="",
        help="the machine's, such as h100: names the class of the links inside its hosts",
    )
    output: str = shared.output("a file, or -", required=True)
    force: bool = shared.force()


@dataclass(frozen=True)
class BenchFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft bench ring.json 'classic:two_step{on=dgx-a100:nodes=1}' --on mpi --sizes 1KiB:64MiB
  weft bench best.py --on mpi -t machine.json --json"""

    files: list[str] = flag(
        metavar="PLAN",
        nargs="+",
        help="a point-to-point program (compile --to mpi), a schedule, an "
        "algorithm or a program; all of one collective",
    )
    on: str = flag(
        "--on",
        choices=("mpi", "torch", "nccl", "jax"),
        default="mpi",
        help="the runtime (default: mpi)",
    )
    sizes: SizeRange = flag(
        "--sizes",
        metavar="SIZE:SIZE",
        default=parse_size_range(SIZES),
        parse=parse_size_range,
        help=f"message sizes, doubled (default: {SIZES})",
    )
    dtype: str = flag(
        "--dtype", metavar="TYPE", default="float32", help="data type (default: float32)"
    )
    repeat: int = shared.count("--repeat", 100_000, "turns of each size (default: 20)", 20)
    time: float = shared.time("no more turns of a size after so long (default: 10s)", 10.0)
    topology: str | None = shared.topology(help="predict times with the costs of this machine")
    overhead: Fraction = flag(
        "--overhead",
        metavar="TIME",
        default=Fraction(0),
        parse=parse_microseconds,
        help="predicted: of every message, added to what it occupies (default: 0us)",
    )
    timeout: float = flag(
        "--timeout",
        metavar="TIME",
        default=60.0,
        parse=seconds,
        help="how long a rank waits for another (default: 60s)",
    )
    seed: int = shared.seed("of the data")


@dataclass(frozen=True)
class ListFlags(Flags):
    EXAMPLES: ClassVar[str] = (
        "examples:\n  weft list engines\n  weft list algorithms\n  weft list backends --json\n"
        "machines: weft topo list; sketches: weft sketch list"
    )

    kind: str = flag(
        choices=(*REGISTRIES, "algorithms"), metavar="engines|backends|passes|algorithms"
    )
    options: bool = flag(
        "--options", action="store_true", help="every option: its default and its meaning"
    )


@dataclass(frozen=True)
class CompletionFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  source <(weft completion bash)                                  in ~/.bashrc
  weft completion zsh > ~/.zfunc/_weft                            a folder of $fpath
  weft completion fish > ~/.config/fish/completions/weft.fish"""

    shell: str = flag(choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish")
    line: str | None = flag(
        "--line",
        metavar="TEXT",
        help="a command line as far as it is typed: print what may stand for its last word, "
        "instead of the script",
    )


@dataclass(frozen=True)
class DoctorFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft doctor
  weft doctor --machine dgx-h100 --framework torch

exit code 4 if something that weft cannot do without is missing"""

    warm: bool = flag(
        "--warm",
        action="store_true",
        help="compile all loops now: some 80 CPU seconds, once; nothing waits for them later",
    )
    machine: str | None = flag(
        "--machine",
        metavar="TOPO",
        default=None,
        help="which back end to use on this machine, and why, instead of what is installed",
    )
    framework: str | None = flag(
        "--framework",
        choices=FRAMEWORKS,
        default=None,
        help="with --machine: back ends for programs in this only (nccl: those that call NCCL)",
    )


@dataclass(frozen=True)
class ServeFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft serve &                                    then: export WEFT_SERVER=default
  weft serve --socket ~/weft.sock --idle 10min    then: weft --server ~/weft.sock bound …

after SIGTERM (kill %1) or Ctrl-C it waits for running commands; a second signal ends these too"""

    socket: str | None = flag(
        "--socket",
        metavar="PATH",
        help="where to listen (default: weft/serve.sock in $XDG_RUNTIME_DIR, or in a folder of "
        "your own in the temporary one)",
    )
    idle: float = flag(
        "--idle",
        metavar="TIME",
        default=DEFAULTS.serve_idle_seconds,
        parse=seconds,
        help="end after this time without a command (default: 1h)",
    )
    children: int = flag(
        "--children",
        metavar="N",
        default=DEFAULTS.served_children,
        parse=whole(1, LIMITS.served_children),
        help=f"commands at once; others run in the client (default: {DEFAULTS.served_children})",
    )

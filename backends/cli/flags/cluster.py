"""Flags of the verbs for a library on a cluster: deploy, verify-run, tuner."""

from __future__ import annotations

from typing import ClassVar

from weft.dsl.base.lazy_dataclass import dataclass

from . import shared
from .shared import Flags, flag

LAUNCHERS = ("mpirun", "slurm", "torchrun", "kubernetes")
RUNTIMES = ("mscclpp", "executor", "msccl", "rccl")


@dataclass(frozen=True)
class DeployFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft deploy library                                  settings, mpirun, proof, nccl-tests
  weft deploy library --for slurm --at /shared/weft/library
  weft deploy library --for kubernetes -o weft-files   mpijob.yaml and the rest as files"""

    library: str = flag(metavar="LIBRARY", help="the folder that weft tune wrote")
    launcher: str = flag(
        "--for", choices=LAUNCHERS, default="mpirun", help="how jobs start (default: mpirun)"
    )
    at: str | None = flag(
        "--at",
        metavar="PATH",
        help="the path under which all hosts see the library (default: where it is)",
    )
    runtime: str | None = flag(
        "--runtime",
        choices=RUNTIMES,
        help="who loads the files (default: one built for the machine's GPUs)",
    )
    preload: str | None = flag(
        "--preload", metavar="PATH", help="where that runtime's library lies on all hosts"
    )
    output: str | None = shared.output("a folder for settings and launch files", "DIR")
    force: bool = shared.force("replace the files in DIR")


@dataclass(frozen=True)
class VerifyRunFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft verify-run after.txt --library library
  weft verify-run before.txt after.txt proof.txt --library library -o measured.json
  weft verify-run all_reduce.txt -t dgx-a100        NCCL's own, beside what is predicted"""

    files: tuple[str, ...] = flag(
        metavar="LOG",
        nargs="+",
        help="output of nccl-tests or rccl-tests (text, JSON or CSV), debug logs "
        "(NCCL_DEBUG=INFO), or both in one",
    )
    library: str | None = flag(
        "--library", metavar="DIR", help="the library whose files should have run"
    )
    topology: str | None = shared.topology(
        help="the machine (default: the library's); with the times of NCCL's own algorithms"
    )
    group: shared.Ranks | None = shared.of_ranks(
        "--group", help="the ranks of -t that ran: 0..3,8..11"
    )
    output: str | None = shared.output("a file for the machine with the measured numbers")
    force: bool = shared.force()


@dataclass(frozen=True)
class TunerFlags(Flags):
    EXAMPLES: ClassVar[str] = """examples:
  weft tuner ring-ll.txt tree-ll.txt ring-simple.txt -o nccl_tuner.conf
  weft tuner a.txt:algorithm=ring,protocol=ll b.txt:algorithm=nvls,protocol=simple,channels=16"""

    files: tuple[str, ...] = flag(
        metavar="RUN",
        nargs="+",
        help="output of nccl-tests or of weft bench --json, one algorithm and protocol each: as "
        "its debug log tells, or behind the name",
    )
    output: str | None = shared.output("a file (default: to stdout)")
    force: bool = shared.force()

"""``make sweep``: packings as MSCCL XML by the command line: compiled, proved and executed.

Every command runs in a process of its own, so that seconds (of the processor, not of the clock) and
peak memory are its own. With ``--large`` also 1 024 GPUs, which are proved and not executed. Of the
allreduce on them every rank has at most 32 peers: a rank can wait for 128 thread blocks only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

MOST_EXECUTED = 128


@dataclass(frozen=True)
class Case:
    """One schedule to emit: the machine, what for, which packing, and what compiling may take."""

    topology: str
    collective: str
    ranks: int
    engine: str = "packing"
    limit_s: float = 60.0
    limit_gib: float = 4.0


CASES = (
    Case("dgx-a100:nodes=4", "allgather", 32),
    Case("dgx-a100:nodes=4", "allreduce", 32),
    Case("dgx-a100:nodes=16", "allgather", 128),
    Case("dgx-a100:nodes=16", "allreduce", 128),
    # Shares that are not equal, no symmetry, paths.
    Case("mi250", "allgather", 16),
    Case("mi250", "allreduce", 16),
    Case("dgx1", "allreduce", 8),
    Case("mesh:5x5", "allreduce", 25),
    Case("dgx-a100:nodes=2,fabric=planes:2", "allgather", 16),
    Case("torus:4x4", "alltoall", 16),
    Case("ring:8,dead=7-0", "allreduce", 8),
)

LARGE = (
    Case("dgx-a100:nodes=128", "allgather", 1024, limit_s=120, limit_gib=6),
    Case("dgx-a100:nodes=128", "allreduce", 1024, "packing{peers=32}", 120, 6),
)


@dataclass
class Ran:
    """A command that has run: how it ended, what it took, what it said."""

    code: int
    seconds: float
    gib: float
    said: str
    facts: dict[str, Any] = field(default_factory=dict)


def weft(*args: str | Path) -> Ran:
    """Run ``weft`` with ``--json`` and measure it."""
    command = [sys.executable, "-m", "weft.backends.cli", *map(str, args), "--json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, said = out.read(), err.read()
    try:
        facts = json.loads(text)
    except ValueError:
        facts = {}
    return Ran(child.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, said, facts)


def judge(case: Case, folder: Path, effort: float) -> tuple[list[str], str]:
    """The row of a case, and what failed."""
    schedule, xml = folder / "schedule.json", folder / "program.xml"
    head = [str(case.ranks), case.topology, case.collective]
    steps: Sequence[tuple[str, Sequence[str | Path]]] = (
        (
            "synth",
            (
                "synth",
                "-t",
                case.topology,
                "-c",
                case.collective,
                "-e",
                case.engine,
                "--objective",
                "time",
                "--size",
                "1GB",
                "--effort",
                f"{effort}",
                "-o",
                schedule,
                "--force",
            ),
        ),
        ("compile", ("compile", schedule, "--no-run", "-o", xml, "--force")),
        ("check", ("check", xml, "--target", "msccl")),
        ("run", ("run", xml, "--target", "msccl", "--interleavings", "24")),
    )
    ran: dict[str, Ran] = {}
    for verb, args in steps:
        if verb == "run" and case.ranks > MOST_EXECUTED:
            continue
        ran[verb] = weft(*args)
        if ran[verb].code:
            return [*head, f"{verb}: {ran[verb].said.strip()}"], f"{verb} failed"
    made = ran["compile"]
    loss = made.facts.get("quantized", {}).get("loss")
    row = [
        *head,
        str(made.facts["instructions"]),
        str(made.facts["thread_blocks"]),
        str(made.facts["chunks"]),
        "exact" if loss is None else f"{loss:.2%} slower",
        f"{ran['synth'].seconds:.1f}",
        f"{made.seconds:.1f}",
        f"{ran['check'].seconds:.1f}",
        f"{made.gib:.2f}",
        "right" if "run" in ran else "proved only",
    ]
    over = made.seconds > case.limit_s or made.gib > case.limit_gib
    return row, f"over {case.limit_s} s or {case.limit_gib} GiB" if over else ""


def main() -> int:
    """Print a line per case; exit 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="1 024 ranks as well")
    parser.add_argument("--only", default="", help="cases whose machine and collective say this")
    parser.add_argument("--effort", type=float, default=60, help="of each synthesis")
    args = parser.parse_args()
    console = Console(width=170)
    table = Table(
        "ranks",
        "machine",
        "collective",
        "instructions",
        "blocks",
        "chunks",
        "shares",
        "synth s",
        "compile s",
        "prove s",
        "compile GiB",
        "executed",
    )
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES + LARGE * args.large:
            if args.only not in f"{case.topology} {case.collective}":
                continue
            row, wrong = judge(case, Path(folder), args.effort)
            failed = failed or bool(wrong)
            table.add_row(*row)
            console.print("  ".join([*row, wrong]), style="red" if wrong else "dim", markup=False)
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

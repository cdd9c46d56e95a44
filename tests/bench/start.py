"""``make bench``: whole small commands, which are mostly start-up: CPU and wall seconds.

*First* is the first run where nothing is kept yet: no byte code of any package, no machine code
but what the installation brought. *Warm* is the median of the later runs. CPU seconds are those of
the command and of all processes that it starts.

Under *peer* stand the CPU seconds of the authors' own program for the same question, and how many
times ours those are. They are constants: measured in November 2026 beside weft on two cores of an
EPYC (CPython 3.11), SCCL as msccl 2.3.0 with z3 5.4.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plain_loop import USUAL_S, plain_loop_s
from rich.console import Console
from rich.table import Table

CODE = "import sys; from weft.backends.cli import main; sys.argv[0] = 'weft'; sys.exit(main())"

SCHEDULE = "a.json"
"""The schedule that verbs on files are given."""

MADE_BY = f"synth -t dgx1 -c allgather --objective latency -o {SCHEDULE}"


@dataclass(frozen=True)
class Peer:
    """The authors' program, and its CPU seconds."""

    name: str
    cpu_s: float


COMMANDS: Mapping[str, Peer | None] = {
    "--help": None,
    "list engines": None,
    f"check {SCHEDULE}": None,
    f"simulate {SCHEDULE} --size 1MiB": None,
    f"compile {SCHEDULE} --to msccl-xml": None,
    "bound -t dgx1 -c allgather": None,
    "synth -t dgx1 -c allgather": Peer("SCCL", 23.6),
    "synth -t dgx1 -c alltoall --objective latency": Peer("SCCL", 8.15),
    "synth -t dgx-a100:nodes=2 -c allgather --objective bandwidth": Peer("ForestColl", 4.67),
    "synth -t mi250:nodes=2 -c allgather --objective bandwidth": Peer("ForestColl", 30.5),
    "synth -t torus:8x8x8 -c allgather -e greedy": Peer("TACOS", 5.94),
}
"""Command lines, each with the peer that answers the same question."""


@dataclass(frozen=True)
class Spent:
    """Seconds of one run."""

    cpu: float
    wall: float


def run(words: str, folder: Path, surroundings: Mapping[str, str]) -> Spent:
    """Run one command.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-c", CODE, *words.split()]
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, cwd=folder, env=surroundings, check=True, capture_output=True)
    after, wall = os.times(), time.perf_counter() - started
    user = after.children_user - before.children_user
    return Spent(user + after.children_system - before.children_system, wall)


def caches(folder: Path) -> dict[str, str]:
    """The environment with empty folders for all that is kept between runs."""
    places = {
        "NUMBA_CACHE_DIR": "machine_code",
        "XDG_CACHE_HOME": "cache",
        "PYTHONPYCACHEPREFIX": "byte_code",
    }
    own = {name: str(folder / place) for name, place in places.items()}
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | own


def row(words: str, peer: Peer | None, runs: int) -> list[str]:
    """Measure one command, with caches of its own."""
    with tempfile.TemporaryDirectory(prefix="weft-start-") as name:
        folder = Path(name)
        run(MADE_BY, folder, dict(os.environ))
        surroundings = caches(folder)
        first, *later = [run(words, folder, surroundings) for _ in range(runs)]
    cpu = statistics.median(one.cpu for one in later)
    wall = statistics.median(one.wall for one in later)
    beside = "" if peer is None else f"{peer.name} {peer.cpu_s:g} {peer.cpu_s / cpu:.3g}x"
    numbers = (first.cpu, first.wall, cpu, wall)
    return [f"weft {words}", *(f"{x:.2f}" for x in numbers), beside]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each command, the first included")
    parser.add_argument("--only", default="", help="a part of the commands to run")
    asked = parser.parse_args()
    head = ("command", "first CPU s", "wall s", "warm CPU s", "wall s", "peer CPU s, /warm")
    title = f"start-up: first of {asked.runs} runs, and the median of the rest"
    loop = f"a plain loop took {plain_loop_s():.2f} CPU s; usual are {USUAL_S}"
    table = Table(*head, title=f"{title}; {loop}")
    for words, peer in COMMANDS.items():
        if asked.only in words:
            table.add_row(*row(words, peer, max(2, asked.runs)))
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``make bench``: what ``weft tune`` takes for whole libraries, in one job.

Seconds are of the processor, of the command and of all processes that it starts. The plain loop of
:mod:`plain_loop` runs before and after: *usual* are the seconds on a core that runs it in its usual
time, which is what the limit is for.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from plain_loop import USUAL_S, plain_loop_s
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Library:
    """A library to be tuned for allreduce, and the CPU seconds that it may take."""

    topology: str
    limit_s: float


LIBRARIES = (
    Library("dgx1", 40),
    Library("dgx-a100:nodes=2", 60),
    Library("dgx-h100:nodes=4", 150),
    Library("torus:8x8", 150),
)


def tuned(topology: str, folder: Path) -> tuple[float, float, int, int]:
    """Tune a library; return its CPU and wall seconds, its peak memory in MB, and its plans.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, "-m", "weft.backends.cli", "tune", "-t", topology]
    command += ["-c", "allreduce", "--jobs", "1", "-o", str(folder / "library"), "--json"]
    begun = time.perf_counter()
    with (folder / "told").open("wb") as told:
        started = subprocess.Popen(command, stdout=told, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), command)
    manifest = json.loads((folder / "library" / "library.json").read_text())
    plans = sum(len(one["plans"]) for one in manifest["tuned"])
    wall = time.perf_counter() - begun
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss // 1024, plans


def row(library: Library) -> list[str]:
    """Measure one library, between two plain loops."""
    before = plain_loop_s()
    with tempfile.TemporaryDirectory(prefix="weft-tune-") as folder:
        cpu, wall, megabytes, plans = tuned(library.topology, Path(folder))
    loop = (before + plain_loop_s()) / 2
    usual = cpu * USUAL_S / loop
    numbers = (f"{cpu:.1f}", f"{wall:.1f}", f"{loop:.2f}", f"{usual:.1f}", f"{library.limit_s:g}")
    return [library.topology, *numbers, str(megabytes), str(plans)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the machines' names")
    asked = parser.parse_args()
    head = ("allreduce on", "CPU s", "wall s", "loop s", "usual CPU s", "limit", "MB", "plans")
    table = Table(*head, title="weft tune, one job")
    for library in LIBRARIES:
        if asked.only in library.topology:
            table.add_row(*row(library))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

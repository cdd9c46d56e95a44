"""``make bench``: small commands by themselves and answered by ``weft serve``: CPU seconds.

*Alone* and *client* are medians; *server* is the mean of what the server, its children and the
processes that they start take for a command, by the counters of the system, which count in steps
of 10 ms: the more runs, the finer. A command that is served takes *server* and *client*.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plain_loop import USUAL_S, plain_loop_s
from rich.console import Console
from rich.table import Table
from start import MADE_BY, SCHEDULE

WEFT = [sys.executable, "-m", "weft.backends.cli"]

COMMANDS = (
    "--version",
    f"check {SCHEDULE}",
    "bound -t dgx1 -c allgather",
    f"simulate {SCHEDULE} --size 1MiB",
    f"compile {SCHEDULE} --to msccl-xml -o a.xml -f",
    "synth -t dgx1 -c allgather -o found -f",
)

TICK = os.sysconf("SC_CLK_TCK")


def spent(words: list[str], folder: Path) -> float:
    """CPU seconds of a command and of the processes below it; it must succeed."""
    before = os.times()
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def spent_by(server: int) -> float:
    """CPU seconds of a server so far, with those of its children that have ended."""
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """The socket and the process of a server."""
    path = str(folder / "socket")
    words = [*WEFT, "serve", "--socket", path, "-q"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert path in process.stdout.readline().decode()
        yield path, process.pid
        process.terminate()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="of each command, each way")
    runs = parser.parse_args().runs
    loop = f"a plain loop took {plain_loop_s():.2f} CPU s; usual are {USUAL_S}"
    with tempfile.TemporaryDirectory(prefix="weft-served-") as name:
        folder = Path(name)
        spent([*WEFT, *MADE_BY.split()], folder)
        empty = statistics.median(spent([sys.executable, "-c", ""], folder) for _ in range(runs))
        with server(folder) as (socket, process):
            title = f"CPU seconds; python alone takes {empty:.3f}; the server took "
            title += f"{spent_by(process):.2f} to start; {loop}"
            table = Table("command", "alone", "server", "client", title=title)
            for line in COMMANDS:
                words, asked = [*WEFT, *line.split()], [*WEFT, "--server", socket, *line.split()]
                alone = statistics.median(spent(words, folder) for _ in range(runs))
                before = spent_by(process)
                client = statistics.median(spent(asked, folder) for _ in range(runs))
                answers = (spent_by(process) - before) / runs
                table.add_row(f"weft {line}", *(f"{x:.3f}" for x in (alone, answers, client)))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

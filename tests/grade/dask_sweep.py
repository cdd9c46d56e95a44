"""``python tests/grade/dask_sweep.py``: a sweep on a Dask cluster that everything happens to.

200 small jobs on a local cluster of two workers. One worker is killed midway, later the client is
stopped by Ctrl-C; a worker joins, and the same command goes on. The files must be those of the
local pool byte for byte, every answer must have been found once, and nothing may have been started
again after it had ended. Then long searches are stopped, by Ctrl-C and by killing the client, and
the time until their processes are gone is taken.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from dask_cluster import DaskCluster, dask_cluster

from weft.dsl.base.processes import descendants
from weft.dsl.base.tables import table

PLAN = """
topologies = ["line:3", "ring:4", "ring:5", "torus:2x2", "torus:2x3"]
collectives = ["allgather", "allreduce", "broadcast", "reduce_scatter"]
engines = ["classic", "packing", "exact{max-chunks=2}", "greedy", "classic{algorithm=ring}"]
sizes = ["4KiB", "1MiB"]
time = "60s"
"""

LONG = """
topologies = ["ndv2:nodes=2"]
collectives = ["allgather"]
engines = ["exact"]
sizes = ["1MiB:8MiB"]
time = "300s"
"""

SWEEP = [sys.executable, "-m", "weft.backends.cli", "sweep", "--no-cache", "--quiet", "--json"]


def main() -> int:
    """Run it all; 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, help="a TOML file instead of the 200 jobs")
    args = parser.parse_args()
    text = args.plan.read_text() if args.plan else PLAN
    with tempfile.TemporaryDirectory(prefix="weft-grade-") as name:
        rows = graded(Path(name), text)
    print(
        table(
            ("what", "found", "wanted", ""),
            [(what, found, wanted, "ok" if ok else "WRONG") for what, found, wanted, ok in rows],
        )
    )
    return 0 if all(ok for *_, ok in rows) else 1


Row = tuple[str, object, object, bool]


def graded(folder: Path, plan: str) -> list[Row]:
    """Every claim with what was found."""
    (folder / "plan.toml").write_text(plan)
    (folder / "long.toml").write_text(LONG)
    here, there = folder / "local", folder / "cluster"
    begin = time.monotonic()
    alone = finished(start(folder / "plan.toml", here, "--jobs", "2"))
    local_seconds = time.monotonic() - begin
    jobs = len(alone["jobs"])
    with dask_cluster(folder) as cluster:
        rows = interrupted(folder / "plan.toml", there, cluster, jobs)
        begin = time.monotonic()
        last = finished(start(folder / "plan.toml", there, "--cluster", cluster.address))
        cluster_seconds = time.monotonic() - begin
        rows += compared(here, there, jobs)
        rows += [
            equal(
                "jobs kept, and not run again, by the last run", last["kept"], jobs - last["ran"]
            ),
            (
                "seconds of the local pool, and of the last run on the cluster",
                f"{local_seconds:.0f}, {cluster_seconds:.0f}",
                "-",
                True,
            ),
        ]
        rows += stopped(folder, cluster)
    return rows


def interrupted(plan: Path, out: Path, cluster: DaskCluster, jobs: int) -> list[Row]:
    """A run whose worker is killed at a third, and that is stopped at two thirds."""
    client = start(plan, out, "--cluster", cluster.address)
    until(lambda: len(events(out, "ended")) >= jobs // 3, client)
    cluster.kill_worker(0)
    killed_at = len(events(out, "ended"))
    until(lambda: len(events(out, "ended")) >= 2 * jobs // 3, client)
    client.send_signal(signal.SIGINT)
    told = finished(client)
    cluster.add_worker()
    return [
        (
            "jobs that had ended when a worker was killed",
            killed_at,
            f"{jobs // 3} or some more",
            jobs // 3 <= killed_at < 2 * jobs // 3,
        ),
        equal("status of the run that was stopped", told["status"], "interrupted"),
        ("jobs that it left", told["pending"], "some", 0 < told["pending"] < jobs),
    ]


def compared(here: Path, there: Path, jobs: int) -> list[Row]:
    """What both places have, and what the journal of the cluster says of every job."""
    ours, theirs = files(here), files(there)
    different = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
    lines = journal(there)
    ends = Counter(x["key"] for x in lines if x["event"] == "ended" and x["files"] is not None)
    again, done = 0, set()
    for line in lines:
        if line["event"] == "ended" and line["files"] is not None:
            done.add(line["key"])
        elif line["event"] == "started" and line["key"] in done:
            again += 1
    begun = Counter(x["key"] for x in lines if x["event"] == "started")
    twice = sum(n > 1 for n in begun.values())
    states = Counter(x["row"]["status"] for x in lines if x["event"] == "ended")
    return [
        (
            "jobs, by how they ended",
            ", ".join(f"{n} {s}" for s, n in states.most_common()),
            jobs,
            len(ends) == jobs,
        ),
        ("files compared with the local pool's", len(ours), len(theirs), len(ours) == len(theirs)),
        equal("files that differ", len(different), 0),
        equal("jobs with more than one answer", sum(n > 1 for n in ends.values()), 0),
        equal("jobs started after they had ended", again, 0),
        (
            "jobs started twice: the one that was killed, and those that Ctrl-C ended",
            twice,
            "at most 3",
            twice <= 3,
        ),
    ]


def stopped(folder: Path, cluster: DaskCluster) -> list[Row]:
    """How long solvers live on after Ctrl-C, and after the client was killed."""
    rows: list[Row] = []
    for number in (signal.SIGINT, signal.SIGKILL):
        out = folder / f"long-{number}"
        client = start(folder / "long.toml", out, "--cluster", cluster.address)
        until(lambda out=out: len(events(out, "started")) >= 2, client)  # type: ignore[misc]
        time.sleep(1.0)
        solvers = cluster.solvers()
        client.send_signal(number)
        seconds = gone(solvers)
        client.communicate()
        what = f"seconds until {len(solvers)} solvers were gone, {number.name} to the client"
        rows.append((what, f"{seconds:.2f}", "at most 2", seconds <= 2.0 <= len(solvers)))
    out = folder / "long-local"
    client = start(folder / "long.toml", out, "--jobs", "2")
    until(lambda: len(events(out, "started")) >= 2, client)
    time.sleep(1.0)
    solvers = descendants(client.pid)
    client.send_signal(signal.SIGINT)
    seconds = gone(solvers)
    client.communicate()
    rows.append(
        (
            f"seconds until {len(solvers)} solvers of the local pool were gone",
            f"{seconds:.2f}",
            "at most 2",
            seconds <= 2.0 and len(solvers) >= 2,
        )
    )
    return rows


def equal(what: str, found: object, wanted: object) -> Row:
    """A claim that holds if both are the same."""
    return what, found, wanted, found == wanted


def gone(processes: list[int]) -> float:
    """Seconds until all are gone; gives up after 30."""
    begin = time.monotonic()
    while time.monotonic() < begin + 30:
        if not any(runs(pid) for pid in processes):
            break
        time.sleep(0.01)
    return time.monotonic() - begin


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(plan: Path, out: Path, *where: str) -> subprocess.Popen[str]:
    """``weft sweep`` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*SWEEP, str(plan), "-o", str(out), *where]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, env=environment, **pipes)


def finished(client: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed."""
    told, _ = client.communicate(timeout=1200)
    if client.returncode != 0:
        raise SystemExit(f"weft sweep ended with {client.returncode}: {told}")
    data: dict[str, Any] = json.loads(told)
    return data


def until(what: Callable[[], bool], client: subprocess.Popen[str]) -> None:
    """Wait while the client runs."""
    while not what():
        if client.poll() is not None:
            raise SystemExit(f"weft sweep ended too early, with {client.returncode}")
        time.sleep(0.02)


def journal(out: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal."""
    file = out / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def events(out: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a journal about one sort of event."""
    return [line for line in journal(out) if line["event"] == name]


def files(out: Path) -> dict[str, bytes]:
    """All that does not speak of clocks and hosts."""
    found = (f for f in out.rglob("*") if f.is_file() and f.name != "journal.jsonl")
    return {str(f.relative_to(out)): f.read_bytes() for f in found}


if __name__ == "__main__":
    sys.exit(main())

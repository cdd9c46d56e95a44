"""``weft sweep --cluster``: a worker dies, the client is stopped, and the files are the same."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command import Weft

pytest.importorskip("distributed")

from dask_cluster import dask_cluster
from until import HANGS, until

WEFT = [sys.executable, "-m", "weft.backends.cli"]
PLAN = (
    "sweep -t ring:3 -t line:3 -c allgather -c allreduce -e classic -e exact --size 4KiB,1MiB "
    "--no-cache --json"
).split()


def journal(out: Path) -> list[dict[str, Any]]:
    file = out / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def answered(out: Path) -> list[str]:
    return [x["key"] for x in journal(out) if x["event"] == "ended" and x["files"] is not None]


def enough(out: Path, count: int) -> bool:
    return len(answered(out)) >= count


def compared(folder: Path) -> dict[str, bytes]:
    files = (f for f in folder.rglob("*") if f.is_file() and f.name != "journal.jsonl")
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


@pytest.mark.slow
def test_killed_stopped_and_resumed_it_is_the_local_sweep(weft: Weft, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    alone = weft(*PLAN, "--jobs", 1, "-o", here)
    assert (alone.code, alone.json["ran"]) == (0, 16)
    with dask_cluster(tmp_path) as dask:
        command = [*WEFT, *PLAN, "-o", str(there), "--cluster", dask.address]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as client:
            for wanted, do in (
                (3, lambda: dask.kill_worker(0)),
                (7, lambda: client.send_signal(signal.SIGINT)),
            ):
                until(partial(enough, there, wanted))
                assert client.poll() is None
                do()
            told, _ = client.communicate(timeout=HANGS)
        data = json.loads(told)
        assert (client.returncode, data["status"]) == (0, "interrupted")
        assert data["pending"] == 16 - data["ran"] > 0
        dask.add_worker()
        again = weft(*PLAN, "-o", there, "--cluster", dask.address)
        assert (again.code, again.json["kept"]) == (0, data["ran"])
    assert compared(there) == compared(here)
    assert sorted(answered(there)) == sorted(set(answered(there)))
    done: set[str] = set()
    for line in journal(there):
        assert not (line["event"] == "started" and line["key"] in done)
        if line["event"] == "ended" and line["files"] is not None:
            done.add(line["key"])
    assert len(done) == 16

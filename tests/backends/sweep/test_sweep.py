"""``weft sweep`` on this machine: the list, the folder, going on, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import Weft
from kept_workers import kept_workers
from until import HANGS, until

from weft.dsl.base.processes import descendants
from weft.dsl.nouns.schedule import read
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

__all__ = ["kept_workers"]
pytestmark = pytest.mark.usefixtures("kept_workers")

COLLECTIVES = "-c allgather -c allreduce"
SMALL = (
    f"sweep -t ring:3 -t line:3 {COLLECTIVES} -e classic -e exact --size 4KiB --effort 20".split()
)


def compared(folder: Path) -> dict[str, bytes]:
    """The files that are the same wherever a sweep ran."""
    files = (f for f in folder.rglob("*") if f.is_file() and f.name != "journal.jsonl")
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def starts(folder: Path) -> list[str]:
    return [line["key"] for line in journal(folder) if line["event"] == "started"]


def test_a_sweep_is_a_table_and_a_folder_of_verified_schedules(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = weft(*SMALL, "-o", out, "--json").ended(0)
    assert (ran.json["status"], ran.json["ran"], ran.json["pending"]) == ("ok", 8, 0)
    rows = json.loads((out / "sweep.json").read_text())["jobs"]
    order = [(r["topology"], r["collective"], r["engine"]) for r in rows]
    assert order == [
        (t, c, e)
        for t in ("ring:3", "line:3")
        for c in ("allgather", "allreduce")
        for e in ("classic", "exact")
    ]
    refused = [r for r in rows if r["status"] == "refused"]
    assert [(r["topology"], r["collective"], r["engine"]) for r in refused] == [
        ("line:3", "allreduce", "classic")
    ]
    assert "no classic algorithm fits" in refused[0]["why"]
    for row in rows:
        if row["status"] == "refused":
            continue
        schedule = read(out / row["points"][0]["file"])
        assert verify(schedule).ok
        assert simulate(schedule, 4096).time_us == row["value"] >= row["bound"]
        assert row["points"][0]["file"].endswith(f"-{row['key'][:12]}.json")
    text = weft(*SMALL).ended(0)
    head, *lines = text.out.splitlines()
    assert head.split()[:4] == ["topology", "collective", "engine", "size"]
    assert len(lines) == 8
    assert "8 from the cache" in text.err


def test_what_is_known_is_not_run_again_and_files_are_the_same(weft: Weft, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert weft(*SMALL, "-o", first, "--jobs", 2).code == 0
    again = weft(*SMALL, "-o", first, "--no-cache", "--json").json
    assert (again["ran"], again["cached"], again["kept"]) == (0, 0, 8)
    cached = weft(*SMALL, "-o", second, "--json").json
    assert (cached["ran"], cached["cached"], cached["kept"]) == (0, 8, 0)
    alone = weft(*SMALL, "-o", third, "--no-cache", "--jobs", 1, "--json").json
    assert (alone["ran"], alone["cached"], alone["kept"]) == (8, 0, 0)
    assert compared(first) == compared(second) == compared(third)
    assert sorted(starts(first)) == sorted(set(starts(first)))
    assert starts(second) == []


def test_a_journal_that_was_cut_off_and_a_file_that_is_gone(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert weft(*SMALL, "-o", out, "--no-cache").code == 0
    before = compared(out)
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
    ended = [x for x in journal_of(lines[:-1]) if x["event"] == "ended" and x["files"]]
    (out / next(iter(ended[0]["files"]))).write_text("{}")
    (out / "sweep.json").unlink()
    again = weft(*SMALL, "-o", out, "--no-cache", "--json").json
    assert (again["ran"], again["kept"]) == (2, 6)
    assert compared(out) == before


@pytest.mark.parametrize("seal", ["", "forged", "its own"])
def test_a_forged_row_is_not_believed(weft: Weft, tmp_path: Path, seal: str) -> None:
    """A row that says 1e-06 and optimal: of another hand, or a true one that was changed."""
    out = tmp_path / "out"
    assert weft(*SMALL, "-o", out, "--no-cache").code == 0
    before = compared(out)
    forged = []
    for line in journal(out):
        if line["event"] == "ended":
            line["row"] |= {"value": 1e-06, "bound": 1e-06, "status": "optimal"}
            line["seal"] = {"": None, "forged": "0" * 64, "its own": line["seal"]}[seal]
        forged.append(line)
    (out / "journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in forged))
    again = weft(*SMALL, "-o", out, "--no-cache", "--json").json
    assert (again["ran"], again["kept"]) == (8, 0)
    assert compared(out) == before


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "sweep", "keys": [[]]}',
        '{"event": "sweep"}',
        '{"event": ["ended"]}',
        '{"event": "ended", "key": "x", "row": 1, "files": 2, "seal": 3}',
        '{"event": "ended", "key": NaN, "files": {}}',
        "[" * 100_000,
        "9" * 5000,
        "\x00",
    ],
)
def test_a_journal_with_wrong_types_is_no_bug(weft: Weft, tmp_path: Path, line: str) -> None:
    out = tmp_path / "out"
    one = ("sweep", "-t", "ring:3", "-c", "allgather", "-e", "classic", "--size", "1KiB")
    assert weft(*one, "-o", out).code == 0
    with (out / "journal.jsonl").open("a") as file:
        file.write(f"{line}\n")
    weft(*one, "-o", out).ended(2 if '"sweep"' in line else 0)


@pytest.mark.parametrize("name", ["journal.jsonl", "schedules", "sweep.json"])
def test_a_folder_whose_files_are_links_is_not_written_to(
    weft: Weft, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    (out / "schedules").mkdir(parents=True)
    (out / "journal.jsonl").touch()
    target = tmp_path / "elsewhere"
    if name == "schedules":
        (out / name).rmdir()
        target.mkdir()
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(target)
    weft("sweep", "-t", "ring:3", "-c", "allgather", "-o", out).ended(2, name)
    assert not target.is_dir() or not list(target.iterdir())


def journal_of(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_another_sweep_and_other_files_are_left_alone(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = ("sweep", "-t", "ring:3", "-c", "allgather", "-e", "classic", "--size", "1KiB")
    assert weft(*one, "-o", out).code == 0
    weft(*one[:-1], "2KiB", "-o", out).ended(2, "another")
    assert weft(*one[:-1], "2KiB", "-o", out, "-f").code == 0
    assert len(list((out / "schedules").iterdir())) == 1
    (out / "thesis.tex").write_text("years of work")
    assert weft(*one, "-o", out, "-f").code == 2
    assert (out / "thesis.tex").read_text() == "years of work"
    assert weft(*one, "-o", tmp_path / "no" / "where").code == 2
    (tmp_path / "file").touch()
    assert weft(*one, "-o", tmp_path / "file").code == 2


PLAN = """
topologies = ["ring:3", "line:3"]
collectives = ["allgather", "allreduce"]
engines = ["classic", "exact"]
sizes = ["1KiB:4KiB"]
time = "20s"

[[exclude]]
collective = "allreduce"
engine = ["classic", "packing"]

[[exclude]]
topology = "line:3"
size = "1KiB"

[[job]]
topology = "ring:4"
collective = "broadcast"
root = 3
size = "64KiB"
engine = "exact"

[[job]]
topology = "ring:4"
collective = "broadcast"
root = 7
size = "64KiB"
engine = "exact"
"""


def test_a_file_states_axes_exclusions_and_single_jobs(weft: Weft, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    rows = weft("sweep", plan, "--json").json["jobs"]
    texts = {(r["topology"], r["collective"], r["engine"], r["bytes"]) for r in rows[:-2]}
    sizes = {"ring:3": (1024, 2048, 4096), "line:3": (2048, 4096)}
    engines = {"allgather": ("classic", "exact"), "allreduce": ("exact",)}
    assert texts == {
        (t, c, e, s) for t in sizes for c in engines for e in engines[c] for s in sizes[t]
    }
    assert [r["more"] for r in rows[-2:]] == ["root=3", "root=7"]
    assert rows[-2]["status"] == "feasible"  # best in steps and rounds, above the bound in time
    assert rows[-1]["status"] == "refused"
    assert "outside the group" in rows[-1]["why"]
    fewer = weft("sweep", plan, "-t", "ring:3", "-e", "exact", "--size", "4KiB", "--json").json
    assert len(fewer["jobs"]) == 2 + 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topologies = [", "not TOML"),
        ("topology = ['ring:3']", "topologies"),
        ("topologies = ['ring:3']", "-c"),
        ("topologies = ['ring:3']\ncollectives = ['allgathr']", "allgather"),
        ("topologies = ['rng:3']\ncollectives = ['allgather']", "ring"),
        ("topologies = ['ring:3']\ncollectives = ['allgather']\nengines = ['exct']", "exact"),
        ("topologies = ['ring:3']\ncollectives = ['allgather']\nsketches = ['no']", "no"),
        ("topologies = ['ring:3']\ncollectives = ['allgather']\nsizes = [1]", "texts"),
        ("topologies = ['ring:3']\ncollectives = ['allgather']\nobjective = 'time'", "sizes"),
        ("[[job]]\ntopology = 'ring:3'", "collective"),
        ("topologies = ['ring:3']\ncollectives = ['allgather']\n[[exclude]]", "everything"),
        (
            "topologies = ['ring:3']\ncollectives = ['allgather']\n"
            "[[exclude]]\ntopology = 'ring:3'",
            "expected a job",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    weft: Weft, tmp_path: Path, text: str, told: str
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    weft("sweep", plan).ended(2, told)
    assert not (tmp_path / "cache").exists()


def test_sketches_are_an_axis_and_misfits_are_refused(weft: Weft, tmp_path: Path) -> None:
    sketch = tmp_path / "one_way.sketch"
    sketch.write_text("sketch one_way\ncollective allgather\nforbid links 1 -> 0\n")
    asked = "sweep -t ring:3 -c allgather -c allreduce -e exact --size 4KiB --json".split()
    rows = weft(*asked, "-s", "", "-s", sketch).json["jobs"]
    status = {(r["collective"], bool(r["sketch"])): r["status"] for r in rows}
    assert status[("allgather", True)] in ("optimal", "feasible")
    assert status[("allreduce", True)] == "refused"
    times = {(r["collective"], bool(r["sketch"])): r["value"] for r in rows}
    assert times[("allgather", True)] > times[("allgather", False)]


def test_a_frontier_has_a_file_per_point(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = weft("sweep", "-t", "line:3", "-c", "broadcast", "-e", "exact", "-o", out, "--json")
    [row] = ran.json["jobs"]
    assert (row["status"], row["value"]) == ("optimal", None)
    assert len(row["points"]) == len({p["file"] for p in row["points"]}) > 1
    assert all(verify(read(out / p["file"])).ok for p in row["points"])


def test_a_job_that_is_late_is_killed_and_asked_again_next_time(weft: Weft, tmp_path: Path) -> None:
    out = tmp_path / "out"
    slow = "sweep -t ndv2:nodes=2 -c allgather -e exact --size 1MiB --effort 50 --json".split()
    slow += ["-o", str(out)]
    assert weft(*slow, "--deadline", "0.2s").ended(3).json["jobs"][0]["status"] == "late"
    assert weft(*slow, "--deadline", "0.2s").json["jobs"][0]["status"] == "late"
    assert len(starts(out)) == 2


def started(words: list[str], **more: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "weft.backends.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more},
    )


LONG = (
    "sweep -t ring:3 -t ndv2:nodes=2 -c allgather -e exact --size 1MiB,2MiB --effort 100 --jobs 2 "
    "--json"
).split()
"""Two jobs that end at once, and two that no solver ends in a minute."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_solvers_and_keeps_what_is_done(
    weft: Weft, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    with started([*LONG, "-o", str(out)]) as process:
        until(lambda: len(ended(out)) >= 2 and len(starts(out)) >= 4, "the long job")
        small_ones = ended(out)
        solvers = descendants(process.pid)
        assert solvers
        process.send_signal(number)
        told, said = process.communicate(timeout=HANGS)
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in solvers)
    assert process.returncode == 0, said
    data = json.loads(told)
    assert (data["status"], data["pending"], data["ran"]) == ("interrupted", 2, 2)
    assert "2 of 4 jobs not run; the same command goes on" in said
    rows = json.loads((out / "sweep.json").read_text())["jobs"]
    assert [r["status"] == "pending" for r in rows] == [False, False, True, True]
    again = weft(*LONG, "--deadline", "0.2s", "-o", out).json
    assert (again["kept"], again["ran"]) == (2, 0)
    assert set(small_ones).isdisjoint(starts(out)[4:])


def ended(out: Path) -> list[str]:
    if not (out / "journal.jsonl").exists():
        return []
    return [x["key"] for x in journal(out) if x["event"] == "ended"]


def test_ctrl_c_before_anything_is_done_is_130(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = [*LONG, "-o", str(folder)]
    words.remove("ring:3")
    words.remove("-t")
    with started(words, WEFT_CACHE=str(tmp_path / "cache")) as process:
        until(lambda: (folder / "journal.jsonl").exists() and bool(starts(folder)))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=HANGS)
    assert process.returncode == 130, said


def test_a_cluster_needs_dask(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    weft("sweep", "-t", "ring:3", "-c", "allgather", "--cluster", "tcp://localhost:1").ended(
        4, "pip install 'weft[dask]'"
    )


def test_the_cache_is_counted_and_cleared(weft: Weft, tmp_path: Path) -> None:
    one = ("sweep", "-t", "ring:3", "-c", "allgather", "-e", "classic", "--size", "1KiB")
    assert weft("cache", "list", "--json").json["answers"] == 0
    assert weft(*one).code == 0
    assert weft(*one, "--cache", tmp_path / "other").code == 0
    [entry] = (tmp_path / "cache").rglob("*.json")
    (entry.parent / "of-old.json").write_text('{"code": "old"}')
    told = weft("cache", "list", "--json").json
    assert (told["answers"], told["stale"]) == (2, 1)
    assert "of another version" in weft("cache", "list").out
    assert weft("cache", "clear", "--stale", "--json").json["removed"] == 1
    assert entry.exists()
    assert weft("cache", "clear", "--json").json["answers"] == 0
    assert not entry.exists()
    assert weft("cache", "list", "--cache", tmp_path / "other", "--json").json["answers"] == 1
    assert weft("cache", "list", "--cache", tmp_path / "nowhere").code == 2


@pytest.mark.parametrize(
    "text",
    ['collectives = ["evil.py"]', '[[job]]\ntopology = "ring:3"\ncollective = "evil.py:x{a=1}"'],
)
def test_a_list_of_jobs_names_no_code(weft: Weft, tmp_path: Path, text: str) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(text.replace("evil", str(tmp_path / "evil")))
    weft("sweep", jobs, "-t", "ring:3").ended(2, str(jobs), "got the Python code")
    assert not (tmp_path / "executed").exists()

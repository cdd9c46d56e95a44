"""A Dask cluster as the pool: what the local pool promises, and workers that die."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from dask_cluster import DaskCluster, dask_cluster
from job_bodies import log

from weft.backends.jobs.answer import Ending
from weft.backends.jobs.cluster import Cluster, cluster
from weft.backends.jobs.executor import Event
from weft.backends.jobs.job import Job
from weft.dsl.base.errors import Refusal, UserError

BODIES = "job_bodies"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as found:
        yield found


@pytest.fixture(scope="module")
def pool(dask: DaskCluster) -> Iterator[Cluster]:
    with cluster(dask.address) as found:
        yield found


def gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
            return True
        time.sleep(0.02)
    return False


def pids(folder: Path) -> list[int]:
    return [int(x) for file in folder.glob("pids-*") for x in file.read_text().split()]


def test_answers_and_errors_are_those_of_the_local_pool(pool: Cluster, tmp_path: Path) -> None:
    assert pool.map(f"{BODIES}:double", range(8)) == [2 * i for i in range(8)]
    with pytest.raises(Refusal) as refusal:
        pool.map(f"{BODIES}:refuses", ["refusal"])
    assert refusal.value.reason == "it is too large"
    endings = [a.ending for a in pool.answers(f"{BODIES}:sleeps", [60, 0.1], deadline=1.0)]
    assert endings == [Ending.LATE, Ending.DONE]
    [answer] = pool.answers(f"{BODIES}:fails", [None])
    assert answer.ending is Ending.BROKEN
    heard: list[Event] = []
    job = Job.of(f"{BODIES}:dies", str(tmp_path / "once"))
    answer = pool.submit(job, told=lambda event, _: heard.append(event)).answer(60)
    assert (answer.value, answer.starts) == ("done", 2)


def test_cancelling_kills_what_the_workers_have_started(pool: Cluster, tmp_path: Path) -> None:
    asked = 0.0

    def cancelled() -> bool:
        nonlocal asked
        if len(pids(tmp_path)) == 4 and not asked:
            asked = time.monotonic()
        return asked > 0

    answers = pool.answers(f"{BODIES}:stubborn", [str(tmp_path)] * 3, cancelled=cancelled)
    assert gone(pids(tmp_path), 2.0 - (time.monotonic() - asked))
    assert [a.ending for a in answers] == [Ending.CANCELLED] * 3
    assert sorted(a.starts for a in answers) == [0, 1, 1]
    assert pool.map(f"{BODIES}:double", [1]) == [2]


def test_very_many_jobs_are_cancelled_at_once(pool: Cluster) -> None:
    handles = [pool.submit(Job.of(f"{BODIES}:sleeps", 60 + i)) for i in range(1000)]
    for handle in handles:
        handle.cancel()
    asked = time.monotonic()
    assert {handle.answer(10).ending for handle in handles} == {Ending.CANCELLED}
    assert time.monotonic() - asked < 4.0


def test_leaving_ends_what_runs(dask: DaskCluster, tmp_path: Path) -> None:
    with cluster(dask.address) as other:
        handle = other.submit(Job.of(f"{BODIES}:stubborn", str(tmp_path)))
        end = time.monotonic() + 30
        while not pids(tmp_path):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert gone(pids(tmp_path), 2.0)
    assert handle.answer(1).ending is Ending.CANCELLED


def test_a_killed_worker_costs_its_running_job_only(
    dask: DaskCluster, pool: Cluster, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    log(str(journal), "begin")
    handles = [
        pool.submit(Job.of(f"{BODIES}:logged", [str(journal), str(i), 0.4])) for i in range(10)
    ]
    while journal.read_text().count("end") < 3:
        time.sleep(0.02)
    answered = [i for i, handle in enumerate(handles) if handle.ended()]
    dask.kill_worker(0)
    assert [handle.answer(60).value for handle in handles] == [str(i) for i in range(10)]
    lines = journal.read_text().split("\n")
    starts = [lines.count(f"start {i}") for i in range(10)]
    assert [starts[i] for i in answered] == [1] * len(answered)
    # The one that ran, and perhaps one that was done and whose answer had not arrived.
    assert 11 <= sum(starts) <= 12
    dask.add_worker()


def test_nobody_there_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UserError, match="no scheduler") as error:
        cluster(address)
    assert "dask scheduler" in error.value.hint
    with pytest.raises(UserError, match="no address"):
        cluster("host:8786")


def test_workers_of_another_weft_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solver's package that only the worker has makes it another one."""
    package = tmp_path / "more" / "gurobipy-99.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: gurobipy\nVersion: 99\n")
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    with dask_cluster(tmp_path, workers=1) as other:
        monkeypatch.undo()
        with pytest.raises(UserError, match="another weft") as error:
            cluster(other.address)
    assert "tcp://127.0.0.1" in error.value.message

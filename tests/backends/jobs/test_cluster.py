"""A Dask cluster as the pool: what the local pool promises, and workers that die."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from dask_cluster import DaskCluster, dask_cluster
from job_bodies import log
from until import HANGS, until

from weft.backends.jobs.cluster import Cluster, cluster
from weft.backends.jobs.executor import Event
from weft.backends.jobs.job import Ending, Job, JobLimits
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


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def pids(folder: Path) -> list[int]:
    return [int(x) for file in folder.glob("pids-*") for x in file.read_text().split()]


def test_answers_and_errors_are_those_of_the_local_pool(pool: Cluster, tmp_path: Path) -> None:
    assert pool.map(f"{BODIES}:double", range(8)) == [2 * i for i in range(8)]
    with pytest.raises(Refusal) as refusal:
        pool.map(f"{BODIES}:refuses", ["refusal"])
    assert refusal.value.reason == "it is too large"
    [answer] = pool.answers(f"{BODIES}:fails", [None])
    assert answer.ending is Ending.BROKEN
    heard: list[Event] = []
    job = Job.of(f"{BODIES}:dies", str(tmp_path / "once"))
    answer = pool.submit(job, told=lambda event, _: heard.append(event)).answer(HANGS)
    assert (answer.value, answer.starts) == ("done", 2)


def test_cancelling_kills_what_the_workers_have_started(pool: Cluster, tmp_path: Path) -> None:
    stop = tmp_path / "stop"

    def cancelled() -> bool:
        if len(pids(tmp_path)) == 4:
            stop.touch()
        return stop.exists()

    answers = pool.answers(f"{BODIES}:stubborn", [str(tmp_path)] * 3, cancelled=cancelled)
    until(lambda: gone(pids(tmp_path)))
    assert [a.ending for a in answers] == [Ending.CANCELLED] * 3
    assert sorted(a.starts for a in answers) == [0, 1, 1]
    assert pool.map(f"{BODIES}:double", [1]) == [2]


def test_very_many_jobs_are_cancelled_at_once(pool: Cluster) -> None:
    """None of them is waited for: together they sleep for two weeks."""
    handles = [pool.submit(Job.of(f"{BODIES}:sleeps", 2 * HANGS + i)) for i in range(1000)]
    for handle in handles:
        handle.cancel()
    assert {handle.answer(HANGS).ending for handle in handles} == {Ending.CANCELLED}


def test_leaving_ends_what_runs(dask: DaskCluster, tmp_path: Path) -> None:
    with cluster(dask.address) as other:
        handle = other.submit(Job.of(f"{BODIES}:stubborn", str(tmp_path)))
        until(lambda: bool(pids(tmp_path)))
    until(lambda: gone(pids(tmp_path)))
    assert handle.answer(HANGS).ending is Ending.CANCELLED


def test_a_killed_worker_costs_its_running_job_only(
    dask: DaskCluster, pool: Cluster, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    log(str(journal), "begin")
    handles = [
        pool.submit(Job.of(f"{BODIES}:logged", [str(journal), str(i), 0.4])) for i in range(10)
    ]
    until(lambda: journal.read_text().count("end") >= 3)
    answered = [i for i, handle in enumerate(handles) if handle.ended()]
    dask.kill_worker(0)
    assert [handle.answer(HANGS).value for handle in handles] == [str(i) for i in range(10)]
    lines = journal.read_text().split("\n")
    starts = [lines.count(f"start {i}") for i in range(10)]
    assert [starts[i] for i in answered] == [1] * len(answered)
    # The one that ran, and perhaps one that was done and whose answer had not arrived.
    assert 11 <= sum(starts) <= 12
    dask.add_worker()


def test_a_scheduler_that_comes_back_loses_no_job(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    log(str(journal), "begin")
    with dask_cluster(tmp_path, workers=1) as dask, cluster(dask.address) as pool:
        bodies = [Job.of(f"{BODIES}:logged", [str(journal), str(i), 0.2]) for i in range(8)]
        handles = [pool.submit(body) for body in bodies[:6]]
        until(lambda: sum(handle.ended() for handle in handles) >= 2)
        answered = [i for i, handle in enumerate(handles) if handle.ended()]
        dask.kill_scheduler()
        handles += [pool.submit(body) for body in bodies[6:]]
        handles[5].cancel()
        assert handles[5].answer(HANGS).ending is Ending.CANCELLED
        dask.start_scheduler(workers=1)
        kept = [i for i in range(8) if i != 5]
        answers = [handles[i].answer(HANGS) for i in kept]
        assert all(one.ending is Ending.DONE for one in answers), answers
        assert [one.value for one in answers] == [str(i) for i in kept]
    lines = journal.read_text().split("\n")
    assert [lines.count(f"start {i}") for i in answered] == [1] * len(answered)


def test_a_scheduler_that_stays_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.backends.jobs.cluster.LIMITS", JobLimits(return_seconds=1.0))
    with dask_cluster(tmp_path, workers=1) as dask, cluster(dask.address) as pool:
        handles = [pool.submit(Job.of(f"{BODIES}:sleeps", 2 * HANGS)) for _ in range(2)]
        dask.kill_scheduler()
        answers = [handle.answer(HANGS) for handle in handles]
        answers.append(pool.submit(Job.of(f"{BODIES}:double", 1)).answer(HANGS))
    assert {answer.ending for answer in answers} == {Ending.LOST}
    assert "not back" in str(answers[0].fault)


def test_a_cluster_that_does_not_answer_is_refused_at_once() -> None:
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
        with pytest.raises(UserError, match="another version of weft") as error:
            cluster(other.address)
    assert "tcp://127.0.0.1" in error.value.message

"""The pool of one machine: answers in order, real kills, lost processes, errors as they were."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from until import HANGS, until

from weft.backends.jobs.executor import Event, Step
from weft.backends.jobs.job import Ending, Job
from weft.backends.jobs.local import LocalExecutor, local
from weft.dsl.base.errors import Infeasible, Refusal, UserError, WeftError
from weft.dsl.base.processes import descendants
from weft.dsl.base.spans import Span

BODIES = "job_bodies"


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalExecutor]:
    with local(workers=2) as found:
        yield found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def pids(folder: Path) -> list[int]:
    return [int(x) for file in folder.glob("pids-*") for x in file.read_text().split()]


def test_answers_come_in_the_order_of_the_arguments(pool: LocalExecutor) -> None:
    steps: list[Step] = []
    assert pool.map(f"{BODIES}:sleeps", [0.3, 0.0, 0.1], progress=steps.append) == [0.3, 0.0, 0.1]
    assert [step.ended for step in steps] == [1, 2, 3]
    assert {step.place for step in steps} == {0, 1, 2}
    assert steps[-1].place == 0


def test_nothing_is_a_list_of_nothing(pool: LocalExecutor) -> None:
    assert pool.map(f"{BODIES}:double", []) == []


def test_processes_serve_job_after_job_with_few_threads(pool: LocalExecutor) -> None:
    assert len(set(pool.map(f"{BODIES}:process", range(20)))) <= 2
    [found] = pool.map(f"{BODIES}:surroundings", [None])
    assert found == {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def test_what_a_job_prints_is_no_answer(pool: LocalExecutor) -> None:
    assert pool.map(f"{BODIES}:prints", [1, 2, 3]) == [1, 2, 3]


def test_errors_of_users_arrive_as_they_were(pool: LocalExecutor) -> None:
    with pytest.raises(UserError) as user:
        pool.map(f"{BODIES}:refuses", ["user"])
    assert isinstance(user.value.where, Span)
    assert "a.sketch:2:8" in user.value.render()
    assert "hint: 0" in user.value.render()
    with pytest.raises(Refusal) as refusal:
        pool.map(f"{BODIES}:refuses", ["refusal"])
    assert refusal.value.reason == "it is too large"
    with pytest.raises(Infeasible) as infeasible:
        pool.map(f"{BODIES}:refuses", ["infeasible"])
    assert infeasible.value.conflict == ("line 1", "line 2")
    assert infeasible.value.exit_code == 1


def test_the_first_error_counts_and_answers_keep_all(pool: LocalExecutor) -> None:
    with pytest.raises(Refusal):
        pool.map(f"{BODIES}:refuses", ["refusal", "user"])
    ends = [a.ending for a in pool.answers(f"{BODIES}:refuses", ["user", "infeasible"])]
    assert ends == [Ending.REFUSED, Ending.REFUSED]


def test_anything_else_that_escapes_is_a_bug_with_its_trace(pool: LocalExecutor) -> None:
    with pytest.raises(WeftError) as bug:
        pool.map(f"{BODIES}:fails", [None])
    assert bug.value.exit_code == 70
    assert "ArithmeticError: out of luck" in bug.value.message
    assert "job_bodies.py" in bug.value.__notes__[0]
    [answer] = pool.answers(f"{BODIES}:returns_a_set", [None])
    assert answer.ending is Ending.BROKEN
    assert pool.map(f"{BODIES}:double", [4]) == [8]  # and the process serves on


def test_a_job_whose_process_dies_is_started_again(pool: LocalExecutor, tmp_path: Path) -> None:
    heard: list[Event] = []
    job = Job.of(f"{BODIES}:dies", str(tmp_path / "once"))
    answer = pool.submit(job, told=lambda event, _: heard.append(event)).answer(HANGS)
    assert (answer.ending, answer.value, answer.starts) == (Ending.DONE, "done", 2)
    assert heard == [Event.STARTED, Event.LOST, Event.STARTED]


def test_a_job_that_always_kills_its_process_is_given_up(pool: LocalExecutor) -> None:
    [answer, other] = [
        pool.submit(Job.of(f"{BODIES}:{name}", 1)).answer(HANGS)
        for name in ("always_dies", "double")
    ]
    assert (answer.ending, answer.starts, other.value) == (Ending.LOST, 3, 2)
    assert "signal 9 SIGKILL: no memory" in answer.error().message


def test_cancelling_kills_grandchildren_in_sessions_of_their_own(tmp_path: Path) -> None:
    with local(workers=2) as pool:
        stop = tmp_path / "stop"

        def cancelled() -> bool:
            if len(pids(tmp_path)) == 4:
                stop.touch()
            return stop.exists()

        answers = pool.answers(f"{BODIES}:stubborn", [str(tmp_path)] * 3, cancelled=cancelled)
        assert {a.ending for a in answers} == {Ending.CANCELLED}
        until(lambda: not any(map(alive, pids(tmp_path))))
        with pytest.raises(KeyboardInterrupt):
            pool.map(f"{BODIES}:double", [1], cancelled=lambda: True)
        assert pool.map(f"{BODIES}:double", [1]) == [2]  # the pool is as good as before


def test_one_job_is_cancelled_alone(pool: LocalExecutor) -> None:
    long, short = (pool.submit(Job.of(f"{BODIES}:sleeps", s)) for s in (2 * HANGS, 0.5))
    long.cancel()
    assert long.answer(HANGS).ending is Ending.CANCELLED
    assert short.answer(HANGS).ending is Ending.DONE


def test_leaving_the_pool_ends_what_runs(tmp_path: Path) -> None:
    with local(workers=1) as pool:
        handles = [pool.submit(Job.of(f"{BODIES}:stubborn", str(tmp_path))) for _ in range(2)]
        until(lambda: len(pids(tmp_path)) == 2)
    assert [h.answer(0).ending for h in handles] == [Ending.CANCELLED] * 2
    until(lambda: not any(map(alive, pids(tmp_path))))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_starter_of_the_pool(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "from weft.backends.jobs.local import local\n"
        f"with local(workers=1) as pool: pool.map('{BODIES}:stubborn', [{str(tmp_path)!r}])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL
    )
    until(lambda: len(pids(tmp_path)) == 2)
    assert set(pids(tmp_path)) <= set(descendants(parent.pid))
    parent.send_signal(number)
    parent.wait(HANGS)
    until(lambda: not any(map(alive, pids(tmp_path))))

"""Cut-offs and deadlines, with wide margins; they and ranks that wait are what a clock decides."""

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest
from msccl_files import hostile_texts
from until import until

from weft.backends.formats.msccl.read import read_msccl_xml
from weft.backends.jobs.executor import Executor
from weft.backends.jobs.job import Ending
from weft.backends.jobs.local import local
from weft.dsl.base.compile_time import COMPILE_TIME
from weft.dsl.base.errors import BadFile, NothingFound
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.synth.api import synthesize
from weft.synth.base.cancellable import CutOff, cpu_seconds
from weft.synth.base.engine import Budget, Observer, Outcome, Point, Silent, Status

pytestmark = pytest.mark.clock

BODIES = "job_bodies"

RING = topology("ring:4")
PROBLEM = Problem(RING, make("allgather", 4), None, Objective.TIME, 1 << 20)

WORK = 200_000
"""Additions, about ten milliseconds of them."""


def work() -> None:
    sum(range(WORK))


@dataclass(frozen=True)
class Endless:
    """Tells of the ring, if it tells of anything, and works until somebody asks it to stop."""

    name: ClassVar[str] = "endless"
    cites: ClassVar[str] = "nobody"
    tells: bool = True

    @classmethod
    def availability(cls) -> str | None:
        return None

    def refuses(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, observer: Observer) -> Outcome:
        found: tuple[Point, ...] = ()
        if self.tells:
            found = synthesize(problem, "classic{algorithm=ring}").points
            observer.incumbent(found[0])
        while not observer.cancelled():
            work()
        return Outcome(Status.FEASIBLE if found else Status.NOTHING, found)


# --- searches -------------------------------------------------------------------------------------


def test_a_search_is_cut_off_and_says_so() -> None:
    began = cpu_seconds()
    outcome = synthesize(PROBLEM, Endless(), Budget(effort=1e9, seconds=0.5))
    assert 0.5 <= cpu_seconds() - began < 60
    (told,) = outcome.statements
    assert told.startswith("stopped by --time after ")
    assert (outcome.status, len(outcome.points)) == (Status.FEASIBLE, 1)


def test_a_cut_off_before_anything_is_found_is_no_interrupt() -> None:
    outcome = synthesize(PROBLEM, Endless(tells=False), Budget(effort=1e9, seconds=0.2))
    assert (outcome.status, outcome.points) == (Status.NOTHING, ())
    assert "stopped by --time" in outcome.statements[-1]


@pytest.mark.parametrize("kind", ["allgather", "allreduce", "alltoall", "broadcast"])
def test_a_race_that_is_cut_off_at_once_has_a_classic_algorithm(kind: str) -> None:
    machine = topology("torus:4x4,dead=0-1,5-6")
    problem = Problem(machine, make(kind, 16), None, Objective.TIME, 1 << 20)
    outcome = synthesize(problem, budget=Budget(seconds=1e-9))
    assert outcome.status is Status.FEASIBLE
    assert outcome.points[0].schedule.provenance["found_by"] == "classic"
    assert any(told.startswith("stopped by --time") for told in outcome.statements)


def test_a_search_that_ends_before_says_nothing() -> None:
    outcome = synthesize(PROBLEM, "classic{algorithm=ring}", Budget(seconds=1e6))
    assert outcome.points
    assert not any("--time" in told for told in outcome.statements)


def test_compiling_does_not_count() -> None:
    limit = CutOff(Silent(), 1e6)
    COMPILE_TIME.begin()
    began = cpu_seconds()
    while cpu_seconds() - began < 1:
        work()
    assert limit.used < 0.5
    COMPILE_TIME.end()
    assert limit.used < 0.5
    while limit.used < 0.5:
        work()
    assert not limit.cancelled()


def test_seconds_of_processes_that_run_count() -> None:
    code = "print('here', flush=True)\nwhile True: sum(range(100000))"
    began = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            until(lambda: cpu_seconds() - began > 1)
        finally:
            child.kill()


# --- jobs -----------------------------------------------------------------------------------------


def late(pool: Executor) -> None:
    answers = pool.answers(f"{BODIES}:sleeps", [0, 9999, 0], deadline=15.0)
    assert [a.ending for a in answers] == [Ending.DONE, Ending.LATE, Ending.DONE]
    with pytest.raises(NothingFound, match="deadline"):
        answers[1].get()


def test_a_late_job_is_killed_and_the_others_are_not() -> None:
    with local(workers=2) as pool:
        late(pool)


@pytest.mark.slow
def test_a_late_job_is_killed_on_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("distributed")
    from dask_cluster import dask_cluster

    from weft.backends.jobs.cluster import cluster

    with (
        dask_cluster(tmp_path_factory.mktemp("dask"), workers=1) as dask,
        cluster(dask.address) as pool,
    ):
        late(pool)


# --- growth that no counter of calls sees ---------------------------------------------------------


def test_hostile_text_takes_linear_time() -> None:
    """Quadratic time would be minutes; all of it is a fifth of a second."""
    began = time.process_time()
    for text in hostile_texts(50_000):
        with pytest.raises(BadFile):
            read_msccl_xml(text, "hostile")
    assert time.process_time() - began < 30

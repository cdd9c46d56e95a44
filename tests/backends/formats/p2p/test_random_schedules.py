"""Random collectives, synthesized on random machines: 150 on threads, 50 of them on MPI."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from jobs import RUNTIMES, all_right, piece, run_right
from strategies import collectives, topologies

from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script
from weft.backends.ranks.job import Case, whole_job
from weft.backends.ranks.threads import run_threads
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

TYPES = ("float32", "int32", "float16", "bfloat16", "float64")
COUNT = 150


@cache
def synthesized() -> tuple[Schedule, ...]:
    """A fixed row of random schedules, by the greedy engine."""
    found: list[Schedule] = []

    @seed(20261122)
    @settings(
        max_examples=COUNT + 20,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(topologies(max_ranks=6), st.data())
    def draw(machine, data):
        collective = data.draw(collectives(machine.ranks))
        if len(found) < COUNT:
            problem = Problem(machine, collective, bytes=1 << 16, objective=Objective.TIME)
            outcome = synthesize(problem, "greedy{chunks=1,seeds=1}", Budget(effort=5))
            found.extend(point.schedule for point in outcome.points[:1])

    draw()
    assert len(found) == COUNT
    return tuple(found)


def cases(count: int) -> list[Case]:
    return [Case(n, (1, 7, 30, 0, 13)[n % 5], TYPES[n % 4], n % 3 == 0) for n in range(count)]


def test_150_random_schedules_on_threads():
    schedules = synthesized()
    assert all(check_script(compile_script(s)) == [] for s in schedules[::10])
    pieces = [piece("numpy", s, in_place=n % 2 == 1) for n, s in enumerate(schedules)]
    job = whole_job(pieces, cases(len(pieces)), 60.0)
    all_right(job, run_threads(job))


@pytest.mark.parametrize("on", RUNTIMES)
def test_50_random_schedules_on_processes(on):
    schedules = synthesized()[:50]
    pieces = [piece(on, s, in_place=n % 2 == 1) for n, s in enumerate(schedules)]
    more = [Case(n, 11, "float32", rough=True) for n in range(len(pieces))]
    run_right(on, pieces, cases(len(pieces)) + more)

"""Who comes how far in a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.backends.tune import work
from weft.backends.tune.race import PLAIN, Runner, Track, short_race
from weft.backends.tune.variants import Variant
from weft.dsl.catalog import topology
from weft.dsl.collective import make
from weft.dsl.problem import Objective, Problem
from weft.dsl.schedule import Schedule
from weft.dsl.units import SizeRange
from weft.synth.api import synthesize
from weft.synth.engine import Budget

SIZES = SizeRange(1 << 12, 1 << 20)


class Here:
    """Runs jobs at once, and counts them."""

    def __init__(self) -> None:
        self.rounds: list[list[dict[str, Any]]] = []

    def __call__(self, _: str, function: str, given: Sequence[Any]) -> list[Any]:
        assert function.endswith(":clock")
        self.rounds.append(list(given))
        return [work.clock(one) for one in given]


def found_by(engine: str) -> Schedule:
    machine = topology("full:8")
    problem = Problem(machine, make("allgather", 8), None, Objective.BANDWIDTH)
    return synthesize(problem, engine, Budget(5)).points[0].schedule


def test_a_short_race_tries_all_forms_of_few() -> None:
    runners = [
        Runner("straight", found_by("classic{algorithm=direct}")),
        Runner("ring", found_by("classic{algorithm=ring}"), baseline=True),
        Runner("doubling", found_by("classic{algorithm=recursive_doubling}"), baseline=True),
    ]
    jobs = Here()
    own = Variant(4)
    grid, entries = short_race(runners, [own], SIZES, Track("msccl", ("Simple",), (False,)), jobs)
    first, second = jobs.rounds
    assert [one["variant"] for one in first] == [PLAIN[0].to_json()] * 3
    assert len(second) < 3 * (1 + len(PLAIN))  # one of the baselines is the better one
    assert {Variant.of(one["variant"]) for one in second} == {own, *PLAIN}
    assert grid == list(SIZES.powers())
    assert entries[0].runner.name == "straight"
    for at in range(len(grid)):
        times = {e.name: e.us[at] for e in entries}
        baselines = [e.us[at] for e in entries if e.runner.baseline]
        assert min(times.values()) < min(baselines)

"""Who comes how far in a race."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from weft.backends.compile.variants import PLAIN, Variant
from weft.backends.tune import work
from weft.backends.tune.race import run_race, short_race
from weft.backends.tune.timing import Interrupted, Runner, Track
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, dump
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.time.calibrated import DATASHEET

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


TRACK = Track("msccl", ("Simple",), (False,), DATASHEET)


def three() -> list[Runner]:
    return [
        Runner("straight", found_by("classic{algorithm=direct}")),
        Runner("ring", found_by("classic{algorithm=ring}"), baseline=True),
        Runner("doubling", found_by("classic{algorithm=recursive_doubling}"), baseline=True),
    ]


class Until:
    """Runs jobs at once until one round is ended, and with it all after it."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def __call__(self, _: str, function: str, given: Sequence[Any]) -> list[Any]:
        self.left -= 1
        do = work.clock if function.endswith(":clock") else work.explore
        return [do(one) if self.left >= 0 else None for one in given]


def test_what_a_race_knows_when_its_last_round_is_ended_is_enough() -> None:
    short = partial(short_race, forms=[Variant(4)])
    for race, rounds in ((run_race, 2), (short, 2)):
        grid, entries = race(three(), sizes=SIZES, track=TRACK, jobs=Until(rounds))
        assert "straight" in {e.runner.name for e in entries}
        for at in range(len(grid)):
            assert any(e.us[at] is not None for e in entries)
    with pytest.raises(Interrupted):
        short(three(), sizes=SIZES, track=TRACK, jobs=Until(1))


def test_a_short_race_tries_all_forms_of_few() -> None:
    runners = three()
    jobs = Here()
    own = Variant(4)
    grid, entries = short_race(runners, [own], SIZES, TRACK, jobs)
    first, second, third = jobs.rounds
    assert [one["variant"] for one in first] == [PLAIN[0].to_json()] * 3
    assert [Variant.of(one["variant"]) for one in second] == [own] * len(second)
    assert {Variant.of(one["variant"]) for one in third} == set(PLAIN)
    assert len(third) < 3 * len(PLAIN)  # only what leads is tried in all forms
    runners[1] = replace(runners[1], form=Variant(2))
    jobs = Here()
    short_race(runners, [own], SIZES, TRACK, jobs)
    again = jobs.rounds[1]
    assert [Variant.of(one["variant"]) for one in again] == [own] * len(second) + [Variant(2)]
    assert again[-1]["schedule"] == dump(runners[1].schedule)
    assert grid == list(SIZES.powers())
    assert entries[0].runner.name == "straight"
    for at in range(len(grid)):
        times = {e.name: e.us[at] for e in entries}
        baselines = [e.us[at] for e in entries if e.runner.baseline]
        assert min(times.values()) < min(baselines)

"""The engine's answer depends on question, seed and effort: not on threads, load or clocks."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import dumps
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Point, Silent
from weft.synth.base.meter import STEPS
from weft.synth.engines.exact import Exact


def irregular(ranks: int, seed: int) -> Topology:
    """A ring with chords of several widths, in no symmetry."""
    chance = random.Random(seed)
    pairs = [(i, (i + 1) % ranks) for i in range(ranks)]
    pairs += [tuple(chance.sample(range(ranks), 2)) for _ in range(ranks // 2)]  # type: ignore[misc]
    links = [link for u, v in pairs for link in both_ways(u, v, chance.choice([12, 25, 50]), "0.7")]
    return Topology(f"irregular{seed}", tuple(map(gpu, range(ranks))), tuple(links))


@contextmanager
def busy() -> Iterator[None]:
    """Four threads that take the interpreter again and again, for a millisecond each."""
    done = threading.Event()

    def spin() -> None:
        while not done.wait(0.01):
            sum(range(50_000))

    threads = [threading.Thread(target=spin, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def answer(problem: Problem, engine: str, effort: float, threads: int) -> list[str]:
    """The schedules of an answer, and what is said about them."""
    budget = Budget(effort, threads)
    outcome = synthesize(problem, engine, budget)
    return [*map(dumps, (p.schedule for p in outcome.points)), *outcome.statements]


QUESTIONS = [
    ("exact", "allgather", 5, 0, 0.1),
    ("exact", "alltoall", 6, 1, 0.2),  # ends before anything is proved
    ("exact", "allgather", 7, 2, 0.2),
    ("exact{solver=z3}", "allgather", 4, 3, 0.2),
]


@pytest.mark.parametrize(("engine", "collective", "ranks", "seed", "effort"), QUESTIONS)
def test_same_bytes_with_any_threads_and_load(
    engine: str,
    collective: str,
    ranks: int,
    seed: int,
    effort: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "z3" in engine:
        pytest.importorskip("z3")
    problem = Problem(irregular(ranks, seed), make(collective, ranks))
    expected = answer(problem, engine, effort, 1)
    assert expected
    assert answer(problem, engine, effort, 4) == expected
    now, jumps = time.monotonic, random.Random(0)
    monkeypatch.setattr(time, "monotonic", lambda: now() + jumps.uniform(0, 30))
    with busy():
        assert answer(problem, engine, effort, 1) == expected


def test_what_is_spent_is_counted() -> None:
    """The meter of the search around it has what the engine took, and no more than it may."""
    problem = Problem(irregular(6, 1), make("alltoall", 6))
    outer = Budget(100).meter()
    synthesize(problem, "exact", Budget(1.0, outer=outer))
    assert 0 < outer.done < 1.5 * STEPS
    before = outer.done
    synthesize(problem, "exact", Budget(1.0, threads=4, outer=outer))
    assert outer.done == 2 * before


class StopsAtFirst(Silent):
    """An observer that requests a stop as soon as a schedule is found."""

    def __init__(self) -> None:
        self.found: list[Point] = []

    def incumbent(self, point: Point) -> None:
        self.found.append(point)

    def cancelled(self) -> bool:
        return bool(self.found)


@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_found_before_the_cut_off_is_in_the_answer(seed: int) -> None:
    observer = StopsAtFirst()
    problem = Problem(irregular(5, seed), make("scatter", 5), objective=Objective.BANDWIDTH)
    outcome = Exact().solve(problem, Budget(3), observer)
    assert observer.found
    assert [p.schedule for p in outcome.points] == [p.schedule for p in observer.found]


@pytest.mark.parametrize("seed", [4, 8, 9])
def test_a_question_too_large_for_the_effort_leaves_it_to_smaller_ones(seed: int) -> None:
    """The flow LP names so many chunks that to write the model takes more than there is."""
    problem = Problem(irregular(7, seed), make("allgather", 7), objective=Objective.BANDWIDTH)
    outer = Budget(100).meter()
    assert synthesize(problem, "exact", Budget(0.5, outer=outer)).points
    assert outer.done < 0.6 * STEPS

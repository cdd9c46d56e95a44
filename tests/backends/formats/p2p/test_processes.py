"""Programs on real processes of MPI and torch: right in and out of place, all types and sizes.

Synthesized for known machines, and for random collectives on random machines; more of these run on
threads. One job of each runtime runs all: to start its processes takes longer than the programs do.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice

import pytest
from hierarchies import Case as Hierarchy
from hierarchies import named
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from jobs import RUNTIMES, Outcome, algorithm, all_right, on_processes, outcomes, piece
from strategies import collectives, topologies

from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script
from weft.backends.ranks.job import Case, EmittedFile, whole_job
from weft.backends.ranks.threads import run_threads
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

CLASSICS = (
    "ring{collective=allreduce,ranks=6} ring{collective=allgather,ranks=6} "
    "double_tree{collective=allreduce,ranks=6} binomial{collective=broadcast,ranks=6} "
    "two_shot{collective=allreduce,ranks=5} direct{collective=reduce_scatter,ranks=6}"
).split()
"""Rings, trees, all pairs; threads run them on more ranks."""

HIERARCHICAL = [("two_step", "alltoall"), ("blueconnect", "allreduce")]
"""On two boxes of three."""

SYNTHESIZED = [
    ("allgather", "mesh:2x3"),
    ("reduce_scatter", "torus:2x3"),
    ("allreduce", "mesh:2x3"),
    ("alltoall", "mesh:2x3"),
    ("broadcast", "torus:2x3"),
]

RANDOM_TYPES = ("float32", "int32", "float16", "bfloat16", "float64")
TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
LENGTHS = (0, 1, 7, 1009, 64, 30011)
"""Elements of a unit: nothing, one, primes, a number that many chunk counts divide."""

MIB = 1 << 20
COUNT = 30
"""Random schedules that run on threads."""

ON_PROCESSES = 10
"""Those of them that run on processes too, each of which compiles every file for itself."""


@cache
def synthesized(kind: str, machine: str) -> Schedule:
    place = topology(machine)
    problem = Problem(place, make(kind, place.ranks), bytes=MIB, objective=Objective.TIME)
    return synthesize(problem, "packing", Budget(effort=1)).points[0].schedule


def mixed(count: int, on: str) -> list[Case]:
    """Each two of program, type, place and length meet, on one of the two runtimes.

    The types of a program take turns by twos, so that it runs in both places on both.
    """
    lengths = cycle(LENGTHS)
    cases = []
    for number in range(count):
        for nth, dtype in enumerate(TYPES, number // len(LENGTHS)):
            place = nth % 2 == 1
            rough = dtype.startswith(("float", "bfloat")) and place
            case = Case(number, next(lengths), dtype, place, rough, int(dtype == "int32"), number)
            if ((TYPES.index(dtype) // 2 + number) % 2 == 0) == (on == "mpi"):
                cases.append(case)
        next(lengths)  # so that a type does not meet the same lengths again
    return cases


@cache
def random_schedules() -> tuple[Schedule, ...]:
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
    return [
        Case(n, (1, 7, 30, 0, 13)[n % 5], RANDOM_TYPES[n % 4], n % 3 == 0) for n in range(count)
    ]


def test_random_schedules_on_threads():
    schedules = random_schedules()
    assert all(check_script(compile_script(s)) == [] for s in schedules[::10])
    pieces = [piece("numpy", s, in_place=n % 2 == 1) for n, s in enumerate(schedules)]
    job = whole_job(pieces, cases(len(pieces)), 60.0)
    all_right(outcomes(job, run_threads(job)))


@dataclass(frozen=True)
class Part:
    """Some programs of a job, and their cases."""

    pieces: list[EmittedFile]
    cases: list[Case]


def of_5_and_6_ranks(on: str) -> Part:
    pieces = [piece(on, algorithm(name)) for name in CLASSICS]
    pieces += [piece(on, Hierarchy(named(*names), (3, 2)).algorithm()) for names in HIERARCHICAL]
    nouns = [synthesized(*names) for names in SYNTHESIZED]
    pieces += [piece(on, noun, in_place=n % 2 == 0) for n, noun in enumerate(nouns)]
    pieces.append(piece(on, synthesized("allgather", "mesh:2x3"), segments=3))
    return Part(pieces, mixed(len(pieces), on))


def messages_of_16_mib(on: str) -> Part:
    ring = algorithm("ring{collective=allreduce,ranks=4}")
    large = Case(1, 16 * MIB // 4, "int32", in_place=True)
    return Part(
        [piece(on, synthesized("allgather", "amd4")), piece(on, ring)],
        [Case(0, 2 * MIB // 4, "float32"), large],
    )


def random_collectives(on: str) -> Part:
    pieces = [
        piece(on, s, in_place=n % 2 == 1) for n, s in enumerate(random_schedules()[:ON_PROCESSES])
    ]
    more = [Case(n, 11, "float32", rough=True) for n in range(len(pieces))]
    return Part(pieces, cases(len(pieces)) + more)


PARTS: list[Callable[[str], Part]] = [of_5_and_6_ranks, messages_of_16_mib, random_collectives]


@pytest.fixture(scope="module", params=RUNTIMES)
def found(request: pytest.FixtureRequest) -> dict[str, list[Outcome]]:
    """What came out of each part, from one job of a runtime."""
    parts = {part.__name__: part(request.param) for part in PARTS}
    pieces: list[EmittedFile] = []
    asked: list[Case] = []
    for part in parts.values():
        asked += [replace(case, piece=case.piece + len(pieces)) for case in part.cases]
        pieces += part.pieces
    found = iter(on_processes(request.param, pieces, asked))
    return {name: list(islice(found, len(part.cases))) for name, part in parts.items()}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_programs_on_processes_are_right(found, part):
    all_right(found[part.__name__])

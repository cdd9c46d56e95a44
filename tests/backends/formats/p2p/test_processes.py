"""Programs on real processes of MPI and torch: right in and out of place, all types and sizes."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from hierarchies import Case as Hierarchy
from hierarchies import named
from jobs import RUNTIMES, algorithm, piece, run_right

from weft.backends.ranks.job import Case
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget

CLASSICS = [
    "ring{collective=allreduce,ranks=8}",
    "ring{collective=allgather,ranks=8}",
    "double_tree{collective=allreduce,ranks=7}",
    "binomial{collective=broadcast,ranks=8}",
    "two_shot{ranks=5}",
    "direct{collective=reduce_scatter,ranks=8}",
]
"""Rings, trees, all pairs; threads run them on more ranks."""

HIERARCHICAL = [("two_step", "alltoall"), ("blueconnect", "allreduce")]
"""On two boxes of four."""

SYNTHESIZED = [
    ("allgather", "dgx1"),
    ("reduce_scatter", "torus:2x4"),
    ("allreduce", "dgx1"),
    ("alltoall", "dgx1"),
    ("broadcast", "torus:2x4"),
]

TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
LENGTHS = (0, 1, 7, 1009, 64, 30011)
"""Elements of a unit: nothing, one, primes, a number that many chunk counts divide."""

MIB = 1 << 20


@cache
def synthesized(kind: str, machine: str) -> Schedule:
    place = topology(machine)
    problem = Problem(place, make(kind, place.ranks), bytes=MIB, objective=Objective.TIME)
    return synthesize(problem, "packing", Budget(effort=1)).points[0].schedule


def mixed(count: int) -> list[Case]:
    """Every type, in and out of place, with lengths that differ from program to program."""
    lengths = itertools.cycle(LENGTHS)
    cases = []
    for number in range(count):
        for place, dtype in itertools.product((False, True), TYPES):
            rough = dtype.startswith(("float", "bfloat")) and place
            cases.append(
                Case(number, next(lengths), dtype, place, rough, int(dtype == "int32"), number)
            )
        next(lengths)  # so that a type does not meet the same lengths again
    return cases


@pytest.mark.parametrize("on", RUNTIMES)
def test_programs_of_5_to_8_ranks(on):
    """One job for all: to start its processes takes longer than to run the programs."""
    pieces = [piece(on, algorithm(name)) for name in CLASSICS]
    pieces += [piece(on, Hierarchy(named(*names), (4, 2)).algorithm()) for names in HIERARCHICAL]
    nouns = [synthesized(*names) for names in SYNTHESIZED]
    pieces += [piece(on, noun, in_place=n % 2 == 0) for n, noun in enumerate(nouns)]
    pieces.append(piece(on, synthesized("allgather", "dgx1"), segments=3))
    run_right(on, pieces, mixed(len(pieces)))


@pytest.mark.parametrize("on", RUNTIMES)
def test_messages_of_64_mib(on):
    pieces = [
        piece(on, synthesized("allgather", "amd4")),
        piece(on, algorithm("ring{collective=allreduce,ranks=4}")),
    ]
    run_right(
        on,
        pieces,
        [Case(0, 8 * MIB // 4, "float32"), Case(1, 64 * MIB // 4, "int32", in_place=True)],
    )

"""Programs on real processes of MPI and torch: right in and out of place, all types and sizes."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
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
    "ring{collective=allgather,ranks=16}",
    "double_tree{collective=allreduce,ranks=8}",
    "binomial{collective=broadcast,ranks=16}",
    "two_shot{ranks=8}",
    "direct{collective=reduce_scatter,ranks=16}",
    "two_step{on=dgx-a100:nodes=2}",
    "blueconnect{collective=allreduce,on=dgx-a100:nodes=2}",
]
"""Rings, trees, all pairs, hierarchical."""

SYNTHESIZED = [
    ("allgather", "dgx1"),
    ("reduce_scatter", "torus:2x4"),
    ("allreduce", "dgx-a100:nodes=2"),
    ("alltoall", "dgx1"),
    ("broadcast", "torus:4x4"),
]

TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
LENGTHS = (0, 1, 7, 1009, 64, 30011)
"""Elements of a unit: nothing, one, primes, a number that many chunk counts divide."""

MIB = 1 << 20


@cache
def synthesized(kind: str, machine: str) -> Schedule:
    place = topology(machine)
    problem = Problem(place, make(kind, place.ranks), bytes=MIB, objective=Objective.TIME)
    return synthesize(problem, "packing", Budget(effort=5)).points[0].schedule


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
def test_classic_programs_of_8_and_16_ranks(on):
    pieces = [piece(on, algorithm(name)) for name in CLASSICS]
    run_right(on, pieces, mixed(len(pieces)))


@pytest.mark.parametrize("on", RUNTIMES)
def test_synthesized_programs_of_8_and_16_ranks(on):
    nouns = [synthesized(*names) for names in SYNTHESIZED]
    pieces = [piece(on, noun, in_place=n % 2 == 0) for n, noun in enumerate(nouns)]
    pieces.append(piece(on, synthesized("allgather", "dgx1"), segments=3))
    run_right(on, pieces, mixed(len(pieces)))


@pytest.mark.parametrize("on", RUNTIMES)
def test_messages_of_64_mib(on):
    pieces = [
        piece(on, synthesized("allgather", "dgx1")),
        piece(on, algorithm("ring{collective=allreduce,ranks=4}")),
    ]
    run_right(
        on,
        pieces,
        [Case(0, 8 * MIB // 4, "float32"), Case(1, 64 * MIB // 4, "int32", in_place=True)],
    )

"""Classic algorithms as programs: proved, executed, and as quick as their papers say.

A part of the sweep of ``tests/grade/classic_sweep.py``, drawn by the algorithm's name: sizes,
placements, instances and protocols.
"""

import random

import pytest
from classics import NO_FUSION, Case, numbers, off_by, wrong

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.dsl import catalogue as catalog
from weft.dsl.nouns.program import Protocol
from weft.synth.engines.classic.flat import FLAT, classic, classic_algorithm
from weft.synth.engines.classic.mapping import ring_order
from weft.synth.engines.classic.model import Flat
from weft.synth.time.program_time import simulate_program
from weft.synth.time.runtime_model import MSCCL

EACH = pytest.mark.parametrize("one", FLAT, ids=lambda c: f"{c.name}-{c.kind}")


def drawn(one: Flat, count: int, most: int) -> list[Case]:
    """Some cases, each size about as often as the others."""
    choice = random.Random(f"{one.name} {one.kind} {count}")
    sizes = choice.sample(found := list(numbers(one, most)), min(count, len(found)))
    return [_case(one, n, choice) for n in sizes]


def _case(one: Flat, ranks: int, choice: random.Random) -> Case:
    in_place, instances = choice.random() < 0.5, choice.randint(1, 4)
    chunks = choice.randint(2, 5) if one.pipelined else 1
    return Case(one, ranks, in_place, instances, choice.choice(list(Protocol)), chunks)


@EACH
def test_its_programs_are_proved_and_do_what_they_say(one: Flat) -> None:
    for case in drawn(one, 3, 8):
        assert wrong(case.program(), 3) == "", case


@EACH
def test_its_time_is_its_formula(one: Flat) -> None:
    """Simulated times meet the cost formula: with next to no α, and with an α of 0.7 µs.

    In the second a step waits for the one before, and every α is paid.
    """
    for case in drawn(one, 3, 13):
        program = case.program()
        assert abs(off_by(case, "0.0001us", program)) < 0.01, case
        if one.cost(case.ranks, case.chunks).chained:
            assert abs(off_by(case, "0.7us", program)) < 0.01, case


@pytest.mark.slow
@EACH
def test_all_sizes_in_both_placements(one: Flat) -> None:
    """Up to 3 ranks in both, up to 9 by turns; all in both: ``tests/grade/classic_sweep.py``."""
    for turn, n in enumerate(numbers(one, 9)):
        for in_place in (False, True) if n <= 3 else (turn % 2 == 0,):
            assert wrong(Case(one, n, in_place).program(), 2) == "", (n, in_place)


def test_a_fused_double_tree_takes_its_formula() -> None:
    """Of 2^k - 1 ranks both children are equally late; a wait too many held one of them up."""
    case = Case(classic("double_tree", "allreduce"), 7, chunks=4)
    assert off_by(case, "0.0001us") == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "machine", "bandwidth"),
    [("ring", "dgx1", 50), ("ring", "torus:4x4", 25), ("biring", "torus:3x4", 25)],
)
def test_a_ring_laid_along_the_cables_takes_its_formula(
    name: str, machine: str, bandwidth: int
) -> None:
    """DGX-1's double NVLinks close a ring, and so do the cables of a torus."""
    topology = catalog.topology(machine)
    one, size = classic(name, "allreduce"), 1_000_000
    made = classic_algorithm(
        name, "allreduce", topology.ranks, order=ring_order(topology), in_place=True
    )
    options = CompileOptions(in_place=True, passes=NO_FUSION)
    found = simulate_program(lower_algorithm(made, options), topology, size, MSCCL).time_us
    formula = one.cost(topology.ranks).us(size, 0.7, bandwidth)
    assert found == pytest.approx(formula, rel=0.02 if name == "biring" else 1e-6)

"""Classic algorithms as programs: proved, executed, and as quick as their papers say.

A part of the sweep of ``tests/grade/classics.py``, drawn by the algorithm's name: sizes,
placements, instances and protocols.
"""

from __future__ import annotations

import random

import pytest
from classics import FANS_OUT, Case, numbers, off_by, wrong

from weft.dsl.program import Protocol
from weft.synth.classic.catalog import classic
from weft.synth.classic.flat import FLAT
from weft.synth.classic.model import Classic

EACH = pytest.mark.parametrize("one", FLAT, ids=lambda c: f"{c.name}-{c.kind}")


def drawn(one: Classic, count: int, most: int) -> list[Case]:
    """Some cases, each size about as often as the others."""
    choice = random.Random(f"{one.name} {one.kind} {count}")
    sizes = choice.sample(found := list(numbers(one, most)), min(count, len(found)))
    return [_case(one, n, choice) for n in sizes]


def _case(one: Classic, ranks: int, choice: random.Random) -> Case:
    in_place, instances = choice.random() < 0.5, choice.randint(1, 4)
    chunks = choice.randint(2, 5) if one.pipelined else 1
    return Case(one, ranks, in_place, instances, choice.choice(list(Protocol)), chunks)


@EACH
def test_its_programs_are_proved_and_do_what_they_say(one: Classic) -> None:
    for case in drawn(one, 3, 8):
        assert wrong(case.program(), 3) == "", case


@EACH
def test_its_time_is_its_formula_where_bandwidth_counts(one: Classic) -> None:
    for case in drawn(one, 4, 17):
        assert abs(off_by(case, "0.0001us")) < 0.01, case


@EACH
def test_its_time_is_its_formula_where_latency_counts_as_much(one: Classic) -> None:
    """A step waits for the one before: every α is paid, none is hidden."""
    for case in drawn(one, 6, 17):
        if one.cost(case.ranks, case.chunks).chained:
            assert abs(off_by(case, "0.7us")) < 0.01, case


@pytest.mark.slow
@EACH
def test_all_sizes_in_both_placements(one: Classic) -> None:
    for n in numbers(one):
        for in_place in (False, True):
            assert wrong(Case(one, n, in_place).program(), 2) == "", (n, in_place)


def test_a_fused_fan_out_delays_all_but_one() -> None:
    """Why some are timed unfused: two-shot's owner sends its sum to all others at once."""
    case = Case(classic("two_shot", "allreduce"), 8)
    assert case.one.name in FANS_OUT
    assert off_by(case, "0.0001us", case.program(fused=False)) == pytest.approx(0, abs=0.01)
    assert off_by(case, "0.0001us", case.program(fused=True)) == pytest.approx(0.5, abs=0.01)

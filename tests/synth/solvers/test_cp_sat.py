"""Models for CP-SAT that its own checks would refuse."""

from __future__ import annotations

from weft.synth.solvers.cp_sat import CpModel, CpVerdict, solve


def test_a_variable_without_values_makes_a_model_impossible() -> None:
    model = CpModel()
    x = model.boolean()
    model.minimize([(model.integer(1, 0), 1), (x, 1)])
    assert solve(model, steps=1_000_000).verdict is CpVerdict.INFEASIBLE


def test_a_range_of_one_value_is_that_value() -> None:
    model = CpModel()
    model.integer(3, 3)
    assert solve(model, steps=1_000_000).values == (3,)

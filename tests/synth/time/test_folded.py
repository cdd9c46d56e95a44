"""One part of a symmetric schedule has the times of the whole."""

from dataclasses import replace

import numpy as np
import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.time import folded as module
from weft.synth.time.folded import folded
from weft.synth.time.latency import latency_us
from weft.synth.time.schedule_tables import CostModel, prepare
from weft.synth.time.schedule_time import simulate


@pytest.fixture(autouse=True)
def _fold_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 1)


def packed(machine: str, kind: str, engine: str = "packing") -> Schedule:
    whole = topology(machine)
    problem = Problem(whole, make(kind, whole.ranks), None, Objective.TIME, 1 << 24)
    return synthesize(problem, engine, Budget(2)).points[0].schedule


@pytest.mark.parametrize(
    ("machine", "kind"),
    [
        ("torus:4x4", "alltoall"),
        ("torus:3x3x2", "alltoall"),
        ("torus:4x4", "allgather"),
        ("torus:4x4", "allreduce"),
        ("dgx-a100:nodes=2", "alltoall"),
        ("hypercube:4", "alltoall"),
    ],
)
@pytest.mark.parametrize("slices", [1, 3])
def test_the_part_has_the_times_of_the_whole(machine: str, kind: str, slices: int) -> None:
    found = replace(packed(machine, kind), segments=slices)
    part = folded(found)
    assert part is not None
    assert part.copies * len(part.part) == len(found)
    for model in (CostModel(), CostModel(barrier=True), CostModel(store_and_forward=True)):
        run, whole = simulate(found, 1 << 24, model), prepare(found, model).run(1 << 24)
        assert run.time_us == whole.time_us
        np.testing.assert_array_equal(run.start_us, whole.start_us)
        np.testing.assert_array_equal(run.end_us, whole.end_us)
        np.testing.assert_array_equal(run.busy_us, whole.busy_us)


def test_the_part_has_the_latency_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found = packed("torus:4x4", "alltoall")
    part = folded(found)
    assert part is not None
    few = latency_us(found)
    monkeypatch.setattr(module, "MANY", 1 << 40)
    assert few == latency_us(replace(found, stride=found.stride + 1))


def test_what_is_not_symmetric_is_not_folded() -> None:
    found = packed("torus:4x4", "alltoall")
    assert folded(found) is not None
    for i in (0, 17, len(found) - 1):
        for column in ("src", "dst", "chunk", "step", "priority", "reduce", "route_links"):
            values = getattr(found, column).copy()
            values[i] = not values[i] if column == "reduce" else values[i] ^ 1
            values.setflags(write=False)
            assert folded(replace(found, **{column: values})) is None, (column, i)


def test_images_that_meet_are_not_folded() -> None:
    # Eight GPUs share a switch's port to each other host: images of a transfer compete for it.
    found = packed("dgx2", "alltoall", "classic")
    part = folded(found)
    run = prepare(found).run(1 << 24)
    assert part is None or simulate(found, 1 << 24).time_us == run.time_us

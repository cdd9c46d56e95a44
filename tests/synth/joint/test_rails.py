"""Alltoallv on rails: its stages, its pieces, and its closed bound against the linear program."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.workload import Workload, WorkloadOperation
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of
from weft.synth.joint.rails import rail_planner, stages_of
from weft.synth.judge.verify import verify
from weft.synth.planning.joint_plan import JointPlanner

squares = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 40), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(squares)
def test_stages_are_one_to_one_and_as_short_as_can_be(rows):
    matrix = np.array(rows)
    stages = stages_of(matrix, most=4096)
    moved = np.zeros_like(matrix)
    n = len(matrix)
    for stage in stages:
        assert sorted(stage.columns.tolist()) == list(range(n))
        assert stage.amounts.max() <= stage.width
        moved[np.arange(n), stage.columns] += stage.amounts
    assert (moved == matrix).all()
    assert sum(s.width for s in stages) == max(*matrix.sum(axis=0), *matrix.sum(axis=1))
    assert len(stages) <= n * n - 2 * n + 2


def test_what_is_left_after_the_last_stage_goes_too():
    matrix = np.arange(16).reshape(4, 4)
    (one,) = stages_of(matrix, most=1)
    assert one.amounts.sum() < matrix.sum()


PAIR = topology("dgx-a100:nodes=2")


def demand(seed, ranks=16):
    """Bytes from each rank to each, skewed on both sides, some of them none."""
    random = np.random.default_rng(seed)
    rows, columns = (1 / random.permutation(np.arange(1, ranks + 1)) for _ in range(2))
    matrix = np.floor(np.outer(rows, columns) * 1000).astype(np.int64) * 10**5
    matrix[random.random((ranks, ranks)) < 0.2] = 0
    return matrix


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 1 << 20), st.sampled_from([1, 7, 1000]))
def test_pieces_are_the_matrix_and_rails_are_even(seed, unit):
    planner = rail_planner(PAIR)
    matrix = demand(seed) // 10**5 * unit
    plan = planner.plan(matrix)
    one = plan.pieces
    sent = np.zeros((16, 16), np.int64)
    np.add.at(sent, (one.source, one.target), one.grains)
    np.fill_diagonal(matrix, 0)
    assert (sent * plan.grain == matrix).all()
    for a, b in ((0, 1), (1, 0)):
        between = (one.source // 8 == a) & (one.target // 8 == b)
        rails = np.bincount(one.rail[between], one.grains[between], 8)
        assert (rails == rails[0]).all()
    assert (one.rail[one.source // 8 == one.target // 8] == -1).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_closed_bound_is_that_of_the_linear_program(seed):
    matrix = demand(seed)
    one = WorkloadOperation(
        "x", "alltoallv", group=tuple(range(16)), matrix=tuple(map(tuple, matrix.tolist()))
    )
    found = joint_bound(PAIR, demands_of(Workload("w", (one,)), 16))
    assert found.rounds <= 3  # the balanced plan is a known column: nothing is to be searched
    closed = rail_planner(PAIR).bound_us(matrix)
    assert closed == pytest.approx(float(found.us), rel=1e-9)
    plan = JointPlanner(PAIR, found).plan()
    assert verify(plan.schedule).ok
    assert closed <= plan.us * (1 + 1e-9) < 1.2 * closed


def test_machines_without_rails_have_no_such_plan():
    assert rail_planner(topology("dgx1")) is None
    assert rail_planner(topology("torus:4x4")) is None


@pytest.mark.parametrize(
    "wrong",
    [
        np.full((16, 16), np.nan),
        np.full((16, 16), 0.5),
        -np.ones((16, 16), int),
        np.ones((2, 16), int),
        np.full((16, 16), 1 << 62),
        [[1, 2], [3]],
        [[None] * 16] * 16,
        "abc",
    ],
)
def test_matrices_of_anything_but_bytes_are_refused(wrong):
    planner = rail_planner(topology("dgx-a100:nodes=2"))
    for call in (planner.plan, planner.bound_us):
        with pytest.raises(UserError, match="expected 16 rows of 16 whole numbers of bytes, got"):
            call(wrong)
    assert planner.bound_us(np.ones((16, 16))) == planner.bound_us([[1] * 16] * 16) > 0

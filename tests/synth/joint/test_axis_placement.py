"""Placements of axes: their number, their rank orders, and known times."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.workload import Forwarders, Workload, WorkloadOperation, axis_groups
from weft.synth.joint.axis_placement import (
    machine_levels,
    matrices,
    rank_order,
    ranked_placements,
)
from weft.synth.joint.bound import joint_bound
from weft.synth.joint.demands import demands_of

A100 = "dgx-a100:nodes=4"
AXES = (("a", 8), ("b", 4))
INSIDE, HALF, ACROSS = ((1, 8), (4, 1)), ((2, 4), (2, 2)), ((4, 2), (1, 4))


def two_classes(first: str, first_mb: int) -> Workload:
    """Return a collective over each group of axis a, and allreduces of 100 MB over those of b."""
    made = [
        WorkloadOperation(f"{axis}{at}", kind, group=group, bytes=mb * 10**6, of_class=axis)
        for axis, kind, mb in (("a", first, first_mb), ("b", "allreduce", 100))
        for at, group in enumerate(axis_groups(AXES, [axis]))
    ]
    return Workload("two", tuple(made))


@pytest.mark.parametrize(
    ("axes", "levels", "many"),
    [
        ((4, 16), (4, 16), 3),
        ((8, 8), (8, 8), 4),
        ((16, 2, 2), (4, 16), 4),
        ((4, 4, 4), (2, 2, 16), 9),
        ((8, 8, 8), (4, 16, 8), 45),
        ((16, 8, 8), (4, 4, 8, 8), 180),
    ],
)
def test_the_number_of_matrices_is_that_of_the_paper(axes, levels, many):
    found = list(matrices(axes, levels))
    assert len(set(found)) == len(found) == many


@pytest.mark.parametrize(
    ("kind", "mb", "times"),
    [
        ("alltoall", 100, {ACROSS: 3000, HALF: 4000, INSIDE: 6000}),
        ("allreduce", 1000, {INSIDE: 6000, HALF: 12000, ACROSS: 30000}),
    ],
)
def test_times_are_those_computed_by_hand(kind, mb, times):
    found = ranked_placements(topology(A100), two_classes(kind, mb), AXES)
    assert [(one.matrix, one.us) for one in found.placements] == list(times.items())
    assert found.default_us == times[INSIDE]


SIZES = st.integers(1, 3)
MATRICES = st.integers(1, 2).flatmap(
    lambda levels: st.lists(st.tuples(*[SIZES] * levels), min_size=1, max_size=3)
)


@given(MATRICES)
def test_orders_hold_each_gpu_once_and_spread_axes_as_the_matrix_says(hidden):
    axes = [prod(row) for row in hidden]
    levels = [prod(column) for column in zip(*hidden, strict=True)]
    found = list(matrices(axes, levels))
    assert tuple(hidden) in found
    for matrix in found:
        order = rank_order(matrix, range(prod(axes)))
        assert sorted(order) == list(range(prod(axes)))
        step = 1
        for size, row in zip(axes, matrix, strict=True):
            group = order[: step * size : step]
            hosts = {gpu // levels[-1] for gpu in group}
            assert len(hosts) == (row[0] if len(row) == 2 else 1)
            step *= size


def test_hosts_give_the_levels():
    assert machine_levels(topology(A100)).sizes == (4, 8)
    assert machine_levels(topology("dgx1")).sizes == (8,)
    with pytest.raises(UserError, match="have 4 and 8 GPUs"):
        machine_levels(topology(A100).restricted_to(range(20)))


def test_roots_and_shards_move_with_their_ranks():
    one = WorkloadOperation("b", "broadcast", group=(0, 1), bytes=8, root=1)
    moved = Workload("w", (one,)).renumbered([3, 2, 1, 0])
    assert moved.operations[0].group == (3, 2)
    assert moved.operations[0].root == 2
    assert moved.ranks == 4


def test_a_default_that_is_no_matrix_is_judged_by_itself():
    """Axes of 3 and 2 on 3 hosts of 2 GPUs: default pairs lie on two hosts, and on two rails."""
    machine = topology("dgx-a100:nodes=3").restricted_to([0, 1, 8, 9, 16, 17])
    axes = (("a", 3), ("b", 2))
    pairs = enumerate(axis_groups(axes, ["b"]))
    made = [WorkloadOperation(f"b{k}", "allreduce", group=g, bytes=10**8) for k, g in pairs]
    found = ranked_placements(machine, Workload("w", tuple(made)), axes)
    assert [one.matrix for one in found.placements] == [((3, 1), (1, 2))]
    assert found.placements[0].order == (0, 2, 4, 1, 3, 5)
    assert found.default_us is None
    forwarded = [replace(one, relays=Forwarders.ALL) for one in made]
    found = ranked_placements(machine, Workload("w", tuple(forwarded)), axes)
    assert found.default_us is not None
    assert found.default_us > found.best_us > 0


@pytest.mark.parametrize("kind", ["allreduce", "alltoall", "broadcast"])
def test_ranks_that_do_not_reach_each_other_are_an_error_of_the_question(kind):
    one = Workload("w", (WorkloadOperation("lost", kind, group=(0, 9), bytes=8),))
    with pytest.raises(UserError, match="not all of its ranks are joined"):
        joint_bound(topology("dgx-a100:nodes=2"), demands_of(one, 16))

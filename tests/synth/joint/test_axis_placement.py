"""Placements of axes: their number, their rank orders, and known times."""

from dataclasses import replace
from itertools import combinations, permutations
from math import prod

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology, both_ways, gpu, switch
from weft.dsl.nouns.workload import Forwarders, Workload, WorkloadOperation, axis_groups
from weft.synth.joint.axis_placement import (
    machine_levels,
    matrices,
    placed_us,
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


GB = 1000
PHB = 24  # GB/s over the PCIe tree


def pairs_in_a_box() -> Topology:
    """Return 4 GPUs, 0 joined to 2 and 1 to 3 by NVLink, and all by one PCIe host."""
    cables = [one for pair in ((0, 2), (1, 3)) for one in both_ways(*pair, 56.25, 1)]
    ports = [one for v in range(4) for one in both_ways(v, 4, PHB, 1)]
    nodes = (*(gpu(v, host=0) for v in range(4)), switch("host"))
    return Topology("box", nodes, tuple(cables + ports))


def on_axes(axes, *asked):
    made = [
        WorkloadOperation(f"{over}{at}", kind, group=group, bytes=mb * 10**6)
        for over, kind, mb in asked
        for at, group in enumerate(axis_groups(axes, [over]))
    ]
    return Workload("w", tuple(made))


QUADS, CUBE = (("a", 2), ("b", 4)), (("a", 2), ("b", 2), ("c", 2))


@pytest.mark.parametrize(
    ("machine", "axes", "asked", "best", "default", "tried"),
    [
        (
            pairs_in_a_box(),
            (("tp", 2), ("pp", 2)),
            [("tp", "allreduce", 100)],
            1246.106,
            4166.667,
            "3 placements of them, 2 up to symmetry",
        ),
        ("dgx1", QUADS, [("b", "allreduce", GB)], 13333.333, 20000, "35 placements of them, 17"),
        (
            "dgx1",
            QUADS,
            [("b", "allreduce", GB), ("a", "alltoall", 500)],
            13333.333,
            20000,
            "840 placements of them, 288",
        ),
        (
            "dgx1",
            CUBE,
            [("a", "allreduce", GB), ("b", "alltoall", 500), ("c", "allgather", 500)],
            20000,
            20000,
            "5040 placements of them, 1512",
        ),
    ],
)
def test_all_orders_of_a_host_of_unlike_gpus_are_looked_at(
    machine, axes, asked, best, default, tried
):
    chip = topology(machine) if isinstance(machine, str) else machine
    found = ranked_placements(chip, on_axes(axes, *asked), axes)
    assert float(found.best_us) == pytest.approx(best, abs=0.001)
    assert float(found.default_us) == pytest.approx(default, abs=0.001)
    assert tried in found.notes[0]
    first = found.placements[0]
    assert first.us == found.best_us == placed_us(chip, on_axes(axes, *asked), first.order)[0]
    assert (first.order == tuple(range(chip.ranks))) == (best == default)


WORK = st.tuples(
    st.sampled_from(["allreduce", "alltoall", "broadcast", "alltonext", "transfer"]),
    st.permutations(range(4)),
    st.integers(2, 4),
    st.sampled_from([12, 24]),
)


@settings(max_examples=examples(8, 30), deadline=None)
@given(st.lists(WORK, min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_best_order_is_that_of_trying_all(asked, widths):
    cables = zip(combinations(range(4), 2), widths, strict=True)
    links = [one for pair, b in cables for one in both_ways(*pair, 5 * 2**b, 1)]
    chip = Topology("box", tuple(gpu(v, host=0) for v in range(4)), tuple(links))
    made = [
        WorkloadOperation(
            f"{at}", kind, group=tuple(order[: 2 if kind == "transfer" else size]), bytes=mb * 10**6
        )
        for at, (kind, order, size, mb) in enumerate(asked)
    ]
    work = Workload("w", tuple(made), size=4)
    found = ranked_placements(chip, work, (("a", 2), ("b", 2)))
    all_us = [placed_us(chip, work, order)[0] for order in permutations(range(4))]
    assert float(found.best_us) == pytest.approx(float(min(all_us)), rel=1e-6)
    assert found.default_us == all_us[0]


def test_what_is_taken_to_be_alike_and_is_not_is_said():
    work = on_axes((("a", 8), ("b", 2)), ("a", "allreduce", 100))
    unlike = ranked_placements(topology("ndv2:nodes=2"), work, (("a", 8), ("b", 2))).notes
    assert "the GPUs of a host are not alike (GPUs 0 and 1" in unlike[0]
    assert ranked_placements(topology("dgx-a100:nodes=2"), work, (("a", 8), ("b", 2))).notes == ()


def test_a_placement_without_a_time_says_which_group_has_no_path():
    """Stages next to each other on another host and another rail."""
    axes = (("a", 8), ("b", 4))
    made = [
        WorkloadOperation(f"{at}.{stage}", "transfer", group=group[stage : stage + 2], bytes=10**8)
        for at, group in enumerate(axis_groups(axes, ["b"]))
        for stage in range(3)
    ]
    found = ranked_placements(topology("dgx-h100:nodes=4"), Workload("w", tuple(made)), axes)
    lost = [one for one in found.placements if one.us is None]
    assert lost
    assert found.placements[-len(lost) :] == tuple(lost)
    assert all("not all of its ranks are joined" in one.reason for one in lost)
    assert found.worst_us == max(one.us for one in found.placements if one.us is not None)

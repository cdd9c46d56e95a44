"""Levels, boxes and tori, found whatever the numbering; hierarchical algorithms on any group."""

import random
from math import prod

import pytest
from hierarchies import Case, shapes
from moves import achieves, writes_input

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import ROOTED
from weft.synth.engines.classic.grid import NestedPartitions, RankGrid, plain_grid
from weft.synth.engines.classic.hierarchical import HIERARCHICAL, Hierarchical
from weft.synth.engines.classic.hierarchy import hop_costs, host_grid, levels, torus
from weft.synth.engines.classic.place import Site

EACH = pytest.mark.parametrize("one", HIERARCHICAL, ids=lambda c: f"{c.name}-{c.kind}")


@EACH
def test_it_is_right_on_every_hierarchy_in_both_placements(one: Hierarchical) -> None:
    """The builder proves all; numbers are summed independently up to eight ranks.

    On more ranks the placements take turns.
    """
    for turn, shape in enumerate(shapes(one, 12)):
        for in_place in (False, True) if prod(shape) < 9 else (turn % 2 == 0,):
            made = Case(one, shape, in_place).algorithm()
            assert in_place or not writes_input(made)
            if prod(shape) < 9:
                assert achieves(made), (shape, in_place)


@EACH
def test_any_root_and_more_chunks(one: Hierarchical) -> None:
    for root in range(6) if one.kind in ROOTED else (0,):
        assert achieves(Case(one, (3, 2), chunks=2).algorithm(root))


@pytest.mark.parametrize("sides", [(3, 4), (4, 4), (3, 3, 3), (2, 3, 4), (5, 7), (8, 8)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_torus_is_found(sides: tuple[int, ...], shuffled: bool) -> None:
    """Neighbours along every axis, the last and the first too, have a cable of their own."""
    machine = topology("torus:" + "x".join(map(str, sides)))
    order = list(range(machine.ranks))
    if shuffled:
        random.Random(3).shuffle(order)
    group = machine.restricted_to(order)
    found = torus(group)
    assert found is not None
    assert sorted(found.ranks) == list(range(machine.ranks))
    assert sorted(found.shape) == sorted(sides) or shuffled
    cables = {(x.src, x.dst) for x in group.links}
    for axis in found.axes:
        for line in found.lines(axis):
            assert all(pair in cables for pair in zip(line, (*line[1:], line[0]), strict=True))


@pytest.mark.parametrize("name", ["ring:9", "mesh:3x3", "full:6", "hub:8", "dgx1", "line:4"])
def test_what_is_no_torus_is_not_taken_for_one(name: str) -> None:
    assert torus(topology(name)) is None


def test_boxes_stand_rail_by_rail_whatever_the_order_of_the_group() -> None:
    machine = topology("dgx-h100:nodes=4,fabric=rails")
    order = list(range(32))
    random.Random(5).shuffle(order)
    group = machine.restricted_to(order)
    found = host_grid(group)
    assert found.shape == (8, 4)
    for line in found.lines(0):
        assert len({order[rank] // 8 for rank in line}) == 1
    for line in found.lines(1):
        assert len({order[rank] % 8 for rank in line}) == 1  # one rail


def test_levels_are_nested_by_distance() -> None:
    assert [len(p) for p in levels(topology("fat-tree:k=4")).partitions] == [8, 4]
    assert [len(p) for p in levels(topology("dgx-h100:nodes=4,fabric=pods:2")).partitions] == [4, 2]
    assert levels(topology("hub:8")).partitions == ()
    far = hop_costs(topology("ring:4"))
    assert far[0, 1] == pytest.approx(0.7)
    assert far[0, 2] == float("inf")


def test_uneven_groups_are_refused_in_words_or_served_by_leaders() -> None:
    group = topology("dgx-a100:nodes=2").restricted_to([0, 1, 2, 8, 9])
    with pytest.raises(UserError, match="groups of 2 and 3 ranks form no grid"):
        host_grid(group)
    site = Site(group)
    with pytest.raises(UserError, match="form no grid"):
        site.algorithm("two_level", "allreduce")
    for kind in ("allreduce", "broadcast", "reduce"):
        assert achieves(site.algorithm("leaders", kind, chunks=2))
    assert {one.name for one in site.defined("allreduce")} >= {"ring", "leaders"}
    assert "two_level" not in {one.name for one in site.defined("allreduce")}


def test_a_hierarchy_may_be_named() -> None:
    site = Site(topology("hub:12"), (2, 3, 2))
    for name in ("blueconnect", "leaders"):
        assert achieves(site.algorithm(name, "allreduce"))
    with pytest.raises(UserError, match="two or more hosts"):
        site.algorithm("two_step", "alltoall")
    with pytest.raises(UserError, match="expected a machine with a hierarchy"):
        Site(topology("hub:12")).algorithm("blueconnect", "allreduce")
    with pytest.raises(UserError, match="do not hold 12 ranks"):
        Site(topology("hub:12"), (5, 2)).algorithm("blueconnect", "allreduce")


def test_shapes_and_groups_that_make_no_sense() -> None:
    with pytest.raises(UserError, match="5 ranks do not fill a grid of 2x2"):
        RankGrid((2, 2), (0, 1, 2, 3, 4))
    with pytest.raises(UserError, match="every rank once"):
        NestedPartitions(3, (((0, 1),),))
    with pytest.raises(UserError, match="cuts a group"):
        NestedPartitions(4, (((0, 1), (2, 3)), ((0, 2), (1, 3))))
    assert plain_grid((2, 3)).coordinates()[3] == (1, 1)


def test_leaders_of_leaders() -> None:
    """Two pods of two boxes: the root leads its box, its pod and everything."""
    found = NestedPartitions(8, (((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 1, 2, 3), (4, 5, 6, 7))))
    assert found.talking(root=6) == [
        [(0, 1), (2, 3), (4, 5), (6, 7)],
        [(0, 2), (6, 4)],
        [(6, 0)],
    ] or found.talking(root=6)[2] == [(6, 0)]
    assert found.talking(root=6)[1] == [(0, 2), (6, 4)]

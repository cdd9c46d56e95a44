"""The problem: who must hear whom, and what is said when somebody cannot."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import collectives, custom_collectives, ring

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, custom, make, one_shot_allreduce
from weft.dsl.nouns.problem import Problem, check_connected, required_pairs
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology, gpu

ALL = {(a, b) for a in range(4) for b in range(4) if a != b}


@pytest.mark.parametrize(
    ("kind", "roots", "pairs"),
    [
        ("allgather", (), ALL),
        ("reduce_scatter", (), ALL),
        ("allreduce", (), ALL),
        ("alltoall", (), ALL),
        ("broadcast", (1,), {(1, v) for v in (0, 2, 3)}),
        ("scatter", (1,), {(1, v) for v in (0, 2, 3)}),
        ("reduce", (2,), {(v, 2) for v in (0, 1, 3)}),
        ("gather", (2,), {(v, 2) for v in (0, 1, 3)}),
        ("alltonext", (), {(0, 1), (1, 2), (2, 3)}),
        ("multiroot_broadcast", (0, 3), {p for p in ALL if p[0] in (0, 3)}),
        ("multiroot_gather", (0, 3), {p for p in ALL if p[1] in (0, 3)}),
    ],
)
def test_pairs_of_ranks_that_a_collective_requires(
    kind: str, roots: tuple[int, ...], pairs: set[tuple[int, int]]
) -> None:
    for chunks in (1, 3):
        found = required_pairs(make(kind, 4, roots=roots, chunks=chunks))
        assert found == tuple(sorted(pairs))


def test_one_shot_is_heard_by_all_too() -> None:
    assert set(required_pairs(one_shot_allreduce(4))) == ALL


def test_of_copies_no_single_one_is_required() -> None:
    copies = custom("copies", 3, [(0, 0, [0], 0), (1, 0, [0], 0)], [(2, 0, [0], 0)])
    assert required_pairs(copies) == ()
    alone = custom("alone", 3, [(1, 0, [0], 0)], [(1, 0, [0], 0), (2, 0, [0], 0)])
    assert required_pairs(alone) == ((1, 2),)


@given(st.integers(2, 5).flatmap(lambda n: collectives(n) | custom_collectives(n)))
def test_a_pair_is_required_if_and_only_if_its_source_is_the_only_holder(c: Collective) -> None:
    holds = {(r, k, w) for r, k, s, _ in c.pre.rows().tolist() for w in c.contributions[s]}
    wants = {(r, k, w) for r, k, s, _ in c.post.rows().tolist() for w in c.contributions[s]}
    expected = {
        (a, b)
        for b, k, w in wants
        for a in range(c.ranks)
        if a != b and {r for r in range(c.ranks) if (r, k, w) in holds} == {a}
    }
    assert set(required_pairs(c)) == expected


def test_the_ranks_that_cannot_be_reached_are_named() -> None:
    machine = topology("line:5,dead=2-3")
    with pytest.raises(BadTopology, match="rank 0 cannot reach ranks 3, 4, which allgather needs"):
        check_connected(machine, make("allgather", 5))
    with pytest.raises(BadTopology, match="rank 3 cannot reach ranks 0, 1, 2, which reduce needs"):
        check_connected(machine, make("reduce", 5, roots=[1]))
    lonely = custom("mine", 5, [(3, 0, [3], 0)], [(0, 0, [3], 0)])
    with pytest.raises(BadTopology, match="rank 3 cannot reach ranks 0, 1, 2, which mine needs"):
        Problem(machine, lonely)


def test_what_the_collective_does_not_need_may_be_missing() -> None:
    one_way = Topology("half", tuple(map(gpu, range(4))), ring(4).links[:3])  # 0 → 1 → 2 → 3
    check_connected(one_way, make("broadcast", 4, roots=[0]))
    check_connected(one_way, make("reduce", 4, roots=[3]))
    check_connected(one_way, make("alltonext", 4))
    with pytest.raises(BadTopology, match="rank 1 cannot reach rank 0, which broadcast needs"):
        check_connected(one_way, make("broadcast", 4, roots=[1]))


def test_a_long_list_of_lost_ranks_is_cut() -> None:
    machine = replace(ring(2), nodes=tuple(map(gpu, range(40))))
    with pytest.raises(BadTopology, match=r"rank 0 cannot reach ranks 2, 3, .*17, …, which"):
        check_connected(machine, make("broadcast", 40))


def test_group_and_machine_are_of_one_size() -> None:
    with pytest.raises(BadTopology, match="for 3 ranks, ring4 has 4") as caught:
        Problem(ring(4), make("allgather", 3))
    assert "group" in caught.value.hint


def test_a_sketch_without_rules_is_none() -> None:
    machine = topology("ring:4")
    assert Problem(machine, make("allgather", 4), Sketch("as_it_is", ())).sketch is None

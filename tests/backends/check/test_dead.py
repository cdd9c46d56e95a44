"""Moves that nobody needs are dropped, and no others."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moves import achieves

from weft.backends.compile.passes.prune import Dead
from weft.dsl.author.builder import Builder
from weft.dsl.author.standard import Allgather, Alltoall, Broadcast
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.runtime import MSCCL


def exchange(in_place: bool) -> Algorithm:
    p = Builder(Alltoall(2), in_place=in_place)
    p.chunk(0, 1).copy_to(rank=1)
    p.chunk(1, 2).copy_to(rank=0)
    return p.algorithm()


def test_a_chunk_saved_for_nothing_is_not_saved() -> None:
    before = exchange(in_place=True)
    after = Dead().apply(before, MSCCL)
    assert (len(before.moves), len(after.moves)) == (4, 3)
    assert achieves(after)


def test_what_is_needed_stays_the_same_object() -> None:
    before = exchange(in_place=False)
    assert Dead().apply(before, MSCCL) is before


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_random_gossip_keeps_its_result_and_has_no_move_to_spare(
    gossip: list[tuple[int, int, int]],
) -> None:
    p = Builder(Allgather(3))
    for src, dst, slot in gossip:
        p.chunk(src, src).copy_to(rank=dst, buffer="scratch", index=slot)
    for src, dst, slot in gossip:
        p.chunk(dst, slot, buffer="scratch").copy_to(rank=(src + 1) % 3)
    for r in range(3):
        for k in range(3):
            p.chunk(k, k).copy_to(rank=r)
    after = Dead().apply(p.algorithm(), MSCCL)
    assert achieves(after)
    for i in range(len(after.moves)):  # each one left is needed
        rest = [j for j in range(len(after.moves)) if j != i]
        columns = (getattr(after.moves, f.name)[rest] for f in fields(Moves))
        fewer = replace(after, moves=Moves(*columns))
        with pytest.raises((KeyError, AssertionError)):
            assert achieves(fewer)


def test_nothing_of_a_finished_broadcast_is_dropped() -> None:
    p = Builder(Broadcast(4, chunks=2))
    for r in range(3):
        p.chunk(r, 0, count=2).copy_to(rank=r + 1)
    before = p.algorithm()
    assert Dead().apply(before, MSCCL) is before

"""The builder: what it records does what the collective asks."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moves import achieves, carried_out, writes_input

from weft.dsl.author.builder import Builder
from weft.dsl.author.standard import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
)
from weft.dsl.base.errors import BadAlgorithm
from weft.dsl.nouns.collective import custom
from weft.dsl.nouns.program import Buffer
from weft.dsl.nouns.slots import NONE, SCRATCH

PLACEMENTS = pytest.mark.parametrize("in_place", [False, True])


def ring_allreduce(p: Builder) -> None:
    n = p.ranks
    for step in range(n - 1):
        for r in range(n):
            p.chunk(r, (r - step) % n).reduce_into(rank=(r + 1) % n)
    for step in range(n - 1):
        for r in range(n):
            p.chunk(r, (r + 1 - step) % n).copy_to(rank=(r + 1) % n)


def direct_alltoall(p: Builder) -> None:
    f = p.collective.factor
    for s in range(p.ranks):
        for d in range(p.ranks):
            p.chunk(s, (s * p.ranks + d) * f, count=f).copy_to(rank=d)


def direct_allgather(p: Builder) -> None:
    f = p.collective.factor
    for s in range(p.ranks):
        for d in range(p.ranks):
            if d != s:
                p.chunk(s, s * f, count=f).copy_to(rank=d)


def direct_reduce_scatter(p: Builder) -> None:
    f = p.collective.factor
    for s in range(p.ranks):
        for d in range(p.ranks):
            if d != s:
                p.chunk(s, d * f, count=f).reduce_into(rank=d)


def chain_reduce(p: Builder) -> None:
    root = p.collective.roots[0]
    for k in range(p.ranks - 1):
        sender, receiver = ((root + p.ranks - 1 - k - j) % p.ranks for j in (0, 1))
        p.chunk(sender, 0, count=p.chunks).reduce_into(rank=receiver)


def chain_broadcast(p: Builder) -> None:
    root = p.collective.roots[0]
    for k in range(p.ranks - 1):
        p.chunk((root + k) % p.ranks, 0, count=p.chunks).copy_to(rank=(root + k + 1) % p.ranks)


def star_gather(p: Builder) -> None:
    for r in range(p.ranks):
        if r != p.collective.roots[0]:
            p.chunk(r, r).copy_to(rank=p.collective.roots[0])


def star_scatter(p: Builder) -> None:
    for r in range(p.ranks):
        p.chunk(p.collective.roots[0], r).copy_to(rank=r)


@PLACEMENTS
@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize(
    ("make", "write"),
    [
        (lambda n: Allreduce(n, chunks=n), ring_allreduce),
        (lambda n: Alltoall(n, chunks=2), direct_alltoall),
        (lambda n: Allgather(n, chunks=2), direct_allgather),
        (lambda n: ReduceScatter(n, chunks=2), direct_reduce_scatter),
        (lambda n: Reduce(n, chunks=2, root=n - 1), chain_reduce),
        (lambda n: Broadcast(n, chunks=3, root=1), chain_broadcast),
        (lambda n: Gather(n, root=1), star_gather),
        (lambda n: Scatter(n, root=1), star_scatter),
    ],
)
def test_one_text_serves_both_placements(
    make: Callable[[int], object], write: Callable[[Builder], None], ranks: int, in_place: bool
) -> None:
    collective = make(ranks)
    p = Builder(collective, in_place=in_place)  # type: ignore[arg-type]
    write(p)
    algorithm = p.algorithm()
    assert achieves(algorithm)
    assert not writes_input(algorithm)


def test_a_partial_sum_that_is_not_wanted_lives_in_scratch_of_its_own() -> None:
    p = Builder(Reduce(3, root=0))
    p.chunk(2, 0).reduce_into(rank=1).reduce_into(rank=0)
    algorithm = p.algorithm()
    assert list(algorithm.scratch) == [0, 1, 0]
    assert algorithm.moves.target.tolist() == [SCRATCH, 1 << 32]
    assert achieves(algorithm)


def test_in_place_a_chunk_in_the_way_is_saved_just_before() -> None:
    p = Builder(Alltoall(2), in_place=True)
    p.chunk(0, 1).copy_to(rank=1)
    p.chunk(1, 2).copy_to(rank=0)
    algorithm = p.algorithm()
    # Rank 0's chunk had left for good only after rank 1 had saved its own.
    assert list(algorithm.scratch) == [1, 1]
    assert len(algorithm.moves) == 4
    assert achieves(algorithm)


def test_explicit_buffers_do_what_they_say() -> None:
    n = 3
    p = Builder(Allreduce(n, chunks=n))
    for r in range(n):
        for k in range(n):
            p.chunk(r, k, buffer="input").copy_to(rank=k, buffer="scratch", index=r)
    for k in range(n):
        total = p.chunk(k, 0, buffer="scratch")
        for r in range(1, n):
            total = p.chunk(k, r, buffer="scratch").reduce_into(buffer="scratch", index=0)
        for r in range(n):
            total.copy_to(rank=r, buffer=Buffer.OUTPUT, index=k)
    algorithm = p.algorithm()
    assert list(algorithm.scratch) == [n] * n
    assert achieves(algorithm)


def test_split_and_group_refer_to_the_same_chunks() -> None:
    p = Builder(Broadcast(2, chunks=4))
    first, second = p.chunk(0, 0, count=4).split(2)
    assert (first.count, second.count) == (2, 2)
    first.group(second).copy_to(rank=1)
    algorithm = p.algorithm()
    sent = algorithm.moves.chunk[~algorithm.moves.local]
    assert sent.tolist() == [0, 1, 2, 3]
    assert achieves(algorithm)


def test_chunks_are_contiguous_where_they_lie_side_by_side() -> None:
    p = Builder(Allgather(2, chunks=2))
    own = p.chunk(0, 0, count=2)
    first, second = own.split(2)
    assert own.contiguous
    assert not second.group(first).contiguous
    first.copy_to()
    assert not p.chunk(0, 0, count=2).contiguous  # one in the output, one still in the input
    two = Builder(Alltoall(2, chunks=2), instances=2)
    assert two.chunk(0, 0, count=2).contiguous
    assert not two.chunk(0, 0, count=4).contiguous  # an instance has a part of either block
    assert two.chunk(0, 0, count=4).copy_to(buffer="scratch").contiguous


def test_scratch_without_an_index_is_fresh_every_time() -> None:
    p = Builder(Broadcast(2))
    a = p.chunk(0, 0).copy_to(rank=1, buffer="scratch")
    b = p.chunk(0, 0).copy_to(rank=1, buffer="scratch")
    assert (repr(a), repr(b)) == ("chunk 0 of rank 1 in s[0]", "chunk 0 of rank 1 in s[1]")
    b.copy_to()
    assert achieves(p.algorithm())


def test_wishes_are_kept_per_move() -> None:
    p = Builder(Broadcast(3))
    p.chunk(0, 0).copy_to(rank=1, channel=2, send_block=5)
    p.chunk(1, 0).copy_to(rank=2, recv_block=1)
    moves = p.algorithm().moves
    far = ~moves.local
    assert moves.channel[far].tolist() == [2, NONE]
    assert moves.send_block[far].tolist() == [5, NONE]
    assert moves.recv_block[far].tolist() == [NONE, 1]


def test_a_custom_collective() -> None:
    swap = custom("swap", 2, [(0, 0, [0], 0), (1, 1, [1], 0)], [(0, 1, [1], 0), (1, 0, [0], 0)])
    for in_place in (False, True):
        p = Builder(swap, in_place=in_place)
        p.chunk(0, 0).copy_to(rank=1)
        p.chunk(1, 1).copy_to(rank=0)
        assert achieves(p.algorithm())


@given(st.data())
def test_whatever_the_builder_accepts_is_right(data: st.DataObject) -> None:
    """Random gossip, finished by hand: the numbers agree with the symbols in every slot."""
    n = data.draw(st.integers(2, 4))
    in_place = data.draw(st.booleans())
    p = Builder(Allreduce(n, chunks=2), in_place=in_place)
    for _ in range(data.draw(st.integers(0, 12))):
        src, dst, k = (data.draw(st.integers(0, m - 1)) for m in (n, n, 2))
        verb = data.draw(st.sampled_from(["copy", "reduce", "scratch"]))
        chunk = p.chunk(src, k)
        with suppress(BadAlgorithm):
            if verb == "copy":
                chunk.copy_to(rank=dst, buffer="scratch")
            elif verb == "reduce" and src != dst:
                chunk.reduce_into(rank=dst)
            else:
                chunk.copy_to(rank=dst, buffer="scratch", index=k)
    state = p._state
    held = {(rank, slot): value for rank in range(n) for slot, value in state.held[rank].items()}
    try:
        algorithm = p.algorithm()
    except BadAlgorithm:
        return
    assert achieves(algorithm)
    memory = carried_out(algorithm)
    for (rank, slot), (chunk, mask) in held.items():
        letter = "ios"[slot >> 32]
        want = sum(1 << 16 * (chunk * n + r) for r in range(n) if mask >> r & 1)
        assert memory[rank, letter, slot & 0xFFFFFFFF] == want

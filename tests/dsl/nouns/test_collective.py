"""What each collective moves where, against its textbook definition.

A place of an input buffer is (rank, offset); an output place is the set of input places that are
summed into it. Written that way MPI's and NCCL's definitions are one line each.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import collectives, custom_collectives

from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.nouns.collective import Collective, Kind, custom, make, one_shot_allreduce

Place = tuple[int, int]
Outputs = dict[Place, frozenset[Place]]

COMBINING = {Kind.REDUCE, Kind.REDUCE_SCATTER, Kind.ALLREDUCE}


def meaning(c: Collective) -> Outputs:
    """Each output place, and the input places summed there, by the collective's own tables."""
    inputs: defaultdict[tuple[int, int], set[Place]] = defaultdict(set)
    for rank, chunk, index, offset in c.pre.rows().tolist():
        (who,) = c.contributions[index]
        inputs[chunk, who].add((rank, offset))
    outputs: defaultdict[Place, set[Place]] = defaultdict(set)
    for rank, chunk, index, offset in c.post.rows().tolist():
        for who in c.contributions[index]:
            (place,) = inputs[chunk, who]
            assert place not in outputs[rank, offset], "a contribution is added twice"
            outputs[rank, offset].add(place)
    return {place: frozenset(summed) for place, summed in outputs.items()}


def textbook(kind: Kind, n: int, k: int, roots: tuple[int, ...]) -> Outputs:
    """The definition with blocks of k chunks; ``roots`` as given, for those that have any."""
    ranks, pieces = range(n), range(k)
    out: dict[Place, set[Place]] = {}
    for v, j in product(ranks, pieces):
        match kind:
            case Kind.ALLGATHER:  # the blocks of all ranks, in their order
                out |= {(v, r * k + j): {(r, j)} for r in ranks}
            case Kind.REDUCE_SCATTER:  # block v of the sum
                out[v, j] = {(r, v * k + j) for r in ranks}
            case Kind.ALLREDUCE:
                out[v, j] = {(r, j) for r in ranks}
            case Kind.ALLTOALL:  # the transposed matrix of blocks
                out |= {(v, r * k + j): {(r, v * k + j)} for r in ranks}
            case Kind.ALLTONEXT:  # MSCCLang's AllToNext
                out |= {(v + 1, j): {(v, j)}} if v + 1 < n else {}
            case Kind.BROADCAST | Kind.MULTIROOT_BROADCAST:
                out |= {(v, i * k + j): {(root, j)} for i, root in enumerate(roots)}
            case Kind.SCATTER | Kind.MULTIROOT_SCATTER:
                out |= {(v, i * k + j): {(root, v * k + j)} for i, root in enumerate(roots)}
            case Kind.GATHER | Kind.MULTIROOT_GATHER:
                out |= {(root, v * k + j): {(v, i * k + j)} for i, root in enumerate(roots)}
            case Kind.REDUCE:
                out |= {(root, j): {(r, j) for r in ranks} for root in roots}
            case _:
                raise AssertionError(kind)
    return {place: frozenset(summed) for place, summed in out.items()}


def some_roots(kind: Kind, n: int) -> list[tuple[int, ...]]:
    """Roots to try: none where there are none, else single ones or several, in any order."""
    if kind in (Kind.BROADCAST, Kind.REDUCE, Kind.SCATTER, Kind.GATHER):
        return [(root,) for root in range(n)]
    if kind.name.startswith("MULTIROOT"):
        return [(n - 1,), tuple(range(n)), tuple(reversed(range(n)))[: n - 1 or 1]]
    return [()]


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        (kind, n)
        for kind, n in product([k for k in Kind if k is not Kind.CUSTOM], [1, 2, 3, 5])
        if (kind, n) != (Kind.ALLTONEXT, 1)  # there is no next one
    ],
)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_standard_kind_is_that_of_the_textbook(kind: Kind, n: int, k: int) -> None:
    for roots in some_roots(kind, n):
        c = make(kind, n, chunks=k, roots=roots)
        expected = textbook(kind, n, k, roots)
        assert meaning(c) == expected
        assert (c.kind, c.ranks, c.factor, c.roots) == (kind, n, k, roots)
        assert c.combining == (kind in COMBINING and n > 1)
        # Nothing starts that nobody wants; the buffers are as long as their last place.
        inputs = {(r, o) for r, _, _, o in c.pre.rows().tolist()}
        assert inputs == frozenset().union(*expected.values())
        assert c.input_chunks == 1 + max(o for _, o in inputs)
        assert c.output_chunks == 1 + max(o for _, o in expected)
        assert c.message_chunks == max(c.input_chunks, c.output_chunks)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_one_shot_allreduce_is_an_allreduce(n: int, k: int) -> None:
    c = one_shot_allreduce(n, chunks=k)
    assert meaning(c) == textbook(Kind.ALLREDUCE, n, k, ())
    assert not c.combining
    groups = {tuple(r * k + j for r in range(n)) for j in range(k)}
    assert set(c.local_reduce) == groups
    offsets = {(r, chunk): o for r, chunk, _, o in c.post.rows().tolist()}
    assert all(len({offsets[v, c] for c in g}) == 1 for g in groups for v in range(n))


def test_roots_are_the_first_rank_or_all_where_none_is_given() -> None:
    assert make("broadcast", 3).roots == (0,)
    assert make("multiroot_scatter", 3).roots == (0, 1, 2)


@pytest.mark.parametrize("kind", [Kind.ALLGATHER, Kind.REDUCE_SCATTER])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (4, 3)])
def test_in_place_the_own_block_is_in_the_larger_buffer(kind: Kind, n: int, k: int) -> None:
    c = make(kind, n, chunks=k)
    large = textbook(kind, n, k, ())
    for rank in range(n):
        shift = c.in_place_shift(rank)
        if kind is Kind.ALLGATHER:
            assert all(large[rank, j + shift] == {(rank, j)} for j in range(k))
        else:
            own = {o for r, o in set().union(*(large[rank, j] for j in range(k))) if r == rank}
            assert {o + shift for o in own} == set(range(k))


@pytest.mark.parametrize("root", range(3))
def test_in_place_the_block_of_a_root_is_where_mpi_and_nccl_have_it(root: int) -> None:
    """``recv + root * count`` of a gather, ``send + root * count`` of a scatter."""
    for kind, large, sign in (("gather", "post", 1), ("scatter", "pre", -1)):
        c = make(kind, 3, roots=(root,), chunks=2)
        whole = {(r, chunk): at for r, chunk, _, at in getattr(c, large).rows().tolist()}
        part = c.pre if sign > 0 else c.post
        own = {chunk: at for r, chunk, _, at in part.rows().tolist() if r == root}
        assert c.in_place_shift(root) == sign * 2 * root
        assert all(whole[root, k] == at + 2 * root for k, at in own.items())


def test_in_place_others_use_one_buffer() -> None:
    for kind in (Kind.ALLREDUCE, Kind.ALLTOALL, Kind.BROADCAST, Kind.REDUCE):
        assert make(kind, 4, chunks=2).in_place_shift(3) == 0


# --- split ----------------------------------------------------------------------------------------


@given(st.integers(2, 4).flatmap(collectives), st.integers(1, 3), st.integers(1, 3))
def test_cut_twice_is_cut_by_the_product(c: Collective, a: int, b: int) -> None:
    assert c.split(a).split(b) == c.split(a * b)


@given(
    st.integers(2, 4).flatmap(lambda n: collectives(n) | custom_collectives(n)), st.integers(1, 4)
)
def test_every_piece_goes_the_way_of_its_chunk(c: Collective, pieces: int) -> None:
    cut = c.split(pieces)
    assert (cut.chunks, cut.factor) == (c.chunks * pieces, c.factor * pieces)
    for whole, parts in ((c.pre, cut.pre), (c.post, cut.post)):
        assert {(r, k, c.contributions[s], o) for r, k, s, o in parts.rows().tolist()} == {
            (r, k * pieces + j, c.contributions[s], o * pieces + j)
            for r, k, s, o in whole.rows().tolist()
            for j in range(pieces)
        }
    assert set(cut.local_reduce) == {
        tuple(k * pieces + j for k in group) for group in c.local_reduce for j in range(pieces)
    }
    assert cut.combining == c.combining


def test_pieces_in_a_column_are_those_of_lists() -> None:
    c = make("alltoall", 2)
    flat, count = np.array([2, 1, 3, 1, 1, 1, 3]), np.array([2, 1, 3, 1])
    assert c.cut_in(flat, count) == c.cut([[2, 1], [3], [1, 1, 1], [3]])


@pytest.mark.parametrize("sizes", [[[1, 1], [1]], [[2], []], [[2]], [[3, -1], [2]], [[], []]])
def test_pieces_that_make_no_chunks_are_refused(sizes: list[list[int]]) -> None:
    with pytest.raises(UserError, match="do not make up the chunks"):
        make("allgather", 2).cut(sizes)


def test_nothing_is_cut_into_no_pieces() -> None:
    c = make("allgather", 3)
    assert c.split(1) is c
    with pytest.raises(UserError, match="0 pieces"):
        c.split(0)


@pytest.mark.parametrize(
    ("kind", "ranks", "options", "why"),
    [
        ("broadcast", 3, {"roots": (1.5,)}, "root: 1.5 is not an integer"),
        ("allreduce", 2, {"chunks": 1.0}, "chunks: 1.0 is not an integer"),
        ("allgather", 2, {"chunks": 1.5}, "chunks: 1.5 is not"),
        ("allgather", 2, {"chunks": 10**30}, "chunks: .* is outside"),
        ("allgather", 2, {"chunks": 2**30}, "too large to hold"),
        ("allreduce", 2.0, {}, "ranks: 2.0 is not"),
        ("allreduce", None, {}, "ranks: None is not"),
        ("allreduce", "4", {}, "ranks: '4' is not"),
        ("allgather", 1 << 20, {}, "allgather on 1048576 ranks is too large to hold"),
        ("broadcast", 3, {"roots": 1}, "roots: 1 is not a list"),
        ("allreduce", 10**9, {}, "ranks: 1000000000 is outside"),
    ],
)
def test_numbers_are_whole(kind, ranks, options, why) -> None:
    with pytest.raises(UserError, match=why):
        make(kind, ranks, **options)


def test_numbers_of_numpy_are_whole() -> None:
    c = make("allgather", np.int32(300), chunks=np.int32(2))
    assert c == make("allgather", 300, chunks=2)
    assert c.split(np.uint8(3)).message_chunks == 1800


# --- custom ---------------------------------------------------------------------------------------


def test_a_custom_one_says_what_its_rows_say() -> None:
    c = custom(
        "mine",
        3,
        [(0, 0, [0], 1), (1, 0, [1], 0), (2, 1, [2], 0)],
        [(2, 0, [1, 0], 3), (0, 1, [2], 0)],
    )
    assert (c.kind, c.chunks, c.factor, str(c)) == (Kind.CUSTOM, 2, 1, "mine on 3 ranks, 2 chunks")
    assert meaning(c) == {(2, 3): {(0, 1), (1, 0)}, (0, 0): {(2, 0)}}
    assert c.combining
    assert (c.input_chunks, c.output_chunks) == (2, 4)


ROW = (0, 0, [0], 0)


@pytest.mark.parametrize(
    ("ranks", "pre", "post", "why"),
    [
        (2, [], [ROW], "precondition is empty"),
        (2, [ROW], [], "postcondition is empty"),
        (0, [ROW], [ROW], "these are 0"),
        (2, [ROW], [(2, 0, [0], 0)], "rank 2"),
        (2, [ROW], [(-1, 0, [0], 0)], "rank -1"),
        (2, [ROW], [(1, 0, [0], -1)], "offset -1"),
        (2, [ROW, ROW], [ROW], "a rank and chunk twice"),
        (2, [ROW], [(1, 0, [1], 0)], "no rank holds what chunk 0 must become"),
        (2, [ROW], [(1, 0, [0, 1], 0)], "no rank holds"),
        (2, [ROW], [(1, 1, [0], 0)], "no rank holds what chunk 1"),
        (2, [ROW], [(1, 0, [], 0)], "empty set of contributions"),
        (2, [ROW], [(1, 0, [0])], r"postcondition, row 0 is \(1, 0, \[0\]\)"),
        (2, [ROW, (1, 1, 1, 0)], [ROW], "precondition, row 1 is"),
        (2, None, [ROW], "precondition is None"),
        (2, [None], [ROW], "precondition, row 0 is None"),
        (2, [(0, 0, [0], None)], [ROW], "row 0: offset: None is not an integer"),
        (2, [(0, 0, [0.5], 0)], [ROW], "row 0: contribution: 0.5 is not"),
        (2, [(0, 0, [2], 0)], [ROW], "row 0: contribution: 2 is outside 0 … 1"),
        (2, [ROW], [(1, 0, [0], 2**40)], "row 0: offset: 1099511627776 is outside"),
        (2, [ROW], [(1, 2**31 - 1, [0], 0)], "row 0: chunk: 2147483647 is outside"),
        (1.5, [ROW], [ROW], "ranks: 1.5 is not an integer"),
        (2, [ROW, (0, 1, [0], 0)], [ROW], "chunks 0 and 1 share input offset 0 of rank 0"),
        (
            2,
            [ROW, (0, 1, [0], 1)],
            [(1, 0, [0], 0), (1, 1, [0], 0)],
            "chunks 0 and 1 share output offset 0 of rank 1",
        ),
    ],
)
def test_rows_that_make_no_sense(ranks, pre, post, why) -> None:
    with pytest.raises(UserError, match=why):
        custom("mine", ranks, pre, post)


def test_only_a_group_summed_at_home_shares_an_output_place() -> None:
    c = custom("mine", 2, [(0, 0, [0], 0), (0, 1, [0], 1)], [(1, 0, [0], 0), (1, 1, [0], 1)])
    shared = replace(c.post, offsets=c.post.offsets * 0)
    assert replace(c, post=shared, local_reduce=((0, 1),)).output_chunks == 1
    with pytest.raises(UserError, match="share output offset"):
        replace(c, post=shared)
    with pytest.raises(UserError, match="share output offset"):
        replace(c, post=shared, local_reduce=((0,), (1,)))


# --- what is asked for wrongly --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "ranks", "roots", "why"),
    [
        ("broadcast", 4, (4,), "root 4 is outside"),
        ("broadcast", 4, (-1,), "root -1 is outside"),
        ("broadcast", 4, (0, 1), "one root, not 2"),
        ("multiroot_gather", 4, (1, 1), "named twice"),
        ("allgather", 4, (0,), "has no root"),
        ("allgather", 0, (), "group is empty"),
        ("alltonext", 1, (), "at least two"),
    ],
)
def test_impossible_groups_and_roots(kind, ranks, roots, why) -> None:
    with pytest.raises(UserError, match=why):
        make(kind, ranks, roots=roots)


@pytest.mark.parametrize("kind", ["allgatherr", "custom", ""])
def test_unknown_kinds(kind: str) -> None:
    with pytest.raises(UnknownName):
        make(kind, 4)


@pytest.mark.parametrize("kind", ["alltoallv", "AllToAllV", "all_to_all_v"])
def test_alltoallv_is_a_workload(kind: str) -> None:
    with pytest.raises(UnknownName) as error:
        make(kind, 4)
    assert "a workload with a matrix, or planned by weft.rail_planner" in (error.value.hint or "")


def test_groups_summed_at_home_are_of_equal_chunks() -> None:
    with pytest.raises(UserError, match="unequal sizes"):
        replace(one_shot_allreduce(2), sizes=(2, 2))

"""Classic algorithms on one group: right at every size, in the steps that their papers count."""

import random

import pytest
from moves import achieves, writes_input

from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.nouns.collective import ROOTED, Kind
from weft.synth.engines.classic.flat import FLAT, classic, classic_algorithm
from weft.synth.engines.classic.model import Flat

SIZES = range(2, 18)
EACH = pytest.mark.parametrize("one", FLAT, ids=lambda c: f"{c.name}-{c.kind}")


@EACH
def test_it_is_right_on_any_number_of_ranks_in_both_placements(one: Flat) -> None:
    """The builder proves every one; numbers are summed independently up to nine ranks.

    On more ranks the placements take turns.
    """
    for turn, ranks in enumerate(n for n in SIZES if not one.defined(n)):
        for in_place in (False, True) if ranks < 10 else (turn % 2 == 0,):
            made = classic_algorithm(one.name, one.kind, ranks, in_place=in_place)
            assert not writes_input(made)
            if ranks < 10:
                assert achieves(made), (ranks, in_place)


@EACH
def test_it_follows_any_order_from_any_root(one: Flat) -> None:
    choice = random.Random(f"{one.name} {one.kind}")
    for ranks in (3, 4, 6, 8):
        if one.defined(ranks):
            continue
        order = choice.sample(range(ranks), ranks)
        root = choice.randrange(ranks) if one.kind in ROOTED else 0
        for in_place in (False, True):
            made = classic_algorithm(
                one.name, one.kind, ranks, in_place=in_place, order=order, root=root, chunks=2
            )
            assert achieves(made)


@pytest.mark.parametrize("chunks", [1, 5])
@pytest.mark.parametrize("name", [(c.name, c.kind) for c in FLAT if c.pipelined])
def test_pipelines_take_any_number_of_chunks(name: tuple[str, str], chunks: int) -> None:
    for ranks in (3, 6, 7):
        if not classic(*name).defined(ranks):
            assert achieves(classic_algorithm(*name, ranks, chunks=chunks))


def test_each_has_one_entry_per_collective() -> None:
    names = [(c.name, c.kind) for c in FLAT]
    assert len(set(names)) == len(names)
    assert {c.kind for c in FLAT} == {
        Kind.ALLREDUCE,
        Kind.ALLGATHER,
        Kind.REDUCE_SCATTER,
        Kind.BROADCAST,
        Kind.REDUCE,
        Kind.GATHER,
        Kind.SCATTER,
        Kind.ALLTOALL,
    }


def test_those_defined_on_a_number_of_ranks() -> None:
    def names(kind: Kind, ranks: int) -> list[str]:
        return [c.name for c in FLAT if c.kind == kind and not c.defined(ranks)]

    assert "swing" in names(Kind.ALLREDUCE, 6)
    assert "swing" not in names(Kind.ALLREDUCE, 7)
    assert names(Kind.REDUCE, 5) == ["chain", "binomial", "double_tree", "two_shot"]


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(UnknownName, match="'rign'"):
        classic("rign", "allreduce")
    with pytest.raises(UserError, match="ring is not an algorithm for alltoall"):
        classic("ring", "alltoall")
    with pytest.raises(UserError, match="swing allreduce is not defined on 7 ranks") as told:
        classic_algorithm("swing", "allreduce", 7)
    assert "ring" in told.value.hint
    with pytest.raises(UserError, match="expected a permutation"):
        classic_algorithm("ring", "allreduce", 3, order=[0, 1, 1])
    with pytest.raises(UnknownName, match="option of ring"):
        classic_algorithm("ring", "allreduce", 3, trees=2)
    with pytest.raises(UserError, match="allreduce has no root"):
        classic_algorithm("ring", "allreduce", 3, root=1)
    with pytest.raises(UserError, match="root 3 is outside"):
        classic_algorithm("chain", "broadcast", 3, root=3)


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter"])
def test_pat_keeps_to_the_blocks_that_a_message_may_have(kind: str) -> None:
    for ranks in (5, 8):
        whole = classic_algorithm("pat", kind, ranks)
        for aggregate in (1, 2):
            made = classic_algorithm("pat", kind, ranks, aggregate=aggregate)
            assert achieves(made)
            moves, known = made.moves, whole.moves
            assert (~moves.local).sum() == (~known.local).sum() == ranks * (ranks - 1)
    with pytest.raises(UserError, match="messages of -1 blocks"):
        classic_algorithm("pat", kind, 4, aggregate=-1)

"""Slots have one name: in place, the output's where the two buffers are one memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Buffer, Program, RankProgram, Slice
from weft.dsl.nouns.slots import BASE, INPUT, NONE, OUTPUT, SCRATCH, Aliases

KINDS = ["allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast"]


def address(kind: str, ranks: int, chunks: int, rank: int, part: Slice) -> int:
    """The chunk of the user's one buffer, by the calling convention of NCCL in place.

    Allgather: sendbuff = recvbuff + rank * count; reduce_scatter: recvbuff = sendbuff + rank *
    count; all others: sendbuff = recvbuff.
    """
    starts = {
        ("allgather", Buffer.INPUT): rank * chunks,
        ("reduce_scatter", Buffer.OUTPUT): rank * chunks,
    }
    return starts.get((kind, part.buffer), 0) + part.offset


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [1, 3])
def test_in_place_two_slots_have_one_name_if_they_are_one_memory(kind: str, chunks: int) -> None:
    c = make(kind, 4, chunks=chunks)
    aliases = Aliases.of(c, True)
    for rank in range(4):
        found: dict[int, int] = {}
        for offset in range(c.output_chunks):
            part, slot = Slice(Buffer.OUTPUT, offset), BASE[Buffer.OUTPUT] + offset
            assert aliases.name(rank, slot) == slot
            found[address(kind, 4, c.factor, rank, part)] = slot
        for offset in range(c.input_chunks):
            part, slot = Slice(Buffer.INPUT, offset), BASE[Buffer.INPUT] + offset
            there = found.get(address(kind, 4, c.factor, rank, part), slot)
            assert aliases.name(rank, slot) == there


@given(
    kind=st.sampled_from(KINDS),
    in_place=st.booleans(),
    chunks=st.integers(1, 3),
    slots=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([INPUT, OUTPUT, SCRATCH]), st.integers(0, 20)),
        min_size=1,
    ),
)
def test_columns_are_named_as_slots_one_by_one(
    kind: str, in_place: bool, chunks: int, slots: list[tuple[int, int, int]]
) -> None:
    aliases = Aliases.of(make(kind, 4, chunks=chunks), in_place)
    rank, base, offset = np.array(slots, np.int64).T
    names = aliases.names(rank, base + offset).tolist()
    assert names == [aliases.name(r, b + k) for r, b, k in slots]
    if not in_place:
        assert names == (base + offset).tolist()


def test_no_slot_stays_none() -> None:
    aliases = Aliases.of(make("allgather", 4), True)
    assert aliases.names(np.array([1]), np.array([NONE])).tolist() == [NONE]


def test_a_program_may_cut_the_chunks_and_declare_more_or_less() -> None:
    c = make("allgather", 2)
    small = Program.of("p", c, (RankProgram((), 1, 1, 0),) * 2, c.message_chunks, in_place=True)
    assert Aliases.of_program(small).name(1, INPUT) == OUTPUT + 1  # the collective's two count
    cut = replace(small, message_chunks=3 * c.message_chunks)
    assert Aliases.of_program(cut) == Aliases.of(c.split(3), True)
    wide = small.with_ranks((RankProgram((), 9, 9, 0),) * 2)
    assert Aliases.of_program(wide).name(0, INPUT + 8) == OUTPUT + 8
    apart = replace(wide, in_place=False)
    assert Aliases.of_program(apart).name(0, INPUT) == INPUT

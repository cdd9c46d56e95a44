"""What an author does wrong is told by the builder, in words and at the line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from moves import achieves

from weft.backends.compile.compile import lower_algorithm
from weft.dsl.author.builder import Builder
from weft.dsl.author.recipe import program
from weft.dsl.author.standard import (
    Allgather,
    Allreduce,
    Alltoall,
    Broadcast,
)
from weft.dsl.base.errors import BadAlgorithm, UserError
from weft.dsl.base.spans import Span
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import Collective, one_shot_allreduce


def no_such_rank(p: Builder) -> None:
    p.chunk(4, 0)


def no_such_target(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=-1)


def no_such_chunk(p: Builder) -> None:
    p.chunk(0, 3, count=2)


def no_chunks(p: Builder) -> None:
    p.chunk(0, 0, count=0)


def unknown_buffer(p: Builder) -> None:
    p.chunk(0, 0, buffer="outptu")


def beyond_the_buffer(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, buffer="output", index=4)


def unwritten(p: Builder) -> None:
    p.chunk(0, 1, buffer="output")


def unwritten_scratch(p: Builder) -> None:
    p.chunk(0, 0, buffer="scratch")


def twice(p: Builder) -> None:
    one = p.chunk(0, 0)
    one.reduce_into(rank=1)
    one.reduce_into(rank=1)


def apples_and_pears(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, buffer="scratch", index=0)
    p.chunk(0, 1).reduce_into(rank=1, buffer="scratch", index=0)


def nothing_to_add_to(p: Builder) -> None:
    p.chunk(0, 0).reduce_into(rank=1, buffer="output", index=0)


def the_callers_input(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, buffer="input", index=0)


def where_in_the_output(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, buffer="output")


def index_alone(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, index=2)


def stale(p: Builder) -> None:
    old = p.chunk(0, 0).copy_to(rank=1, buffer="scratch", index=0)
    p.chunk(0, 1).copy_to(rank=1, buffer="scratch", index=0)
    old.copy_to(rank=2, buffer="scratch")


def over_itself(p: Builder) -> None:
    two = p.chunk(0, 0, count=2).copy_to(rank=1, buffer="scratch", index=0)
    two.copy_to(buffer="scratch", index=1)


def odd_split(p: Builder) -> None:
    p.chunk(0, 0, count=3).split(2)


def far_group(p: Builder) -> None:
    p.chunk(0, 0).group(p.chunk(1, 1))


def negative_wish(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, channel=-2)


def half_a_chunk(p: Builder) -> None:
    p.chunk(0, 3 / 2)  # type: ignore[arg-type]


def msccl_reduce(p: Builder) -> None:
    p.chunk(0, 0).reduce(p.chunk(1, 0))  # type: ignore[attr-defined]


def msccl_copy(p: Builder) -> None:
    p.chunk(0, 0).copy_to(dst=1)  # type: ignore[arg-type]


def msccl_size(p: Builder) -> None:
    p.chunk(0, 0, size=2)  # type: ignore[arg-type]


def half_a_piece(p: Builder) -> None:
    p.chunk(0, 0, count=2).split(4 / 2)  # type: ignore[arg-type]


def half_a_wish(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, channel=1 / 2)  # type: ignore[arg-type]


def huge_wish(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1, send_block=10**30)


def huge_index(p: Builder) -> None:
    p.chunk(0, 10**90, buffer="scratch")


def no_group(p: Builder) -> None:
    p.chunk(0, 0).group(7)  # type: ignore[arg-type]


def half_a_rank(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1 / 1)  # type: ignore[arg-type]


def lost(p: Builder) -> None:
    p.chunk(0, 0).copy_to(rank=1)
    p.chunk(0, 1).copy_to(rank=1, buffer="output", index=0)
    p.chunk(1, 0)


def stale_copied_home(p: Builder) -> None:
    old = p.chunk(0, 0).copy_to(rank=1)
    p.chunk(0, 1).copy_to(rank=1, buffer="output", index=0)
    old.copy_to(rank=1)


def another_builders(p: Builder) -> None:
    p.chunk(0, 0).group(Builder(Allreduce(2)).chunk(0, 0))


@pytest.mark.parametrize(
    ("write", "says", "at"),
    [
        (half_a_chunk, "index: 1.5 is not an integer", "p.chunk(0, 3 / 2)"),
        (msccl_reduce, "a reference to chunks has no 'reduce'", "p.chunk(0, 0).reduce"),
        (msccl_copy, "unknown option 'dst'", "p.chunk(0, 0).copy_to(dst=1)"),
        (msccl_size, "unknown option 'size'", "p.chunk(0, 0, size=2)"),
        (half_a_piece, "pieces: 2.0 is not", "p.chunk(0, 0, count=2).split(4 / 2)"),
        (half_a_wish, "channel: 0.5 is not", "p.chunk(0, 0).copy_to(rank=1, channel=1 / 2)"),
        (huge_wish, "send_block: 1000", "p.chunk(0, 0).copy_to(rank=1, send_block=10**30)"),
        (huge_index, "index: a number of", 'p.chunk(0, 10**90, buffer="scratch")'),
        (no_group, "7 is not a reference to chunks", "p.chunk(0, 0).group(7)"),
        (half_a_rank, "1.0 is not an integer", "p.chunk(0, 0).copy_to(rank=1 / 1)"),
        (lost, "rank 1 holds chunk 0 no longer", "p.chunk(1, 0)"),
        (stale_copied_home, "output chunk 0 of rank 1 no longer holds", "old.copy_to(rank=1)"),
        (
            another_builders,
            "another builder",
            "p.chunk(0, 0).group(Builder(Allreduce(2)).chunk(0, 0))",
        ),
        (no_such_rank, "expected a rank, got 4", "p.chunk(4, 0)"),
        (no_such_target, "expected a rank, got -1", "p.chunk(0, 0).copy_to(rank=-1)"),
        (no_such_chunk, "expected a chunk, got 4", "p.chunk(0, 3, count=2)"),
        (no_chunks, "a reference is to at least one chunk, not 0", "p.chunk(0, 0, count=0)"),
        (unknown_buffer, "unknown buffer 'outptu'", 'p.chunk(0, 0, buffer="outptu")'),
        (
            beyond_the_buffer,
            "expected a chunk of the output buffer, got 4",
            'p.chunk(0, 0).copy_to(rank=1, buffer="output", index=4)',
        ),
        (
            unwritten,
            "output chunk 1 of rank 0 is read before it is written",
            'p.chunk(0, 1, buffer="output")',
        ),
        (
            unwritten_scratch,
            "scratch chunk 0 of rank 0 is read before",
            'p.chunk(0, 0, buffer="scratch")',
        ),
        (
            twice,
            "rank 1 would count the contribution of rank 0 to chunk 0 twice",
            "one.reduce_into(rank=1)",
        ),
        (
            apples_and_pears,
            "chunk 1 of rank 0 is added to chunk 0 of rank 1",
            'p.chunk(0, 1).reduce_into(rank=1, buffer="scratch", index=0)',
        ),
        (
            nothing_to_add_to,
            "output chunk 0 of rank 1 holds nothing",
            'p.chunk(0, 0).reduce_into(rank=1, buffer="output", index=0)',
        ),
        (
            the_callers_input,
            "the input of rank 1 belongs to the caller",
            'p.chunk(0, 0).copy_to(rank=1, buffer="input", index=0)',
        ),
        (
            where_in_the_output,
            "the place in the output buffer is missing",
            'p.chunk(0, 0).copy_to(rank=1, buffer="output")',
        ),
        (index_alone, "an index needs its buffer", "p.chunk(0, 0).copy_to(rank=1, index=2)"),
        (
            stale,
            "scratch chunk 0 of rank 1 no longer holds chunk 0 of rank 0",
            'old.copy_to(rank=2, buffer="scratch")',
        ),
        (
            over_itself,
            "scratch chunk 1 of rank 1 no longer holds chunk 1 of rank 0",
            'two.copy_to(buffer="scratch", index=1)',
        ),
        (odd_split, "3 chunks cannot be split into 2", "p.chunk(0, 0, count=3).split(2)"),
        (far_group, "chunks of rank 0 and rank 1", "p.chunk(0, 0).group(p.chunk(1, 1))"),
        (negative_wish, "channel -2 is negative", "p.chunk(0, 0).copy_to(rank=1, channel=-2)"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_wrong_line_is_named(write: Callable[[Builder], None], says: str, at: str) -> None:
    p = Builder(Allreduce(4, chunks=4))
    with pytest.raises(BadAlgorithm) as caught:
        write(p)
    assert says in caught.value.message
    assert isinstance(caught.value.where, Span)
    assert caught.value.where.text == at
    assert caught.value.where.source.name == __file__
    first = write.__code__.co_firstlineno
    assert first < caught.value.where.line <= first + 3


def test_a_stale_reference_names_the_line_that_overwrote_it() -> None:
    p = Builder(Allreduce(4, chunks=4))
    with pytest.raises(BadAlgorithm) as caught:
        stale(p)
    assert f"line {stale.__code__.co_firstlineno + 2} overwrote it" in caught.value.message


def test_a_reference_holds_while_its_value_is_there_again() -> None:
    p = Builder(Allreduce(2))
    total = p.chunk(0, 0).reduce_into(rank=1)
    p.chunk(1, 0, buffer="input").copy_to(rank=0, buffer="scratch", index=0)
    again = p.chunk(0, 0).reduce_into(rank=0, buffer="scratch", index=0)
    again.copy_to(rank=1, buffer="output", index=0)
    total.copy_to(rank=0)
    assert achieves(p.algorithm())


def test_what_falls_short_is_named() -> None:
    p = Builder(Allreduce(3, chunks=1))
    p.chunk(0, 0).reduce_into(rank=1)
    with pytest.raises(BadAlgorithm, match="output chunk 0 of rank 0 is never written") as caught:
        p.algorithm()
    assert "chunk 0 summed over ranks 0-2" in caught.value.message
    p.chunk(2, 0).reduce_into(rank=1).copy_to(rank=0)
    p.chunk(2, 0).copy_to(buffer="output", index=0)
    with pytest.raises(BadAlgorithm, match="output chunk 0 of rank 2 ends as chunk 0 of rank 2"):
        p.algorithm()
    p.chunk(1, 0).copy_to(rank=2)
    assert achieves(p.algorithm())


def test_a_with_block_is_judged_when_it_ends() -> None:
    with pytest.raises(BadAlgorithm, match="never written"), Builder(Broadcast(2)) as p:
        p.chunk(0, 0).copy_to(rank=1, buffer="scratch")
    with Builder(Broadcast(2)) as p:
        p.chunk(0, 0).copy_to(rank=1)
    assert achieves(p.algorithm())


def test_what_no_builder_can_be_made_for() -> None:
    with pytest.raises(UserError, match="sum groups of chunks by themselves"):
        Builder(one_shot_allreduce(2))
    with pytest.raises(UserError, match="at least 1, not 0"):
        Builder(Broadcast(2), instances=0)
    with pytest.raises(UserError, match="unknown protocol 'simple'"):
        Builder(Broadcast(2), protocol="simple")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"instances": 1.5}, "instances: 1.5 is not an integer"),
        ({"instances": float("nan")}, "instances: nan is not an integer"),
        ({"instances": 10**30}, "instances: .* is outside"),
        ({"instances": 0}, "instances must be at least 1, not 0"),
        ({"in_place": "no"}, "in_place must be true or false, not 'no'"),
        ({"name": 3}, "the name must be a string, not 3"),
        ({"protocol": 7}, "unknown protocol '7'"),
    ],
)
def test_what_is_said_of_the_program_has_its_type(options: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Builder(Allreduce(2), **options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=says):
        program(Allreduce(2), **options)(twice)  # type: ignore[arg-type]


@pytest.mark.parametrize("no_collective", [None, Allreduce, "allreduce"])
def test_a_builder_wants_a_collective(no_collective: object) -> None:
    with pytest.raises(UserError, match="is not a collective"):
        Builder(no_collective)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
def test_numbers_of_numpy_serve(number: Callable[[int], int]) -> None:
    def written(n: Callable[[int], int]) -> Algorithm:
        p = Builder(Broadcast(n(2), chunks=n(4), root=n(1)), instances=n(2))
        for part in p.chunk(n(1), n(0), count=n(4)).split(n(2)):
            kept = part.copy_to(n(0), "scratch", n(1), channel=n(1), send_block=n(2))
            kept.copy_to(recv_block=n(0))
        return p.algorithm()

    def columns(made: Algorithm) -> list[list[int]]:
        return [getattr(made.moves, field.name).tolist() for field in fields(Moves)]

    same, plain = written(number), written(int)
    assert same.collective == plain.collective
    assert columns(same) == columns(plain)
    assert lower_algorithm(same) == lower_algorithm(plain)


@pytest.mark.parametrize(
    ("collective", "rank", "hint"),
    [
        (
            Alltoall(3),
            1,
            "it holds chunks 3-5; numbers are the collective's: what rank s has for "
            "rank d is s * 3 + d",
        ),
        (
            Alltoall(2, chunks=2),
            1,
            "it holds chunks 4-7; numbers are the collective's: what rank s "
            "has for rank d is (s * 2 + d) * 2 and the 1 after it",
        ),
        (
            Allgather(2, chunks=3),
            1,
            "it holds chunks 3-5; numbers are those of the whole output: "
            "rank r has r * 3 and the 2 after it",
        ),
        (Broadcast(2), 1, "copy it there first"),
    ],
)
def test_a_chunk_that_is_elsewhere_names_those_that_are_here(
    collective: Collective, rank: int, hint: str
) -> None:
    with pytest.raises(BadAlgorithm, match=f"rank {rank} holds nothing of chunk 0") as caught:
        Builder(collective).chunk(rank, 0)
    assert caught.value.hint.endswith(hint)


def test_names_of_msccl_have_hints_and_others_are_attributes_that_are_not_there() -> None:
    p = Builder(Allreduce(2))
    chunk = p.chunk(0, 0)
    with pytest.raises(BadAlgorithm) as caught:
        chunk.reduce(chunk)  # type: ignore[attr-defined]
    assert "b.reduce_into(rank=" in caught.value.hint
    with pytest.raises(BadAlgorithm) as caught:
        chunk.copy_to(1, sendtb=2)  # type: ignore[arg-type]
    assert caught.value.hint == "use send_block=…"
    with pytest.raises(AttributeError, match="a builder has no 'size'"):
        p.size  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(chunk, "copy")

"""What an author does wrong is told by the builder: beside the lines of texts/recipe/builder."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from moves import achieves

from weft.backends.compile.compile import lower_algorithm
from weft.dsl.author.builder import Builder
from weft.dsl.author.recipe import program
from weft.dsl.author.standard import Allgather, Allreduce, Alltoall, Broadcast
from weft.dsl.base.errors import BadAlgorithm, UserError
from weft.dsl.nouns.algorithm import Algorithm, Moves
from weft.dsl.nouns.collective import Collective, one_shot_allreduce


def twice(p: Builder) -> None:
    one = p.chunk(0, 0)
    one.reduce_into(rank=1)
    one.reduce_into(rank=1)


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

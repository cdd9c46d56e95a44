"""``classic:NAME{…}``: the text that names a classic algorithm."""

import pytest
from moves import achieves

from weft.dsl.base.errors import SyntaxProblem, UnknownName, UserError
from weft.synth.engines.classic.text import named_algorithm


@pytest.mark.parametrize(
    ("text", "ranks", "machine"),
    [
        ("classic:ring{collective=allreduce,ranks=5}", 5, None),
        ("classic:pat{collective=allgather,ranks=6,chunks=2}", 6, None),
        ("classic:binomial{collective=broadcast,ranks=6,root=4}", 6, None),
        ("classic:pairwise{ranks=4}", 4, None),
        ("classic:two_step{ranks=6,shape=3+2}", 6, None),
        ("classic:ring{collective=allgather,on=dgx1}", 8, "dgx1"),
        ("classic:hybrid{on={dgx-h100:nodes=2,fabric=rails}}", 16, "dgx-h100:nodes=2,fabric=rails"),
        ("classic:torus{collective=allreduce,on=torus:3x3,ranks=9}", 9, "torus:3x3"),
    ],
)
@pytest.mark.parametrize("in_place", [False, True])
def test_it_is_the_algorithm_that_it_names(
    text: str, ranks: int, machine: str | None, in_place: bool
) -> None:
    found = named_algorithm(text, in_place=in_place)
    assert found.algorithm.collective.ranks == ranks
    assert found.algorithm.in_place is in_place
    assert (found.topology and found.topology.name) == machine
    if ranks < 9:
        assert achieves(found.algorithm)


def test_a_name_that_had_one_collective_still_means_it() -> None:
    found = named_algorithm("classic:two_shot{ranks=6}").algorithm
    assert str(found.collective.kind) == "allreduce"
    assert found.name == "two_shot_allreduce"
    assert achieves(found)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("classic:rign{ranks=4}", UnknownName, "'rign'"),
        ("classic:ring{ranks=4}", UserError, "which is meant"),
        ("classic:ring{collective=alltoall,ranks=4}", UserError, "not an algorithm for alltoall"),
        ("classic:pairwise", UserError, "how many ranks"),
        ("classic:pairwise{rank=4}", UnknownName, "'rank'"),
        ("classic:pairwise{ranks=4,on=dgx1}", UserError, "has 8 ranks, not 4"),
        ("classic:two_step{ranks=4}", UserError, "expected a machine with a hierarchy"),
        ("classic:two_step{ranks=4,shape=3+2}", UserError, "do not hold 4 ranks"),
        ("classic:pairwise{ranks=4", SyntaxProblem, "never closed"),
        ("classic:", SyntaxProblem, "a name is expected"),
    ],
)
def test_what_is_wrong_is_told(text: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        named_algorithm(text)

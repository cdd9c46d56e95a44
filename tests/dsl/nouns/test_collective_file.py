"""Collective files: what comes back, and what is refused with a message and no traceback."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import collectives, custom_collectives

from weft.dsl.base.errors import UserError, WeftError
from weft.dsl.nouns.collective import Collective, make, one_shot_allreduce


@given(st.integers(2, 5).flatmap(lambda n: collectives(n) | custom_collectives(n)))
def test_there_and_back(c: Collective) -> None:
    assert Collective.from_json(c.to_json()) == c


def test_the_order_of_rows_and_sets_is_free() -> None:
    data = make("allgather", 3).to_json()
    data["post"] = {k: column[::-1] for k, column in data["post"].items()}
    data["contributions"].append([0, 2])
    assert Collective.from_json(data).post.ranks.tolist() == [2, 1, 0] * 3


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        *outer, last = path.split(".")
        for key in outer:
            data = data[key]
        data[last] = value

    return apply


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (change("contributions", [[[0]]]), "contributions"),
        (change("contributions", ["01"]), "contributions"),
        (change("contributions", [[0], [1], [7], [0]]), "contributions"),
        (change("contributions", [[], [1], [2], [0]]), "contributions"),
        (change("pre.chunk", [0, 1, 1 << 35]), "too large"),
        (change("pre.rank", [0, 1, -1]), "negative"),
        (change("chunks", 1 << 39), "has 3 entries for"),
        (change("ranks", 1 << 39), "not an allgather"),
        (change("factor", 0), "a multiple of 0"),
        (change("factor", 2), "a multiple of 2"),
        (change("local_reduce", [[0, 9]]), "local_reduce"),
        (change("local_reduce", [[0, 1, 2]]), "not an allgather"),
        (change("kind", "alltoall"), "not an alltoall"),
        (change("kind", "allreduce"), "not an allreduce"),
    ],
)
def test_hostile_files(edit: Callable[[dict[str, Any]], None], why: str) -> None:
    data = make("allgather", 3).to_json()
    edit(data)
    with pytest.raises(UserError) as caught:
        Collective.from_json(data)
    assert why in caught.value.render()


def test_a_weaker_collective_may_not_call_itself_by_a_standard_name() -> None:
    """Else a schedule that does less than an allgather would verify as one."""
    data = make("allgather", 3).to_json()
    data["post"] = {k: column[:-1] for k, column in data["post"].items()}
    with pytest.raises(WeftError, match="this is not an allgather of factor 1"):
        Collective.from_json(data)
    shot = one_shot_allreduce(3).to_json()
    shot["local_reduce"] = []
    with pytest.raises(WeftError, match="share output offset 0"):
        Collective.from_json(shot)

"""The text of long columns is that of the standard library, and reading them is as strict."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules, ring

from weft.dsl.base import unique_rows
from weft.dsl.base.errors import BadFile
from weft.dsl.base.json_text import RaggedRows, compact, plain
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer, dump, dumps, load, write

ROWS = st.lists(st.lists(st.integers(0, 1 << 31), max_size=4), max_size=6)


def rows(lists: list[list[int]]) -> RaggedRows:
    start = np.cumsum([0, *map(len, lists)])
    return RaggedRows(start, np.array([x for row in lists for x in row], np.int64))


@settings(max_examples=examples(15))
@given(ROWS, st.lists(st.integers(-(2**31), 2**31 - 1)), st.text(), st.floats(allow_nan=False))
def test_the_text_is_that_of_the_standard_library(
    lists: list[list[int]], column: list[int], text: str, number: float
) -> None:
    data = {
        "rows": rows(lists),
        "inner": {"column": np.array(column, np.int32), "text": text},
        "times": np.array([number, 1e-7, 1e22]),
        "more": {text: number, "none": None},
    }
    assert compact(data) == json.dumps(plain(data), separators=(",", ":"))
    assert plain(rows(lists)) == lists


@settings(max_examples=examples(27))
@given(planned_schedules(), st.booleans())
def test_a_schedule_comes_back_from_its_text(s: Schedule, timed: bool) -> None:
    if timed:
        s = replace(s, start_us=np.arange(len(s)) / 7, end_us=np.arange(len(s)) / 3 + 1e-9)
    text = dumps(s)
    assert text == json.dumps(dump(s), separators=(",", ":")) + "\n"
    assert dumps(load(json.loads(text))) == text


@given(ROWS, st.lists(st.integers(-(2**31), 2**31 - 1)), st.integers(1, 3))
def test_pieces_of_any_length_make_the_same_text(
    lists: list[list[int]], column: list[int], block: int
) -> None:
    data = {"rows": rows(lists), "column": np.array(column, np.int32)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unique_rows, "_BLOCK", block)
        assert compact(data) == json.dumps(plain(data), separators=(",", ":"))


def test_a_file_is_written_in_a_fraction_of_its_length(tmp_path: Path) -> None:
    machine, path = ring(2), tmp_path / "schedule.json"
    sends = [Transfer(0, 0, 1, (0,), step) for step in range(2)]
    few = Schedule.of(machine, make("allgather", 2), sends)
    columns = {name: np.repeat(column, 600_000) for name, column in few.columns().items()}
    many = Schedule.from_columns(machine, few.collective, **columns)
    tracemalloc.start()
    try:
        write(path, many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 3
    assert path.read_text() == dumps(many)


def spoilt(s: Schedule, change: Any) -> dict[str, Any]:
    data = dump(s)
    change(data["transfers"])
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["route"].__setitem__(1, [True]), "transfer 1: the route names a link"),
        (lambda t: t["route"].__setitem__(2, 5), "transfer 2: the route names a link"),
        (lambda t: t["route"].__setitem__(0, [-1]), "transfer 0: the route names a link"),
        (lambda t: t["route"].__setitem__(0, [1 << 70]), "transfer 0: the route names a link"),
        (lambda t: t["chunk"].__setitem__(1, True), "'chunk' must hold integers only"),
        (lambda t: t["src"].__setitem__(1, 1 << 70), "'src' holds a number that is too large"),
        (lambda t: t["dst"].__setitem__(2, 9), "transfer 2: dst 9 is outside 0 … 2"),
        (lambda t: t.update(priority=[0]), "priority must be one number per transfer"),
        (lambda t: t.update(priority=[0, 1, -1, 0, 0, 0]), "a priority is outside"),
        (lambda t: t.update(start_us=[0, 1, 2, 3, 4, False]), "times must be one finite number"),
        (lambda t: t.update(end_us=[0, 1, 2, 3, 4, 10**400]), "times must be one finite number"),
    ],
)
def test_bad_columns_are_told(change: Any, message: str) -> None:
    sends = [Transfer((r - k) % 3, r, (r + 1) % 3, (r,), k) for k in range(2) for r in range(3)]
    s = Schedule.of(ring(3), make("allgather", 3), sends)
    with pytest.raises(BadFile) as caught:
        load(spoilt(s, change))
    assert message in caught.value.message

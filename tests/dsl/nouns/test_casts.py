"""Casts in schedules: columns, files, and what is refused."""

import json
from typing import Any

import pytest
from casts import two_shot

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.casts import Cast, Casts
from weft.dsl.nouns.schedule import dump, dumps, load, refuse_casts


def test_columns_are_sorted_by_step_and_keep_the_order_in_it():
    rows = [Cast(i, (0, 1), (2,), (0, 1, 2), step) for i, step in enumerate((1, 0, 1, 0))]
    casts = Casts.of(rows, (5, 6, 7, 8))
    assert [one.chunk for one in casts] == [1, 3, 0, 2]
    assert casts.priority is not None
    assert casts.priority.tolist() == [6, 8, 5, 7]
    assert list(casts.select(casts.chunk > 1)) == [rows[3], rows[2]]


def test_a_file_says_everything_and_one_without_casts_has_no_such_key():
    schedule = two_shot(4)
    read = load(json.loads(dumps(schedule)))
    assert list(read.casts) == list(schedule.casts)
    assert dumps(read) == dumps(schedule)
    assert (schedule.steps, len(schedule), len(schedule.casts)) == (2, 0, 8)
    del (data := dump(schedule))["casts"]
    assert "casts" not in dump(load(data))


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("chunk", 9, "chunk 9 is outside"),
        ("issuer", -2, "issuer -2 is outside"),
        ("sources", [0, 8], "sources 8 is outside"),
        ("destinations", [], "not empty"),
        ("links", [99], "links 99 is outside"),
        ("reduce", 2, "reduce 2 is outside"),
    ],
)
def test_what_is_out_of_range_is_refused(column: str, value: Any, says: str):
    data = dump(two_shot(4))
    data["casts"][column][0] = value
    with pytest.raises(BadFile, match=says):
        load(data)


@pytest.mark.parametrize("limit", ["0", "-1", 3, "many"])
def test_a_limit_that_is_no_positive_number_is_refused(limit: Any):
    data = dump(two_shot(4))
    data["casts"]["GBps"] = [limit, *[None] * 7]
    with pytest.raises(UserError):
        load(data)
    data["casts"]["GBps"] = ["1/2"]
    with pytest.raises(BadFile, match="different lengths"):
        load(data)


def test_columns_that_do_not_fit_are_refused():
    data = dump(two_shot(4))
    data["casts"]["step"].pop()
    with pytest.raises(BadFile, match="different lengths"):
        load(data)
    data = dump(two_shot(4))
    data["casts"]["sums"] = []
    with pytest.raises(BadFile, match="unknown key"):
        load(data)


def test_formats_that_cannot_say_it_refuse_in_words():
    with pytest.raises(UserError, match="cannot say it, and the schedule has 8 casts"):
        refuse_casts(two_shot(4), "this format cannot say it")

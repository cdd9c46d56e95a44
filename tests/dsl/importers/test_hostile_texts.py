"""Texts of a shape that a module under a reader does not expect."""

from types import SimpleNamespace

import pytest

from weft.dsl.base.errors import BadFile
from weft.dsl.importers.workloads.chakra import groups_in
from weft.dsl.importers.workloads.read import workload_in
from weft.dsl.nouns.graph import held_json


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '[{"ranks": [1e999], "pg_name": 1}]', "9" * 5000, "[[]]"]
)
def test_process_groups_and_attributes_of_any_shape_are_refused(text: str) -> None:
    with pytest.raises(BadFile):
        groups_in(text, 4, "file")
    graph = SimpleNamespace(graph={"notes": text})
    assert held_json(graph, "notes", dict) == {}
    assert isinstance(held_json(graph, "notes", list), list)


def test_a_field_longer_than_csv_takes_is_no_table() -> None:
    with pytest.raises(BadFile):
        workload_in("x" * 131_073, "file")

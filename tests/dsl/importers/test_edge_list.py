"""Edge lists: what they mean, and what is wrong with the wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile, BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.dsl.symmetry.symmetry import verified

LINE: dict[str, Any] = {
    "topology": "a line",
    "gpu_ids": ["b", "a"],
    "edges": [["a", "sw", 25, 0.7], ["sw", "b", "25/2", 0.35], ["b", "a", 1e1, 0]],
}


def read(tmp_path: Path, data: object, options: str = "") -> Topology:
    file = tmp_path / "edges.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return topology(f"{file}{options}")


def test_gpus_are_ranked_by_gpu_ids_and_other_nodes_forward(tmp_path: Path) -> None:
    made = read(tmp_path, LINE)
    assert made.name == "a line"
    assert [(n.name, n.kind) for n in made.nodes] == [
        ("gpu0", NodeKind.GPU),
        ("gpu1", NodeKind.GPU),
        ("sw", NodeKind.SWITCH),
    ]
    assert [(x.src, x.dst, str(x.bandwidth), str(x.latency)) for x in made.links] == [
        (1, 2, "25", "7/10"),
        (2, 0, "25/2", "7/20"),
        (0, 1, "10", "0"),
    ]


def test_a_missing_alpha_is_assumed_and_said(tmp_path: Path) -> None:
    made = read(tmp_path, {"gpu_ids": [0, 1], "edges": [[0, 1, 25], [1, 0, 25]]})
    assert {float(x.latency) for x in made.links} == {0.7}
    assert "alpha" in made.notes[0]
    assert made.symmetries == verified(made) == ((1, 0),)


def test_one_entry_of_several(tmp_path: Path) -> None:
    made = read(tmp_path, {"one": {}, "two": LINE}, ":entry=two")
    assert made.ranks == 2
    with pytest.raises(BadFile, match="expected an object"):
        read(tmp_path, {"two": LINE}, ":entry=three")


def test_parallel_edges_must_be_meant(tmp_path: Path) -> None:
    twice = {"gpu_ids": [0, 1], "edges": [[0, 1, 25, 1], [1, 0, 25, 1], [0, 1, 5, 1]]}
    with pytest.raises(BadFile, match="edges 0 and 2 both go from 0 to 1"):
        read(tmp_path, twice)
    assert len(read(tmp_path, {**twice, "parallel": True}).links) == 3


@pytest.mark.parametrize(
    "text",
    ['{"edges": [', '{"edges": NaN}', "[" * 100_000, '{"edges": [], "edges": []}', "[1, 2]", "{}"],
)
def test_hostile_json_is_one_clear_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadFile):
        read(tmp_path, text)


def test_switches_say_what_they_do_beside_forwarding(tmp_path: Path) -> None:
    able = ["multicast", "reduces", "turns", "issuer_in_group"]
    made = read(tmp_path, {**LINE, "switches": {"sw": able}})
    assert list(made.nodes[2].capabilities) == able
    assert not read(tmp_path, {**LINE, "switches": {"sw": []}}).nodes[2].computes


def test_disconnected_gpus_are_read_and_left_to_the_problem(tmp_path: Path) -> None:
    made = read(tmp_path, {"gpu_ids": [0, 1, 2], "edges": [[0, 1, 1, 1]]})
    assert made.ranks == 3


def test_a_zero_bandwidth_names_the_link(tmp_path: Path) -> None:
    with pytest.raises(BadTopology, match="link gpu1 -> gpu0"):
        read(tmp_path, {**LINE, "edges": [["a", "b", 0, 1]]})

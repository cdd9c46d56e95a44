"""``weft plan``: what it prints and writes, and questions that it refuses."""

import json
from pathlib import Path

import pytest

QUADS = {
    "weft": "workload",
    "schema": 1,
    "name": "quads",
    "operations": [
        {"name": "a", "kind": "allreduce", "group": [0, 1, 2, 3], "bytes": 96000000},
        {"name": "b", "kind": "allgather", "group": [4, 5, 6, 7], "bytes": 96000000},
    ],
}


@pytest.fixture
def quads(tmp_path):
    path = tmp_path / "quads.json"
    path.write_text(json.dumps(QUADS))
    return str(path)


def test_a_plan_has_its_bound_and_its_files(weft, quads, tmp_path):
    out = tmp_path / "plan"
    found = weft("plan", quads, "-t", "dgx1", "-o", str(out), "--json", "--effort", "1").json
    assert found["bound"]["us"] <= found["value"] <= found["sequence_us"]
    assert [one["name"] for one in found["classes"]] == ["a", "b"]
    assert found["bound"]["certificate"]["prices"]
    assert sorted(p.name for p in out.iterdir()) == ["a.json", "b.json", "plan.json"]
    for name in ("a.json", "b.json", "plan.json"):
        assert weft("check", str(out / name)).code == 0
    assert "part a" in weft("check", found["file"]).out


def test_what_settings_assume_is_said(weft, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text("[parallel]\ntp = 4\n[model]\nlayers = 2\nhidden = 64\nsequence = 16\n")
    found = weft("plan", path, "-t", "dgx1", "--bound", "--json")
    assert found.json["notes"][0].endswith("all classes start together")
    assert [f"Assumed  {note}" in found.err for note in found.json["notes"]] == [True] * 3


def test_a_bound_says_whether_it_counts_latency(weft, quads):
    small = Path(quads).with_name("small.json")
    small.write_text(json.dumps(QUADS).replace("96000000", "8"))
    found = weft("plan", small, "-t", "dgx1", "--bound", "--json").json["bound"]
    assert found["us"] >= 0.7 > 0.001 > found["rates"]["us"]
    assert found["certificate"]["operation"] == "a"
    assert found["rates"]["certificate"]["prices"]
    told = weft("plan", small, "-t", "dgx1", "--bound").out
    assert "µs for a alone, with latency" in told
    assert "µs for all together, latency left out" in told
    large = weft("plan", quads, "-t", "dgx1", "--bound").out
    assert "for all together, latency left out" in large
    assert "alone, with latency" not in large


@pytest.mark.parametrize("verb", ["plan", "place"])
def test_switches_that_copy_or_sum_only_forward_here_and_that_is_said(weft, tmp_path, verb):
    path = tmp_path / "whole.json"
    one = {"name": "a", "kind": "allreduce", "group": [0, 1, 2, 3], "bytes": 1000000}
    path.write_text(json.dumps({"weft": "workload", "schema": 1, "operations": [one]}))
    words = [verb, str(path), "--json", *(["--axes", "a=4"] if verb == "place" else [])]
    plain = weft(*words, "-t", "hub:4")
    able = weft(*words, "-t", "hub:4,capable=hub:multicast+reduces")
    assert "only forward" in able.err
    assert "only forward" not in plain.err
    told = "placements" if verb == "place" else "value"
    assert able.json[told] == plain.json[told]


def test_what_cannot_be_planned_is_told(weft, quads, tmp_path):
    assert weft("plan", quads).code == 2
    small = weft("plan", quads, "-t", "ring:4").err
    assert "rank 7 is not on" in small
    assert str(quads) in small
    cut = weft("plan", quads, "-t", "line:8,dead=gpu2-gpu3").err
    assert "not all of its ranks are joined" in cut
    assert '"relays": "all"' in cut
    all_may = Path(quads).with_name("all.json")
    all_may.write_text(json.dumps(QUADS).replace('"bytes"', '"relays": "all", "bytes"'))
    assert "missing or dead" in weft("plan", all_may, "-t", "line:8,dead=gpu2-gpu3").err
    alone = tmp_path / "alone.json"
    one = {"name": "a", "kind": "alltoallv", "group": [0, 1], "matrix": [[5, 0], [0, 5]]}
    alone.write_text(json.dumps({"weft": "workload", "schema": 1, "operations": [one]}))
    weft("plan", alone, "-t", "ring:4").ended(2, "moves nothing", "diagonal")


def test_an_output_in_the_way_is_told_before_the_search(weft, quads, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for more, told in (
        ((), "expected a folder for the schedules, got a file"),
        (("--bound",), "--bound makes no schedules to write"),
    ):
        found = weft("plan", quads, "-t", "dgx1", "-o", str(taken), *more)
        assert (found.code, found.out) == (2, "")
        assert told in found.err
        assert "Verified" not in found.err
    assert taken.read_text() == "mine"


def test_a_collective_of_no_bytes_is_told(weft, quads):
    text = quads.replace("quads", "none")
    Path(text).write_text(json.dumps(QUADS).replace("96000000", "0", 1))
    assert "a: its size is missing, or 0" in weft("plan", text, "-t", "dgx1").err


def test_collectives_of_one_rank_take_no_time(weft, tmp_path):
    path = tmp_path / "step.json"
    work = {"name": "c", "kind": "compute", "ranks": [0], "us": 5}
    one = {"name": "t", "kind": "allreduce", "group": [0], "bytes": 1000, "after": ["c"]}
    path.write_text(json.dumps({"weft": "workload", "schema": 1, "operations": [work, one]}))
    found = weft("plan", path, "-t", "ring:4", "--json").json
    assert (found["bound"]["us"], found["value"]) == (5, 5)


def test_collectives_in_an_order_take_their_times_from_the_machine(weft, tmp_path):
    ordered = json.loads(json.dumps(QUADS))
    ordered["operations"][1]["after"] = ["a"]
    path = tmp_path / "ordered.json"
    path.write_text(json.dumps(ordered))
    found = weft("plan", str(path), "-t", "dgx1", "--json").json
    # 6·96 MB over the quad's 450 GB/s, then 3·96 MB / 4 over a GPU's cables: 1,280 and 720 µs.
    assert found["value"] == pytest.approx(2000, abs=1)


DEMANDS = {
    "alltoallv": ({"kind": "alltoallv", "group": [0, 1], "matrix": [[0, 500000], [0, 0]]}, False),
    "transfer": ({"kind": "transfer", "src": 0, "dst": 5, "bytes": 500000}, True),
    "multicast": (
        {
            "kind": "multicast",
            "shards": [{"holders": [0, 1], "receivers": [2, 3], "bytes": 500000}],
        },
        False,
    ),
    "alltoall": ({"kind": "alltoall", "group": [0, 1, 2], "bytes": 600000}, True),
    "gather": ({"kind": "gather", "group": [0, 1, 2], "bytes": 600000}, True),
    "scatter": ({"kind": "scatter", "group": [0, 1, 2], "bytes": 600000}, True),
}


@pytest.mark.parametrize("kind", DEMANDS)
def test_demands_and_flows_with_relays_are_planned(weft, tmp_path, kind):
    operation, relayed = DEMANDS[kind]
    machine = "ring:4" if kind in ("alltoall", "gather", "scatter") else "dgx1"
    more = {"relays": "all"} if relayed else {}
    data = {**QUADS, "operations": [{"name": "x", **operation, **more}]}
    path = tmp_path / "only.json"
    path.write_text(json.dumps(data))
    out = tmp_path / "plan"
    words = ("plan", str(path), "-t", machine, "--effort", "1", "-o", str(out), "--json")
    found = weft(*words).json
    assert 0 < found["bound"]["us"] <= found["value"]
    checked = weft("check", str(out / "plan.json"))
    assert (checked.code, "part x" in checked.out) == (0, True)
    assert weft("run", str(out / "plan.json"), "--on", "numpy").code == 0


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "alltoall"])
def test_ranks_that_nothing_joins_are_told(weft, tmp_path, kind):
    one = {"name": "x", "kind": kind, "group": [0, 5], "bytes": 600000}
    path = tmp_path / "apart.json"
    path.write_text(json.dumps({**QUADS, "operations": [one]}))
    weft("plan", str(path), "-t", "dgx1", "--bound").ended(2, "x: not all of its ranks are joined")
    joined = {**QUADS, "operations": [{**one, "relays": "all"}]}
    path.write_text(json.dumps(joined))
    assert weft("plan", str(path), "-t", "dgx1", "--bound", "--json").json["bound"]["us"] > 0

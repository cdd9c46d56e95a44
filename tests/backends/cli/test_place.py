"""``weft place``: what it prints, and questions that it refuses."""

import json
from pathlib import Path


def test_placements_come_best_first_with_their_rank_orders(weft, experts):
    found = weft("place", experts, "-t", "dgx-a100:nodes=4", "--json").json
    assert found["schema"] == 1
    rows = found["placements"]
    assert [row["us"] for row in rows] == [3000, 4000, 6000]
    assert [row["exact"] for row in rows] == ["3000", "4000", "6000"]
    assert rows[0]["matrix"] == [[4, 2], [1, 4]]
    assert rows[0]["rank_order"][:10] == [0, 1, 8, 9, 16, 17, 24, 25, 2, 3]
    assert rows[2]["rank_order"] == list(range(32))
    assert found["default"] == {"us": 6000, "exact": "6000"}


def test_axes_of_explicit_ranks_are_those_of_the_flag(weft, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("name,kind,group,size\na,allreduce,0 1,1MB\nb,allreduce,2 3,1MB\n")
    found = weft("place", str(path), "-t", "ring:4", "--axes", "x=2,y=2", "--json").json
    assert found["axes"] == {"x": 2, "y": 2}
    assert found["levels"] == {"GPUs": 4}
    assert [row["matrix"] for row in found["placements"]] == [[[2], [2]]]
    weft("place", str(path), "-t", "ring:4").ended(2, "no axes")


def test_what_waits_is_placed_as_if_it_did_not_and_told(weft, experts):
    data = json.loads(Path(experts).read_text())
    data["operations"][1]["after"] = ["tokens"]
    Path(experts).write_text(json.dumps(data))
    found = weft("place", experts, "-t", "dgx-a100:nodes=4", "--json").json
    assert "start together" in found["notes"][0]


def test_groups_that_the_workload_lacks_are_said(weft, tmp_path):
    """As the trace of one rank: the siblings of its groups share the links."""
    rows = [
        {"name": "tp", "kind": "allreduce", "group": [0, 1], "bytes": 1000},
        {"name": "dp", "kind": "allreduce", "group": [0, 2, 4, 6, 8, 10, 12, 14], "bytes": 1000},
        {"name": "all", "kind": "allreduce", "group": list(range(16)), "bytes": 1000},
    ]
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"weft": "workload", "schema": 1, "ranks": 16, "operations": rows}))
    out = weft("place", job, "-t", "dgx-a100:nodes=2", "--axes", "tp=2,dp=8", "--json")
    said = [note for note in out.json["notes"] if "groups of" in note]
    assert [note.partition(":")[0] for note in said] == [
        "the workload has 1 of the 8 groups of tp",
        "the workload has 1 of the 2 groups of dp",
    ]
    assert "1 of the 8 groups of tp" in out.err

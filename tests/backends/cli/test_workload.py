"""``weft workload``, and workloads in the verbs that take any file."""

import json
from pathlib import Path

from command import Weft

STEP = {
    "weft": "workload",
    "schema": 1,
    "axes": {"tp": 4, "dp": 2},
    "operations": [
        {"name": "attn", "kind": "compute", "us": 700},
        {"name": "tp", "kind": "allreduce", "group": "tp", "bytes": 96000000, "after": ["attn"]},
        {"name": "dp", "kind": "allreduce", "group": "dp", "bytes": 1000, "after": ["tp"]},
        {"name": "g", "kind": "load", "us": {"nic": 960}},
    ],
}


def written(tmp_path: Path, data: object, name: str = "step.json") -> str:
    path = tmp_path / name
    path.write_text(json.dumps(data))
    return str(path)


def test_what_it_asks_for_is_told_by_class(weft: Weft, tmp_path: Path) -> None:
    step = written(tmp_path, STEP)
    for words in (("workload", "show", step), ("show", step)):
        found = weft(*words, "--json").json
        assert [c["class"] for c in found["classes"]] == ["tp", "dp", "g"]
        tp, dp, g = found["classes"]
        assert (tp["groups"], tp["ranks_per_group"], tp["bytes"]) == (2, [4], 192000000)
        assert (dp["operations"], dp["bytes_each"]) == (4, [1000])
        assert g["loads_us"] == {"nic": 960}
        assert found["compute"] == {"operations": 1, "us": 700, "most_us": 700}
        assert found["axes"] == {"tp": 4, "dp": 2}
    assert "192MB" in weft("workload", "show", step).out


def test_long_sizes_are_rounded_for_people_only(weft: Weft, tmp_path: Path) -> None:
    rows = [
        {"name": str(k), "class": "x", "kind": "allreduce", "group": [0, 1], "bytes": size}
        for k, size in enumerate((3003520 << 10, 3003524 << 10))
    ]
    path = written(tmp_path, {"weft": "workload", "schema": 1, "operations": rows})
    told = weft("workload", "show", path).out
    assert "  2.864GiB  5.729GiB" in told
    assert "KiB" not in told
    assert "3075604480" in weft("workload", "show", path, "--json").out


def test_a_machine_needs_all_of_its_ranks(weft: Weft, tmp_path: Path) -> None:
    step = written(tmp_path, STEP)
    assert weft("workload", "show", step, "-t", "dgx1").code == 0
    assert "all on dgx1" in weft("check", step, "-t", "dgx1").out
    for words in (("workload", "show", step), ("check", step)):
        weft(*words, "-t", "ring:4").ended(2, "is not on ring:4")


def test_a_table_is_told_by_its_first_row(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("name,kind,group,size\na,allgather,0..3,8KB\n")
    assert weft("show", str(path), "--json").json["kind"] == "workload"
    assert weft("check", str(path)).code == 0


def test_a_cycle_is_named_and_nothing_else_happens(weft: Weft, tmp_path: Path) -> None:
    one, two = ({"name": n, "kind": "compute", "us": 1, "after": [m]} for n, m in ("ab", "ba"))
    bad = written(tmp_path, {**STEP, "operations": [one, two]})
    for words in (("workload", "show"), ("show",), ("check",)):
        weft(*words, bad).ended(2, "a after b after a", "step.json")


LAYER = "{} -1 10 ALLGATHER 1000 10 ALLREDUCE 1000 10 ALLREDUCE 1000 1\n"


def test_a_million_ranks_are_shown_or_refused_in_words(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "layers.txt"
    path.write_text("DATA\n1\n" + LAYER.format("one"))
    found = weft("workload", "show", str(path), "--ranks", "1000000", "--json").json
    assert found["classes"][0]["ranks_per_group"] == [1000000]
    path.write_text("DATA\n9\n" + "".join(LAYER.format(f"l{i}") for i in range(9)))
    weft("workload", "show", str(path), "--ranks", "1000000").ended(2, "8388608 ranks together")
    path.write_text("HYBRID_DATA_MODEL 4\n2\n" + LAYER.format("one") + LAYER.format("two"))
    weft("workload", "show", str(path), "--ranks", "1000000").ended(2, "262144 operations")

"""Files of TACCL and TE-CCL on the command line: unedited."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Weft

HUB: dict[str, Any] = {
    "name": "hub_1MB",
    "gpus_per_node": 2,
    "nics_per_node": 1,
    "alpha": 0.5,
    "node_betas_list": [8],
    "node_invbws_list": [8.5],
    "remote_alpha": 3,
    "remote_beta": 105,
}
IDEA: dict[str, Any] = {
    "nnodes": 2,
    "intranode_sketch": {"strategy": "none"},
    "internode_sketch": {"strategy": "relay", "internode_conn": "direct-map"},
    "symmetry_offsets": [[2, 4]],
    "hyperparameters": {"input_chunkup": 1},
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    topo, sketch = tmp_path / "topo.json", tmp_path / "idea.json"
    topo.write_text(json.dumps(HUB))
    sketch.write_text(json.dumps(IDEA))
    return topo, sketch


def test_synth_takes_both_files_as_they_are(
    weft: Weft, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    topo, sketch = pair
    out = tmp_path / "ag.json"
    weft(
        "synth",
        "-t",
        topo,
        "-s",
        sketch,
        *"-c allgather --objective latency -o".split(),
        out,
        "--effort",
        "20",
    ).ended(
        0,
        "Read     hub_1MB: 4 ranks, 2 hosts",
        "Remark   intranode_sketch.strategy: without 'switch'",
    )
    assert weft("check", out).code == 0
    links = json.loads(out.read_text())["topology"]["links"]
    assert len(links["src"] if isinstance(links, dict) else links) == 8 + 4


def test_a_machine_of_the_catalogue_has_as_many_nodes(weft: Weft, pair: tuple[Path, Path]) -> None:
    _, sketch = pair
    found = weft("sketch", "import", sketch, "-t", "ndv2:fabric=star", "--json").json
    assert (found["topology"], found["ranks"]) == ("ndv2:fabric=star,nodes=2", 16)
    assert weft("sketch", "import", sketch, "-t", "ndv2", "--json").json["ranks"] == 16
    weft("sketch", "import", sketch, "-t", "ndv2:nodes=3").ended(
        2, "the sketch is for 2 equal nodes, ndv2:nodes=3 has 3 nodes"
    )


def test_the_topology_may_come_from_standard_input(weft: Weft, pair: tuple[Path, Path]) -> None:
    ran = weft("sketch", "import", pair[1], "-t", "-", stdin=json.dumps(HUB)).ended(0)
    assert "symmetry: rotate nodes" in ran.out


def test_import_prints_a_sketch_that_synth_takes(
    weft: Weft, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    topo, sketch = pair
    text, machine = tmp_path / "idea.sketch", tmp_path / "machine.json"
    ran = weft("sketch", "import", sketch, "-t", topo, "-o", text, "--machine", machine)
    assert (ran.code, ran.out) == (0, "")
    assert "Assumed  connections from a node: 2, its NICs: 1" in ran.err
    assert weft("sketch", "fmt", "--check", text).code == 0
    assert weft("check", text, "-t", machine).code == 0
    assert weft("sketch", "import", sketch, "-t", topo).out == text.read_text()
    ran = weft(
        "synth", "-t", machine, "-s", text, "-c", "allgather", "--objective", "latency", "--json"
    )
    assert ran.json["status"] in ("optimal", "feasible")


def test_import_says_it_all_as_json(weft: Weft, pair: tuple[Path, Path]) -> None:
    topo, sketch = pair
    found = weft("sketch", "import", sketch, "-t", topo, "--json").json
    assert found["text"].startswith("# TACCL's sketch idea for 2 nodes of hub_1MB (2 GPUs).")
    assert [r["where"] for r in found["remarks"]] == ["intranode_sketch.strategy"]
    assert (found["ranks"], found["hosts"], found["resources"]) == (4, 2, 4)


def test_the_split_machine(weft: Weft, pair: tuple[Path, Path], tmp_path: Path) -> None:
    topo, sketch = pair
    machine = tmp_path / "machine.json"
    ran = weft(
        "sketch", "import", sketch, "-t", topo, "--nic-split", "--machine", machine, "--json"
    )
    assert ran.json["resources"] == 0
    assert "each connection has its share of the NICs" in ran.err
    weft("sketch", "import", sketch, "-t", "hub:2", "--nic-split").ended(
        2, "--nic-split needs a TACCL topology"
    )


def test_nothing_is_overwritten(weft: Weft, pair: tuple[Path, Path], tmp_path: Path) -> None:
    topo, sketch = pair
    out = tmp_path / "out"
    ran = weft("sketch", "import", sketch, "-t", topo, "-o", out, "--machine", out)
    assert "--machine and -o name one file" in ran.err
    out.write_text("mine")
    for flag in ("-o", "--machine"):
        ran = weft("sketch", "import", sketch, "-t", topo, flag, out)
        assert (ran.code, out.read_text()) == (2, "mine")
    other = tmp_path / "other"
    weft("sketch", "import", sketch, "-t", topo, "-o", other, "--machine", out).ended(2)
    assert not other.exists()
    assert weft("sketch", "import", sketch, "-t", topo, "-o", out, "-f").code == 0


@pytest.mark.parametrize("verb", [("check",), ("topo", "show"), ("sketch", "show")])
def test_a_sketch_alone_says_how_it_is_imported(
    weft: Weft, pair: tuple[Path, Path], verb: tuple[str, ...]
) -> None:
    weft(*verb, pair[1]).ended(2, "a TACCL sketch", "weft sketch import")


def test_the_two_files_are_not_mixed_up(weft: Weft, pair: tuple[Path, Path]) -> None:
    topo, sketch = pair
    weft("synth", "-t", sketch, "-s", topo, "-c", "allgather").ended(
        2, "expected a TACCL sketch, got a TACCL topology"
    )
    weft("synth", "-t", topo, "-s", f"{sketch}:nodes=4", "-c", "allgather").ended(
        2, "a TACCL sketch has no parameters"
    )


@pytest.mark.parametrize("text", ["{}", '{"weft": "topology"}', '{"edges": []}', "[1]"])
def test_other_json_is_no_sketch(
    weft: Weft, pair: tuple[Path, Path], tmp_path: Path, text: str
) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    for ran in (
        weft("sketch", "import", file, "-t", pair[0]),
        weft("synth", "-t", pair[0], "-s", file, "-c", "allgather"),
    ):
        assert ran.code == 2
        assert "error" in ran.err


# ---- TE-CCL

RING: dict[str, Any] = {
    "TopologyParams": {"name": "Mesh", "side_length": 2, "chunk_size": 1e-06, "alpha": [1e-06, 0]},
    "GurobiParams": {"time_limit": 1},
    "InstanceParams": {"collective": 2, "num_chunks": 2},
}


@pytest.fixture
def question(tmp_path: Path) -> Path:
    file = tmp_path / "mesh.json"
    file.write_text(json.dumps(RING))
    return file


def test_one_file_is_the_whole_question(weft: Weft, question: Path) -> None:
    ran = weft(
        "synth", "-t", question, "-c", question, "-s", question, "--json", "--objective", "latency"
    )
    assert (ran.json["collective"], ran.json["ranks"]) == ("alltoall", 4)
    assert {p["chunks"] for p in ran.json["points"]} == {2}
    assert "Remark   InstanceParams" in ran.err


def test_the_question_as_a_sketch(weft: Weft, question: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    ran = weft("sketch", "import", question, "--machine", machine)
    assert ran.out.endswith("sketch mesh\ncollective alltoall\nsize 8KB\nchunks 2\n")
    assert "Assumed  TE-CCL links the last GPU of a row" in ran.err
    text = tmp_path / "mesh.sketch"
    text.write_text(ran.out)
    assert weft("check", text, "-t", machine).code == 0
    assert weft("sketch", "fmt", "--check", text).code == 0
    assert weft("topo", "show", question, "--json").json["ranks"] == 4
    assert weft("topo", "show", f"{question}:as_shipped=on", "--json").json["links"] == 8 + 2


def test_flags_that_are_for_taccl(weft: Weft, question: Path, pair: tuple[Path, Path]) -> None:
    assert weft("sketch", "import", question, "--nic-split").code == 2
    weft("sketch", "import", pair[1]).ended(2, "-t topology.json")


MSCCL = "from msccl.language import *\n\nwith MSCCLProgram('ring', 4, None, 1):\n    XML()\n"


@pytest.mark.parametrize(
    ("name", "content", "verb", "what"),
    [
        (
            "ring.py",
            MSCCL.encode(),
            ("compile", "FILE", "-o", "x.xml"),
            "a program for msccl-tools",
        ),
        ("ring.py", MSCCL.encode(), ("synth", "-t", "ring:4", "-c", "FILE"), "for msccl-tools"),
        ("p.py", b"import mscclpp.language as l\n", ("check", "FILE"), "a program for MSCCL++"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0", ("topo", "show", "FILE"), "a picture"),
        ("a.xlsx", b"PK\x03\x04\x14\0", ("topo", "calibrate", "ring:2", "FILE"), "office document"),
        ("a.html", b"<!doctype html><p>", ("compile", "FILE", "-o", "x.xml"), "a page of the web"),
        ("a.html", b"<!doctype html><p>", ("plan", "FILE", "-t", "ring:4"), "a page of the web"),
        (
            "a.sketch",
            b"apiVersion: v1\nkind: Pod\n",
            ("synth", "-t", "ring:4", "-c", "allgather", "-s", "FILE"),
            "Kubernetes",
        ),
        (
            "a.json",
            b'{"msccl_type": "algorithm"}',
            ("compile", "FILE", "-o", "x.xml"),
            "an algorithm",
        ),
        ("a.txt", b"Machine (15GB total)\n", ("show", "FILE"), "hwloc's lstopo"),
    ],
)
def test_files_of_other_programs_are_named_by_every_verb(
    weft: Weft, tmp_path: Path, name: str, content: bytes, verb: tuple[str, ...], what: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    ran = weft(*(file if word == "FILE" else word for word in verb))
    assert (ran.code, ran.out) == (2, "")
    named = next(line for line in ran.err.splitlines() if line.startswith("error: this is "))
    assert what in named
    assert "hint: " in ran.err

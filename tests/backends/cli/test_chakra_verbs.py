"""Chakra execution traces on the command line: several files with one prefix."""

import json
from pathlib import Path

import patterns
import pytest
from command import Weft

from weft.dsl.importers.chakra_et import RECV, SEND, ExecutionTrace, TraceNode, decoded, encoded
from weft.dsl.nouns.schedule import write


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    write(tmp_path / "ring.json", patterns.ring_allreduce(4, 1))
    return tmp_path / "ring.json"


def made(weft: Weft, ring: Path, *more: object) -> Path:
    weft("compile", ring, "--to", "chakra-et", "-o", ring.parent / "et", *more).ended(0)
    return ring.parent / "et.2.et"


def test_files_are_made_checked_shown_run_and_timed(weft: Weft, ring: Path) -> None:
    file = made(weft, ring, "--size", "1MiB")
    names = sorted(path.name for path in ring.parent.glob("et.*"))
    assert names == sorted(
        [f"et.{r}.et" for r in range(4)]
        + [f"et.workload.{r}.et" for r in range(4)]
        + ["et.system.json", "et.links.csv", "et.memory.json"]
    )
    system = json.loads((ring.parent / "et.system.json").read_text())
    assert system["all-reduce-implementation-custom"] == [str(ring.parent / "et")]
    assert system["preferred-dataset-splits"] == 1
    checked = weft("check", file, "--json")
    assert (checked.code, checked.json["kind"]) == (0, "chakra-et")
    assert "send 262144 B, to 1, tag" in weft("show", file).out
    assert weft("run", file, "--json").code == 0
    timed = weft("simulate", file, "-t", "ring:4", "--json")
    assert timed.json["rule"] == "ASTRA-sim's rule"
    assert [one["bytes"] for one in timed.json["sizes"]] == [1 << 20]


def test_the_json_of_compile_has_both_times(weft: Weft, ring: Path) -> None:
    done = weft(
        "compile",
        ring,
        "--to",
        "chakra-et{local_mem_bw=0}",
        "--size",
        "1MiB",
        "--json",
        "-o",
        ring.parent / "et",
    )
    (one,) = done.json["times"]
    assert one["us"] == pytest.approx(one["schedule_us"], rel=1e-3)
    assert done.json["messages"] == 24
    assert str(ring.parent / "et.0.et") in done.json["files"]


def test_several_sizes_are_named_by_node(weft: Weft, ring: Path) -> None:
    made(weft, ring, "--size", "1KiB:4KiB")
    lines = (ring.parent / "et.per-node.yml").read_text().splitlines()
    prefix = ring.parent / "et"
    assert lines == [
        f'{i}: "{prefix}.{size}"' for i, size in enumerate(("1KiB", "2KiB", "4KiB"), 1)
    ]
    workload = decoded((ring.parent / "et.workload.0.et").read_bytes(), "w")
    assert [node.attributes["comm_size"] for node in workload.nodes] == [1024, 2048, 4096]
    assert weft("check", ring.parent / "et.2KiB.0.et").code == 0


def test_a_set_without_one_of_its_files_is_refused(weft: Weft, ring: Path) -> None:
    file = made(weft, ring, "--size", "1MiB")
    (ring.parent / "et.1.et").unlink()
    weft("check", file).ended(2, "the file of rank 1 is missing")


def test_files_of_a_larger_set_are_told_apart(weft: Weft, ring: Path) -> None:
    file = made(weft, ring, "--size", "1MiB")
    (ring.parent / "et.4.et").write_bytes(file.read_bytes())
    weft("check", file).ended(2, "files of 5 ranks, and the collective has 4")


def test_a_changed_file_is_found_wrong(weft: Weft, ring: Path) -> None:
    """Rank 0's first send has another tag: its receiver waits for ever."""
    file = made(weft, ring, "--size", "1MiB").with_name("et.0.et")
    old = decoded(file.read_bytes(), "x")
    node = next(node for node in old.nodes if node.type == SEND)
    attributes = {**node.attributes, "comm_tag": 4711}
    other = TraceNode(node.id, node.type, node.name, (), node.data_deps, 0, attributes)
    nodes = tuple(other if one is node else one for one in old.nodes)
    file.write_bytes(encoded(ExecutionTrace(old.metadata, nodes)))
    assert "one end is missing" in weft("check", file).ended(1).out


def test_a_file_of_others_is_checked_but_for_its_result(weft: Weft, tmp_path: Path) -> None:
    for rank, (kind, end) in enumerate(((SEND, "comm_dst"), (RECV, "comm_src"))):
        attributes = {end: 1 - rank, "comm_tag": 0, "comm_size": 64}
        trace = ExecutionTrace({}, (TraceNode(0, kind, attributes=attributes),))
        (tmp_path / f"x.{rank}.et").write_bytes(encoded(trace))
    assert "not judged" in weft("check", tmp_path / "x.0.et").ended(0).out
    timed = weft("simulate", tmp_path / "x.0.et", "-t", "ring:2", "--json")
    assert timed.json["collective"] is None
    assert [(one["bytes"], one["us"]) for one in timed.json["sizes"]] == [(None, 0.702)]
    weft("simulate", tmp_path / "x.0.et", "-t", "ring:2", "--size", "1KiB").ended(
        2, "it has one time"
    )


def test_tags_that_are_used_again_meet_in_the_order_of_issue(weft: Weft, tmp_path: Path) -> None:
    """Two rounds around three ranks: the second send waits for what the first round brought."""
    for rank in range(3):
        to, of = (rank + 1) % 3, (rank - 1) % 3
        rounds: list[TraceNode] = []
        for k in range(2):
            told = {"comm_src": rank, "comm_dst": to, "comm_size": 1 << 20, "comm_tag": 0}
            came = {"comm_src": of, "comm_dst": rank, "comm_size": 1 << 20, "comm_tag": 0}
            rounds += [
                TraceNode(2 * k, SEND, data_deps=(1,) if k else (), attributes=told),
                TraceNode(2 * k + 1, RECV, attributes=came),
            ]
        trace = ExecutionTrace({}, tuple(reversed(rounds)))
        (tmp_path / f"x.{rank}.et").write_bytes(encoded(trace))
    assert weft("check", tmp_path / "x.0.et").code == 0
    timed = weft("simulate", tmp_path / "x.0.et", "-t", "ring:3", "--json")
    step = (1 << 20) / 25e3 + 0.7
    assert timed.json["sizes"][0]["us"] == pytest.approx(2 * step, abs=3e-3)


def test_what_makes_no_sense_is_refused(weft: Weft, ring: Path) -> None:
    def told(*flags: object) -> str:
        done = weft("compile", ring, "--to", "chakra-et", "-o", ring.parent / "no", *flags).ended(2)
        assert not list(ring.parent.glob("no*"))
        return done.err

    assert "--size 1MiB" in told()
    assert "--protocol says nothing about" in told("--size", "1MiB", "--protocol", "LL")
    made(weft, ring, "--size", "1MiB")
    weft("compile", ring, "--to", "chakra-et", "--size", "1MiB", "-o", ring.parent / "et").ended(
        2, "the file exists"
    )
    tuned = weft("tune", "-t", "ring:3", "-c", "allgather", "--to", "chakra-et", "-o", "lib")
    assert "expected a format of programs for a range of sizes, got chakra-et" in tuned.err
    assert "--to chakra-et --size SIZE" in tuned.err

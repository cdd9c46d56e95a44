"""Plans on the command line: compile, check, run, show."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Weft


@pytest.fixture
def plan(weft: Weft, tmp_path: Path) -> Path:
    weft(*"synth -t ring:3 -c allgather -o".split(), tmp_path / "ag.json", "--objective", "latency")
    weft("compile", tmp_path / "ag.json", "--to", "mscclpp-json", "-o", tmp_path / "p.json").ended(
        0
    )
    return tmp_path / "p.json"


def test_a_plan_is_checked_run_and_shown(weft: Weft, plan: Path) -> None:
    checked = weft("check", plan, "--json").ended(0)
    assert (checked.json["kind"], checked.json["status"]) == ("mscclpp-json", "ok")
    ran = weft("run", plan, "--interleavings", 24, "--json").ended(0)
    assert (ran.json["collective"], ran.json["ranks"]) == ("allgather", 3)
    assert weft("run", plan, "-c", "alltoall").code != 0
    assert "-> rank 1 o[" in weft("show", plan).out


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("msccl-xml", "program and msccl-xml for rccl"),
        ("mscclpp-json{gpus_per_node=3}", "program and plan"),
        ("program", "program"),
    ],
)
def test_only_msccl_xml_is_checked_for_a_runtime(
    weft: Weft, plan: Path, to: str, words: str
) -> None:
    weft(
        "compile",
        plan.parent / "ag.json",
        "--to",
        to,
        "--target",
        "rccl",
        "-o",
        plan.parent / "out",
    ).ended(0, f"Checked  {words}\n")


def test_a_wrong_plan_fails(weft: Weft, plan: Path) -> None:
    data = json.loads(plan.read_text())
    ops = data["gpus"][0]["threadblocks"][0]["ops"]
    ops.remove(next(op for op in ops if op["name"] == "signal"))
    plan.write_text(json.dumps(data))
    for verb in ("check", "run"):
        assert "a wait never ends" in weft(verb, plan).ended(1).out


def rows(ran: Any) -> list[tuple[str, bool, str]]:
    return [(c["name"], c["ok"], c["detail"]) for c in ran.json["checks"]]


def test_checking_executes_the_plan(weft: Weft, plan: Path) -> None:
    name, ok, detail = rows(weft("check", plan, "--json"))[-1]
    assert (name, ok) == ("result", True)
    assert "executed out of place, 6 orders of 3 launches, int64: all results right" in detail


def test_a_plan_without_faults_of_form_and_order_may_compute_something_else(
    weft: Weft, plan: Path
) -> None:
    """Rank 0 never copies its own chunk to the output: nothing races, and the result is wrong."""
    data = json.loads(plan.read_text())
    blocks = data["gpus"][0]["threadblocks"]
    block, copy = next((b, op) for b in blocks for op in b["ops"] if op["name"] == "copy")
    block["ops"].remove(copy)
    plan.write_text(json.dumps(data))
    failed = weft("check", plan, "--json").ended(1)
    found = rows(failed)
    assert [name for name, ok, _ in found if not ok] == ["result"]
    assert "rank 0 o[0] is wrong" in found[-1][2]
    assert next(ok for name, ok, _ in found if name == "program")


def test_the_result_is_judged_against_what_is_named(weft: Weft, plan: Path) -> None:
    assert weft("check", plan, "-c", "allgather").code == 0
    assert weft("check", plan, "-c", "alltoall").code == 1
    data = json.loads(plan.read_text())
    data["collective"] = "mine"
    plan.write_text(json.dumps(data))
    unknown = weft("check", plan, "--json").ended(0)
    name, ok, detail = rows(unknown)[-1]
    assert (name, ok) == ("note", True)
    assert detail.startswith("the result is not judged: collective 'mine' does not say")
    assert rows(weft("check", plan, "-c", "allgather", "--json"))[-1][0] == "result"


def test_what_cannot_be_done_with_a_plan_is_said(weft: Weft, plan: Path) -> None:
    for verb, word in (("simulate", "simulated"), ("compile", "compiled")):
        weft(verb, plan).ended(2, "can be checked, run and shown", f"not {word}")


RING = """
from weft import Allgather, program

@program(Allgather)
def ring(p):
    for step in range(p.ranks - 1):
        for r in range(p.ranks):
            p.chunk(r, (r - step) % p.ranks).copy_to(rank=(r + 1) % p.ranks)
"""


def test_without_a_machine_it_is_said_that_all_ranks_share_a_node(
    weft: Weft, tmp_path: Path
) -> None:
    file, out = tmp_path / "ring.py", tmp_path / "p.json"
    file.write_text(RING)

    def told(ranks: int, to: str, *more: str) -> str:
        made = weft(
            "compile",
            f"{file}:ring{{ranks={ranks}}}",
            "--to",
            to,
            "-o",
            out,
            "-f",
            "--no-run",
            *more,
        ).ended(0)
        return made.err

    words = "all 9 ranks are on one node"
    assert words in told(9, "mscclpp-json")
    assert "gpus_per_node=N" in told(9, "mscclpp-json")
    assert "on one node" not in told(9, "mscclpp-json{gpus_per_node=3}")
    assert "on one node" not in told(9, "msccl-xml")
    assert "on one node" not in told(4, "mscclpp-json")
    assert "all 4 ranks are on one node" in told(4, "mscclpp-json", "-v")


def test_options_that_say_nothing_are_refused(weft: Weft, plan: Path) -> None:
    assert weft("check", plan, "--target", "rccl").code == 2
    assert weft("run", plan, "--instances", 2).code == 2
    assert weft("run", plan, "--in-place").code == 2
    folder = plan.parent
    assert weft("compile", folder / "ag.json", "--to", "mscclpp-json{gpus_per_node=-1}").code == 2
    assert (
        weft("compile", folder / "ag.json", "--to", "mscclpp-json", "--protocol", "LL128").code == 2
    )

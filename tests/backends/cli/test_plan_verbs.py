"""Plans on the command line: compile, check, run, show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Weft


@pytest.fixture
def plan(weft: Weft, tmp_path: Path) -> Path:
    weft("synth", "-t", "ring:3", "-c", "allgather", "-o", tmp_path / "ag.json", "--objective",
         "latency")  # fmt: skip
    made = weft("compile", tmp_path / "ag.json", "--to", "mscclpp-json", "-o", tmp_path / "p.json")
    assert made.code == 0, made.err
    return tmp_path / "p.json"


def test_a_plan_is_checked_run_and_shown(weft: Weft, plan: Path) -> None:
    checked = weft("check", plan, "--json")
    assert checked.code == 0
    assert (checked.json["kind"], checked.json["status"]) == ("mscclpp-json", "ok")
    ran = weft("run", plan, "--interleavings", 24, "--json")
    assert ran.code == 0
    assert (ran.json["collective"], ran.json["ranks"]) == ("allgather", 3)
    assert weft("run", plan, "-c", "alltoall").code != 0
    shown = weft("show", plan)
    assert "-> rank 1 o[" in shown.out


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
    made = weft("compile", plan.parent / "ag.json", "--to", to, "--target", "rccl",
                "-o", plan.parent / "out")  # fmt: skip
    assert made.code == 0, made.err
    assert f"Checked  {words}\n" in made.err


def test_a_wrong_plan_fails(weft: Weft, plan: Path) -> None:
    data = json.loads(plan.read_text())
    ops = data["gpus"][0]["threadblocks"][0]["ops"]
    ops.remove(next(op for op in ops if op["name"] == "signal"))
    plan.write_text(json.dumps(data))
    for verb in ("check", "run"):
        failed = weft(verb, plan)
        assert failed.code == 1
        assert "a wait never ends" in failed.out


def test_options_that_say_nothing_are_refused(weft: Weft, plan: Path) -> None:
    assert weft("check", plan, "--target", "rccl").code == 2
    assert weft("run", plan, "--instances", 2).code == 2
    assert weft("run", plan, "--in-place").code == 2
    folder = plan.parent
    assert weft("compile", folder / "ag.json", "--to", "mscclpp-json{gpus_per_node=-1}").code == 2
    assert weft("compile", folder / "ag.json", "--to", "mscclpp-json", "--protocol",
                "LL128").code == 2  # fmt: skip

"""``weft plan``: one workload in time, several jobs shifted, and files of plans in other verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Weft
from training_steps import KNOWN, compute, file, fsdp, load, moe


def written(tmp_path: Path, data: object, name: str = "step.json") -> str:
    path = tmp_path / name
    path.write_text(json.dumps(data))
    return str(path)


def test_the_keys_that_others_read(weft: Weft, tmp_path: Path) -> None:
    step = next(one for one in KNOWN if one.name == "MoE 960/2000")
    found = weft("plan", written(tmp_path, file(step.operations)), "--json").json
    assert found["bound"]["us"] == found["value"] == found["together_us"] == step.best
    assert "critical path" in found["bound"]["certificate"]["text"]
    assert (found["fair_us"], found["queue_us"]) == (step.fair, step.queue)
    assert (found["sequence_us"], found["alone_us"]) == (step.apart, step.best)
    assert found["optimal"] is True
    assert found["file"] is None
    g0 = next(one for one in found["classes"] if one["name"] == "g0")
    assert g0["alone_us"] == 2000
    assert g0["end_us"] <= found["value"]


def test_it_says_where_nothing_is_gained(weft: Weft, tmp_path: Path) -> None:
    negative = weft("plan", written(tmp_path, file(moe(4, 1500, 1500, 240, 4000))))
    assert "fair sharing is already optimal" in negative.out
    other = weft("plan", written(tmp_path, file(moe(4, 1000, 1000, 960, 2000))))
    assert "already optimal" not in other.out


def test_a_judge_can_be_asked(weft: Weft, tmp_path: Path) -> None:
    step = written(tmp_path, file(fsdp(2, 500, 1000, 800, 800)))
    found = weft("plan", step, "--judge", "4", "--json").json
    assert found["judge"]["optimal"] is True
    assert found["judge"]["us"] == found["value"]


def test_other_verbs_know_the_file(weft: Weft, tmp_path: Path) -> None:
    step = written(tmp_path, file(moe(2, 1000, 1000, 960, 2000)))
    plan = str(tmp_path / "plan.json")
    assert weft("plan", step, "-o", plan, "--json").json["file"] == plan
    assert weft("check", plan).code == 0
    assert weft("show", plan, "--json").json["kind"] == "plan"
    for form in ("html", "svg", "perfetto"):
        out = tmp_path / form
        assert weft("show", plan, "--format", form, "-o", str(out)).code == 0
        assert "exposed" in out.read_text().lower()
    data = json.loads(Path(plan).read_text())
    data["bound"]["us"] += 1
    assert weft("check", written(tmp_path, data, "wrong.json")).code == 1
    assert weft("show", str(tmp_path / "wrong.json")).code == 1


def test_jobs_are_shifted(weft: Weft, tmp_path: Path) -> None:
    parts = [compute("c", 50), load("l", 50, "c")]
    job = written(tmp_path, file(parts, period=100, resources={"nic": 50}))
    found = weft("plan", job, job, "--shift", "--json").json
    assert found["shifts"] == [0, 50]
    assert (found["excess_before_us"], found["excess_us"], found["optimal"]) == (50, 0, True)
    assert found["jobs"][1]["iteration_before_us"] == pytest.approx(150)
    assert found["jobs"][1]["iteration_us"] == pytest.approx(100)
    crowded = written(tmp_path, file([load("l", 90)], period=100, resources={"nic": 50}))
    text = weft("plan", crowded, crowded, "--shift").out
    assert "no shift removes the rest" in text
    assert weft("plan", crowded, crowded, "--shift", "--json").json["excess"] == 80 * 50


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("step.json", "step.json"), "--shift"),
        (("step.json", "--shift"), "nobody to give way"),
        (("step.json", "-t", "nowhere"), "unknown"),
        (("none.json",), "no such file"),
        (("step.json", "step.json", "--shift", "-o", "x"), "writes no file"),
    ],
)
def test_bad_questions_have_one_answer(
    weft: Weft, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    written(tmp_path, file([load("l", 5)]))
    ran = weft("plan", *(str(tmp_path / x) if x.endswith(".json") else x for x in words))
    assert ran.code == 2
    assert told in ran.err


def test_a_collective_needs_a_machine(weft: Weft, tmp_path: Path) -> None:
    one = {"name": "sum", "kind": "allreduce", "group": [0, 1], "bytes": 8}
    ran = weft("plan", written(tmp_path, file([one])))
    assert ran.code == 2
    assert "only on a machine" in ran.err

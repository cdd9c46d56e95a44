"""``weft plan``: one workload in time, several jobs shifted, and files of plans in other verbs."""

import json
from pathlib import Path

import pytest
from command import Weft
from training_steps import KNOWN, compute, file, fsdp, load, moe

from weft.backends.report.plan_text import in_runs


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
        (("step.json", "--shift"), "expected two workloads or more, got one"),
        (("step.json", "-t", "nowhere"), "unknown"),
        (("none.json",), "no such file"),
        (("step.json", "step.json", "--shift", "-o", "x"), "writes no file"),
    ],
)
def test_bad_questions_have_one_answer(
    weft: Weft, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    written(tmp_path, file([load("l", 5)]))
    weft("plan", *(str(tmp_path / x) if x.endswith(".json") else x for x in words)).ended(2, told)


def test_a_collective_needs_a_machine(weft: Weft, tmp_path: Path) -> None:
    one = {"name": "sum", "kind": "allreduce", "group": [0, 1], "bytes": 8}
    weft("plan", written(tmp_path, file([one]))).ended(2, "only on a machine")


def test_a_folder_for_a_plan_in_time_is_told_why_not(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    one: dict[str, object] = {"name": "a", "kind": "load", "us": {"nic": 4}}
    path.write_text(json.dumps({"weft": "workload", "schema": 1, "operations": [one]}))
    for folder in (str(tmp_path), f"{tmp_path}/new/"):
        weft("plan", str(path), "-o", folder).ended(2, "a plan in time is one file", "plan.json")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("bad", ["a\nb", "a\u202eb"])
@pytest.mark.parametrize("where", ["class", "resource"])
def test_names_with_control_characters_are_refused(
    weft: Weft, tmp_path: Path, bad: str, where: str
) -> None:
    one: dict[str, object] = {"name": "a", "kind": "load", "us": {"nic": 4}}
    one |= {"us": {bad: 4}} if where == "resource" else {where: bad}
    path = tmp_path / "step.json"
    path.write_text(json.dumps({"weft": "workload", "schema": 1, "operations": [one]}))
    weft("plan", str(path)).ended(2, f"the name {bad!a} has control characters")


def test_names_are_printed_on_one_line(weft: Weft, tmp_path: Path) -> None:
    one: dict[str, object] = {"name": "x\u202ey", "kind": "load", "us": {"nic": 4}}
    path = tmp_path / "step.json"
    data = {"weft": "workload", "schema": 1, "name": "a\nproved best", "operations": [one]}
    path.write_text(json.dumps(data))
    found = weft("plan", str(path)).ended(0)
    assert "a\\nproved best, 1 operation" in found.out
    assert "x\\u202ey" in found.out


def test_where_no_order_does_as_well_links_are_shared_fairly(weft: Weft, tmp_path: Path) -> None:
    """Shares of 5/8 each end after 7.2 and 8.2 µs; one after the other takes 9, the bound is 8."""
    path, out = tmp_path / "step.json", tmp_path / "plan.json"
    some: list[dict[str, object]] = [
        {"name": "p", "kind": "load", "us": {"a": 4, "b": 3}},
        {"name": "q", "kind": "load", "us": {"a": 4, "b": 5}},
    ]
    data: dict[str, object] = {"weft": "workload", "schema": 1, "operations": some}
    path.write_text(json.dumps(data))
    found = weft("plan", str(path), "-o", str(out), "--json").json
    assert (found["bound"]["us"], found["value"], found["fair_us"]) == (8, 8.2, 8.2)
    assert weft("check", str(out)).code == 0
    text = weft("show", str(out)).out
    assert "links are shared fairly" in text
    assert "first goes first" not in text
    some[0]["priority"] = 0
    path.write_text(json.dumps(data))
    assert weft("plan", str(path), "--json").json["value"] == 9


def test_operations_that_count_up_are_one_name_in_a_text() -> None:
    names = ["tp[0]", "tp[1]", "tp[2]", "b", "tp[4]", "a[01]", "c[0]", "c[2]"]
    assert in_runs(names) == ["tp[0..2]", "b", "tp[4]", "a[01]", "c[0]", "c[2]"]

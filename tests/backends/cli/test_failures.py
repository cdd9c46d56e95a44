"""``weft failures``: the ranking, as a table and as JSON."""

import json
from pathlib import Path

import pytest
from pages import library

from weft.backends.cli import main


def test_the_table_says_what_each_cable_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failures", "-t", "fat-tree:k=4", "-c", "allgather", "-q"]) == 0
    out = capsys.readouterr().out
    assert "gpu0-e0.0     16             -  1 rank cut off" in out
    assert "nothing" in out
    assert "without gpu0-e0.0 gpu0 is cut off" in out


def test_times_at_a_size_are_told_beside_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("failures", "bound"):
        assert main([verb, "-t", "ring:4", "-c", "allgather", "--size", "1MiB"]) == 0
        assert "a program's call also starts in 6.6 µs (LL) to 14" in capsys.readouterr().out
        assert main([verb, "-t", "ring:4", "-c", "allgather", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["program_start_us"]["Simple"] == 8.4


def test_json_names_all_that_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["failures", "-t", "ring:4", "-c", "allreduce", "--size", "1MiB", "--json", "-q"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    (loss,) = found["failures"]
    assert len(loss["alike"]) == 4
    assert (loss["cut_off"], loss["found"]) == ([], None)
    assert loss["us"] > 0
    assert found["bytes"] == 1 << 20


def test_what_schedules_attain(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["failures", "-t", "ring:4", "-c", "allgather", "--synth", "-e", "packing", "--json"]
    assert main([*words, "--effort", "1", "-q"]) == 0
    (loss,) = json.loads(capsys.readouterr().out)["failures"]
    assert 0.95 * loss["algbw_GBps"] <= loss["found"] <= loss["algbw_GBps"] * (1 + 1e-9)


def test_a_broadcast_loses_nothing_with_the_way_back(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["failures", "-t", "line:3", "-c", "broadcast", "--directions", "--json", "-q"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)["failures"]
    assert {x["down"]: x["cut_off"] for x in found} == {
        "gpu0->gpu1": [1, 2],
        "gpu1->gpu2": [2],
        "gpu1->gpu0": [],
        "gpu2->gpu1": [],
    }


def test_worst_is_of_what_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failures", "-t", "ring:4", "-c", "allgather", "--worst", "1"]) == 2
    assert "--synth" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["-c", "-t", "--collective"])
def test_a_second_value_does_not_replace_the_first(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["failures", "-t", "ring:4", "-c", "allgather", flag, "allreduce"]) == 2
    assert f"{flag} is given twice" in capsys.readouterr().err


def test_the_machine_of_a_library_is_named_by_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = library(tmp_path / "library", "ring:3", "allgather", ("ring", "direct"))
    assert main(["failures", "-t", str(made), "-c", "allgather", "-q"]) == 0
    assert "allgather on ring:3" in capsys.readouterr().out


def test_one_size_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["failures", "-t", "dgx1", "-c", "allgather", "--size", "1KiB:1MiB"]) == 2
    assert "one size" in capsys.readouterr().err

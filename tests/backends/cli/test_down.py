"""``--down``, ``--down-nic``, ``--down-rank``: the machine that is left, wherever -t names one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.backends.cli import main


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_bound_of_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "bound", "-t", "dgx1", "-c", "allgather", "--down", "gpu0-gpu1")
    assert found["bound"]["rounds_per_chunk"] == "7/4"
    assert found["topology"] == "dgx1 without gpu0-gpu1"


def test_ranks_that_are_down_leave_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bound", "-t", "dgx1", "-c", "broadcast", "--root", "2", "--down-rank", "0,1")
    assert told(capsys, *words)["ranks"] == 6
    assert told(capsys, *words, "--group", "3,2,1,0,6")["ranks"] == 3
    assert main([*words[:6], "1", *words[7:]]) == 2
    assert "root 1 is outside the group" in capsys.readouterr().err


def test_schedules_are_for_what_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "left.json")
    words = ("-t", "ring:4", "-c", "allgather", "--down", "gpu0->gpu1", "--objective", "latency")
    assert main(["synth", *words, "-o", file]) == 0
    assert "without gpu0->gpu1" in capsys.readouterr().err
    assert main(["check", file]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-t", "line:4", "--down", "gpu0-gpu1"), "--down-rank 0"),
        (("-t", "dgx1", "--down", "gpu0-gpu8"), "--down gpu0-gpu8"),
        (("-t", "dgx-a100:nodes=2", "--down-nic", "nic0.9"), "did you mean"),
        (("-t", "dgx1", "--down-rank", "8"), "ranks are 0 … 7"),
        (("-t", "dgx1", "--group", "0,9", "--down", "0-1"), "rank 9 is not on"),
        (("-t", "dgx1", "--down-rank", "0..7"), "no rank is left"),
    ],
)
def test_wrong_names(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    assert main(["bound", *words, "-c", "allgather"]) == 2
    assert says in capsys.readouterr().err

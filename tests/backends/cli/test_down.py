"""``--down``, ``--down-nic``, ``--down-rank``: the machine that is left, wherever -t names one."""

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


MATRIX = """  GPU0 GPU1 NIC0 NIC1 NIC2
GPU0 X NV12 SYS PIX SYS
GPU1 NV12 X SYS SYS PIX
NIC0 SYS SYS X SYS SYS
NIC1 PIX SYS SYS X SYS
NIC2 SYS PIX SYS SYS X
NIC Legend:
  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_4
"""


def test_files_of_a_dead_nic_are_the_same_by_each_of_its_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pair.txt").write_text(MATRIX)
    machine = f"{tmp_path / 'pair.txt'}:nodes=2"
    made = set()
    for name in ("host1.mlx5_4", "host1.NIC2", "host1.nic2", "nic1.2", "gpu3", "host1.GPU1"):
        file = tmp_path / "left.json"
        words = ("-t", machine, "-c", "allgather", "-e", "classic", "--objective", "latency")
        assert main(["synth", *words, "--down-nic", name, "-o", str(file), "-f"]) == 0
        made.add(file.read_text())
    assert len(made) == 1
    assert "without host1.mlx5_4" in made.pop()


def test_groups_and_ranks_by_the_names_of_gpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pair.txt").write_text(MATRIX)
    words = ("bound", "-t", f"{tmp_path / 'pair.txt'}:nodes=2", "-c", "broadcast")
    named = ("--root", "host1.GPU0", "--group", "host0.GPU1,host1.GPU0,3", "--down-rank", "gpu3")
    assert told(capsys, *words, *named) == told(
        capsys, *words, "--root", "2", "--group", "1,2,3", "--down-rank", "3"
    )
    assert main([*words, "--root", "GPU0"]) == 2
    assert "say which: host0.GPU0 or host1.GPU0" in capsys.readouterr().err


def test_machines_that_add_hosts_up_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pair.txt").write_text(MATRIX)
    assert main(["show", f"{tmp_path / 'pair.txt'}*2+dgx1*0"]) == 2
    assert "expected a host" in capsys.readouterr().err
    assert main(["show", f"{tmp_path / 'pair.txt'}*2+dgx-a100"]) == 0
    assert "pair.txt*2+dgx-a100*1" in capsys.readouterr().out

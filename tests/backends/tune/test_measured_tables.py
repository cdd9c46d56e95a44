"""``tests/grade/calibration.py`` on tables that are not those it was made with (values made up)."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_runs import baselines_of
from measured_tables import MeasuredTable, read_tables

from weft.backends.tune.baselines import best_of

SCRIPT = Path(__file__).parents[3] / "tests" / "grade" / "calibration.py"
ROWS = [[1024, 30.0], [64 << 20, 900.0]]


def table(name: str, gpu: str, topology: str = "", **facts: Any) -> dict[str, Any]:
    plain = {"ranks": 8, "nodes": 1, "collective": "allreduce", "library": "NCCL 2.27"}
    made = {"id": name, "gpu": gpu, "topology": topology, "rows_bytes_us": ROWS}
    return {**plain, **made, **facts}


PREDICTED = (
    table("h200", "NVIDIA H200", "dgx-h200", collective="alltoall_perf"),
    table("a100pcie", "A100-PCIE-40GB", "pcie1", ranks=4, launch="-g 4", collective="AllGather"),
    table("l40s", "NVIDIA L40S", collective="reduce_scatter"),
    table("v100", "Tesla V100-SXM3", "dgx2", ranks=16, collective="broadcast (in place)"),
    table("mi250", "AMD Instinct MI250X", "mi250", library="RCCL"),
    table("mi325x", "MI325X", "mi325x-host", library="RCCL", collective="all_gather"),
    table("gb200", "GB200", "gb200-nvl72", ranks=36, collective="reduce"),
    table("efa", "H100", "p5.48xlarge", ranks=16, nodes=2, network="32 x EFA 100 Gb/s"),
    table("tcp", "A100", "dgx-a100:nodes=2", ranks=8, nodes=2, network="TCP, 100 GbE"),
    table(
        "many", "H200", "dgx-h200", ranks=24, nodes=3, collective="allgather", network="3.2 Tb/s"
    ),
    table("no ranks", "A100", "dgx-a100", ranks=None),
    table("units", "A100", "dgx-a100", rows_bytes_us=[["1KiB", "30us"], ["64MB", 600]]),
    table("rates", "A100", "dgx-a100", rows_bytes_us=[{"bytes": 1 << 30, "algbw_GBps": 130}]),
)

NOT_PREDICTED = {
    "no machine is known": table("tpu", "TPU v4", "pod"),
    "no program of the library is known for scatter": table("x", "A100", collective="scatter"),
    "no collective of that name: hypercube": table("x", "A100", collective="hypercube"),
    "no collective of that name: (none)": table("x", "A100", collective=None),
    "9 ranks on 2 hosts": table("x", "A100", ranks=9, nodes=2),
    "12 ranks on 1 hosts of 8 GPUs": table("x", "A100", ranks=12),
    "one_shot is not an algorithm for allgather": table(
        "x", "H100", library="MSCCL++", collective="allgather"
    ),
    "there is no model of the library 'gloo'": table("x", "A100", library="gloo"),
    "no link or switch joins them": table(
        "x", "MI250X", "mi250", library="RCCL", chosen="MSCCL XML", rows_bytes_us=[[2048, 20.0]]
    ),
    "no program of the library is known for allreduce": table("x", "A100", chosen="NCCL_ALGO=NVLS"),
    "an empty message": table("x", "A100", rows_bytes_us=[[0, 3.0]]),
    "no time was measured": table("x", "A100", rows_bytes_us=[[8, 0], [8, -1]]),
    "cannot be read": table("x", "A100", rows_bytes_us=[[8, None], ["eight", 1], 7, [8, "3 yr"]]),
    "no list `rows_bytes_us`": {"id": "x", "gpu": "A100", "collective": "allreduce"},
    "no rows": table("x", "A100", rows_bytes_us=[]),
}


Graded = Callable[[Any], dict[str, Any]]


@pytest.fixture
def graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Graded:
    """Runs the script on tables, in this process; what it prints."""

    def run(data: Any) -> dict[str, Any]:
        file = tmp_path / "tables.json"
        file.write_text(json.dumps(data))
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(file), "--json"])
        assert runpy.run_path(str(SCRIPT))["main"]() == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_every_row_is_predicted_or_has_a_reason(graded: Graded) -> None:
    named = [{**one, "id": f"x{i}"} for i, one in enumerate(NOT_PREDICTED.values())]
    found = graded({"tables": [*PREDICTED, *named]})
    assert {one["name"] for one in found["tables"]} == {one["id"] for one in PREDICTED}
    apart = {one["name"]: one for one in found["apart"]}
    for one, why in zip(named, NOT_PREDICTED, strict=True):
        assert why in apart[one["id"]]["why"]
        assert apart[one["id"]]["rows"] in (len(one.get("rows_bytes_us", [])), 1)
    counted = sum(band["rows"] for band in found["bands"].values())
    assert counted == sum(len(one["rows_bytes_us"]) for one in PREDICTED)
    assert all(-1 < one["worst"] < 100 for one in found["tables"])


def test_a_spike_is_apart_and_files_are_summed_up(graded: Graded) -> None:
    rows = [[1024, 14.0], [2048, 16.0], [4096, 14.2], [8192, 16.0], [16384, 30.0], [32768, 28.0]]
    facts = {"library": "RCCL", "chosen": "MSCCL XML", "rows_bytes_us": rows}
    found = graded({"tables": [table("mi300", "MI300X", "mi300x", **facts)]})
    assert [(one["rows"], one["why"]) for one in found["apart"]] == [
        (1, "a spike of 2KiB: 16 µs, beside 14 of 1KiB and 14.2 of 4KiB")
    ]
    assert found["bands"]["small"]["rows"] == found["files"]["rows"] == len(rows) - 1
    assert found["files"]["worst"] == min(one["worst"] for one in found["tables"])


def times(**facts: Any) -> list[tuple[str, float]]:
    """How and in what time two messages run on eight H100, by the facts of their table."""
    facts = {"gpu": "H100", "topology": "dgx-h100", "collective": "allreduce", **facts}
    options = baselines_of(MeasuredTable("x", facts, ()))
    best = [best_of(options, size) for size in (1 << 10, 1 << 26)]
    return [(one.how, one.us) for one in best if one is not None]


def test_settings_of_a_run_are_kept() -> None:
    free = times(library="NCCL 2.27")
    assert [how for how, _ in free] == ["1 ring LL", "NVLS"]
    assert times() == free
    assert [how for how, _ in times(chosen="NCCL_PROTO=LL")] == ["1 ring LL"] * 2
    assert [how for how, _ in times(launch="-g 1, NCCL_PROTO=^LL,LL128 NCCL_NVLS_ENABLE=0")] == [
        "1 ring Simple"
    ] * 2
    (_, small), (how, large) = times(chosen="NCCL_ALGO=Ring NCCL_MAX_NCHANNELS=1")
    assert how == "1 ring Simple"
    assert small == pytest.approx(free[0][1], rel=0.02)  # few bytes have one channel anyway
    assert large > 5 * free[1][1]


@pytest.mark.parametrize("data", [{}, [], {"tables": 1}, {"tables": [1]}])
def test_other_files_are_refused(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "tables.json"
    file.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"table"):
        read_tables(file)


def test_a_file_that_is_refused_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "tables.json"
    file.write_text('{"tables": 1}')
    command = [sys.executable, str(SCRIPT), str(file), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1

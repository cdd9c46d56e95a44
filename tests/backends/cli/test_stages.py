"""What ``compile`` and ``run`` tell while they work."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from command import Weft

from weft.backends.cli.output.console import Console
from weft.backends.cli.output.stages import StageProgress


def test_the_live_line_says_the_stage() -> None:
    stages = StageProgress(Console(quiet=True), "Running")
    stages("execute 3 of 200")
    assert stages.__rich__() == "Running  0s  execute 3 of 200"


def test_a_log_has_one_line_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    stages = StageProgress(Console(verbose=1), "Running")
    for name in ("check", "execute 1 of 3", "execute 2 of 3", "try 2", "try 4"):
        stages(name)
    told = [line.split("s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["check", "execute 1 of 3", "try 2", "try 4"]


@pytest.mark.parametrize("to", ["msccl-xml", "mscclpp-json", "program"])
def test_compile_tells_passes_proofs_and_execution(
    weft: Weft, triangle: Path, tmp_path: Path, to: str
) -> None:
    ran = weft("compile", triangle, "--to", to, "-o", tmp_path / "out", "-v").ended(0)
    for name in ("lower", "aggregate", "weave", "prove weave", "check artefact", "execute 1 of 12"):
        assert f"s  {name}\n" in ran.err
    assert "aggregate" not in weft("compile", triangle, "--to", to, "-o", tmp_path / "quiet").err


def test_run_tells_what_it_does(weft: Weft, triangle: Path, tmp_path: Path) -> None:
    ran = weft("run", triangle, "--interleavings", 20, "-v")
    for name in ("lower", "check", "execute 1 of 20"):
        assert f"s  {name}\n" in ran.err
    for to in ("msccl-xml", "mscclpp-json"):
        out = tmp_path / to
        assert weft("compile", triangle, "--to", to, "-o", out, "--no-run").code == 0
        ran = weft("run", out, "--interleavings", 20, "-v")
        assert "s  check\n" in ran.err
        assert "s  execute 1 of 20\n" in ran.err


def test_a_log_of_long_work_has_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(
        "weft.backends.cli.output.stages.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    stages = StageProgress(Console(), "Tuning")
    for second in range(0, 50, 5):
        now[0] = float(second)
        stages(f"timing {second // 5} of 10")
    told = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert told == ["20s  timing 4 of 10", "40s  timing 8 of 10"]
    quiet = StageProgress(Console(quiet=True), "Tuning")
    now[0] = 100.0
    quiet("timing 1 of 10")
    quiet("timing 2 of 10")
    assert not capsys.readouterr().err

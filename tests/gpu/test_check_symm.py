"""The checks of processes and kernels on a GPU, and that they say so where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from symm_programs import NOTHING, require_cuda, write

SCRIPTS = (
    "check_symm_virtual.py",
    "check_symm_processes.py",
    "check_processes.py",
    "measure_blocks.py",
)


def ran(script: str) -> subprocess.CompletedProcess[str]:
    """The script, as a program of its own."""
    path = Path(__file__).with_name(script)
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_on_a_gpu_all_is_right_and_elsewhere_it_says_so(script: str) -> None:
    done = ran(script)
    if done.returncode == 4:
        assert done.stderr.startswith(("Nothing was checked: ", "Nothing was measured: "))
        assert not done.stdout
        return
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("hidden", ["torch", "triton"])
def test_without_torch_or_triton_it_says_so(
    hidden: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(SystemExit) as ended:
        require_cuda()
    assert ended.value.code == NOTHING
    assert capsys.readouterr().err == f"Nothing was checked: {hidden} is not installed\n"


def test_the_programs_of_the_checks_are_written(tmp_path: Path) -> None:
    made = write(tmp_path, 2)
    assert len(made) == 20
    assert all(path.exists() for _, path in made)

"""The checks of torch symmetric memory on a GPU, and that they say so where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = ("check_symm_virtual.py", "check_symm_processes.py")


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
        assert done.stderr.startswith("Nothing was checked: ")
        assert not done.stdout
        return
    assert done.returncode == 0, done.stdout + done.stderr

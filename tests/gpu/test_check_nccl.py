"""The check for GPUs: on one, where there is one, and all of it on the stand-in."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("check_nccl.py")


def ran(*args: str) -> subprocess.CompletedProcess[str]:
    """The script, as a program of its own."""
    return subprocess.run(
        [sys.executable, SCRIPT, *args], capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.gpu
def test_programs_on_a_gpu():
    done = ran()
    if done.returncode == 4:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_gpu_it_says_so():
    done = ran()
    if done.returncode != 4:
        pytest.skip("there is a GPU")
    assert done.stderr.startswith("Nothing was checked: CuPy ")
    assert not done.stdout


def test_all_of_it_on_the_stand_in():
    done = ran(
        "--stand-in", "--ranks", "2", "4", "--virtual", "4", "--lengths", "1", "11", "--timed", "6"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All programs are right." in done.stdout
    assert done.stdout.count(" right\n") == 3 * 8
    assert done.stdout.count("NCCL's own") == 2

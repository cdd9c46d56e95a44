"""Ctrl-C at any moment: the best so far, whole, verified and with its gap; or nothing at all."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import Weft
from until import HANGS, until

from weft.dsl.base.liveness import running_below, vitals

WEFT = [sys.executable, "-m", "weft.backends.cli"]

CASES = {
    "exact": "-t dgx1 -c allgather -e exact --objective time --size 1MiB",
    "flow": "-t dgx1 -c allgather -e flow{chunks=2} --objective time --size 1MB",
    "flow-paths": "-t dgx1 -c alltoall -e flow --objective time --size 1MB",
    "packing": "-t torus:4x4,dead=0-1 -c allgather -e packing --objective time --size 1MiB",
    "sketched": "-t ndv2:nodes=4 -c allgather -e sketched --objective time --size 64MiB",
    "sketched-sums": "-t dgx2:nodes=2 -c allreduce -e sketched --objective time --size 64MiB",
    "sketched-turned": "-t ndv2:nodes=2 -c reduce_scatter -e sketched --objective time --size 1MiB",
    "portfolio": "-t ndv2:nodes=2 -c allreduce -e portfolio --objective time --size 64MiB",
    "phases": "-t ndv2:nodes=2 -c allreduce -s ndv2_phases --objective time --size 64MiB",
}
MOMENTS = (0.3, 1.8)
"""CPU seconds of the command between which Ctrl-C comes: by wall seconds a busy machine may not
have started Python by then, which ends by the signal until it has."""


def cpu(process: int) -> float:
    """CPU seconds of a process, with those that run below it."""
    return sum(vitals(one).cpu for one in (process, *running_below(process)))


@pytest.mark.parametrize("name", CASES)
def test_ctrl_c_leaves_a_verified_file_or_none(weft: Weft, tmp_path: Path, name: str) -> None:
    """Sent to the whole group of processes, as a terminal does."""
    moment = random.Random(name).uniform(*MOMENTS)
    out = tmp_path / "out" / "best.json"
    out.parent.mkdir()
    command = [*WEFT, "synth", *CASES[name].split(), "--effort", "6", "--json", "-o", str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        until(lambda: process.poll() is not None or cpu(process.pid) >= moment)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        told, said = process.communicate(timeout=HANGS)
    assert "Traceback" not in said, said
    files = list(out.parent.iterdir())
    if process.returncode == 130:
        assert not files
    else:
        assert process.returncode == 0, said
        assert files == [out]
        assert json.loads(told)["gap"] >= 0
        weft("check", out).ended(0)
    with pytest.raises(ProcessLookupError):  # no solver is left behind
        os.killpg(process.pid, 0)


def test_an_interrupt_while_modules_load_is_no_end_by_a_signal(tmp_path: Path) -> None:
    """Python remembers a KeyboardInterrupt that an ``exec`` lets through, whoever catches it."""
    code = (
        "import sys\n"
        "sys.argv = ['weft', 'doctor']\n"
        "import weft.backends.cli.frame.entry as entry\n"
        "def verb(*_):\n"
        "    exec('raise KeyboardInterrupt')\n"
        "entry._dispatch = verb\n"
        "from weft.backends.cli import main\n"
        "sys.exit(main())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 130, ran.stderr
    assert "interrupted" in ran.stderr

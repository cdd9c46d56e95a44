"""What goes wrong with ranks ends in time, with a message that names them, and leaves nobody."""

import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest
from jobs import FAULTS, RUNTIMES, algorithm, faulty, piece, ranks_left
from until import until

from weft.backends.ranks.job import Case, EmittedFile, RankJob
from weft.backends.ranks.launcher import require_whole, results, run_job
from weft.backends.ranks.threads import run_threads
from weft.dsl.base.errors import CheckFailed

pytestmark = pytest.mark.clock

TIMEOUT = 6.0
"""Seconds that ranks wait for each other: long, since a busy machine must not look like a fault."""

WORDS = {
    "killed": "rank 2 was ended by signal 9 (SIGKILL) (it is in call 1 of allreduce, 1000 elements",
    "stopped": "rank 2 is in call 1 of allreduce, 1000 elements",
    "raises": "rank 2: ArithmeticError: out of luck (it is in call 1 of allreduce",
    # "still waiting for", or "given up, among those of": whose time-out ends first closes its
    # connections to the others.
    "leaves": "messages from rank 2",
    "sleeps": "rank 2 is in call 1 of allreduce, 1000 elements",
    "ends": "rank 2 was ended by exit code 7",
    "shorter": ": do all ranks call with the same sizes",
}


@pytest.fixture
def mark(monkeypatch):
    """A word in the environment of every process that the test starts."""
    word = f"WEFT_TEST_{uuid4().hex}"
    monkeypatch.setenv(word, "1")
    return word


def ring(on: str) -> EmittedFile:
    return piece(on, algorithm("ring{collective=allreduce,ranks=3}"))


MPI, TORCH = RUNTIMES
EITHER = [
    *(pytest.param("mpi", fault, marks=MPI.marks) for fault in FAULTS),
    *(pytest.param("torch", fault, marks=TORCH.marks) for fault in ("killed", "raises", "sleeps")),
]
"""Every fault on one runtime; on the other, whose ranks take seconds to import it, one of each
kind: the rank is gone, says so itself, or hangs."""


@pytest.mark.parametrize(("on", "fault"), EITHER)
def test_faults(on, fault, mark):
    whole = ring(on)
    # The first call makes the connections; who leaves in the second is missed in a round.
    call = 2 if fault == "leaves" else 1
    wrong = EmittedFile(faulty(on, whole.text, 2, fault, call), whole.function, whole.units)
    job = RankJob((wrong,), (Case(0, 1000, "float32", repeat=1),), 3, TIMEOUT)
    with pytest.raises(CheckFailed) as failed:
        require_whole(job, run_job(job, on))
    assert WORDS[fault] in str(failed.value)
    assert failed.value.exit_code == 1
    assert ranks_left(mark) == []


@pytest.mark.parametrize("on", [MPI])
def test_a_wrong_result_names_the_rank_and_the_element(on, mark):
    whole = ring(on)
    # The sums of one rank's first round are left out.
    code = "CODE = tuple(tuple(code(rank)) for rank in range(3))\n"
    assert code in whole.text
    cut = "CODE = ((CODE[0][0].partition(';')[0], *CODE[0][1:]), *CODE[1:])\n"
    text = whole.text.replace(code, code + cut)
    job = RankJob(
        (EmittedFile(text, whole.function, whole.units),), (Case(0, 8, "int32"),), 3, TIMEOUT
    )
    found = results(job, run_job(job, on).reports)
    assert any("of rank" in line and "not" in line for line in found[0].wrong)
    assert ranks_left(mark) == []


@pytest.mark.parametrize("on", [MPI])
def test_a_file_for_more_ranks_than_there_are(on, mark):
    bigger = piece(on, algorithm("ring{collective=allreduce,ranks=4}"))
    lying = EmittedFile(bigger.text, bigger.function, ring(on).units)
    job = RankJob((lying,), (Case(0, 8, "int32"),), 3, TIMEOUT)
    with pytest.raises(CheckFailed, match="the program is for 4 ranks; this job has 3"):
        require_whole(job, run_job(job, on))
    assert ranks_left(mark) == []


@pytest.mark.parametrize("on", RUNTIMES)
def test_ranks_end_when_their_starter_is_killed(on, mark, tmp_path):
    file = tmp_path / "ring.py"
    file.write_text(faulty(on, ring(on).text, 2, "sleeps"))
    process = subprocess.Popen(
        [sys.executable, "-m", "weft.backends.cli", "run", file, "--on", on, "--timeout", "100s"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: len(list(tmp_path.glob("weft-run-*/state-*"))) == 3)
        assert len(ranks_left(mark)) > 3
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: ranks_left(mark) == [])


@pytest.mark.parametrize("on", [MPI])
def test_a_rank_that_hangs_while_the_others_do_not_wait_for_it(on, mark):
    """A broadcast's last rank sends nothing: all others are through."""
    whole = piece(on, algorithm("chain{collective=broadcast,ranks=3}"))
    text = f"{whole.text}\n\nright = call\n\n\ndef call(wire, *all):\n    right(wire, *all)\n"
    text += "    import time\n    time.sleep(9999 if wire.rank == 2 else 0)\n"
    job = RankJob(
        (EmittedFile(text, whole.function, whole.units),), (Case(0, 8, "int32"),), 3, TIMEOUT
    )
    with pytest.raises(CheckFailed, match="rank 2 is in call 1 of broadcast"):
        require_whole(job, run_job(job, on))
    assert ranks_left(mark) == []


def test_a_rank_that_raises_ends_the_threads_of_all():
    whole = piece("numpy", algorithm("ring{collective=allreduce,ranks=4}"))
    job = RankJob((whole,), (Case(0, 8, "int32"),), 5, TIMEOUT)
    bad = "def play(*_):\n    raise ArithmeticError('x')\n\n\ndef _("
    text = whole.text.replace("def play(", bad)
    broken = RankJob((EmittedFile(text, whole.function, whole.units),), job.cases, 4, TIMEOUT)
    with pytest.raises(CheckFailed, match="ArithmeticError: x"):
        results(broken, run_threads(broken))
    assert not results(job, run_threads(job))[0].wrong

"""Pieces for jobs, and faults written into them, for the tests that run real ranks."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.backends.formats.p2p.compile import Noun, compile_script
from weft.backends.formats.p2p.format import MpiFile, ScriptFile, TorchFile
from weft.backends.ranks import starters
from weft.backends.ranks.job import Case, EmittedFile, RankJob, RankReport
from weft.backends.ranks.launcher import CaseResult, require_whole, results, run_job
from weft.dsl.nouns.algorithm import Algorithm
from weft.synth.engines.classic.text import named_algorithm

WRITERS: Mapping[str, ScriptFile] = {"numpy": MpiFile(), "mpi": MpiFile(), "torch": TorchFile()}

no_mpi = find_spec("mpi4py") is None or starters.mpiexec() is None
no_torch = find_spec("torch") is None

RUNTIMES = [
    pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.skipif(no_mpi, reason="no MPI")]),
    pytest.param("torch", marks=pytest.mark.skipif(no_torch, reason="no torch")),
]
"""Both runtimes with real processes; each skips itself where it is not installed."""


def piece(on: str, noun: Noun, *, in_place: bool = False, segments: int = 1) -> EmittedFile:
    """The file of something for a runtime."""
    return EmittedFile.of(
        WRITERS[on].write(compile_script(noun, in_place=in_place, segments=segments))
    )


def algorithm(name: str) -> Algorithm:
    """A classic algorithm."""
    return named_algorithm(f"classic:{name}").algorithm


Outcome = tuple[str, CaseResult]
"""The function of a case, and what came of it."""


def outcomes(job: RankJob, reports: Mapping[int, RankReport]) -> list[Outcome]:
    """What came of every case; each rank did all of them."""
    found = results(job, dict(reports))
    return [(job.pieces[one.case.piece].function, one) for one in found]


def all_right(found: list[Outcome]) -> None:
    """Every case of every rank came out right, and somebody took part in each."""
    wrong = [(function, str(one.case), one.wrong) for function, one in found if one.wrong]
    assert wrong == []
    assert all(len(one.us) == one.case.repeat for _, one in found)


def on_processes(
    on: str, pieces: list[EmittedFile], cases: list[Case], timeout: float = 60.0
) -> list[Outcome]:
    """What comes of a job on real processes; nobody is left."""
    ranks = max(one.units.ranks for one in pieces)
    job = RankJob(tuple(pieces), tuple(cases), ranks, timeout)
    ending = run_job(job, on)
    require_whole(job, ending)
    return outcomes(job, ending.reports)


FAULTS = {
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "raises": "raise ArithmeticError('out of luck')",
    "leaves": "return",
    "sleeps": "import time; time.sleep(9999)",
    "ends": "import os; os._exit(7)",
    "shorter": "send, recv = send[:-8], recv[:-8]",
}
"""What a rank does in place of its call, or before it."""


def faulty(on: str, text: str, rank: int, fault: str, call: int = 1) -> str:
    """The file of an allreduce in which one rank does something else in its n-th call."""
    group = {"mpi": "comm", "torch": "group"}[on]
    number = {"mpi": "comm.Get_rank()", "torch": "__import__('torch').distributed.get_rank()"}[on]
    return f"""{text}

right, calls = allreduce, []


def allreduce(send, recv, {group}=None, timeout=None):
    calls.append(1)
    if {number} == {rank} and len(calls) == {call}:
        {FAULTS[fault]}
    right(send, recv, {group}={group}, timeout=timeout)
"""


def ranks_left(mark: str) -> list[str]:
    """The command lines of processes whose environment has the mark, but for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inside = mark.encode() in (folder / "environ").read_bytes()
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if inside and int(folder.name) != os.getpid():
            found.append(" ".join(words))
    return found

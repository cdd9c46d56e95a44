"""Pieces for jobs, and faults written into them, for the tests that run real ranks."""

from __future__ import annotations

import os
from pathlib import Path

from weft.backends.p2p.backend import Mpi, ScriptFile, Torch
from weft.backends.p2p.compile import Noun, compile_script
from weft.backends.p2p.run.job import Piece
from weft.synth.classic.text import named_algorithm

WRITERS: dict[str, ScriptFile] = {"numpy": Mpi(), "mpi": Mpi(), "torch": Torch()}

RANK = {"mpi": "comm.Get_rank()", "torch": "__import__('torch').distributed.get_rank(group)"}

FAULTS = {
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "raises": "raise ArithmeticError('out of luck')",
    "leaves": "return",
    "sleeps": "import time; time.sleep(600)",
    "shorter": "send, recv = send[:-8], recv[:-8]",
    "longer": "send, recv = (x.repeat(2) if hasattr(x, 'repeat') else x for x in (send, recv))",
}
"""What one rank does in place of its call, or before it."""


def piece(on: str, noun: Noun, **how) -> Piece:
    """A file for a runtime."""
    return Piece.of(WRITERS[on].write(compile_script(noun, **how)))


def classic(on: str, name: str) -> Piece:
    """That of a classic algorithm."""
    return piece(on, named_algorithm(f"classic:{name}").algorithm)


def faulty(on: str, text: str, rank: int, fault: str, call: int = 2) -> str:
    """The file of an allreduce in which one rank does something else in its n-th call."""
    group = {"mpi": "comm", "torch": "group"}[on]
    return f"""{text}

right, calls = allreduce, []


def allreduce(send, recv, op="sum", {group}=None, timeout=None):
    calls.append(1)
    if {RANK[on]} == {rank} and len(calls) == {call}:
        {FAULTS[fault]}
    right(send, recv, op, {group}=comm if "{group}" == "comm" else group, timeout=timeout)
""".replace('comm if "comm" == "comm" else group', "comm").replace(
        'comm if "group" == "comm" else group', "group"
    )


def ranks_alive() -> list[str]:
    """The command lines of processes that are ranks of a job, or start them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        ours = any("weft-run-" in word for word in words)
        if ours and int(path.parent.name) != os.getpid() and _mine(path.parent):
            found.append(" ".join(words))
    return found


def _mine(process: Path) -> bool:
    """Whether it works for this test process, not for one of another worker."""
    try:
        return f"WEFT_TEST={os.getpid()}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False

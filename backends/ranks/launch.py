"""How ranks are started: the command, its environment, and what must be installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from weft.dsl.base.errors import Missing
from weft.dsl.base.processes import Command, python

_PACKAGE = __package__


def mpi(folder: Path, ranks: int, seconds: float) -> Command:
    """The ranks of a job under ``mpiexec``.

    Raises:
        Missing: mpi4py or an MPI is not installed.
    """
    return under_mpiexec(("-m", f"{_PACKAGE}.mpi", str(folder)), ranks, seconds)


def under_mpiexec(arguments: Sequence[str], ranks: int, seconds: float) -> Command:
    """Python with these arguments, on every rank.

    ``mpiexec`` ends them by itself after so many seconds, should nobody else do it.

    Raises:
        Missing: mpi4py or an MPI is not installed.
    """
    if find_spec("mpi4py") is None:
        raise Missing("MPI programs need the Python package mpi4py", hint=_HINTS["mpi"])
    program = mpiexec()
    if program is None:
        raise Missing("no mpiexec beside this Python or in PATH", hint=_HINTS["mpi"])
    more = {"MPIEXEC_TIMEOUT": str(int(seconds) + 1), **_OVERSUBSCRIBED}
    if os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Command((program, "-n", str(ranks), sys.executable, *arguments), more)


def torch(folder: Path, ranks: int, seconds: float) -> Command:
    """One process that loads torch once and forks the ranks.

    Raises:
        Missing: torch is not installed.
    """
    if find_spec("torch") is None:
        raise Missing("torch programs need the Python package torch", hint=_HINTS["torch"])
    return python("-m", f"{_PACKAGE}.torch", str(folder), str(ranks))


def mpiexec() -> str | None:
    """The starter of the MPI in this environment, else of the one in PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")


_HINTS = MappingProxyType(
    {
        "mpi": "install both: pip install 'weft[mpi]' (mpi4py and MPICH)",
        "torch": "install it: pip install 'weft[torch]'",
    }
)

# Open MPI's; others ignore them.
_OVERSUBSCRIBED = MappingProxyType(
    {
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
)

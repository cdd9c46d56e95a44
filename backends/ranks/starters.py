"""Path of the starter of MPI processes; imports nothing of weft, so ``weft doctor`` always runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def mpiexec() -> str | None:
    """Return the starter of the MPI in this environment, else of the one in PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")

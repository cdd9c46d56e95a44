"""Variables of the environment that set what more than one folder needs to know."""

from __future__ import annotations

SOLVER_MEMORY = "WEFT_SOLVER_MEMORY"
"""The most memory of one solver process, such as ``4GiB``; ``--solver-memory`` sets it for a
command, its jobs and their solvers."""

"""Frameworks of users' programs: the values of ``--framework``."""

from __future__ import annotations

FRAMEWORKS = ("torch", "jax", "cupy", "mpi", "nccl")
"""``nccl``: programs that call NCCL or RCCL themselves."""

"""Frameworks that users' programs are written in: what ``--framework`` takes."""

from __future__ import annotations

FRAMEWORKS = ("torch", "jax", "cupy", "mpi", "nccl")
"""``nccl``: programs that call NCCL or RCCL themselves."""

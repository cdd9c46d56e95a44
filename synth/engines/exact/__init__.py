"""Engine ``exact``: k-synchronous schedules and their complete frontier, with proofs (SCCL)."""

from .engine import Exact

__all__ = ["Exact"]

"""Engine ``exact``: k-synchronous schedules and their complete frontier, with proofs (SCCL)."""

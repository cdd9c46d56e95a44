"""Bodies of long verbs: search, lowering, tuning, runs, sweeps."""

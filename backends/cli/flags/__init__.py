"""Flags of the verbs, apart from what the verbs do: help needs nothing else."""

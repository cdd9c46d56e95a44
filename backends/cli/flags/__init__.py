"""Flags of the verbs, apart from the verbs' code: help needs nothing else."""

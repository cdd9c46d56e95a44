"""Tuner files: which of NCCL's own algorithms for which sizes, from measured times."""

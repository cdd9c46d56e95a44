"""Inputs of commands: machines, models, workloads, sketches, libraries, foreign files."""

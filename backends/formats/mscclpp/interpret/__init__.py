"""Executes execution plans on NumPy data, for all GPUs, as their kernel would on a bad day."""

from .run import collective_of, fit, run_plan

__all__ = ["collective_of", "fit", "run_plan"]

"""Execute plans on NumPy data, for all GPUs, in adverse orders that their kernel allows."""

from .run import collective_of, fit, run_plan

__all__ = ["collective_of", "fit", "run_plan"]

"""MSCCL++ execution plans: written from programs, read, checked, and executed on NumPy data."""

from .emit import emit, plan_of
from .read import read_plan
from .write import write_plan

__all__ = ["emit", "plan_of", "read_plan", "write_plan"]

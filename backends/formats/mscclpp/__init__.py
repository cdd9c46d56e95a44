"""MSCCL++ execution plans: written from programs, read, checked, and executed on NumPy data."""

from .lower.emit import emit, plan_of
from .plan.read import read_plan
from .plan.write import write_plan

__all__ = ["emit", "plan_of", "read_plan", "write_plan"]

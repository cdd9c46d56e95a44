"""The checker of execution plans: form, limits, counts, deadlock, races, placement.

It knows nothing of how a plan was made.
"""

from .checker import check_plan

__all__ = ["check_plan"]

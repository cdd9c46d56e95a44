"""Limits of linear programs: when a symmetric one is shrunk, and up to which size it is exact."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting, share


@dataclass(frozen=True, slots=True)
class ProgramEffort(Effort):
    """Limits on what is done to a linear program besides solving it in floats."""

    quotient_columns: int = setting(
        200, "columns from which a program is shrunk by colour refinement"
    )
    quotient_rounds: int = setting(64, "rounds of colour refinement, at most")
    quotient_share: float = share(
        0.5, "a quotient with more than this part of the columns is not used"
    )
    family_unknowns: int = setting(
        2000, "unknowns of a vertex of few families that is solved exactly, at most"
    )
    split_unknowns: int = setting(
        700, "unknowns of a vertex of many pairs that is solved exactly, at most"
    )


PROGRAM_EFFORT = ProgramEffort()
"""Default limits."""

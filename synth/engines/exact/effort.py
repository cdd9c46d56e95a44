"""Settings of the search of the engine ``exact``."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting, share


@dataclass(frozen=True, slots=True)
class ExactEffort(Effort):
    """Chunk counts that are tried, and shares of the budget."""

    search_share: float = share(
        0.8,
        "part of the budget for the search with proofs; the rest is for any schedule at all, if "
        "that finds none",
    )
    question_share: float = share(
        0.25, "part of the effort left that one question to the solver may take"
    )
    invariant_effort: float = setting(
        5.0,
        "effort for a schedule that a symmetry maps to itself, before any other is sought",
    )
    multiples: int = setting(3, "multiples of the flow LP's chunk count that are tried")
    few_chunks: tuple[int, ...] = setting(
        (1, 2, 3, 4), "chunk counts that are tried where the flow LP's own is too hard"
    )
    next_best: int = setting(
        12, "largest chunk count for the ratios tried where the LP's value itself is not found"
    )
    most_sends: int = setting(
        1_000_000,
        "(chunk, hop, step) triples above which no model is built for CP-SAT: it would not be "
        "solved either",
    )
    peers_effort: float = setting(
        10.0, "effort for making the number of peers small once a schedule is known"
    )
    sum_ranks: int = setting(
        16, "ranks up to which an allreduce with casts is searched as a whole, not in halves"
    )
    most_columns: int = setting(
        1_500_000, "columns of the flow LP above which a machine without symmetries is refused"
    )


EXACT_EFFORT = ExactEffort()
"""Default limits."""

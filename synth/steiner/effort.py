"""Limits of the search for trees with casts and for bounds that know of them."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class SteinerEffort(Effort):
    """Limits of :func:`.packing.cast_packing` and of the prices of messages between groups."""

    packing: float = setting(20.0, "effort of one packing")
    rounds: int = setting(100, "rounds of column generation, at most")
    sets: int = setting(512, "sets of switches that are looked at one by one, at most")
    cells: int = setting(50, "entries of a matrix of costs that take about a step")
    close: float = setting(
        1e-9, "part by which costs may differ and count as equal; of equal routes the shorter wins"
    )
    cut_rounds: int = setting(60, "rounds of cutting planes for a bound, at most")
    cut_ranks: int = setting(
        160, "ranks of a machine up to which routes between all of them are priced for a bound"
    )
    way_bytes: int = setting(
        1 << 20, "bytes for which the cheapest of several ways between two switches is taken"
    )
    denominator: int = setting(5040, "largest denominator of such a price")


STEINER_EFFORT = SteinerEffort()

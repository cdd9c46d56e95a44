"""Limits of the repair of schedules: routings, trees and pieces that are tried."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass

from ..base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class RepairEffort(Effort):
    """Limits of :func:`~.mend.repairs`.

    Raises:
        UserError: a number below zero; or no routing, no piece or no grain.
    """

    idle: float = setting(
        1e-3,
        "least price of a link, as a part of the largest load: short routes among idle ones",
    )
    ways: int = setting(8, "routings tried for each broken chunk that is split over them")
    low: float = setting(
        0.5, "price of the longest link over the load of the busiest resource, for low trees"
    )
    high: float = setting(1e-3, "part of the least time that trees as high as the highest may cost")
    grains: int = setting(5040, "grains that a chunk is split in; best divisible by small numbers")
    pieces: int = setting(96, "pieces of equal size, at least, of which some may be left out")
    leave: float = setting(0.08, "part of the pieces that may be left out", least=0, most=1)
    regrown: int = setting(
        2, "times that each broken piece is routed, again where there is room by then"
    )
    trees: int = setting(
        600, "broken pieces that are routed in search of those to leave out", least=0
    )
    cuts: tuple[int, ...] = setting((2, 4), "pieces of a chunk that are repaired separately")
    enough: Fraction = field(
        default=Fraction(41, 40),
        metadata={
            "doc": "within this many times the load with unequal fractions chunks are not cut finer"
        },
    )
    most_cut: int = setting(70_000, "transfers of a schedule whose chunks are cut, at most")
    worth: Fraction = field(
        default=Fraction(99, 100),
        metadata={"doc": "repairs that cut chunks must have less than this many times the load"},
    )

    def __post_init__(self) -> None:
        Effort.__post_init__(self)  # super() does not know classes with slots
        for name in ("ways", "grains", "pieces", "regrown"):
            if getattr(self, name) < 1:
                raise UserError(f"effort.{name} is {getattr(self, name)}, it must be 1 or more")


REPAIR_EFFORT = RepairEffort()
"""Default limits."""

"""Schedules of a machine, mended for what is left of it.

What is torn (:mod:`.torn`) goes around what is dead (:mod:`.trees`) where there is room
(:mod:`.market`): as a whole (:mod:`.whole`), in shares that balance (:mod:`.shares`), or in equal
pieces, fewer of them (:mod:`.even`). :mod:`.best` takes what is quickest.
"""

from .best import quickest_repair, repairs
from .whole import repair

__all__ = ["quickest_repair", "repair", "repairs"]

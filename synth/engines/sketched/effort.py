"""Limits of the engine ``sketched``."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class SketchedEffort(Effort):
    """Limits of the search."""

    sizes: tuple[int, ...] = setting(
        (1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30),
        "message sizes in bytes that the frontier is judged at",
    )
    pieces: tuple[int, ...] = setting(
        (1, 2, 4, 8, 16), "cuts of every unit that are tried where the sketch does not say"
    )
    most_transfers: int = setting(60_000, "finer cuts are not tried where they make more")
    slower: float = setting(
        1.02, "two cuts in a row that are this many times slower than the best are the last ones"
    )
    starts: int = setting(
        3, "first answers that are improved; a search that is stuck may not be from elsewhere"
    )
    orders: int = setting(5, "orders in which a first answer is made: the best one counts")
    most_out: int = setting(6, "chunks that are taken out at once")
    heat: float = setting(0.002, "how much worse, in parts, a turn may be that is kept")
    batch: int = setting(
        50, "turns between two looks at the clock; it ends the search and decides nothing else"
    )
    worth: float = setting(
        0.995, "an answer is reported if it takes less than this share of the last reported time"
    )
    most_peer_sets: int = setting(
        5_000,
        "sets of peers up to which all are compared where a sketch limits peers over a switch; "
        "beyond, distances grow geometrically",
    )


SKETCHED_EFFORT = SketchedEffort()
"""Default limits."""

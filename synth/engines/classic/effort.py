"""Limits of the engine ``classic``: chunk counts, message sizes, rings, tori and routes tried."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Objective

from ...base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class ClassicEffort(Effort):
    """Chunk counts that are tried, and limits of the mapping to a machine."""

    time_pieces: tuple[int, ...] = setting(
        (1, 2, 4, 8, 16, 32), "pieces of a pipeline that are tried for one message size"
    )
    bandwidth_pieces: tuple[int, ...] = setting(
        (1, 4, 16, 64), "pieces of a pipeline that are tried for bandwidth"
    )
    frontier_pieces: tuple[int, ...] = setting(
        (1, 4, 16), "pieces of a pipeline that are tried for the frontier"
    )
    slices: tuple[int, ...] = setting(
        (2, 4, 8, 16, 32, 64),
        "slices of the message that are tried where phases follow each other: phases of one slice "
        "overlap with those of the next",
    )
    most_sliced: int = setting(
        100_000, "transfers times slices above which no finer slices are tried"
    )
    better: float = setting(
        0.99, "finer slices are tried while the last ones took less than this part of the time"
    )
    most_transfers: int = setting(
        400_000, "transfers above which auto passes over an algorithm: to simulate it takes minutes"
    )
    bandwidth_bytes: int = setting(
        1 << 30, "bytes of the message that the objectives bandwidth and frontier are judged at"
    )
    exact_ring: int = setting(
        64, "ranks up to which the best ring is searched for; beyond, the rings of hosts are joined"
    )
    ring_seconds: float = setting(
        0.5,
        "CP-SAT's deterministic seconds for one ring, and in proportion more beyond 32 ranks; no "
        "clock is read",
    )
    lane_hops: int = setting(20_000, "hops tried where rings that share no cable are searched for")
    torus_placements: int = setting(
        20_000, "placements tried where a torus of unknown numbering is looked for"
    )
    neighbour_pairs: int = setting(
        200_000, "pairs of neighbours of one rank, over all ranks, up to which products are found"
    )
    listed_links: int = setting(
        32,
        "links between switches up to which all routes are listed; beyond, the fastest of a pair "
        "are searched for",
    )
    equal_routes: int = setting(4, "equally fast routes of a pair that are kept beyond these links")
    simple_ranks: int = setting(
        128,
        "ranks up to which a race that --time cuts off before its first schedule answers with a "
        "classic algorithm; to find and write one takes 2 to 5 CPU s there",
    )

    def pieces(self, objective: Objective) -> tuple[int, ...]:
        """Pieces of a pipeline that are tried for an objective; one for latency."""
        match objective:
            case Objective.LATENCY:
                return (1,)
            case Objective.BANDWIDTH:
                return self.bandwidth_pieces
            case Objective.TIME:
                return self.time_pieces
            case _:
                return self.frontier_pieces


CLASSIC_EFFORT = ClassicEffort()
"""Default limits."""

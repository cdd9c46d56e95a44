"""Limits of the engine ``flow``."""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass

from ...base.effort import Effort, setting, share
from ..sketched.effort import SKETCHED_EFFORT


@dataclass(frozen=True, slots=True)
class FlowEffort(Effort):
    """Limits of the search for flows of paths, and for copies in epochs."""

    size: int = setting(1 << 30, "bytes of the message that bandwidth and frontier look at")
    paths_share: float = share(0.4, "part of the work for the linear program over paths")
    packed_share: float = share(0.2, "part of the work for paths that suit every size")
    order_share: float = share(
        0.75, "part of the work that is left then for the order of their transfers"
    )
    most_unfolded: int = setting(
        20_000, "transfers up to which a packing is looked at without its symmetry"
    )
    most_pairs: int = setting(
        5_000, "pairs, one source for each orbit, that the linear program over paths takes"
    )
    rounds: int = setting(80, "rounds of pricing paths, at most; each solves a linear program")
    roofs: tuple[Fraction, ...] = setting(
        tuple(Fraction(x, 100) for x in (100, 103, 110, 125, 150)),
        "times, in terms of the least one, that flows of least α must fit into, ascending",
    )
    steps: int = setting(
        24, "parts of the best rate's time to which the room of resources is rounded down"
    )
    copy_ranks: int = setting(
        16,
        "ranks up to which copies are searched in epochs; with symmetry, that none moves to "
        "another",
    )
    symmetric_ranks: int = setting(64, "the same with symmetry, in all")
    cuts: tuple[int, ...] = setting(
        (1, 2, 4), "pieces that copied units are cut into where nothing says how many"
    )
    least_steps: int = setting(500_000, "steps of work of the cuts that are tried, at least")
    first_share: float = share(0.2, "part of the work for the first answer of a cut")
    first_turns: int = setting(100, "turns without a gain that end the first answer")
    most_starts: int = setting(20_000, "binaries of a program in epochs that is tried")
    good_starts: int = setting(
        6_000, "binaries up to which epochs are made finer, so that their rounding loses less"
    )
    start_steps: int = setting(
        150, "steps of work to build a program in epochs and hand it over, for each of its binaries"
    )
    epoch_parts: int = setting(4, "largest divisor by which an epoch is made from a duration")
    most_peer_sets: int = setting(
        SKETCHED_EFFORT.most_peer_sets, "for copies under a sketch, as in sketched"
    )


FLOW_EFFORT = FlowEffort()
"""The usual one."""

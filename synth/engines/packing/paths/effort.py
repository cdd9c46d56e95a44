"""Limits of the search for paths."""

from __future__ import annotations

from dataclasses import field
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass

from ....base.effort import Effort, setting


@dataclass(frozen=True, slots=True)
class PathEffort(Effort):
    """Limits of the search for paths and for messages in rounds."""

    latency_weight: float = setting(
        0.3,
        "what a detour of mean α costs, in terms of a full resource, while pairs are re-routed",
    )
    compromise: Fraction = field(
        default=Fraction(5, 4),
        metadata={"doc": "paths of less α may take this many times the best rate's time"},
    )
    small: int = setting(1500, "pairs that a linear program takes at once")
    large: int = setting(20_000, "pairs that a linear program takes at all; memory grows with it")
    crowded: float = setting(
        0.9,
        "resources loaded by more than this part of their room are split in a second try",
    )
    better: Fraction = field(
        default=Fraction(9, 10),
        metadata={"doc": "equal parts aim at this part of the time of whole paths"},
    )
    nearly: Fraction = field(
        default=Fraction(201, 200),
        metadata={"doc": "the time that prices prove is aimed at, times this for slack"},
    )
    misses: tuple[Fraction, ...] = field(
        default=tuple(Fraction(x, 1000) for x in (1005, 1010, 1020, 1030)),
        metadata={
            "doc": "times, in terms of the best rate's, that whole paths of very many pairs may "
            "take instead, ascending: a linear program over all of them takes longer"
        },
    )
    settling: tuple[float, ...] = setting(
        (40, 100, 200, 300, 400, 500, 600, 700),
        "steepness of prices, ascending, with which chunks change to other trees of a flow",
    )
    least_settling: int = setting(3, "how many of these turns are made whatever work is left")
    missed: Fraction = field(
        default=Fraction(102, 100),
        metadata={"doc": "the same for paths that are made of a known flow: not tried to mend"},
    )
    few_parts: int = setting(
        12,
        "common denominators beyond this are worth looking for a smaller one",
    )
    parts: tuple[int, ...] = setting((2, 3, 4, 5, 6, 8), "numbers of equal parts that are tried")
    reroutes: int = setting(60, "rounds of re-routing, at most")
    stale: int = setting(12, "rounds without progress that end the re-routing")
    rounds: int = setting(80, "rounds of pricing paths, at most; each solves a linear program")
    later_rounds: int = setting(6, "rounds of pricing for α, once the best rate is known")
    copies: int = setting(
        3, "variants of each missing path that are added, with prices that differ by noise"
    )
    noise: float = setting(0.05, "part of a price by which it differs at random in these variants")
    phases: int = setting(60, "phases of multiplicative weights, where the best rate is not known")
    kept_phases: int = setting(5, "last phases whose paths are kept: a program over more is slow")
    steepness: tuple[float, float] = setting(
        (4.0, 40.0),
        "how fast prices grow with congestion in the first phase and in the last",
    )
    pieces: tuple[int, ...] = setting(
        (1, 2, 3, 4, 6, 8),
        "numbers of equal cuts of a chunk that may make a whole number of rounds, ascending",
    )
    rounded: Fraction = field(
        default=Fraction(101, 100),
        metadata={"doc": "a whole number of rounds may take this many times the packing's time"},
    )
    worth: Fraction = field(
        default=Fraction(11, 10),
        metadata={"doc": "rounds that take this many times the packing's time do not win"},
    )
    most_messages: int = setting(5_000, "messages up to which rounds are made")
    most_ways: int = setting(16, "paths of one pair that are looked at")
    tries: int = setting(4, "colourings, each from other random numbers")
    route_steps: int = setting(200, "steps for each message and try in which only ways change")
    move_steps: int = setting(
        1_000,
        "steps for each message and try in which rounds change as well",
    )
    tenure: int = setting(
        10, "steps for which a message does not return to a round and way, and as many by chance"
    )
    most_work: int = setting(100_000_000, "steps of one try times the choices of each, at most")


PATH_EFFORT = PathEffort()
"""Default limits."""

"""Limits of the search for paths."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class PathEffort:
    """Limits of the search for paths and for messages in rounds.

    Options:
        latency_weight: what a detour of mean α costs, in terms of a full row, while pairs are
            re-routed.
        compromise: paths of less α may take this many times the best rate's time.
        small: pairs that a linear program takes at once.
        large: pairs that it takes at all; memory grows with it.
        crowded: rows loaded by more than this part of their room are split in a second try.
        better: equal parts aim at this part of the time of whole paths.
        nearly: the time that prices prove is aimed at with so much slack.
        few_parts: common denominators beyond this are worth looking for a smaller one.
        parts: numbers of equal parts that are tried.
        reroutes: rounds of re-routing, at most.
        stale: rounds without progress that end it.
        rounds: of pricing paths, at most; each solves a linear program.
        later_rounds: of pricing for α, once the rate is settled.
        copies: of each path that is missing, with prices that differ by ``noise``.
        noise: part of a price.
        phases: of multiplicative weights, where nobody knows the best rate.
        kept_phases: whose paths are kept: a program over more is slow.
        steepness: how fast prices grow with congestion in the first phase and in the last.
        pieces: numbers of equal cuts of a chunk that may make a whole number of rounds, ascending.
        rounded: a whole number of rounds may take this many times the packing's time.
        worth: rounds that take this many times the packing's time do not win.
        most_messages: that are put in rounds.
        most_ways: of one pair that are looked at.
        tries: colourings, each from other random numbers.
        route_steps, move_steps: for each message and try: ways alone, then rounds as well.
        most_work: steps · choices of each, of one try.
    """

    latency_weight: float = 0.3
    compromise: Fraction = Fraction(5, 4)
    small: int = 1500
    large: int = 20_000
    crowded: float = 0.9
    better: Fraction = Fraction(9, 10)
    nearly: Fraction = Fraction(201, 200)
    few_parts: int = 12
    parts: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    reroutes: int = 60
    stale: int = 12
    rounds: int = 80
    later_rounds: int = 6
    copies: int = 3
    noise: float = 0.05
    phases: int = 60
    kept_phases: int = 5
    steepness: tuple[float, float] = (4.0, 40.0)
    pieces: tuple[int, ...] = (1, 2, 3, 4, 6, 8)
    rounded: Fraction = Fraction(101, 100)
    worth: Fraction = Fraction(11, 10)
    most_messages: int = 5_000
    most_ways: int = 16
    tries: int = 4
    route_steps: int = 200
    move_steps: int = 1_000
    most_work: int = 100_000_000


PATH_EFFORT = PathEffort()
"""The usual one."""

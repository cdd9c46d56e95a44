"""Limits of the search for trees."""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from ....base.effort import Effort, setting, share


@dataclass(frozen=True, slots=True)
class TreeEffort(Effort):
    """Limits of the search for trees; a step of work looks at one arc, link or rank."""

    phases: int = setting(
        15,
        "times that multiplicative weights serve the demand at first; time grows with it",
    )
    steps: int = setting(
        16,
        "trees of all roots together that serve it once, at least: few roots take small steps",
    )
    detour: int = setting(
        4, "links that a route may have more than the shortest one between the farthest GPUs"
    )
    first_work: int = setting(
        200_000_000,
        "steps of growing the first trees, about; fewer phases where it would be more",
    )
    first_part: float = share(
        0.25,
        "the part of the first trees after which it is seen whether they suffice",
    )
    steepness: float = setting(
        8.0,
        "how fast the price of a resource grows with its congestion meanwhile",
    )
    rounds: int = setting(60, "pricing rounds, at most; each solves a linear program")
    variants: int = setting(
        24,
        "trees that a pricing round grows, about; few roots are priced with noise, several times",
    )
    hopeless: float = setting(
        2.0,
        "trees so low that they take this many times the bound are not improved",
    )
    reweightings: int = setting(10, "programs solved to find a sparse answer")
    large: int = setting(
        300_000,
        "entries (trees times resource orbits) of a program that is not solved again and again",
    )
    run: int = setting(
        1_500_000,
        "steps of one run of ripping up equal trees, about: rounds are cut to fit",
    )
    least_rounds: int = setting(
        6,
        "rounds of ripping up, at least: machines that cannot afford them get no equal trees",
    )
    most_rounds: int = setting(60, "rounds of ripping up, at most")
    first_steepness: tuple[float, ...] = setting(
        (3.0, 10.0, 20.0),
        "steepness of the prices in the first round of each run; which one works depends on the "
        "machine",
    )
    last_steepness: tuple[float, ...] = setting(
        (15.0, 60.0, 200.0),
        "steepness of the prices in the last round of each run",
    )
    slacks: tuple[float, ...] = setting(
        (0.002, 0.015, 0.03),
        "parts of the rate given up for fewer trees",
    )
    useful: float = setting(3.0, "lower trees are kept up to this many times the best time")
    equal: int = setting(
        4,
        "equal trees per root are tried up to this number, and at the number that fits the bound",
    )
    most_equal: int = setting(8, "the largest number of equal trees per root that is tried")
    fits: float = setting(
        0.003,
        "part of the time that more than equal trees per root, up to most_equal, must promise to "
        "save to be tried",
    )
    taller: tuple[int, ...] = setting(
        (0, 1, 4),
        "hops that equal trees may have more than those of the best rate",
    )
    one_way: int = setting(
        256,
        "ranks from which trees of an allgather, climbed by the sums first, are tried for "
        "an allreduce before trees of both directions together, if no symmetry makes all ranks "
        "equal",
    )
    alone_ranks: int = setting(64, "ranks up to which limits are also kept without symmetry")
    alone_trees: int = setting(
        2,
        "equal trees per root up to which limits are also kept without symmetry",
    )
    alone_rounds: int = setting(120, "rounds of ripping up where limits are kept without symmetry")


TREE_EFFORT = TreeEffort()
"""Default limits."""

"""Table of the classic algorithms for ``weft list algorithms``: ranks, costs, sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.synth.engines.classic.hierarchical import Hierarchical
from weft.synth.engines.classic.in_network import InNetwork
from weft.synth.engines.classic.lanes import Laned, LaneStructure
from weft.synth.engines.classic.model import Flat
from weft.synth.engines.classic.place import ClassicAlgorithm, all_algorithms

from ...report.report import shown
from ..flags.values import LIMITS

BOXES = (4, 2)

LANED_ON = {LaneStructure.RINGS: "several rings", LaneStructure.RAILS: "even boxes"}
"""Machines of the algorithms in lanes."""

LEVELS_ON = {
    "torus": "a torus",
    "product": "a product",
    "grid": "even levels",
    "boxes": "even boxes",
    "levels": "boxes",
}
"""Machines of the hierarchical algorithms."""

SIZES = range(2, 65)


def entries() -> list[dict[str, Any]]:
    """Return one object per algorithm and collective: name, ranks, steps, share of M, source.

    A share is the part of the message M on the busiest link; hierarchical algorithms have one
    number per level, innermost first.
    """
    return [_entry(one) for one in all_algorithms()]


def listing(found: Iterable[dict[str, Any]]) -> str:
    """Return the table, with a legend of its columns."""
    rows = [
        {**e, "steps": " + ".join(map(str, e["steps"])), "share": " + ".join(e["share"])}
        for e in found
    ]
    text = shown(
        rows,
        *(
            "name:name",
            "collective:collective",
            "ranks:ranks",
            f"steps ({LIMITS.example_ranks}):steps",
        ),
        *(f"share of M ({LIMITS.example_ranks}):share", "source:source"),
    )
    return (
        f"{text}\n\n"
        f"steps and share of M on the busiest link: on {LIMITS.example_ranks} ranks; per level, "
        f"innermost first, on {BOXES[1]} boxes of {BOXES[0]}; "
        f"rings: {LIMITS.example_lanes} of them\n"
        "weft compile 'classic:NAME{collective=…,ranks=…}', weft synth -e 'classic{algorithm=NAME}'"
    )


def _entry(one: ClassicAlgorithm) -> dict[str, Any]:
    if isinstance(one, Hierarchical):
        shape = BOXES
        costs = [*one.cost(shape)]
        ranks, levels = LEVELS_ON[str(one.structure)], list(shape)
    elif isinstance(one, InNetwork):
        levels = list(BOXES) if one.levels > 1 else [LIMITS.example_ranks]
        costs, ranks = [*one.cost(tuple(levels))], one.needs
    elif isinstance(one, Laned):
        costs = [one.cost(LIMITS.example_ranks, LIMITS.example_lanes)]
        ranks, levels = LANED_ON[one.structure], [LIMITS.example_ranks]
    else:
        costs = [one.cost(LIMITS.example_ranks)]
        ranks, levels = _ranks(one), [LIMITS.example_ranks]
    return {
        "name": one.name,
        "collective": str(one.kind),
        "ranks": ranks,
        "levels": levels,
        "steps": [cost.steps for cost in costs],
        "share": [str(cost.volume) for cost in costs],
        "pipelined": one.pipelined,
        "source": one.source,
    }


def _ranks(one: Flat) -> str:
    defined = {n for n in SIZES if not one.defined(n)}
    known_sets = {
        "any": set(SIZES),
        "from 3": set(SIZES) - {2},
        "even": {n for n in SIZES if n % 2 == 0},
        "powers of 2": {n for n in SIZES if n & (n - 1) == 0},
    }
    for words, numbers in known_sets.items():
        if defined == numbers:
            return words
    return ", ".join(map(str, sorted(defined)[:6])) + ", …"

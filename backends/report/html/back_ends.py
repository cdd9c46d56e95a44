"""Section of a page: which back end to use on a machine, and why."""

from __future__ import annotations

from weft.dsl.nouns.topology import Topology

from ..back_ends import advice
from .sheet import Facts


def back_end_section(topology: Topology) -> Facts:
    """Return the table of back ends that fit a machine, the best first."""
    fits = [one for one in advice(topology) if one.fits]
    return {
        "id": "backends",
        "title": "Which back end",
        "part": "table",
        "head": ["--to", "runtime", "for programs in", "why"],
        "rows": [
            [
                one.back_end.format,
                one.back_end.runtime,
                ", ".join(one.back_end.frameworks),
                one.why,
            ]
            for one in fits
        ],
        "after": "The first that fits your framework is the one to begin with.",
    }

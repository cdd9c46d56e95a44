"""The words of a proof: prices of the flow LP, refutation by search, and what is never reached."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from weft.dsl.topology import Topology

from ...engine import Certificate
from .flow_bound import FlowBound


def price_certificate(topology: Topology, flow: FlowBound) -> Certificate:
    """Prices per row and step: per step they cost one round at most, and a chunk cannot be
    delivered for less than ``rounds_per_chunk`` of them (weak duality; checked in integers)."""
    value = flow.rounds_per_chunk
    prices = {
        (int(row), int(step)): Fraction(int(flow.prices[row, step]), flow.denominator)
        for row, step in np.argwhere(flow.prices)
    }
    text = (
        f"{flow.steps}-step flow LP: at {len(prices)} prices on links and steps, whose capacity in "
        f"any step costs at most 1 per round, delivering a chunk per unit costs at least {value}; "
        f"so every schedule of {flow.steps} steps needs {value} rounds per chunk"
    )
    if flow.exact:
        text += " (attained by a fractional flow)"
    data = {
        "steps": flow.steps,
        "rounds_per_chunk": str(value),
        "prices": [[row, step + 1, str(p)] for (row, step), p in sorted(prices.items())],
    }
    return Certificate("lp", text, data)


def search_certificate(steps: int, rounds: int, chunks: int, relaxed: Certificate) -> Certificate:
    """All smaller numbers of rounds at this chunk count were refuted by an exhaustive search."""
    text = (
        f"exhaustive search: no schedule of {steps} steps with {chunks} chunks obeys the sketch in "
        f"fewer than {rounds} rounds (over any number of chunks: {relaxed.text})"
    )
    return Certificate("search", text, {"steps": steps, "rounds": rounds, "chunks": chunks})

"""The words of a proof: prices of the flow LP, refutation by search, and what is never reached."""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.nouns.topology import Topology

from ...base.engine import Certificate
from .flow_bound import FlowBound
from .orbits import Orbits


def price_certificate(
    topology: Topology, orbits: Orbits, flow: FlowBound, given: int
) -> Certificate:
    """Prices per row and step: per step they cost one round at most, and a chunk cannot be
    delivered for less than ``rounds_per_chunk`` of them (weak duality; checked in integers). The
    collective as given has ``given`` chunks per unit of the plain one."""
    value = flow.rounds_per_chunk / given
    prices = [
        [_row_name(topology, row), step + 1, str(Fraction(int(price), flow.denominator))]
        for row, orbit in enumerate(orbits.row_orbit.tolist())
        for step, price in enumerate(flow.prices[orbit].tolist())
        if price
    ]
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
        "prices": prices,
    }
    return Certificate("lp", text, data)


def search_certificate(steps: int, rounds: int, chunks: int, relaxed: Certificate) -> Certificate:
    """All smaller numbers of rounds at this chunk count were refuted by an exhaustive search."""
    text = (
        f"exhaustive search: no schedule of {steps} steps with {chunks} chunks takes "
        f"fewer than {rounds} rounds (over any number of chunks: {relaxed.text})"
    )
    return Certificate("search", text, {"steps": steps, "rounds": rounds, "chunks": chunks})


def _row_name(topology: Topology, row: int) -> str:
    """A link by its ends, a shared resource by its name."""
    if row >= len(topology.links):
        return topology.resources[row - len(topology.links)].name
    one = topology.links[row]
    return f"{topology.nodes[one.src].name} -> {topology.nodes[one.dst].name}"

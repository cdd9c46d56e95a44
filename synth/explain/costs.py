"""Cost of the rules of a sketch: the least time under all of them, and without each."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.sketch import Chunks, Rule, Sketch
from weft.dsl.nouns.topology import Hop, Topology

from ..base.engine import Certificate
from ..bounds import binding, bounds
from ..bounds.whole_chunks import ROUTES_LEFT, left_out, ruled_cut, whole_chunk_bound
from ..fabric.hop_table import hop_table_of
from .conflicts import Unit, statements
from .feasibility import Feasibility


@dataclass(frozen=True, slots=True)
class Least:
    """A lower bound: no schedule takes less than ``us`` µs, and the proof."""

    us: Fraction
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class StatementCost:
    """A statement of a sketch, and the bound without it."""

    unit: Unit
    without: Least


@dataclass(frozen=True, slots=True)
class SketchCosts:
    """The bound of a message of ``bytes`` under all rules, under none, and without each statement,
    the dearest first."""

    bytes: int
    all_rules: Least
    no_rules: Least
    each: tuple[StatementCost, ...]


def costs(
    topology: Topology, collective: Collective, sketch: Sketch, message_bytes: int
) -> SketchCosts:
    """Return the bounds of a feasible sketch: one per statement, one for all and one for none.

    Raises:
        UserError: it leaves some chunk none, or is too large to be looked at chunk by chunk.
    """
    feasible = Feasibility(topology, collective)
    rules = sketch.at(message_bytes).rules
    if why := feasible.obstacle(rules):
        raise UserError(f"no schedule obeys the sketch: {why}")

    def least(left: Sequence[Rule]) -> Least:
        return least_time(feasible, left, message_bytes)

    each = []
    for unit in statements(rules):
        left = [rule for rule in rules if not any(rule is x for x in unit)]
        each.append(StatementCost(unit, least(left)))
    each.sort(key=lambda cost: cost.without.us)
    return SketchCosts(message_bytes, least(rules), least(()), tuple(each))


def least_time(feasible: Feasibility, rules: Sequence[Rule], message_bytes: int) -> Least:
    """The best bound on the links that the rules leave: those of any cutting, that of the α on the
    ways they leave, and where they say how units are cut that of whole chunks."""
    topology, collective = feasible.topology, feasible.collective
    hops, usable = usable_hops(feasible, rules)
    beyond = left_out(topology)
    machine = topology
    if ROUTES_LEFT not in beyond:
        machine = _without_unused(topology, hops, np.asarray(usable.any(axis=0)))
    found = [binding(bounds(machine, collective), message_bytes)]
    alpha, source, target = feasible.alpha(rules)
    text = f"what starts on rank {source} needs {float(alpha):g} µs of α to come to rank {target}"
    found.append((alpha, Certificate("path", text)))
    if not collective.combining and ROUTES_LEFT not in beyond:
        found.append(ruled_cut(topology, collective, hops, usable, message_bytes))
    counts = [r.count for r in rules if isinstance(r, Chunks)]
    if counts and not collective.combining and not beyond:
        chunks = collective.split(counts[0]) if counts[0] > 1 else collective
        grain = Fraction(message_bytes, chunks.message_chunks)
        whole = whole_chunk_bound(topology, chunks, grain, usable.repeat(counts[0], axis=0))
        found.append((whole.us, whole.certificate))
    us, certificate = max(found, key=lambda x: x[0])
    return Least(us, certificate)


def usable_hops(feasible: Feasibility, rules: Sequence[Rule]) -> tuple[tuple[Hop, ...], Bools]:
    """Return the hops of :func:`hop_table_of`, and those each chunk may take: (chunks, hops)."""
    hops = tuple(hop_table_of(feasible.topology, Fraction(1)).each_hop())
    sketch = Sketch("", tuple(rules))
    pairs = feasible.pairs(rules)[:, [h.src for h in hops], [h.dst for h in hops]]
    usable: Bools = pairs & np.array([sketch.allows(h) for h in hops], bool)
    return hops, usable


def _without_unused(topology: Topology, hops: tuple[Hop, ...], usable: Bools) -> Topology:
    """The machine without the links that are used only by hops that no chunk may take."""

    def links(which: Bools) -> set[int]:
        return {i for hop, ok in zip(hops, which, strict=True) if ok for i in hop.route}

    dead = links(~usable) - links(usable)
    return topology.without_links(dead) if dead else topology

"""Several cuts together: where links share resources, no single cut gives the best bound.

Let x_e be what link e carries. Every cut S needs x(links out of S) >= the chunks that must leave
S, and T >= load / bandwidth of every link and resource. With weights w_S on cuts and prices p on
links and resources such that on every link the weights of the cuts it leaves are at most its
price, T >= sum of w_S · chunks(S) / sum of p · bandwidth: a single cut is the case of one weight.

The best mix is a linear program over all cuts, found by adding those that max-flows on x violate
(the LP form of Edmonds' branching theorem, which also says that the value is attained where
all ranks want all chunks and no node only forwards).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.matrix import SparseMatrix
from weft.dsl.base.tables import count, rounded
from weft.dsl.nouns.topology import Topology

from ..base.meter import Meter
from ..fabric.fabric import as_small_integers, fabric_of
from ..lp.certified import Certified, LinearProgram, certified_minimum
from .cut import CutFinder, NodeCut, Supply
from .demand import ClassDemand
from .effort import BoundEffort
from .network import Network, network
from .words import BandwidthBound, carried, listed, names, price_words


@dataclass(frozen=True, eq=False)
class Mix:
    """Weighted cuts against prices of resources (links, then shared ones); all integers.

    ``complete``: no cut is violated by a rational load that attains ``time``.
    """

    cuts: tuple[NodeCut, ...]
    weights: tuple[int, ...]
    prices: tuple[tuple[int, int], ...]
    worth: Fraction
    complete: bool

    @property
    def needed(self) -> int:
        """Weighted chunks: weight times chunks that must leave, summed over the cuts."""
        return sum(w * c.chunks for w, c in zip(self.weights, self.cuts, strict=True))

    @property
    def time(self) -> Fraction:
        """Chunks per GB/s: times bytes per chunk / 1000 it is µs."""
        return self.needed / self.worth

    def bound(self, topology: Topology, message_chunks: int) -> BandwidthBound:
        """The bound of the mix, and its certificate."""
        cuts = [
            f"{w} times {count(c.chunks, 'chunk')} out of {names(topology, c.members)}"
            for w, c in zip(self.weights, self.cuts, strict=True)
        ]
        text = (
            f"Weigh cuts: {listed(cuts, '; ')}: {self.needed} (M is {message_chunks} chunks). "
            f"Price {price_words(topology, self.prices)}: no link leaves more weight of cuts than "
            "it costs, with the resources it uses; price times bandwidth adds up to "
            f"{rounded(self.worth)} GB/s"
        )
        data = {
            "cuts": [
                {"weight": w, "inside": c.members, "chunks": c.chunks}
                for w, c in zip(self.weights, self.cuts, strict=True)
            ],
            "prices": [list(x) for x in self.prices],
            "worth_GBps": str(self.worth),
        }
        return carried("cuts", text, self.needed, self.worth, message_chunks, data)

    def turned(self) -> Mix:
        """The same mix on the machine with all links reversed."""
        return replace(self, cuts=tuple(c.turned() for c in self.cuts))


def best_mix(
    topology: Topology, demand: ClassDemand, first: Sequence[NodeCut], effort: BoundEffort
) -> Mix | None:
    """The best mix of cuts, starting from some; None where it is too large or was not solved."""
    if len(topology.links) > effort.mix_links:
        return None
    finder = CutFinder.of(topology, demand.across)
    flow = network(replace(topology, resources=(), symmetries=()))
    cuts = {c.inside.tobytes(): c for c in first}
    size, _, exact = as_small_integers(topology.capacities())
    best: Mix | None = None
    for _ in range(effort.mix_rounds):
        chosen = tuple(cuts.values())
        try:
            answer = _solve(topology, chosen, size, effort.program_meter())
        except WeftError:
            return best
        new = [c for c in _violated(flow, demand, finder, answer) if c.inside.tobytes() not in cuts]
        mix = _mix(topology, chosen, answer, complete=exact and not new and answer.exact)
        if mix is not None and (best is None or mix.time >= best.time):
            best = mix
        if not new:
            return best
        cuts |= {c.inside.tobytes(): c for c in new}
    return best


def _solve(topology: Topology, cuts: tuple[NodeCut, ...], size: Ints, meter: Meter) -> Certified:
    """Least T for loads that meet the cuts. Columns: load of each link, then T."""
    last = len(topology.links)
    row, link = fabric_of(topology).pairs
    cut_row = np.repeat(np.arange(len(cuts)), [len(c.crossing.links) for c in cuts]) + len(size)
    cut_link = np.concatenate([np.array(c.crossing.links, np.int64) for c in cuts])
    ones = np.ones(len(link), np.int64)
    a_ub = SparseMatrix.of(
        (len(size) + len(cuts), last + 1),
        np.concatenate([row, np.arange(len(size)), cut_row]),
        np.concatenate([link, np.full(len(size), last), cut_link]),
        np.concatenate([ones, -size, -np.ones(len(cut_link), np.int64)]),
    )
    right = np.concatenate([np.zeros(len(size), np.int64), -np.array([c.chunks for c in cuts])])
    cost = np.zeros(last + 1, np.int64)
    cost[last] = 1
    return certified_minimum(LinearProgram(cost, a_ub, right), meter=meter)


def _violated(
    flow: Network, demand: ClassDemand, finder: CutFinder, answer: Certified
) -> list[NodeCut]:
    """For each destination a cut that the loads do not meet, exactly where they are rational.

    ``flow``: the network of the links alone.
    """
    scale = answer.x_denominator if answer.x_numerators is not None else 1 << 30
    loads = answer.x_numerators
    if loads is None:
        loads = np.ceil(answer.x * scale).astype(np.int64)
    net = replace(flow, size=loads[:-1].copy(), unit=Fraction(1, scale))
    supply = Supply(net, demand)
    sides = [supply.shortfall(int(v)) for v in demand.sinks()]
    found = [finder.cut(side) for side in sides if side is not None]
    return [c for c in found if c is not None]


def _mix(
    topology: Topology, cuts: tuple[NodeCut, ...], answer: Certified, *, complete: bool
) -> Mix | None:
    """Weights and prices from the dual; links are priced up to what the weights need."""
    fabric = fabric_of(topology)
    weights = [int(w) for w in -answer.dual_ub[fabric.resources :]]
    paid = np.array([int(p) for p in -answer.dual_ub[: fabric.resources]], dtype=object)
    row, link = fabric.pairs
    offered = np.zeros(fabric.links, dtype=object)
    np.add.at(offered, link, paid[row])
    for weight, cut in zip(weights, cuts, strict=True):
        offered[list(cut.crossing.links)] -= weight
    paid[: len(offered)] -= np.minimum(offered, 0)
    worth = sum((int(p) * b for p, b in zip(paid, fabric.bandwidth, strict=True) if p), Fraction(0))
    if not worth:
        return None
    used = [(w, c) for w, c in zip(weights, cuts, strict=True) if w]
    prices = tuple((i, int(p)) for i, p in enumerate(paid) if p)
    return Mix(tuple(c for _, c in used), tuple(w for w, _ in used), prices, worth, complete)

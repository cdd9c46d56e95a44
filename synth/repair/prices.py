"""Congestion prices for repairs: the load of every resource, and the price of one more chunk."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import Fabric, fabric_of


@dataclass(slots=True, eq=False)
class CongestionPrices:
    """Load of every resource of the machine, and prices of links derived from it.

    ``out`` and ``back`` list, for each node, the links that leave and enter it, with their other
    ends. ``load`` is µs on each resource of ``fabric`` for the whole message,
    ``per_grain`` the µs that a grain adds; ``busiest`` is the largest load at the start, in µs.
    ``idle`` is the least price of a link, as a part of ``busiest``; ``hop`` the factor on α in the
    price, without unit: large values give trees of small depth.
    """

    topology: Topology
    fabric: Fabric
    out: list[list[tuple[int, int]]]
    back: list[list[tuple[int, int]]]
    per_grain: list[float]
    load: list[float]
    alpha: list[float]
    busiest: float
    idle: float
    hop: float = 1.0

    @staticmethod
    def of(
        topology: Topology, schedule: Schedule, moved: Ints, kept: Bools, size: int, idle: float
    ) -> CongestionPrices:
        """Loaded with some transfers of a schedule, of which nothing is dead."""
        fabric = fabric_of(topology)
        lengths = np.diff(schedule.route_start)
        flat = np.repeat(kept, lengths)
        grains = np.repeat(schedule.collective.grains[schedule.chunk], lengths)[flat]
        carried = np.bincount(moved[flat], weights=grains, minlength=fabric.links)
        row, at = fabric.pairs
        grain_bytes = size / schedule.collective.message_chunks
        per_grain = grain_bytes / (fabric.GBps * BYTES_PER_US_PER_GBPS)
        load = np.bincount(row, weights=carried[at], minlength=fabric.resources) * per_grain
        busiest = max(float(load.max(initial=0.0)), float(per_grain.max(initial=0.0)))
        alpha = [float(x) for x in fabric.latency]
        out, back = _beside(fabric.leaving, fabric.dst), _beside(fabric.entering, fabric.src)
        return CongestionPrices(
            topology,
            fabric,
            out,
            back,
            per_grain.tolist(),
            load.tolist(),
            alpha,
            busiest,
            idle,
        )

    def price(self, link: int, grains: float) -> float:
        """Return the price of a link in µs: its α, plus the square of its largest load with
        ``grains`` more over the largest load at the start, so that loads spread."""
        worst = max(self.load[r] + grains * self.per_grain[r] for r in self.fabric.loaded[link])
        return self.hop * self.alpha[link] + worst * worst / self.busiest + self.idle * self.busiest

    def take(self, route: Iterable[int], grains: float) -> None:
        """Add the load of ``grains`` to the resources of a route."""
        for link in route:
            for row in self.fabric.loaded[link]:
                self.load[row] += grains * self.per_grain[row]

    def delay(self, route: Iterable[int]) -> float:
        """Return the price of the α of a route, in µs."""
        return self.hop * sum(self.alpha[link] for link in route)


def _beside(links: tuple[Ints, Ints], ends: Ints) -> list[list[tuple[int, int]]]:
    """(Link, other end) for the links of each node; ``links`` as :attr:`.Fabric.leaving`."""
    first, order = (column.tolist() for column in links)
    far = ends.tolist()
    return [[(i, far[i]) for i in order[a:b]] for a, b in pairwise(first)]

"""Times of the collectives of a workload on a machine: alone, in turn, by own routes, together.

What everything else about workloads reads: :func:`collective_times` has the time of each operation
alone and its load per resource, of its own routes and in the joint solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.topology import Topology

from ..fabric.fabric import fabric_of
from ..fabric.occupancy import resource_name
from .bound import JointBound, joint_bound
from .demands import CollectiveDemand


@dataclass(frozen=True, eq=False)
class ClassTimes:
    """One class: the collectives of it, by index, their least time in µs without the others, and
    the bound that says so."""

    name: str
    which: tuple[int, ...]
    alone: JointBound

    @property
    def alone_us(self) -> Fraction:
        """Return the proved least time of the class alone, in µs."""
        return self.alone.us


@dataclass(frozen=True, eq=False)
class CollectiveTimes:
    """Times of several collectives."""

    topology: Topology
    joint: JointBound  # all of them together, at best
    classes: tuple[ClassTimes, ...]  # each class alone
    # Bytes of each demand on each resource where each class has its own routes: those of its least
    # time, and of these the shortest
    own_loads: Floats
    sentence: str  # the binding resources

    @property
    def demands(self) -> tuple[CollectiveDemand, ...]:
        """Return the demands, in the order of ``own_loads``."""
        return self.joint.demands

    @property
    def sequence_us(self) -> Fraction:
        """Return the time of one class after another, each at its best."""
        return sum((one.alone_us for one in self.classes), Fraction(0))

    @property
    def together_us(self) -> float:
        """Return the time of all at once, each class by its own routes."""
        return float(self.occupied(self.own_loads.sum(axis=0)).max(initial=0.0))

    def occupied(self, loads: Floats) -> Floats:
        """Return the µs for which loads in bytes occupy each resource; the last axis is theirs."""
        found: Floats = loads / (fabric_of(self.topology).GBps * 1000.0)
        return found

    def resource_us(self, k: int) -> dict[str, Fraction]:
        """Return the µs for which a collective occupies each resource by its own routes, by name.

        To a thousandth of a µs; resources that it does not use are left out.
        """
        busy = self.occupied(self.own_loads[k])
        return {
            resource_name(self.topology, row): Fraction(round(float(busy[row]) * 1000), 1000)
            for row in np.flatnonzero(busy > 5e-4).tolist()
        }

    def gains(self) -> str:
        """Return the gain of overlap and joint routing, in words."""
        value = self.joint.value_us
        overlap = float(self.sequence_us) / self.together_us
        routing = self.together_us / value
        text = f"overlap ×{overlap:.2f}, joint routing ×{routing:.2f}"
        if routing < 1.005 and len(self.classes) > 1:
            text += ": own routes are as good as any"
        return text


def collective_times(topology: Topology, demands: Sequence[CollectiveDemand]) -> CollectiveTimes:
    """Return the times of some collectives that start together.

    Raises:
        UserError: nothing is to be moved, or a rank is not reached.
    """
    joint = joint_bound(topology, demands)
    names: dict[str, list[int]] = {}
    for k, one in enumerate(demands):
        if one.parts:
            names.setdefault(one.operation.class_name, []).append(k)
    own = np.zeros_like(joint.loads)
    classes = []
    for name, which in names.items():
        if len(names) == 1:
            alone = joint
        else:
            alone = joint_bound(topology, [demands[k] for k in which])
        own[which] = alone.loads if len(names) > 1 else joint.loads[which]
        classes.append(ClassTimes(name, tuple(which), alone))
    sentence = binding_sentence(topology, joint)
    return CollectiveTimes(topology, joint, tuple(classes), own, sentence)


# --- the resources that bind ----------------------------------------------------------------------


def binding_sentence(topology: Topology, bound: JointBound) -> str:
    """Return a sentence such as ``NIC-out: (8 × 600 + 2,400) MB / 800 GB/s``.

    Every link of the named kind counts at its price; the numerator has a term for each class: the
    number of collectives that cost the same, and the bytes that each must bring over such links.
    """
    least = min(p for p in bound.prices if p)
    terms = []
    costs: dict[tuple[str, Fraction], int] = {}
    for one, cost in zip(bound.demands, bound.proof.costs, strict=True):
        key = (one.operation.class_name, cost / least)
        costs[key] = costs.get(key, 0) + 1
    for (_, cost), count in costs.items():
        if cost:
            amount = rounded(cost / 10**6, 4)
            terms.append(amount if count == 1 else f"{count} × {amount}")
    where = " and ".join(_places(topology, bound, least))
    total = " + ".join(terms)
    numerator = f"({total})" if len(terms) > 1 else total
    return f"{where}: {numerator} MB / {rounded(bound.proof.worth / least)} GB/s"


def _places(topology: Topology, bound: JointBound, least: int, named: int = 3) -> list[str]:
    """Return the kinds of priced links, each with its number and its price if that is not 1.

    At most ``named`` are named one by one.
    """
    kinds: Counter[tuple[str, Fraction]] = Counter()
    example: dict[tuple[str, Fraction], list[int]] = {}
    for row, price in enumerate(bound.prices):
        if price:
            key = (_kind(topology, row), Fraction(price, least))
            kinds[key] += 1
            example.setdefault(key, []).append(row)
    found = []
    for key, count in kinds.most_common():
        kind, each = key
        if count <= named and len(kinds) <= named:
            text = ", ".join(resource_name(topology, row) for row in example[key])
        elif (
            each == 1
            and len(kinds) == 1
            and count == sum(_kind(topology, row) == kind for row in range(len(bound.prices)))
        ):
            text = kind
        else:
            text = f"{count} × {kind}"
        found.append(text if each == 1 else f"{text} at price {rounded(each)}")
    return found


def _kind(topology: Topology, row: int) -> str:
    """Return a resource's kind: ``NIC-out`` leaves a host, ``port-in`` enters from a switch."""
    if row >= len(topology.links):
        links = topology.resources[row - len(topology.links)].links
        return f"shared {_kind(topology, links[0])}"
    one = topology.links[row]
    src, dst = topology.nodes[one.src], topology.nodes[one.dst]
    if src.stores and dst.stores:
        return "link" if src.host == dst.host else "link between hosts"
    inside = src.host is not None and src.host == dst.host
    what = "port" if inside else "NIC"
    return f"{what}-out" if src.stores else f"{what}-in" if dst.stores else f"{what} of a switch"

"""What binds a joint bound, as a sentence: the priced links, and what each class costs there."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from weft.dsl.base.tables import rounded
from weft.dsl.nouns.topology import Topology

from ..fabric.occupancy import resource_name
from .bound import JointBound


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
        elif each == 1 and len(kinds) == 1 and count == _all_of(topology, kind):
            text = kind
        else:
            text = f"{count} × {kind}"
        found.append(text if each == 1 else f"{text} at price {rounded(each)}")
    return found


def _all_of(topology: Topology, kind: str) -> int:
    rows = len(topology.links) + len(topology.resources)
    return sum(_kind(topology, row) == kind for row in range(rows))


def _kind(topology: Topology, row: int) -> str:
    """Return what a resource is: ``NIC-out`` leaves a host, ``port-in`` enters from a switch."""
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

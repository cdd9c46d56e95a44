"""Bytes over every link and shared resource, compared with the bound."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Certificate

SHOWN = 40
"""Number of rows in the table; the others are only counted."""


@dataclass(frozen=True, eq=False)
class Loads:
    """Bytes of every link, then every shared resource, and the µs that they hold it."""

    topology: Topology
    moved: Floats
    busy_us: Floats


def load_facts(
    loads: Loads, time_us: float, bound_us: float, certificate: Certificate
) -> dict[str, Any]:
    """Return the busiest resources, and those of the bottleneck with their total.

    ``share``: of the time, how much a row is busy; ``at``: the bound, on the same scale.
    """
    binding = binding_rows(certificate)
    order = np.argsort(-loads.busy_us, kind="stable")
    used = [int(i) for i in order if loads.moved[i] > 0]
    capacity = loads.topology.capacities()
    rows = [
        {
            "row": i,
            "name": short_name(loads.topology, i),
            "GBps": float(capacity[i]),
            "shared": i >= len(loads.topology.links),
            "bytes": float(loads.moved[i]),
            "us": float(loads.busy_us[i]),
            "share": float(loads.busy_us[i]) / time_us if time_us else 0.0,
            "binds": i in binding,
        }
        for i in used[:SHOWN]
    ]
    return {
        "rows": rows,
        "more": max(0, len(used) - SHOWN),
        "unused": int((loads.moved[: len(loads.topology.links)] == 0).sum()),
        "links": len(loads.topology.links),
        "at": bound_us / time_us if time_us else 0.0,
        "bottleneck": _bottleneck(loads, binding, capacity),
    }


def _bottleneck(
    loads: Loads, binding: dict[int, Fraction], capacity: tuple[Fraction, ...]
) -> dict[str, Any] | None:
    """Return the total over the binding resources, each with its multiplier in the certificate."""
    if not binding:
        return None
    moved = sum(float(times) * float(loads.moved[i]) for i, times in binding.items())
    worth = float(sum((times * capacity[i] for i, times in binding.items()), Fraction(0)))
    return {"rows": len(binding), "bytes": moved, "GBps": worth, "us": moved / worth / 1000}


def binding_rows(certificate: Certificate) -> dict[int, Fraction]:
    """Return the resources of a certificate with their multipliers; none if it names none."""
    listed = certificate.data.get("cover") or certificate.data.get("prices") or []
    return {int(row): Fraction(times) for row, times in listed}


def row_order(topology: Topology) -> list[int]:
    """Return the order: links by source and destination, then shared resources."""
    links = sorted(
        range(len(topology.links)), key=lambda i: (topology.links[i].src, topology.links[i].dst, i)
    )
    return [*links, *range(len(links), len(links) + len(topology.resources))]


def short_name(topology: Topology, row: int) -> str:
    """Return ``gpu0 → gpu1`` or ``nic0``; parallel links and numbers are distinguished on the
    map."""
    if row >= len(topology.links):
        return topology.resources[row - len(topology.links)].name
    one = topology.links[row]
    return f"{topology.nodes[one.src].name} → {topology.nodes[one.dst].name}"

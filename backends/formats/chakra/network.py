"""Files that describe a machine to ASTRA-sim's analytical network: ``network.yml``, else links.

``network.yml`` names one ``Ring``, ``Switch`` or ``FullyConnected`` of equal links (one dimension,
as the congestion-aware back end takes). Other machines are written link by link, for a program that
builds the network with its library.
"""

from __future__ import annotations

from fractions import Fraction

from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.machines.confined import plain_machine
from weft.dsl.nouns.topology import Topology

from .rule import NS_PER_US

GIB_PER_S = (1 << 30) / 10**6 / BYTES_PER_US_PER_GBPS
"""GB/s in a "GB/s" of ASTRA-sim, which is 2^30 bytes a second."""

MEMORY = '{"memory-type": "NO_MEMORY_EXPANSION"}\n'
"""``memory.json``: no memory beside that of the ranks."""


def network_of(machine: Topology) -> str | None:
    """Return the kind of network that a machine is; None: one that ASTRA-sim cannot be told of.

    A ring of at least four ranks, all pairs, or one switch, each with equal links both ways.
    """
    n, ends = machine.ranks, sorted((link.src, link.dst) for link in machine.links)
    if len({(link.bandwidth, link.latency) for link in machine.links}) != 1 or machine.resources:
        return None
    if len(machine.nodes) == n + 1:
        star = sorted([(r, n) for r in range(n)] + [(n, r) for r in range(n)])
        return "Switch" if ends == star else None
    if ends == [(a, b) for a in range(n) for b in range(n) if a != b] and len(machine.nodes) == n:
        return "FullyConnected"
    around = {(r, (r + 1) % n) for r in range(n)}
    return "Ring" if ends == sorted(around | {(b, a) for a, b in around}) else None


def network_files(machine: Topology) -> dict[str, bytes]:
    """Return ``network.yml`` of a machine, or else the list of its links.

    The list has each link once: copies share a bandwidth, which it cannot express.
    """
    kind = network_of(machine)
    if kind is None:
        lines = ["link,src,dst,GiB_per_s,latency_ns"]
        lines += [
            f"{number},{link.src},{link.dst},{_speed(link.bandwidth)},{_ns(link.latency)}"
            for number, link in enumerate(plain_machine(machine).machine.links)
        ]
        return {".links.csv": ("\n".join(lines) + "\n").encode()}
    link = machine.links[0]
    text = (
        f"topology: [ {kind} ]\nnpus_count: [ {machine.ranks} ]\n"
        f"bandwidth: [ {_speed(link.bandwidth)} ]\nlatency: [ {_ns(link.latency)} ]\n"
    )
    return {".network.yml": text.encode()}


def _speed(bandwidth: Fraction) -> str:
    return f"{float(bandwidth) / GIB_PER_S:.12g}"


def _ns(latency: Fraction) -> str:
    return f"{float(latency) * NS_PER_US:.12g}"

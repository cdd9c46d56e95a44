"""Importer of msccl-tools' topologies in JSON (``msccl.serialization``, ``msccl_type``).

``links[dst][src]`` are the chunks that a link carries in a round; an entry of ``switches`` is
[sources, destinations, chunks, name]: what all links from the first to the second carry together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ..base.errors import BadFile
from ..base.files import Fields
from ..base.units import exact
from ..machines.families import BANDWIDTH
from ..machines.spec import MAX_GPUS, MAX_LINKS, MachineSpec
from ..nouns.topology import Link, Resource, Topology, gpu
from ..symmetry.symmetry import GUESSED, guess
from .generations import CABLE_ALPHA


def is_msccl_topology(data: Any) -> bool:
    """Return True for an object that says that it is a topology of msccl-tools."""
    return isinstance(data, dict) and data.get("msccl_type") == "topology"


def read_msccl_topology(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the parsed JSON.

    Options: ``bw=`` GB/s of one chunk a round; ``alpha=`` µs of every link.

    Raises:
        BadFile: not a square matrix of numbers, or a switch of unknown nodes.
    """
    fields = Fields(data, where)
    fields.get("msccl_type", str)
    rows, name = fields.get("links", list), fields.get("name", str)
    unit = options.bandwidth("bw", BANDWIDTH)
    alpha = options.microseconds("alpha", CABLE_ALPHA)
    gpus = len(rows)
    if not 0 < gpus <= MAX_GPUS or gpus**2 > MAX_LINKS:
        raise BadFile(f"links has {gpus} rows", where=where)
    if any(not isinstance(row, list) or len(row) != gpus for row in rows):
        raise BadFile(f"links is not a square of {gpus} rows and columns", where=where)
    links: list[Link] = []
    for dst, row in enumerate(rows):
        for src, chunks in enumerate(row):
            if many := _chunks(chunks, f"{where}: links[{dst}][{src}]"):
                lanes = int(many) if many.denominator == 1 else 1
                links.append(Link(src, dst, many * unit, alpha, lanes))
    places = {(x.src, x.dst): i for i, x in enumerate(links)}
    switches, of_nodes = fields.get("switches", list, []), range(gpus)
    shared = tuple(_switches(switches, places, unit, of_nodes, f"{where}: switches"))
    notes = (
        f"links[dst][src] of msccl-tools are chunks a round: one is {float(unit):g}GB/s (bw=), and "
        f"alpha is {float(alpha):g}us (alpha=)",
    )
    made = Topology(name[:200], tuple(map(gpu, range(gpus))), tuple(links), shared, notes=notes)
    return replace(made, symmetries=guess(made)) if gpus <= GUESSED else made


def _switches(
    data: list[Any],
    places: dict[tuple[int, int], int],
    unit: Fraction,
    nodes: range,
    where: str,
) -> Iterator[Resource]:
    """Yield what links share; switches may stand in lists of their own."""
    for number, one in enumerate(data):
        place = f"{where}[{number}]"
        if isinstance(one, list) and one and all(isinstance(x, list) and len(x) == 4 for x in one):
            yield from _switches(one, places, unit, nodes, place)
            continue
        if not isinstance(one, list) or len(one) != 4:
            raise BadFile("a switch is [sources, destinations, chunks, name]", where=place)
        sources, targets, chunks, name = one
        if not (isinstance(sources, list) and isinstance(targets, list)):
            raise BadFile("sources and destinations are lists of nodes", where=place)
        for node in (*sources, *targets):
            if type(node) is not int or node not in nodes:
                raise BadFile(f"{str(node)[:40]!r} is not a node below {len(nodes)}", where=place)
        ends = ((a, b) for a in sources for b in targets)
        if used := tuple(dict.fromkeys(places[end] for end in ends if end in places)):
            if not (many := _chunks(chunks, place)):
                raise BadFile("a switch carries 0 chunks", where=place)
            yield Resource(str(name)[:80], used, many * unit)


def _chunks(value: Any, where: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFile(f"{str(value)[:40]!r} is not a number of chunks", where=where)
    many = exact(value, where)
    if many < 0:
        raise BadFile(f"{float(many):g} chunks a round", where=where)
    return many

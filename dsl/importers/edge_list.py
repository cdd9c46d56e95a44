"""Importer of edge lists: JSON objects with ``edges`` and ``gpu_ids``.

An edge is [source, destination, GB/s, µs]; ``gpu_ids`` lists the nodes that are GPUs, in rank
order; every other node is a switch that only forwards. Other keys are ignored, ``topology`` or
``name`` is the name. With ``"parallel": true`` an edge may occur more than once. ``"switches":
{"NODE": ["multicast", "reduces", "turns", "issuer_in_group"]}`` lists the switches that do more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..base.errors import BadFile, UnknownName, UserError
from ..base.units import exact
from ..machines.spec import MAX_GPUS, MAX_LINKS, MachineSpec
from ..nouns.capabilities import as_fields, read_capabilities
from ..nouns.topology import Link, Node, NodeKind, Topology
from ..symmetry.symmetry import GUESSED, guess
from .generations import CABLE_ALPHA


def read_edge_list(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the parsed JSON of an edge list.

    Option ``entry=`` selects one of an object with several edge lists.

    Raises:
        BadFile: a malformed edge, a duplicate edge or GPU, no ``gpu_ids``.
        BadTopology: a bandwidth that is not positive, a self-loop.
    """
    data, where = _entry(data, where, options)
    ids = _names(data.get("gpu_ids"), where)
    places = {name: rank for rank, name in enumerate(ids)}
    links: list[Link] = []
    seen: dict[tuple[int, int], int] = {}
    notes: list[str] = []
    for i, (src, dst, bandwidth, alpha) in enumerate(_edges(data.get("edges"), where)):
        ends = (places.setdefault(src, len(places)), places.setdefault(dst, len(places)))
        if ends in seen and data.get("parallel") is not True:
            raise BadFile(
                f"edges {seen[ends]} and {i} both go from {src} to {dst}",
                where=where,
                hint='add their bandwidths, or write "parallel": true',
            )
        seen[ends] = i
        if alpha is None:
            alpha = CABLE_ALPHA
            notes = [f"alpha is not on every edge; assumed {float(CABLE_ALPHA)}us"]
        try:
            width, delay = exact(bandwidth, "bandwidth"), exact(alpha, "latency")
        except UserError as error:
            raise BadFile(error.message, where=f"{where}: edge {i}") from None
        links.append(Link(*ends, width, delay))
    able = _capable(data.get("switches"), places, len(ids), where)
    nodes = tuple(
        replace(node, **as_fields(able[i])) if i in able else node
        for i, node in enumerate(_nodes(places, len(ids)))
    )
    made = Topology(_name(data, options), nodes, tuple(links), notes=tuple(notes))
    return replace(made, symmetries=guess(made)) if made.ranks <= GUESSED else made


def _entry(data: Any, where: str, options: MachineSpec) -> tuple[dict[str, Any], str]:
    key, span = options.word("entry")
    if not isinstance(data, dict):
        raise BadFile("an object with edges and gpu_ids is expected", where=where)
    if not key:
        return data, where
    if not isinstance(data.get(key), dict):
        raise BadFile(f"{where} has no entry {key!r}", where=span)
    return data[key], f"{where}: {key}"


def _names(ids: Any, where: str) -> list[str]:
    if not isinstance(ids, list) or not ids:
        raise BadFile(
            "gpu_ids is missing", where=where, hint="list the nodes that are GPUs, in rank order"
        )
    if len(ids) > MAX_GPUS:
        raise BadFile(f"more than {MAX_GPUS} GPUs", where=where)
    names = [_node_name(x, f"{where}: gpu_ids") for x in ids]
    twice = sorted({name for name in names if names.count(name) > 1}) if _repeats(names) else []
    if twice:
        raise BadFile(f"GPU {twice[0]!r} is listed twice in gpu_ids", where=where)
    return names


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _edges(edges: Any, where: str) -> Iterator[tuple[str, str, Any, Any]]:
    if not isinstance(edges, list):
        raise BadFile("edges must be a list", where=where)
    if len(edges) > MAX_LINKS:
        raise BadFile(f"more than {MAX_LINKS} edges", where=where)
    for i, edge in enumerate(edges):
        place = f"{where}: edge {i}"
        if not isinstance(edge, list) or len(edge) not in (3, 4):
            raise BadFile("an edge is [source, destination, GB/s, µs]", where=place)
        src, dst = _node_name(edge[0], place), _node_name(edge[1], place)
        yield src, dst, edge[2], edge[3] if len(edge) == 4 else None


def _capable(data: Any, places: dict[str, int], gpus: int, where: str) -> dict[int, frozenset[str]]:
    """Return the capabilities of switches by node.

    Raises:
        BadFile: not an object, a GPU, or a node of no edge.
    """
    if data is None:
        return {}
    where = f"{where}: switches"
    if not isinstance(data, dict):
        raise BadFile('switches is an object: {"sw0": ["multicast", "reduces"]}', where=where)
    found = {}
    for name, words in data.items():
        if name not in places:
            others = [key for key, i in places.items() if i >= gpus]
            raise UnknownName("switch", name[:60], others, where=where)
        if places[name] < gpus:
            raise BadFile(
                f"{name} is a GPU", where=where, hint="only nodes that are not in gpu_ids compute"
            )
        found[places[name]] = read_capabilities(words, f"{where}: {name}")
    return found


def _node_name(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)) or len(str(value)) > 200:
        raise BadFile(f"a node is named by a string or a number, not {value!r}"[:120], where=where)
    return str(value)


def _nodes(places: dict[str, int], gpus: int) -> Iterator[Node]:
    numbers = {f"gpu{r}" for r in range(gpus)}
    for name, i in places.items():
        if i < gpus:
            yield Node(f"gpu{i}")
        else:
            yield Node(f"switch-{name}" if name in numbers else name, NodeKind.SWITCH)


def _name(data: dict[str, Any], options: MachineSpec) -> str:
    for key in ("topology", "name"):
        if isinstance(data.get(key), str):
            return str(data[key])[:200]
    return options.title()

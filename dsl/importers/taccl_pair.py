"""Machine from TACCL's topology and sketch together.

Hosts come from the topology file, and the sketch's connections between them are GPU-to-GPU links.
TACCL divides the NIC among all connections beforehand; here every connection may use the whole
NIC, which is a shared resource.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import floor

from ..base.errors import BadFile, BadTopology
from ..base.files import parse_json
from ..machines.hosts import Nics, connect, side_by_side, with_symmetries
from ..machines.spec import MachineSpec, check_size
from ..nouns.topology import Topology
from ..symmetry.symmetry import GUESSED, guess
from .taccl import TacclHost, notes_of, taccl_host
from .taccl_sketch import TacclSketch


def is_taccl_topology(text: str) -> bool:
    """Return True if a text is a TACCL topology, and so can be combined with a sketch."""
    start = text.lstrip("\ufeff \t\r\n")
    return start.startswith("{") and '"gpus_per_node"' in start and '"weft"' not in start


def read_pair(
    text: str, where: str, options: MachineSpec, sketch: TacclSketch, *, split: bool = False
) -> Topology:
    """Return the machine of the text of a topology file and a sketch.

    Options: ``chunk=``, ``unit=``, ``kind=``, and ``nodes=`` if it agrees with the sketch.
    With ``split``, NICs are divided statically among their connections, as in TACCL.

    Raises:
        BadFile: a bad topology file, or an unknown GPU. BadTopology: hosts without NICs.
    """
    found = taccl_host(parse_json(text, where), where, options)
    nodes = options.integer("nodes", sketch.nodes)
    if nodes != sketch.nodes:
        raise BadFile(
            f"the sketch is for {sketch.nodes} nodes, not for {nodes}",
            where=options.keys["nodes"],
            hint=f"leave nodes= out, or change nnodes in {sketch.where}",
        )
    check_size(options, nodes * found.host.gpus)
    sketch.check_ranks(found.host.gpus, found.name)
    return _connected(found, options, sketch, split=split)


def _connected(
    found: TacclHost, options: MachineSpec, sketch: TacclSketch, *, split: bool
) -> Topology:
    host, nodes = found.host, sketch.nodes
    inner = replace(side_by_side(host, options, nodes), name=found.name)
    notes: tuple[str, ...] = notes_of(found)
    if nodes == 1:
        return replace(with_symmetries(inner, host, 1), notes=notes)
    if host.nics is None:
        raise BadTopology(
            f"{found.name} has no NICs, so nothing joins its {nodes} nodes",
            where=sketch.where,
            hint="the topology needs nics_per_node, remote_alpha and remote_beta",
        )
    pairs = sketch.pairs(host.gpus)
    width = _split_width(found, host.nics, len(pairs)) if split else host.nics.bandwidth
    share = _ports(nodes) if split else _nics(host.nics, host.gpus)
    # The topology importer puts half of remote_alpha on either side of a network.
    joined = connect(inner, host, options, pairs, (width, 2 * host.nics.alpha), share)
    if found.kind == "custom" and joined.ranks <= GUESSED:
        joined = replace(joined, symmetries=guess(joined))
    notes += (f"between nodes there are the connections of the sketch {sketch.name}",)
    notes += _about_nics(len(pairs), len(host.nics.attach), split=split)
    return replace(joined, notes=notes)


def _about_nics(connections: int, nics: int, *, split: bool) -> tuple[str, ...]:
    if split:
        return ("each connection has its share of the NICs for good, as in TACCL",)
    if connections == nics:
        return ()
    less, more = sorted((connections, nics))
    pace = f"{Fraction(more, less)} times {'slower' if connections > nics else 'faster'}"
    return (
        f"connections from a node: {connections}, its NICs: {nics}; TACCL makes each connection "
        f"{pace} than a NIC, for good; here they share what a NIC has (--nic-split does as TACCL)",
    )


def _split_width(found: TacclHost, nics: Nics, connections: int) -> Fraction:
    """Return GB/s of one connection as in TACCL: the cost of a chunk in integer units."""
    split = Fraction(connections, len(nics.attach))
    beta = Fraction(floor(found.remote_beta * split))
    return found.scale.bandwidth(beta, f"{found.name}: remote_beta, split {split}-fold")


def _nics(nics: Nics, gpus: int) -> Callable[[int], str]:
    """Return the function from ranks to the names of their NICs."""
    slot = {g: i for i, served in enumerate(nics.attach) for g in served}
    return lambda rank: f"nic{rank // gpus}.{slot[rank % gpus]}"


def _ports(nodes: int) -> Callable[[int], str] | None:
    """Return the function from ranks to ports: TACCL serializes a GPU's remote messages."""
    return (lambda rank: f"gpu{rank}") if nodes > 2 else None

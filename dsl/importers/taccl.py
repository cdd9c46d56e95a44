"""Importer of TACCL's topology JSON: one host, its link costs per chunk, its NICs.

The file lacks units: a number is the cost of one chunk in a time unit of the author's choice. Both
follow from the names of the shipped files (``NDv2_1KB``: 1 KiB, 0.01 µs); others need ``chunk=``
and ``unit=``. Matrices are indexed [destination][source].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

from ..base.errors import BadFile, BadTopology
from ..base.files import Fields, parse_json
from ..base.lazy_dataclass import Frozen
from ..base.units import BYTES_PER_US_PER_GBPS, exact
from ..machines.host_file import load_host
from ..machines.hosts import (
    Cables,
    Host,
    HostSwitch,
    Nics,
    build,
    connect,
    side_by_side,
    with_symmetries,
)
from ..machines.spec import MAX_GPUS, MachineSpec, check_size
from ..nouns.topology import Topology
from ..symmetry.symmetry import GUESSED, Image, guess
from .taccl_sketch import TacclSketch

KINDS = ("ndv2", "dgx2", "hub", "custom")

_SHIPPED = {
    "1KB": (1 << 10, Fraction(1, 100)),
    "32KB": (32 << 10, Fraction(1, 10)),
    "1MB": (1 << 20, Fraction(1)),
}
"""Chunk in bytes and time unit in µs of the shipped files, by the end of their name."""

_SWITCH = {"dgx2": "nvswitch", "hub": "hub"}
"""Name of the switch of a host, as in the catalogue."""

Number = (int, float, str)


class FileUnits(Frozen):
    """Unit of the file's numbers."""

    chunk: int
    unit: Fraction

    def bandwidth(self, beta: Fraction, where: str) -> Fraction:
        """Return GB/s of a link that needs ``beta`` units for a chunk."""
        if beta <= 0:
            raise BadFile(f"β is {beta}, and must be positive", where=where)
        return self.chunk / (beta * self.unit * BYTES_PER_US_PER_GBPS)


class TacclHost(Frozen):
    """Description of one host by the file, and the unit of its numbers.

    ``remote_beta`` is the cost of a chunk on a NIC, in the time unit of the file.
    """

    name: str
    kind: str
    host: Host
    scale: FileUnits
    remote_beta: Fraction


def read_taccl(data: Any, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the parsed JSON of a TACCL topology file.

    Options: ``chunk=1MiB``, ``unit=1us``, ``kind=ndv2|dgx2|hub|custom``, and those of every host
    (``nodes=``, ``fabric=``, ``nics=`` …, :func:`weft.dsl.machines.hosts.build`).

    Raises:
        BadFile: a key missing, unknown, or of the wrong shape; no units. BadTopology: several
            hosts without a fabric.
    """
    found = taccl_host(data, where, options)
    made = build(found.host, options)
    if found.kind == "custom" and made.ranks <= GUESSED:
        made = replace(made, symmetries=guess(made))
    notes = list(notes_of(found))
    if made.hosts > 1:
        notes.append("remote_alpha is split between the two sides of the network")
    return replace(made, name=found.name, notes=tuple(notes))


def taccl_host(data: Any, where: str, options: MachineSpec) -> TacclHost:
    """Return one host from the parsed JSON; options ``chunk=``, ``unit=`` and ``kind=``.

    Raises:
        BadFile: a key missing, unknown, or of the wrong shape; no units.
    """
    fields = Fields(data, where)
    name = fields.get("name", str)
    gpus = fields.get("gpus_per_node", int)
    if not 1 <= gpus <= MAX_GPUS:
        raise BadFile(f"gpus_per_node is {gpus}", where=where)
    scale = _scale(name, where, options)
    kind = options.choice("kind", _guess(data, gpus), KINDS)
    if kind == "custom":
        host = _custom(fields, name, gpus, scale, where)
    else:
        host = _builtin(fields, kind, name, gpus, scale, where)
    nics = _nics(fields, gpus, scale, where)
    host = replace(host, nics=nics, moves=host.moves or _hub_moves(kind, gpus, nics))
    remote_beta = exact(fields.get("remote_beta", Number, 0), f"{where}: remote_beta")
    fields.finish(ignore=("remote_invbw", "remote_invbws"))
    return TacclHost(name, kind, host, scale, remote_beta)


def _hub_moves(kind: str, gpus: int, nics: Nics | None) -> tuple[Image, ...]:
    """Return rotations of the groups that share a NIC, and of the GPUs inside every group."""
    if kind not in ("dgx2", "hub"):
        return ()
    each = len(nics.attach[0]) if nics else 1
    groups = tuple((g + each) % gpus for g in range(gpus))
    inside = tuple(g - g % each + (g % each + 1) % each for g in range(gpus))
    return tuple(move for move in (groups, inside) if move != tuple(range(gpus)))


def _scale(name: str, where: str, options: MachineSpec) -> FileUnits:
    end = name.rpartition("_")[2]
    chunk, unit = _SHIPPED.get(end, (0, Fraction(0)))
    chunk = options.bytes("chunk", chunk)
    unit = options.microseconds("unit", unit)
    if chunk <= 0 or unit <= 0:
        raise BadFile(
            f"what a number of {name!r} means is not in the file",
            where=where,
            hint="add the chunk size and the time unit: FILE:chunk=1MiB,unit=1us",
        )
    return FileUnits(chunk, unit)


def _guess(data: Any, gpus: int) -> str:
    """Return the topology kind, which TACCL has on its command line and not in the file."""
    if "links" in data:
        return "custom"
    betas = data.get("node_betas_list")
    if isinstance(betas, list) and len(betas) == 2 and gpus == 8:
        return "ndv2"
    return "dgx2" if gpus == 16 else "hub"


def _builtin(fields: Fields, kind: str, name: str, gpus: int, scale: FileUnits, where: str) -> Host:
    wanted = 2 if kind == "ndv2" else 1
    betas = _numbers(fields.get("node_betas_list", list), "node_betas_list", where)
    fields.get("node_invbws_list", list)
    alpha = exact(fields.get("alpha", Number), f"{where}: alpha") * scale.unit
    if len(betas) != wanted:
        raise BadFile(
            f"node_betas_list has {len(betas)} entries, {kind} has {wanted}",
            where=where,
            hint="kind= says what the file is",
        )
    widths = [scale.bandwidth(beta, where) for beta in betas]
    if kind != "ndv2":
        port = HostSwitch(_SWITCH[kind], tuple(range(gpus)), widths[0], alpha / 2)
        return Host(name, name, gpus, (port,), (), None, ())
    if gpus != 8:
        raise BadFile(f"ndv2 has 8 GPUs, gpus_per_node says {gpus}", where=where)
    model = load_host("ndv2")
    pairs = model.cables[0].pairs
    double = tuple(p for p in pairs if p[2] == 2)
    single = tuple(p for p in pairs if p[2] == 1)
    cables = (Cables(double, widths[0] / 2, alpha), Cables(single, widths[1], alpha))
    return Host(name, name, gpus, (), cables, None, model.moves)


def _custom(fields: Fields, name: str, gpus: int, scale: FileUnits, where: str) -> Host:
    links = _matrix(fields, "links", gpus, where)
    betas = _matrix(fields, "betas", gpus, where)
    costs = _matrix(fields, "invbws", gpus, where)
    fields.get("alpha", Number, 0)
    cables = []
    for dst in range(gpus):
        for src in range(gpus):
            lanes = links[dst][src]
            if src == dst and lanes:
                raise BadFile(f"GPU {src} has a link to itself", where=f"{where}: links[{dst}]")
            if lanes != links[src][dst] or betas[dst][src] != betas[src][dst]:
                raise BadFile(
                    f"the link {src}-{dst} differs in its two directions",
                    where=where,
                    hint="write it as an edge list, which has directed links",
                )
            if lanes < 0 or lanes.denominator != 1 or lanes > 1000:
                raise BadFile(f"{lanes} lanes", where=f"{where}: links[{dst}][{src}]")
            if lanes and src < dst:
                alpha = max(costs[dst][src] - betas[dst][src], Fraction(0)) * scale.unit
                lane = scale.bandwidth(betas[dst][src], f"{where}: betas[{dst}][{src}]")
                cables.append(Cables(((src, dst, int(lanes)),), lane, alpha))
    return Host(name, name, gpus, (), tuple(cables), None, ())


def _nics(fields: Fields, gpus: int, scale: FileUnits, where: str) -> Nics | None:
    count = fields.get("nics_per_node", int, 0)
    for key in ("remote_invbw", "remote_invbws"):
        fields.get(key, Number, 0)
    alpha = exact(fields.get("remote_alpha", Number, 0), f"{where}: remote_alpha") * scale.unit
    beta = exact(fields.get("remote_beta", Number, 0), f"{where}: remote_beta")
    if count == 0:
        return None
    if count < 0 or gpus % count:
        raise BadFile(f"{count} NICs do not serve {gpus} GPUs evenly", where=where)
    each = gpus // count
    attach = tuple(tuple(range(i * each, (i + 1) * each)) for i in range(count))
    width = scale.bandwidth(beta, f"{where}: remote_beta")
    return Nics(attach, width, alpha / 2, width, "star")


def notes_of(found: TacclHost) -> tuple[str, ...]:
    """Return notes on the assumptions about one host."""
    read = (
        f"read as kind {found.kind}: costs of {found.scale.chunk} bytes "
        f"in units of {float(found.scale.unit)}us"
    )
    notes = [read]
    if found.kind in ("ndv2", "dgx2"):
        notes.append("TACCL routes by the whole part of alpha + beta; here both count, apart")
    if found.kind in _SWITCH:
        notes.append(
            "TACCL's complete graph becomes one switch with a port for each GPU, alpha split in two"
        )
    return tuple(notes)


def _numbers(values: list[Any], what: str, where: str) -> list[Fraction]:
    return [exact(value, f"{where}: {what}") for value in values]


def _matrix(fields: Fields, key: str, size: int, where: str) -> list[list[Fraction]]:
    rows = fields.get(key, list)
    if len(rows) != size:
        raise BadFile(f"{key} has {len(rows)} rows for {size} GPUs", where=where)
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != size:
            length = len(row) if isinstance(row, list) else 0
            raise BadFile(f"row {i} of {key} has {length} entries, {size} GPUs", where=where)
    return [_numbers(row, key, where) for row in rows]


# --- machine of a topology and a sketch -----------------------------------------------------------
# Machine from TACCL's topology and sketch together.
#
# Hosts come from the topology file, and the sketch's connections between them are GPU-to-GPU links.
# TACCL divides the NIC among all connections beforehand; here every connection may use the whole
# NIC, which is a shared resource.


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
    # TACCL serializes a GPU's remote messages.
    share = (
        ((lambda rank: f"gpu{rank}") if nodes > 2 else None)
        if split
        else _nic_of(host.nics, host.gpus)
    )
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


def _nic_of(nics: Nics, gpus: int) -> Callable[[int], str]:
    slot = {g: i for i, served in enumerate(nics.attach) for g in served}
    return lambda rank: f"nic{rank // gpus}.{slot[rank % gpus]}"

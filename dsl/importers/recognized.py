"""Machine descriptions of other programs: the importer that recognizes a text reads it.

Each importer records its assumptions in the topology's notes (none of these formats has α or the
fabric between hosts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from ..base.errors import BadFile, Missing, PluginFault, UserError
from ..base.files import looks_like_json, parse_json
from ..base.foreign import refuse_foreign, signatures
from ..base.lazy_dataclass import Frozen
from ..base.plugins import expect, warn
from ..base.registry import IMPORTERS
from ..machines.confined import in_hosts
from ..machines.host_file import looks_like_host, read_host
from ..machines.hosts import of_host
from ..machines.spec import MachineSpec
from ..nouns.topology import Topology
from .amd_smi import looks_like_amd_smi, read_amd_smi
from .astra_network import looks_like_astra_yml, looks_like_ns3, read_astra_yml, read_ns3
from .graph_file import (
    looks_like_gml,
    looks_like_graphml,
    read_edge_list,
    read_gml,
    read_graphml,
    read_msccl_topology,
)
from .nccl_tests import looks_like_nccl_tests, read_nccl_tests
from .nccl_xml import looks_like_graphs, read_nccl_graph, read_nccl_xml
from .nvidia_smi import read_nvidia_smi, read_nvlink_status
from .origin import machine_again
from .p2p_test import looks_like_nvbandwidth, looks_like_p2p_test, read_nvbandwidth, read_p2p_test
from .smi_matrix import looks_like_matrix, looks_like_nvlink_status
from .taccl import read_taccl
from .taccl_sketch import looks_like_sketch
from .teccl import looks_like_teccl, read_teccl

FORMATS = (
    "weft topology JSON, edge-list JSON (edges, gpu_ids), TACCL topology JSON (gpus_per_node), "
    "TE-CCL input JSON (TopologyParams), msccl-tools' topology JSON, ASTRA-sim's network.yml and "
    "ns-3 topology, "
    "NCCL or RCCL topology XML (<system>) and graph XML (<graphs>), GraphML, GML, the text of "
    "nvidia-smi topo -m, nvidia-smi nvlink -s, rocm-smi --showtopo, amd-smi topology, "
    "p2pBandwidthLatencyTest, nvbandwidth or nccl-tests (these two also in JSON), a host in TOML"
)


IMPORT_SKETCH = (
    "weft sketch import SKETCH.json -t TOPOLOGY.json converts it to weft's sketch language"
)


_OTHER_INPUTS = (
    (r"\A(\s*#[^\n]*\n)*\s*sketch\s+\w", "a sketch of weft, not a machine", "-s takes it"),
    (
        r"^\[parallel\]|\A(?=[^\n]*\bname *,)[^\n]*\bkind\b",
        "a workload of weft, not a machine",
        "weft plan FILE -t MACHINE takes it",
    ),
)
"""Texts of weft's that are given for a machine, as :func:`.signatures` has those of others."""


class Importer(Protocol):
    """Importer of one format; packages add theirs by the entry points ``weft.importers``."""

    def recognizes(self, text: str) -> bool:
        """Return True if a text, without white space at its start, is in this format."""
        ...

    def read(self, text: str, where: str, options: MachineSpec) -> Topology:
        """Read a topology; ``where`` is the file for messages, ``options`` follow its path.

        Raises:
            BadFile: not readable. BadTopology: an impossible machine.
        """
        ...


Reader = Callable[[str, str, MachineSpec], Topology]


class _BuiltInImporter(Frozen):
    recognizes: Callable[[str], bool]
    made: Reader
    as_read: bool = False
    """It confines hosts itself, or the text lists or measures all ways."""

    def read(self, text: str, where: str, options: MachineSpec) -> Topology:
        """Read the topology, its hosts confined unless ``loopback=on`` says otherwise."""
        made = self.made(text, where, options)
        return made if self.as_read else in_hosts(made, options)


def read_any(text: str, where: str, options: MachineSpec) -> Topology:
    """Read a topology of any known format: built-in formats first, then other packages'.

    Raises:
        BadFile: an unknown format, or an invalid text. BadTopology: an invalid machine.
    """
    start = text.lstrip("\ufeff \t\r\n")
    importer = _recognized(start)
    if importer is not None:
        # Blanks before the text count in lines and columns of messages, but XML allows none.
        try:
            made = importer.read(start if start.startswith("<") else text, where, options)
        except UserError as error:
            error.where = error.where or where
            raise
        return expect(Topology, made, importer, "read")
    refuse_foreign(text, where, (*_OTHER_INPUTS, *signatures()))
    what = "the file is empty" if not start else "the format is not known"
    raise BadFile(what, where=where, hint=f"weft reads {FORMATS}")


def is_topology(text: str) -> bool:
    """Return True if an importer, built-in or another package's, recognizes a text."""
    start = text.lstrip("\ufeff \t\r\n")
    return bool(start) and _recognized(start) is not None


def _recognized(start: str) -> Importer | None:
    """Return the importer of a text; one of another package that fails is passed over."""
    for importer in _importers():
        try:
            if importer.recognizes(start):
                return importer
        except PluginFault as error:
            warn(f"{error.message}; it is passed over", error.__cause__)
    return None


def _importers() -> Iterator[Importer]:
    """Yield built-in importers first, so that packages are searched only for other texts."""
    yield from _OURS
    for name in IMPORTERS.names():
        try:
            yield IMPORTERS.make(name)
        except (UserError, Missing, PluginFault) as error:
            warn(f"{error.message}; the importer {name!r} is passed over", error.__cause__)


def _measured(read: Reader) -> Reader:
    """Return a reader of measurements that says which text of links beside them is left out."""

    def noted(text: str, where: str, options: MachineSpec) -> Topology:
        made = read(text, where, options)
        others = {"topo -m": looks_like_matrix(text), "nvlink -s": looks_like_nvlink_status(text)}
        left = tuple(
            f"the text of nvidia-smi {name} beside it is left out (NICs and links come from it: "
            "save it alone)"
            for name, there in others.items()
            if there
        )
        return replace(made, notes=(*made.notes, *left))

    return noted


def _read_host(text: str, where: str, options: MachineSpec) -> Topology:
    try:
        host = read_host(text, where)
    except BadFile:
        refuse_foreign(text, where)  # key=value lines are not TOML yet
        raise
    return replace(of_host(host, options), name=options.title())


def _read_xml(text: str, where: str, options: MachineSpec) -> Topology:
    refuse_foreign(text, where)
    return read_nccl_xml(text, where, options)


def _read_json(text: str, where: str, options: MachineSpec) -> Topology:
    data = parse_json(text.lstrip("\ufeff"), where)
    if isinstance(data, dict):
        if "weft" in data:
            return machine_again(data, where, options, read_any)
        if "edges" in data or options.has("entry"):
            return read_edge_list(data, where, options)
        if "gpus_per_node" in data:
            return read_taccl(data, where, options)
        if data.get("msccl_type") == "topology":
            return read_msccl_topology(data, where, options)
        if looks_like_teccl(data):
            return read_teccl(data, where, options)
        if looks_like_sketch(data):
            raise BadFile(
                "expected a topology, got a TACCL sketch", where=where, hint=IMPORT_SKETCH
            )
    refuse_foreign(text, where)
    raise BadFile(
        "not a file of weft's, nor a topology that an importer reads",
        where=where,
        hint=f"weft reads {FORMATS}",
    )


_OURS: tuple[Importer, ...] = (
    _BuiltInImporter(looks_like_graphml, read_graphml, as_read=True),
    _BuiltInImporter(looks_like_graphs, read_nccl_graph),
    _BuiltInImporter(lambda text: text.startswith("<"), _read_xml),
    _BuiltInImporter(looks_like_gml, read_gml, as_read=True),
    _BuiltInImporter(looks_like_p2p_test, _measured(read_p2p_test), as_read=True),
    _BuiltInImporter(looks_like_nvbandwidth, _measured(read_nvbandwidth), as_read=True),
    _BuiltInImporter(looks_like_nccl_tests, _measured(read_nccl_tests), as_read=True),
    _BuiltInImporter(looks_like_amd_smi, read_amd_smi),
    _BuiltInImporter(looks_like_matrix, read_nvidia_smi),
    _BuiltInImporter(looks_like_nvlink_status, read_nvlink_status),
    _BuiltInImporter(looks_like_astra_yml, read_astra_yml, as_read=True),
    _BuiltInImporter(looks_like_ns3, read_ns3, as_read=True),
    _BuiltInImporter(looks_like_host, _read_host, as_read=True),
    _BuiltInImporter(looks_like_json, _read_json, as_read=True),
)
"""Built-in importers in order of precedence: the first that recognizes a text reads it."""

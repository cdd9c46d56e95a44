"""Readers of what other programs write about a machine, one file per format.

Which format a text is in shows in the text itself. Each reader notes on the topology what it had
to assume (α is in none of these formats, nor is the fabric between boxes).
"""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import BadFile
from ..base.files import parse_json
from ..machines.host_file import looks_like_box, read_box
from ..machines.hosts import build
from ..machines.spec import Spec
from ..nouns.topology import Topology
from ..nouns.topology_json import load
from .edge_list import read_edge_list
from .graph_file import looks_like_gml, looks_like_graphml, read_gml, read_graphml
from .nccl_tests import looks_like_nccl_tests, read_nccl_tests
from .nccl_xml import read_nccl_xml
from .nvidia_smi import read_nvidia_smi
from .p2p_test import looks_like_p2p_test, read_p2p_test
from .smi_matrix import looks_like_matrix
from .taccl import read_taccl
from .taccl_sketch import looks_like_sketch
from .teccl import looks_like_teccl, read_teccl

FORMATS = (
    "weft topology JSON, edge-list JSON (edges, gpu_ids), TACCL topology JSON (gpus_per_node), "
    "TE-CCL input JSON (TopologyParams), "
    "NCCL or RCCL topology XML (<system>), GraphML, GML, the text of nvidia-smi topo -m, "
    "of nccl-tests or of p2pBandwidthLatencyTest, a box in TOML"
)


IMPORT_SKETCH = "weft sketch import SKETCH.json -t TOPOLOGY.json writes it in our language"


def read_any(text: str, where: str, options: Spec) -> Topology:
    """A topology from a text of any known format.

    Raises:
        BadFile: none of them, or not readable. BadTopology: an impossible machine.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("<") and looks_like_graphml(start):
        return read_graphml(start, where, options)
    if start.startswith("<"):
        return read_nccl_xml(start, where, options)
    if looks_like_gml(start):
        return read_gml(start, where, options)
    if looks_like_p2p_test(text):
        return read_p2p_test(text, where, options)
    if looks_like_nccl_tests(text):
        return read_nccl_tests(text, where, options)
    if looks_like_matrix(text):
        return read_nvidia_smi(text, where, options)
    if looks_like_box(text):
        made = build(read_box(text, where), options)
        return replace(made, name=options.title())
    if start.startswith(("{", "[")):
        return _read_json(text.lstrip("\ufeff"), where, options)
    what = "the file is empty" if not start else "the format is not known"
    raise BadFile(what, where=where, hint=f"weft reads {FORMATS}")


def _read_json(text: str, where: str, options: Spec) -> Topology:
    data = parse_json(text, where)
    if isinstance(data, dict):
        if "weft" in data:
            return load(data, where)
        if "edges" in data or options.has("entry"):
            return read_edge_list(data, where, options)
        if "gpus_per_node" in data:
            return read_taccl(data, where, options)
        if looks_like_teccl(data):
            return read_teccl(data, where, options)
        if looks_like_sketch(data):
            raise BadFile(
                "a TACCL sketch, where a topology is needed", where=where, hint=IMPORT_SKETCH
            )
    raise BadFile("this JSON is no topology", where=where, hint=f"weft reads {FORMATS}")

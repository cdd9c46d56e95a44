"""Texts of other programs that people give to weft and no reader takes: what they are, and what
weft wants instead.

One table for all readers: a row is a pattern of the beginning of a text, the name of what has it,
and the way to what weft reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .errors import BadFile
from .terminal import plain_text

BEGINNING = 100_000
"""Characters of a text by which it is told."""

_LINKS = (
    "weft wants the links of the machine: the text of nvidia-smi topo -m, rocm-smi --showtopo or "
    "amd-smi topology, or NCCL's own XML (any NCCL program under NCCL_TOPO_DUMP_FILE=topo.xml)"
)
_FABRIC = (
    "weft wants one host and how hosts are joined: HOST.txt:nodes=16,fabric=rails, with the text "
    "of nvidia-smi topo -m of a host, or NCCL's XML (docs/topologies.md)"
)
_ITSELF = "weft wants the text itself: save it, or pipe it into weft with - as the file"
_TIMES = (
    "weft wants times of collectives: the output of nccl-tests or rccl-tests; of links between "
    "GPUs: nvbandwidth or p2pBandwidthLatencyTest"
)
_GRAPH = "weft wants GraphML or GML (networkx.write_graphml), or a JSON with edges and gpu_ids"
_BUILDER = "or write it with weft's builder (docs/writing.md)"

PROGRAMS = (
    (
        r"^(from|import)\s+(msccl|sccl)\b",
        "a program for msccl-tools",
        f"run it there (python FILE > algo.xml) and give weft the XML, {_BUILDER}",
    ),
    (
        r"^(from|import)\s+mscclpp\b",
        "a program for MSCCL++",
        f"run it there (python FILE > plan.json) and give weft the plan, {_BUILDER}",
    ),
    (
        r"^(from|import)\s+taccl\b",
        "a program of TACCL",
        "give weft its topology (-t) and its sketch (-s), or the XML that taccl ncclize writes",
    ),
)
"""The same for texts in Python, of which these are executed nowhere here."""

SIGNATURES = (
    *PROGRAMS,
    (r"(?i)\A\s*<(!doctype html|html|head|body|div|table|pre)\b", "a page of the web", _ITSELF),
    (r"\A\s*<(svg\b|[\s\S]{0,999}<svg\b)", "a picture", _ITSELF),
    (r'(<!DOCTYPE topology SYSTEM "hwloc|<object type="Machine")', "hwloc's XML", _LINKS),
    (
        r"^[ \t]*(Machine \(\d.{0,20}B.{0,20}\)|Machine L#\d|PU L#\d)",
        "the text of hwloc's lstopo",
        _LINKS,
    ),
    (r"<nvidia_smi_log\b", "the XML of nvidia-smi -q, which has no links", _LINKS),
    (
        r"(\| NVIDIA-SMI \d|=NVSMI LOG=)|^GPU \d+: .{1,99}\(UUID: GPU-",
        "a list of GPUs by nvidia-smi, which has no links",
        _LINKS,
    ),
    (
        r'"\(Topology\) |"Weight between two GPUs"',
        "rocm-smi's JSON, which weft reads as text",
        _LINKS,
    ),
    (r"(ROCm System Management|ROCM-SMI version)", "rocm-smi's text without links", _LINKS),
    (
        r"^NVIDIA-SMI has failed|^No devices (were )?found|: command not found$",
        "the failure of a command",
        "run it where the GPUs and their driver are",
    ),
    (r'\A\s*\[\s*\{\s*"gpu"\s*:|^GPU: \d+\s*$', "amd-smi's text or JSON without tables", _LINKS),
    (
        r"^[ \t]*(([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] .{2,60}: |-\[[0-9a-f]{4}:)",
        "a list of PCI devices (lspci)",
        _LINKS,
    ),
    (
        r"^[ \t]*(available: \d+ nodes \(|Architecture:\s+\w|hca_id:\s|CA '\w)",
        "a list of a host's CPUs or NICs",
        _LINKS,
    ),
    (
        r"^(vendid|switchguid|caguid|sysimgguid)=0x|^(CA|Switch): .*:$",
        "a list of InfiniBand's switches (ibnetdiscover, iblinkinfo)",
        _FABRIC,
    ),
    (r"^(SwitchName|NodeName|BlockName)=", "a configuration file of Slurm", _FABRIC),
    (r"^apiVersion:\s", "a manifest of Kubernetes", _FABRIC),
    (r"^Nodes \d+\s*\nTiers \d", "a topology of htsim", _FABRIC),
    (r"<platform version=", "a platform of SimGrid", _GRAPH),
    (r"^[ \t]*(strict +)?(di)?graph\b[^\[\n]{0,99}\{", "a graph in DOT", _GRAPH),
    (
        r'^[ \t]*"?(logical-dims|scheduling-policy|topology-name)"?[ \t]*:|"logical-dims"',
        "a JSON file of ASTRA-sim",
        "weft wants its network.yml, or the topology file of ns-3",
    ),
    (
        r'"msccl_type"\s*:\s*"algorithm"',
        "an algorithm of msccl-tools, in its JSON",
        "weft wants MSCCL XML: msccl ncclize FILE -o algo.xml",
    ),
    (
        r'"sccl_type"\s*:',
        "an algorithm of TACCL, in its JSON",
        "weft wants MSCCL XML: taccl ncclize FILE",
    ),
    (r'"nbformat"\s*:', "a notebook of Jupyter", "weft wants the file that its cells write"),
    (
        r"\A\s*(<[?!][^>]*>\s*)*<algo\b",
        "a program in MSCCL XML, not a machine",
        "weft show, check, run and simulate take it; -t takes a machine (weft list topologies)",
    ),
    (
        r'^num_ranks\s+\d|"gpus"\s*:\s*\[\s*\{\s*"id"',
        "a program, not a machine",
        "weft show, check and simulate take it; -t takes a machine (weft list topologies)",
    ),
    (
        r'"traceEvents"\s*:',
        "a trace of PyTorch's profiler, not a machine",
        "weft plan TRACE -t MACHINE takes it as a workload",
    ),
    (
        r"^(# OSU \w|[ \t]*#bytes +#iterations)",
        "a measurement of MPI or of a NIC",
        _TIMES,
    ),
    (
        r"\bNCCL (INFO|WARN|TRACE) ",
        "a debug log of NCCL, without a machine",
        f"weft verify-run reads it; {_LINKS}",
    ),
)
"""Patterns, what a text is, and what weft wants; the first pattern that is found counts."""


def refuse_foreign(
    text: str, where: str, known: Sequence[tuple[str, str, str]] = SIGNATURES
) -> None:
    """Raise BadFile for a text of another program, named by its beginning."""
    start = plain_text(text[:BEGINNING])
    for pattern, what, wanted in known:
        if re.search(pattern, start, re.MULTILINE):
            raise BadFile(f"this is {what}", where=where, hint=wanted)

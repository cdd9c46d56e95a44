"""Texts as people paste them: prompts, several tables in one text, web pages, wrong files."""

import itertools

import pytest
from nccl_tests_text import nccl_tests_text

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.spans import Source
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.spec import parse_options
from weft.dsl.nouns.topology import Topology

TOPO = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPHB\t0-63\t0\t\tN/A\nGPU1\tPHB\t X \t0-63\t0\t\tN/A\n"
)
LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP\n"
PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
OK = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"


def read(text: str, options: str = "") -> Topology:
    return read_any(text, "a.txt", parse_options("a.txt", Source("t", f"a.txt:{options}"), 6))


def prompt(command: str) -> str:
    return f"[user@host ~]$ nvidia-smi {command}\n"


@pytest.mark.parametrize("legends", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_matrices_of_peer_access_stand_beside_topo_m(order: tuple[int, ...], legends: bool) -> None:
    parts = [
        (prompt("topo -m"), TOPO, LEGEND),
        (prompt("topo -p2p r"), PEERS, OK),
        (prompt("topo -p2p n"), PEERS.replace("GNS", "NS"), OK),
    ]
    text = "".join(head + body + end * legends for head, body, end in (parts[i] for i in order))
    made = read(text)
    assert made.digest() == read(TOPO).digest()
    notes = "\n".join(made.notes)
    assert "topo -p2p r: GNS (GPU not supported) between all GPUs: no peer access" in notes
    assert "topo -p2p n: NS (not supported) between all GPUs: no NVLink" in notes


def test_states_name_their_pairs() -> None:
    names = [f"GPU{i}" for i in range(4)]
    cells = [["X" if i == j else "OK" for j in range(4)] for i in range(4)]
    cells[0][3] = cells[3][0] = "CNS"
    rows = ["\t".join([f" {name}", *row, ""]) for name, row in zip(names, cells, strict=True)]
    wide = [["X" if i == j else "NODE" for j in range(4)] for i in range(4)]
    topo = ["\t".join([name, *row, "0-7", "0"]) for name, row in zip(names, wide, strict=True)]
    head = "\t" + "\t".join(names)
    text = "\n".join([f"{head}\tCPU Affinity\tNUMA Affinity", *topo, "", head, *rows])
    (note,) = (one for one in read(text).notes if "topo -p2p" in one)
    assert note.startswith("nvidia-smi topo -p2p: CNS (chipset not supported) for GPU0-GPU3, GPU3-")
    again = "\n".join([text, "", head, *rows])
    assert read(again).notes == read(text).notes


def test_peer_access_alone_is_no_machine() -> None:
    with pytest.raises(BadFile, match="got topo -p2p alone"):
        read(prompt("topo -p2p w") + PEERS + OK)


@pytest.mark.parametrize(
    "text",
    [
        prompt("topo -m") + TOPO,
        "[user@host ~]$ nvidia-smi topo -m     " + TOPO.lstrip().replace("\t", "    "),
        TOPO.replace("\t", "&nbsp;&nbsp;"),
        TOPO.replace("\t", "\xa0\u2009").replace("-", "\u2013"),
        "".join(f"> {line}\n" for line in TOPO.splitlines()),
        "\n".join(["| | GPU0 | GPU1 |", "|---|:--|--|", "|GPU0|X|PHB|", "|GPU1|PHB|X|"]),
        "".join(f"\x1b[4m{line}\x1b[0m\r\n" for line in TOPO.splitlines()),
    ],
)
def test_copies_of_a_matrix(text: str) -> None:
    assert read(text).digest() == read(TOPO).digest()


SMI = """Sat Nov 28 06:45:06 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.124.06             Driver Version: 570.124.06     CUDA Version: 12.8     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:0A:00.0 Off |                    0 |
"""
LSTOPO = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0"/></topology>
"""
ROCM = "\n============ ROCm System Management Interface ============\nDevice  Node  IDs\n0  1\n"
FABRIC = "#\n# Topology file: generated on Sat\n#\nvendid=0x2c9\ndevid=0xd2f0\nswitchguid=0x1(1)\n"
LSPCI = "00:00.0 Host bridge: Intel Corporation\n0a:00.0 3D controller: NVIDIA Corporation GH100\n"

FOREIGN = [
    (SMI, "a list of GPUs by nvidia-smi", "nvidia-smi topo -m"),
    (
        "GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n",
        "a list of GPUs",
        "-m",
    ),
    (LSTOPO, "hwloc's XML", "NCCL_TOPO_DUMP_FILE"),
    ("Machine (2015GB total)\n  Package L#0\n    NUMANode L#0\n", "hwloc's lstopo", "topo -m"),
    (ROCM, "rocm-smi's text without links", "rocm-smi --showtopo"),
    ('[\n {"gpu": 0, "bdf": "0000:05:00.0", "links": []}]', "amd-smi's text or JSON", "amd-smi"),
    (
        '{"system": {"(Topology) Weight between DRM devices 0 and 1": "15"}}',
        "rocm-smi's JSON",
        "-m",
    ),
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n",
        "failure",
        "run it",
    ),
    ("-bash: nvidia-smi: command not found\n", "the failure of a command", "run it"),
    (FABRIC, "InfiniBand's switches", "fabric="),
    (LSPCI, "PCI devices", "topo -m"),
    ("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", "CPUs or NICs", "topo -m"),
    ("host1:123:456 [0] NCCL INFO Channel 00/24 : 0 1 2\n", "debug log of NCCL", "verify-run"),
    ('<?xml version="1.0"?>\n<platform version="4.1"></platform>', "SimGrid", "GraphML"),
    ('<algo name="a" nchannels="1"></algo>', "MSCCL XML, not a machine", "weft show"),
    (
        "<!DOCTYPE html>\n<html><body>GPU0 GPU1</body></html>",
        "a page of the web",
        "the text itself",
    ),
    ('<?xml version="1.0"?><svg xmlns="x"></svg>', "a picture", "the text itself"),
    ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n", "Kubernetes", "nodes="),
    ("# a\nSwitchName=s0 Nodes=n[0-15]\n", "Slurm", "nodes="),
    ("Nodes 8\nTiers 3\nPodsize 4\n", "htsim", "nodes="),
    ("digraph G {\n a -> b;\n}\n", "a graph in DOT", "GraphML"),
    ('{"logical-dims": ["8"]}', "ASTRA-sim", "network.yml"),
    ('{"steps": [], "msccl_type": "algorithm"}', "an algorithm of msccl-tools", "ncclize"),
    ('{"sccl_type": "algorithm", "steps": []}', "an algorithm of TACCL", "ncclize"),
    ("from msccl.language import *\n", "a program for msccl-tools", "docs/writing.md"),
    ("import mscclpp.language as l\n", "a program for MSCCL++", "docs/writing.md"),
    ("from taccl.cli import main\n", "a program of TACCL", "sketch"),
    ('{"cells": [], "nbformat": 4}', "notebook", "weft"),
    (
        "# OSU MPI Allreduce Latency Test v7.3\n# Size\n8 4.2\n",
        "a measurement of MPI",
        "nccl-tests",
    ),
    (" #bytes     #iterations    BW peak[MB/sec]\n 65536 5000 23.1\n", "a NIC", "nvbandwidth"),
    ("num_ranks 2\nrank 0 {\nl1: send 8b to 1\n}\n", "a program, not a machine", "weft show"),
    ("# mine\nsketch a\n", "a sketch of weft", "-s"),
    ("[parallel]\ntp = 8\n[model]\nlayers = 3\n", "a workload of weft", "weft plan"),
    ("name,kind,group,size,after\na,allreduce,0-3,1MiB,\n", "a workload of weft", "weft plan"),
    ('{"schemaVersion": 1, "traceEvents": []}', "PyTorch's profiler", "workload"),
]


@pytest.mark.parametrize(("text", "what", "wanted"), FOREIGN)
def test_files_of_other_programs_are_refused_by_name(text: str, what: str, wanted: str) -> None:
    with pytest.raises(BadFile, match=r"^this is ") as error:
        read(text)
    assert what in error.value.message
    assert wanted in error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "1 1 1\n" + "\n" * 200_000,
        "\n \n" * 50_000 + "x",
        "GPU0 X" + " " * 200_000 + "z",
        "Machine (1" + "B" * 200_000,
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n" + "1" * 200_000,
        "&#" * 100_000,
        "[1]" + " " * 200_000,
        "<" + "<!" * 100_000,
    ],
    ids=range(8),
)
def test_long_lines_and_many_of_them_cost_no_square(text: str) -> None:
    with pytest.raises(UserError):
        read(text)


def test_what_has_a_matrix_is_read_whatever_stands_beside_it() -> None:
    beside = [text for text, _, _ in FOREIGN if text[:1] not in "<[{"]
    assert read("\n".join([*beside, TOPO])).ranks == 2
    assert read("\n".join([TOPO, LEGEND, *beside])).ranks == 2


@pytest.mark.parametrize("kind", ["nccl-tests", "p2p", "amd"])
def test_measurements_copied_from_a_page(kind: str) -> None:
    cells = ["GPU0 0 15", "GPU1 15 0"]
    text = {
        "nccl-tests": nccl_tests_text("all_reduce", [(8, 10.5), (1 << 28, 1450.0)], gpus=4),
        "p2p": "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n"
        " D\\D 0 1\n 0 9 5.5\n 1 5.5 9\n",
        "amd": "== Weight between two GPUs ==\nGPU0 GPU1\n"
        + "\n".join(cells)
        + "\n== Link Type between two GPUs ==\nGPU0 GPU1\n"
        + "\n".join(cells).replace("15", "XGMI"),
    }[kind]
    wanted = read(text).digest()
    assert read(text.replace(" ", "\u2009")).digest() == wanted
    assert read(text.replace(" -1 ", " \u22121 ").replace(" ", "&nbsp;")).digest() == wanted
    assert read("".join(f"> {line}\r\n" for line in text.splitlines())).digest() == wanted

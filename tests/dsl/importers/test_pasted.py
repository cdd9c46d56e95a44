"""Texts as people paste them: prompts, several tables in one text, web pages, wrong files."""

from __future__ import annotations

import itertools

import pytest

from weft.dsl.base.errors import BadFile
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

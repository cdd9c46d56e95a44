"""Generations of GPUs: links to other GPUs, PCIe and usual NICs, each with its source.

The one table of them is ``generations.csv``: importers take from it the numbers that a text omits,
``gpu=`` names its rows, and families of machines follow from names and chips that other programs
print. Here are the other defaults, too: α, and PCIe beside unknown CPUs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from fractions import Fraction
from importlib import resources

from ..base.lazy_dataclass import Frozen
from ..nouns.parts import Medium

CABLE_ALPHA = Fraction(7, 10)
NVSWITCH_ALPHA = Fraction(35, 100)
PCIE_ALPHA = Fraction(3, 10)
NET_ALPHA = Fraction(125, 100)
"""α in µs per hop. Direct NVLink and xGMI 0.7, an NVSwitch hop 0.35 (TE-CCL, SIGCOMM 2024); a PCIe
or CPU hop 0.3 and a hop between NIC and network 1.25 (the values of the grade cases; TE-CCL has
1.3 for EDR InfiniBand). ``weft profile`` measures the actual values."""

ALPHA_NOTE = (
    "alpha is not in the file; assumed per hop: GPU-GPU cable 0.7us, NVSwitch 0.35us, "
    "PCIe and CPU 0.3us, NIC 1.25us (weft topo import writes JSON in which it can be changed)"
)

NO_PEER_ACCESS = "back ends of peer access (mscclpp-json, torch-symm) do not run"
"""In the notes of machines some of whose GPUs lack access to each other's memory."""

CPU_LINK = Fraction(10)
"""GB/s between sockets of an unknown CPU: NCCL's value for Intel since Skylake."""


PCIE_REACH = Fraction(16, 21)
"""Part of PCIe's raw rate that NCCL counts: 48 of 63 GB/s. A NIC of up to the raw rate fits."""


class Generation(Frozen):
    """A kind of GPU."""

    name: str  # the value of gpu=
    # links, lane: links to other GPUs, and GB/s of one in one direction; 0 of cards without any
    links: int
    lane: Fraction
    # pcie, nic: GB/s of its PCIe and of the NIC in the usual host; NICs are a guess
    pcie: Fraction
    nic: Fraction
    source: str  # of links and PCIe
    family: str = ""  # of the times of programs; the name's, if empty
    # It is in a PCIe slot: links are bridges between neighbours, and a host has one NIC
    card: bool = False
    medium: Medium = Medium.NVLINK  # of the links
    also: tuple[str, ...] = ()  # further names that programs print
    each: int = 1  # links between two GPUs of the usual host, where every two are joined
    dies: int = 0  # links between the two dies of a package, which tools number as GPUs 2k and 2k+1
    rack: int = 0  # GPUs of several hosts on one NVSwitch
    memory: tuple[int, ...] = ()  # GiB as its tools count them, from data sheets; within 2 percent
    driver: int = 0  # the first branch of NVIDIA's driver that knows it (its release notes)
    beside_grace: bool = False  # its memory is NUMA nodes of the host

    @property
    def timed_as(self) -> str:
        """Return the family of the times of programs."""
        return self.family or self.name

    @property
    def sums_in_switch(self) -> bool:
        """Return True if its NVSwitch, of the third generation or later, multicasts and reduces.

        NVLink SHARP came with Hopper, the first GPUs of NVIDIA on PCIe 5.
        """
        return self.medium is Medium.NVLINK and not self.card and self.pcie >= _PCIE_GBPS["5"]


NVLS = frozenset({"multicast", "reduces", "issuer_in_group"})
"""Capabilities of such an NVSwitch: sums are pulled by a member of the group."""


_PCIE_GBPS = {"3": 12, "4": 24, "5": 48, "6": 96}
"""GB/s of x16 PCIe, as NCCL counts them (``width · k / 80`` of ``src/graph/topo.cc``)."""


def _of_row(row: dict[str, str]) -> Generation:
    return Generation(
        row["name"],
        int(row["links"] or 0),
        Fraction(row["lane_GBps"] or 0),
        Fraction(_PCIE_GBPS[row["pcie"]]),
        Fraction(row["nic_Gbps"]) / 8,
        row["source"],
        row["family"],
        bool(row["card"]),
        Medium(row["medium"]),
        tuple(row["also"].split()),
        each=int(row["each"] or 1),
        dies=int(row["dies"] or 0),
        rack=int(row["rack"] or 0),
        memory=tuple(map(int, row["memory_GiB"].split())),
        driver=int(row["driver"] or 0),
        beside_grace=row["beside"] == "Grace",
    )


_FILE = resources.files(__package__) / "generations.csv"
_TABLE = tuple(map(_of_row, csv.DictReader(_FILE.read_text(encoding="utf-8").splitlines())))

GENERATIONS = {word: one for one in _TABLE for word in (one.name, *one.also)}
"""All generations by their names."""

CHIPS = dict(
    chip.split(":")
    for chip in "60:p100 70:v100 80:a100 90:h100 100:b200 103:b300 gfx906:mi50 gfx908:mi100 "
    "gfx90a:mi250 gfx910:mi250 gfx942:mi300x gfx950:mi355x".split()
)
"""The family by compute capability or gfx number."""

_NAMES = re.compile(
    rf"\b({'|'.join(sorted(GENERATIONS, key=len, reverse=True))})(?=\b|X\b)", re.IGNORECASE
)
_SLOTTED = re.compile(r"\bPCIE\b", re.IGNORECASE)
_WORKSTATION = {
    "rtx-blackwell": re.compile(r"\bRTX (?:PRO \d|50\d0)|\bBlackwell\b", re.IGNORECASE),
    "rtx-turing": re.compile(r"\b(?:Quadro RTX|RTX 20\d0|TITAN RTX)\b", re.IGNORECASE),
}
"""RTX cards of other PCIe generations than most."""

_BRIDGED = re.compile(r"\bNVL\b", re.IGNORECASE)


def generation_of(names: Iterable[str]) -> Generation | None:
    """Return the generation of GPUs by their names (``NVIDIA A100-SXM4-80GB``); None where unknown
    or where they differ."""
    found = {_by_name(name) for name in names}
    return found.pop() if len(found) == 1 else None


def family_of(names: Iterable[str]) -> str:
    """Return the family of GPUs by their names; empty where unknown or where they differ."""
    return _common(map(_family_of_name, names))


def family_of_chips(chips: Iterable[str]) -> str:
    """Return the family by compute capabilities (``90``) or gfx numbers (``gfx942``), as above."""
    return _common(CHIPS.get(_chip(one), "") for one in chips)


def generation_of_chip(text: str) -> Generation | None:
    """Return the generation by a gfx number; None where it is not known."""
    return GENERATIONS.get(CHIPS.get(_chip(text), ""))


def _by_name(name: str) -> Generation | None:
    if (found := _NAMES.search(name)) is None:
        return None
    plain = GENERATIONS[found[1].lower()]
    if plain.name == "rtx":
        kinds = (kind for kind, named in _WORKSTATION.items() if named.search(name))
        return GENERATIONS[next(kinds, plain.name)]
    if _SLOTTED.search(name):
        return GENERATIONS.get(f"{plain.name}-pcie", plain)
    if _BRIDGED.search(name):
        return GENERATIONS.get(f"{plain.name}-nvl", plain)
    return plain


def _family_of_name(name: str) -> str:
    found = _by_name(name)
    if found is None:
        return ""
    return "pcie" if _SLOTTED.search(name) else found.timed_as


def _chip(text: str) -> str:
    plain = text.strip().lower()
    if plain.isdigit() and plain.startswith("9") and len(plain) == 3:  # RCCL's 906, 908, 910
        return f"gfx{plain}"
    return plain


def _common(families: Iterable[str]) -> str:
    found = set(families)
    return found.pop() if len(found) == 1 else ""

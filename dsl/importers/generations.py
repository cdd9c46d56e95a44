"""Generations of GPUs: links to other GPUs, PCIe and usual NICs, each with its source.

The one table of them: importers take from it what a text does not say, ``gpu=`` names its rows, and
families of machines follow from the names and chips that other programs print.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from ..base.lazy_dataclass import dataclass
from ..nouns.parts import Medium

CABLE_ALPHA = Fraction(7, 10)
NVSWITCH_ALPHA = Fraction(35, 100)
PCIE_ALPHA = Fraction(3, 10)
NET_ALPHA = Fraction(125, 100)

ALPHA_NOTE = (
    "alpha is not in the file; assumed per hop: GPU-GPU cable 0.7us, NVSwitch 0.35us, "
    "PCIe and CPU 0.3us, NIC 1.25us (weft topo import writes JSON in which it can be changed)"
)

NO_PEER_ACCESS = "back ends of peer access (mscclpp-json, torch-symm) do not run"
"""In the notes of machines some of whose GPUs have no access to each other's memory."""

CPU_LINK = Fraction(10)
"""GB/s between sockets of an unknown CPU: NCCL's value for Intel since Skylake."""


GEN3, GEN4, GEN5, GEN6 = (Fraction(x) for x in (12, 24, 48, 96))
"""GB/s of x16 PCIe, as NCCL counts them (``width · k / 80`` of ``src/graph/topo.cc``)."""

PCIE_REACH = Fraction(16, 21)
"""What NCCL counts of PCIe's raw rate: 48 of 63 GB/s. A single NIC of up to the raw rate fits."""

EDR, HDR, NDR, XDR = (Fraction(x, 2) for x in (25, 50, 100, 200))
"""GB/s of 100, 200, 400 and 800 Gbit/s."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A kind of GPU.

    Attributes:
        name: the value of ``gpu=``.
        links, lane: links to other GPUs, and GB/s of one in one direction; 0 of cards without any.
        pcie, nic: GB/s of its PCIe and of the NIC in the usual host; NICs are a guess.
        each: links between two GPUs of the usual host, where every two are joined.
        rack: GPUs of several hosts on one NVSwitch.
        dies: links between the two dies of a package, which tools number as GPUs 2k and 2k+1.
        source: of links and PCIe.
        family: of the times of programs; the name's, if empty.
        card: it is in a PCIe slot: links are bridges between neighbours, and a host has one NIC.
        medium: of the links.
        also: further names that programs print.
    """

    name: str
    links: int
    lane: Fraction
    pcie: Fraction
    nic: Fraction
    source: str
    family: str = ""
    card: bool = False
    medium: Medium = Medium.NVLINK
    also: tuple[str, ...] = ()
    each: int = 1
    dies: int = 0
    rack: int = 0

    @property
    def timed_as(self) -> str:
        """Return the family of the times of programs."""
        return self.family or self.name

    @property
    def sums_in_switch(self) -> bool:
        """Return True if its NVSwitch, of the third generation or later, multicasts and reduces.

        NVLink SHARP came with Hopper, the first GPUs of NVIDIA on PCIe 5.
        """
        return self.medium is Medium.NVLINK and not self.card and self.pcie >= GEN5


NVLS = frozenset({"multicast", "reduces", "issuer_in_group"})
"""Capabilities of such an NVSwitch: sums are pulled by a member of the group."""


def _card(
    name: str,
    pcie: Fraction,
    nic: Fraction,
    source: str,
    links: tuple[int, str] = (0, "0"),
    family: str = "",
    also: tuple[str, ...] = (),
) -> Generation:
    return Generation(
        name, links[0], Fraction(links[1]), pcie, nic, source, family, card=True, also=also
    )


def _nvidia(
    name: str, links: int, lane: int, pcie: Fraction, nic: Fraction, source: str
) -> Generation:
    return Generation(name, links, Fraction(lane), pcie, nic, source)


def _amd(
    name: str,
    links: int,
    lane: str,
    pcie: Fraction,
    nic: Fraction,
    source: str,
    family: str = "",
    also: tuple[str, ...] = (),
    *,
    card: bool = False,
    each: int = 1,
    dies: int = 0,
) -> Generation:
    return Generation(
        name, links, Fraction(lane), pcie, nic, source, family, card, Medium.XGMI, also, each, dies
    )


_TABLE = (
    _nvidia("p100", 4, 20, GEN3, EDR, "Tesla P100 data sheet: NVLink 160 GB/s both ways, PCIe 3"),
    Generation(
        "v100",
        6,
        Fraction(25),
        GEN3,
        EDR,
        "Tesla V100 data sheet: NVLink 300 GB/s both ways, PCIe 3",
        also=("v100s",),
    ),
    _card("v100-pcie", GEN3, EDR, "Tesla V100 data sheet: PCIe 3 x16", family="pcie"),
    _card("t4", GEN3, EDR, "NVIDIA T4 data sheet: PCIe 3 x16, no NVLink"),
    _card("a10", GEN4, EDR, "NVIDIA A10 data sheet: PCIe 4 x16, no NVLink", also=("a10g",)),
    _card("a30", GEN4, HDR, "NVIDIA A30 data sheet: NVLink 200 GB/s both ways, PCIe 4", (4, "25")),
    _card("a40", GEN4, HDR, "NVIDIA A40 data sheet: NVLink 112.5 GB/s both ways", (4, "14.0625")),
    _nvidia("a100", 12, 25, GEN4, HDR, "NVIDIA A100 data sheet: NVLink 600 GB/s both ways, PCIe 4"),
    _card(
        "a100-pcie",
        GEN4,
        HDR,
        "NVIDIA A100 data sheet: bridge of two cards 600 GB/s both ways, PCIe 4",
        (12, "25"),
        "pcie",
    ),
    _nvidia("a800", 8, 25, GEN4, HDR, "NVIDIA A800 data sheet: NVLink 400 GB/s both ways, PCIe 4"),
    _card("l4", GEN4, HDR, "NVIDIA L4 data sheet: PCIe 4 x16, no NVLink"),
    _card("l40s", GEN4, HDR, "NVIDIA L40S data sheet: PCIe 4 x16, no NVLink", also=("l40",)),
    _card(
        "rtx", GEN4, HDR, "NVIDIA RTX A6000 data sheet: NVLink 112.5 GB/s both ways", (4, "14.0625")
    ),
    _card(
        "rtx-turing",
        GEN3,
        EDR,
        "NVIDIA Quadro RTX 8000 data sheet: NVLink 100 GB/s both ways, PCIe 3",
        (2, "25"),
        "rtx",
    ),
    _card(
        "rtx-blackwell",
        GEN5,
        NDR,
        "NVIDIA RTX PRO 6000 Blackwell data sheet: PCIe 5 x16, no NVLink",
        family="rtx",
    ),
    _nvidia("h100", 18, 25, GEN5, NDR, "NVIDIA H100 data sheet: NVLink 900 GB/s both ways, PCIe 5"),
    _card(
        "h100-pcie",
        GEN5,
        NDR,
        "NVIDIA H100 data sheet: bridge of two cards 600 GB/s both ways, PCIe 5",
        (12, "25"),
        "pcie",
    ),
    _card(
        "h100-nvl",
        GEN5,
        NDR,
        "NVIDIA H100 NVL data sheet: bridge of two cards 600 GB/s both ways, PCIe 5",
        (12, "25"),
        "h100",
    ),
    _nvidia("h800", 8, 25, GEN5, NDR, "NVIDIA H800 data sheet: NVLink 400 GB/s both ways, PCIe 5"),
    _nvidia("h200", 18, 25, GEN5, NDR, "NVIDIA H200 data sheet: NVLink 900 GB/s both ways, PCIe 5"),
    _nvidia("h20", 18, 25, GEN5, NDR, "NVIDIA H20 data sheet: NVLink 900 GB/s both ways, PCIe 5"),
    _card(
        "h200-nvl",
        GEN5,
        NDR,
        "NVIDIA H200 NVL data sheet: bridge of two or four cards 900 GB/s both ways, PCIe 5",
        (18, "25"),
        "h200",
    ),
    _nvidia("gh200", 18, 25, GEN5, NDR, "NVIDIA GH200 data sheet: NVLink 900 GB/s both ways"),
    _nvidia("b200", 18, 50, GEN5, NDR, "NVIDIA HGX B200 data sheet: NVLink 1.8 TB/s both ways"),
    _nvidia("b300", 18, 50, GEN6, XDR, "NVIDIA HGX B300 data sheet: NVLink 1.8 TB/s both ways"),
    replace(
        _nvidia(
            "gb200", 18, 50, GEN5, NDR, "NVIDIA GB200 NVL72 data sheet: 1.8 TB/s both ways a GPU"
        ),
        rack=72,
    ),
    replace(
        _nvidia(
            "gb300", 18, 50, GEN6, XDR, "NVIDIA GB300 NVL72 data sheet: 1.8 TB/s both ways a GPU"
        ),
        rack=72,
    ),
    _amd("mi50", 2, "46", GEN4, EDR, "AMD MI50 data sheet: 184 GB/s both ways over two links"),
    _amd("mi100", 3, "46", GEN4, HDR, "AMD MI100 data sheet: 276 GB/s both ways over three links"),
    _amd(
        "mi210",
        3,
        "50",
        GEN4,
        HDR,
        "AMD MI210 data sheet: 300 GB/s both ways over three links, PCIe 4",
        "mi250",
        card=True,
    ),
    _amd(
        "mi250x",
        8,
        "50",
        GEN4,
        HDR,
        "AMD MI250X data sheet: 100 GB/s both ways a link, eight a die, four to the other die",
        "mi250",
        ("mi250",),
        dies=4,
    ),
    _amd(
        "mi300a",
        6,
        "64",
        GEN5,
        HDR,
        "AMD CDNA 3 white paper: four APUs, two links of 128 GB/s both ways for each pair",
        "mi300x",
        each=2,
    ),
    _amd(
        "mi300x",
        7,
        "64",
        GEN5,
        NDR,
        "AMD MI300X data sheet: seven links of 128 GB/s both ways, PCIe 5",
        also=("mi308x",),
    ),
    _amd("mi325x", 7, "64", GEN5, NDR, "AMD MI325X data sheet: seven links of 128 GB/s both ways"),
    _amd(
        "mi355x",
        7,
        "76.8",
        GEN5,
        NDR,
        "AMD MI350 series data sheet: seven links of 153.6 GB/s both ways",
        also=("mi350x",),
    ),
)

GENERATIONS = {word: one for one in _TABLE for word in (one.name, *one.also)}
"""All generations by their names."""

BESIDE_GRACE = frozenset({"gh200", "gb200", "gb300"})
"""Generations whose memory is NUMA nodes of the host."""

MEMORY_GIB = {
    "v100": (16, 32),
    "a100": (40, 80),
    "a800": (40, 80),
    "h100": (80,),
    "h800": (80,),
    "h20": (96, 141),
    "h200": (141,),
    "h200-nvl": (141,),
    "gh200": (96, 144),
    "b200": (179,),
    "gb200": (185,),
    "b300": (269,),
    "gb300": (278,),
}
"""Memory of a GPU as its tools count it, from data sheets; within 2 percent."""

FIRST_DRIVER = {"h200": 535, "h20": 535, "b200": 570, "gb200": 570, "b300": 580, "gb300": 580}
"""The first branch of NVIDIA's driver that knows a generation (its release notes)."""

CHIPS = {
    "60": "p100",
    "70": "v100",
    "80": "a100",
    "90": "h100",
    "100": "b200",
    "103": "b300",
    "gfx906": "mi50",
    "gfx908": "mi100",
    "gfx90a": "mi250",
    "gfx910": "mi250",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
}
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

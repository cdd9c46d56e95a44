"""Families of machines by the names and the chips of their GPUs, as other programs print them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMES = re.compile(
    r"\b(GB300|GB200|GH200|B300|B200|H200|H100|H800|H20|A100|A800|V100S?|P100|A10G?|A30|A40|L4"
    r"|L40S?|T4|RTX|MI355X|MI350X|MI325X|MI308X|MI300[AX]|MI250|MI210|MI100|MI50)(?=\b|X\b)",
    re.IGNORECASE,
)
"""Names of GPUs by which families are known."""

_LIKE = {
    "v100s": "v100",
    "a10g": "a10",
    "l40": "l40s",
    "mi210": "mi250",
    "mi300a": "mi300x",
    "mi308x": "mi300x",
    "mi350x": "mi355x",
}
"""The family of a GPU that has another name."""

_NVLINK_CARDS = re.compile(r"\bPCIE\b", re.IGNORECASE)
"""Cards of families with NVLink that are in PCIe slots."""

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


def family_of(names: Iterable[str]) -> str:
    """Return the family of GPUs by their names (``NVIDIA A100-SXM4-80GB``); empty where unknown or
    where they differ."""
    return _common(map(_by_name, names))


def family_of_chips(chips: Iterable[str]) -> str:
    """Return the family by compute capabilities (``90``) or gfx numbers (``gfx942``), as above."""
    return _common(CHIPS.get(_chip(one), "") for one in chips)


def _by_name(name: str) -> str:
    if (found := _NAMES.search(name)) is None:
        return ""
    plain = found[1].lower()
    return "pcie" if _NVLINK_CARDS.search(name) else _LIKE.get(plain, plain)


def _chip(text: str) -> str:
    plain = text.strip().lower()
    if plain.isdigit() and plain.startswith("9") and len(plain) == 3:  # RCCL's 906, 908, 910
        return f"gfx{plain}"
    return plain


def _common(families: Iterable[str]) -> str:
    found = set(families)
    return found.pop() if len(found) == 1 else ""

"""Families of machines by the names and the chips of their GPUs, as other programs print them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMES = re.compile(
    r"\b(GB300|GB200|GH200|B300|B200|H200|H100|H800|A100|A800|V100|P100|A10|A30|A40|L4|L40S|T4"
    r"|RTX|MI355X|MI325X|MI300X|MI250|MI100|MI50)(?=\b|X\b)",
    re.IGNORECASE,
)
"""Names of GPUs that are those of families."""

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
    return "pcie" if _NVLINK_CARDS.search(name) else found[1].lower()


def _chip(text: str) -> str:
    plain = text.strip().lower()
    if plain.isdigit() and plain.startswith("9") and len(plain) == 3:  # RCCL's 906, 908, 910
        return f"gfx{plain}"
    return plain


def _common(families: Iterable[str]) -> str:
    found = set(families)
    return found.pop() if len(found) == 1 else ""

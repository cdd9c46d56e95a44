"""Colour scale of use in all drawings: pale grey to dark blue.

Its steps differ in lightness, so they are told apart in print and by colour-blind readers.

>>> shade(0), shade(0.5), shade(1), share_words(0.999), share_words(1)
('#d0d0d0', '#708ba6', '#10467c', '99.9%', '100%')
"""

from __future__ import annotations

_PALE, _DARK = (0xD0, 0xD0, 0xD0), (0x10, 0x46, 0x7C)

OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#555555")
"""Colours that are distinguishable with colour blindness (Okabe and Ito, 2008)."""


def shade(share: float) -> str:
    """Return the colour of a share of 0 … 1."""
    inside = min(1.0, max(0.0, share))
    mixed = (round(a + (b - a) * inside) for a, b in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{x:02x}" for x in mixed)


def share_words(share: float) -> str:
    """Return ``87%``; a share of nearly 1 is never rounded to 100%."""
    nearly = 0 < 1 - share < 0.005
    return f"{share:.1%}" if nearly or 0 < share < 0.01 else f"{share:.0%}"

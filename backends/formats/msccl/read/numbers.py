"""Integers as C's ``strtol(text, NULL, 0)`` and the narrow fields of the runtimes make them.

>>> integer("010"), integer("0x1f"), integer("zero"), integer("7 apples")
((8, 'octal'), (31, 'hexadecimal'), (0, 'not a number'), (7, 'trailing text'))
>>> wrap(65536, 16), wrap(40000, 16), wrap(128, 8)
(0, -25536, -128)
"""

from __future__ import annotations

import re

_C_INTEGER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX](?=[0-9a-fA-F]))?([0-9a-fA-F]*)")
_LARGEST = (1 << 63) - 1


def integer(text: str, bits: int = 32) -> tuple[int, str]:
    """The value the runtimes read, and in what way it is not what it seems ('' if it is)."""
    if text.isascii() and text.isdigit() and len(text) < 10 and (text[0] != "0" or text == "0"):
        return int(text), ""
    if text == "-1":
        return -1, ""
    match = _C_INTEGER.match(text)
    assert match is not None
    sign, prefix, digits = match.groups()
    base = 16 if prefix else 8 if digits.startswith("0") else 10
    length = next((i for i, d in enumerate(digits) if int(d, 16) >= base), len(digits))
    digits, rest = digits[:length], digits[length:] + text[match.end() :]
    if not digits:
        return 0, "not a number"
    # strtol saturates; more than 22 octal digits are beyond 64 bits whatever they are.
    significant = digits.lstrip("0") or "0"
    size = int(significant, base) if len(significant) <= 22 else 1 << 64
    exact = -size if sign == "-" else size
    exact = max(min(exact, _LARGEST), -_LARGEST - 1)
    value = wrap(exact, bits)
    if rest:
        return value, "trailing text"
    if value != exact or size > _LARGEST:
        return value, f"more than {bits} bits"
    if base != 10 and significant != "0":
        return value, "octal" if base == 8 else "hexadecimal"
    return value, ""


def wrap(value: int, bits: int) -> int:
    """A value stored in a signed field of so many bits."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half

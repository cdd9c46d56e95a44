"""Exact numbers with units: sizes in bytes, times in µs, bandwidths in GB/s (10⁹ bytes/s).

1 GB/s moves 1000 bytes in a µs, so ``bytes / (GBps * 1000)`` is a time in µs.

>>> parse_bytes("1MiB"), parse_microseconds("2.5us"), parse_bandwidth("100Gb/s")
(1048576, Fraction(5, 2), Fraction(25, 2))
>>> format_bytes(1048576), format_bytes(1500)
('1MiB', '1.5KB')
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from .errors import UserError, suggest
from .integers import plain
from .lazy_dataclass import Frozen

BYTES_PER_US_PER_GBPS = 1000
"""Bytes that a link of 1 GB/s moves in one µs."""

LARGEST_MESSAGE = 1 << 50
"""Bytes of the largest message that is believed; sums of them fit 64 bits."""

_SIZES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_TIMES = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "min": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
_BANDWIDTHS = {
    "B/s": Fraction(1, 10**9),
    "KB/s": Fraction(1, 10**6),
    "MB/s": Fraction(1, 1000),
    "GB/s": Fraction(1),
    "TB/s": Fraction(1000),
    "KiB/s": Fraction(2**10, 10**9),
    "MiB/s": Fraction(2**20, 10**9),
    "GiB/s": Fraction(2**30, 10**9),
    "Mb/s": Fraction(1, 8000),
    "Gb/s": Fraction(1, 8),
    "Tb/s": Fraction(125),
    "Mbit/s": Fraction(1, 8000),
    "Gbit/s": Fraction(1, 8),
}
_QUANTITY = re.compile(r"\s*([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?)\s*([^\s0-9.]\S*)?\s*")


class SizeRange(Frozen):
    """Message sizes from ``low`` to ``high`` bytes, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise UserError(
                f"size range {self.low}..{self.high} is empty", hint="write it low:high"
            )

    def powers(self) -> tuple[int, ...]:
        """Return ``low`` doubled repeatedly up to ``high``; the last size is always ``high``."""
        count = int(math.log2(self.high / self.low) + 1e-9)
        sizes = [self.low << i for i in range(count + 1)]
        return tuple(sizes if sizes[-1] == self.high else [*sizes, self.high])


def _parse(
    text: str, what: str, units: dict[str, Fraction] | dict[str, int], example: str
) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UserError(f"expected a {what}, got {text!r}", hint=f"number and unit: {example}")
    number, unit = match.groups()
    if unit is None:
        raise UserError(
            f"expected a {what} with a unit, got {text!r}", hint=f"units: {', '.join(units)}"
        )
    lowered = {u.lower(): u for u in units}
    # Case is ignored only where the spelling stays unambiguous: Gb/s and GB/s differ.
    if unit not in units and list(map(str.lower, units)).count(unit.lower()) == 1:
        unit = lowered[unit.lower()]
    if unit not in units:
        hint, big = suggest(unit, units), unit.upper()
        if len(unit) == 1 and (decimal := _SIZES.get(f"{big}B")) and f"{big}iB" in units:
            hint = (
                f"{number}{big}iB ({number}{big}B is {(Decimal(number) * decimal).normalize():f})"
            )
        raise UserError(f"unknown unit {unit!r} in {what} {text!r}", hint=hint)
    value = Fraction(Decimal(number)) * units[unit]
    if value < 0:
        raise UserError(
            f"expected a {what} of 0 or more, got {text!r}", hint=f"for example {example}"
        )
    if value and not _LEAST <= value <= _MOST:
        told = f"{what} {text!r} is beyond any machine"
        raise UserError(told, hint=f"for example {example}")
    return value


_LEAST, _MOST = Fraction(1, 10**30), Fraction(10**30)
"""Quantities, but for 0: products of some are numbers that a float holds."""


def parse_bytes(text: str) -> int:
    """Parse a size such as ``64B``, ``1KB`` (1000) or ``1KiB`` (1024), in bytes.

    Raises:
        UserError: no unit, an unknown one, or not a positive integer number of bytes.
    """
    value = _parse(text, "size", _SIZES, "1MiB")
    if value.denominator != 1 or value < 1:
        raise UserError(f"size {text!r} is not a whole positive number of bytes")
    return int(value)


def parse_size_range(text: str) -> SizeRange:
    """Parse ``1KiB:1GiB``, ``1KiB..1GiB``, or one size (a range of one).

    Raises:
        UserError: an end of the range is missing or not a size, or the range is empty.
    """
    low, colon, high = text.replace("..", ":").partition(":")
    if not colon and "-" in low.strip()[1:]:
        meant = low[:40].replace("-", ":")
        raise UserError(f"{text[:40]!r} is not a size", hint=f"a range is written {meant}")
    first = parse_bytes(low)
    return SizeRange(first, parse_bytes(high) if colon else first)


def parse_microseconds(text: str, *, example: str = "2.5us") -> Fraction:
    """Parse a time such as ``2.5us``, ``700ns`` or ``60s``, in µs; hints show the ``example``."""
    return _parse(text, "time", _TIMES, example)


def parse_bandwidth(text: str) -> Fraction:
    """Parse a bandwidth such as ``25GB/s`` (bytes) or ``200Gb/s`` (bits), in GB/s."""
    value = _parse(text, "bandwidth", _BANDWIDTHS, "25GB/s")
    if value == 0:
        hint = "give one above 0; a link that is dead is left out of the machine"
        raise UserError(f"bandwidth {text!r} is zero", hint=hint)
    return value


def exact(value: object, what: str) -> Fraction:
    """Return a finite number, also NumPy's, as an exact rational; a string may be ``"7/6"``.

    Floats stand for their shortest decimal: 0.7 is 7/10.

    Raises:
        UserError: not a number, NaN or infinite.
    """
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction, Decimal)):
        raise UserError(f"{what}: expected a number, got {value!r}")
    if isinstance(value, Fraction) and max(value.numerator, value.denominator) < 10**30:
        return value  # the same object, without conversion to text
    text = repr(value) if isinstance(value, float) else str(value)
    if len(text) > 64 or re.search(r"[eE][+-]?\d{4,}", text):
        raise UserError(f"{what} {text[:40]!r}… is too long a number")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"{what}: expected a finite number, got {text!r}") from None


def format_binary(count: int) -> str:
    """Return a size in binary units alone, to four digits, so that columns can be compared.

    >>> format_binary(1048576), format_binary(13780), format_binary(1000000), format_binary(512)
    ('1MiB', '13.46KiB', '976.6KiB', '512B')
    """
    for unit in ("GiB", "MiB", "KiB"):
        if count >= _SIZES[unit]:
            return f"{count / _SIZES[unit]:.4g}{unit}"
    return f"{count}B"


def format_bytes(count: int) -> str:
    """Return a size in the largest unit that divides it, binary units first; else four digits."""
    for unit in ("GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if count >= _SIZES[unit] and count % _SIZES[unit] == 0:
            return f"{count // _SIZES[unit]}{unit}"
    for unit in ("GB", "MB", "KB"):
        if count >= _SIZES[unit]:
            return f"{count / _SIZES[unit]:.4g}{unit}"
    return f"{count}B"

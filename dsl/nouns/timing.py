"""Timing facts of a machine: its family, and measured numbers of the runtime model.

The numbers stand beside α and bandwidth, of which alone schedules and bounds know. Each has a key
of the runtime model's table (``synth/time/calibrated.toml``), such as ``alpha.nvlink.LL``, and
takes the place of its default there.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from ..base.errors import BadFile, UserError, placed
from ..base.lazy_dataclass import Frozen
from ..base.record import Key, Record
from ..base.units import exact


class _NumberLimits(Frozen):
    """Least and largest value, and the unit as texts show it."""

    least: Fraction
    most: Fraction
    unit: str = ""

    @property
    def text(self) -> str:
        """The range, for messages."""
        return f"{float(self.least):g} to {float(self.most):g}{self.unit}"


_TIME = _NumberLimits(Fraction(0), Fraction(10**6), " µs")
_SHARE = _NumberLimits(Fraction(1, 1000), Fraction(1))
_RATE = _NumberLimits(Fraction(1, 1000), Fraction(10**6), " GB/s")

_RANGES = {
    **dict.fromkeys(
        ("start", "alpha", "nominal", "message", "host", "peer", "cast", "signal"), _TIME
    ),
    **dict.fromkeys(("reach", "efficiency", "tree", "nvls"), _SHARE),
    **dict.fromkeys(("cap", "local", "ring"), _RATE),
    "factor": _NumberLimits(Fraction(1, 1000), Fraction(1000)),
    **dict.fromkeys(("channels", "casting"), _NumberLimits(Fraction(1), Fraction(1024))),
}
"""By the first word of a key: far beyond any machine, so that no time overflows or is nothing."""


class TimingNumber(Frozen):
    """A number in place of a default of the runtime model; µs, GB/s or a share, as its key says.

    Raises:
        UserError: it is out of the range of its key.
    """

    key: str
    value: Fraction
    source: str

    def __post_init__(self) -> None:
        limits = _RANGES.get(self.key.partition(".")[0], _TIME)
        if not limits.least <= self.value <= limits.most:
            negative = ", which is negative" if self.value < 0 else ""
            raise UserError(
                f"{self.key} is {_shown(self.value)}{negative}",
                hint=f"a number from {limits.text}",
            )


class MachineTiming(Frozen):
    """Family of a machine (``a100``; empty: not known), and its own numbers.

    Raises:
        UserError: two numbers of one key.
    """

    family: str = ""
    numbers: tuple[TimingNumber, ...] = ()

    def __post_init__(self) -> None:
        keys = [one.key for one in self.numbers]
        for key in keys:
            if keys.count(key) > 1:
                raise UserError(f"{key} is given twice")

    def with_numbers(self, more: tuple[TimingNumber, ...]) -> MachineTiming:
        """Return it with numbers that replace those of their keys."""
        new = {one.key for one in more}
        return MachineTiming(
            self.family, (*(one for one in self.numbers if one.key not in new), *more)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; fractions are texts."""
        return _TIMING.write(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> MachineTiming:
        """Parse the object that :meth:`to_json` writes.

        Raises:
            BadFile: not such an object.
        """
        return placed(lambda: _TIMING.read(data, where), where)


def _shown(value: Fraction) -> str:
    """Return a number as a short text; an enormous one by its sign alone."""
    try:
        return f"{float(value):g}"
    except OverflowError:
        return f"{'-' if value < 0 else ''}1e{len(str(abs(value.numerator))) - 1} or so"


NO_TIMING = MachineTiming()
"""Of a machine of which nothing is known but its α and bandwidths."""


def flattened(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested tables by keys such as ``alpha.nvlink.LL``."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": x for inner, x in flattened(value).items()}
        else:
            found[key] = value
    return found


def _numbers(rows: list[Any], key: str, where: str) -> tuple[TimingNumber, ...]:
    found = []
    for i, row in enumerate(rows):
        at = f"{where}.{key}[{i}]"
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
            raise BadFile("a number is [key, value, source]", where=at)
        value = placed(partial(exact, row[1], f"{at}: {row[0]}"), at)
        found.append(placed(partial(TimingNumber, row[0], value, str(row[2])), at))
    return tuple(found)


_TIMING = Record(
    MachineTiming,
    family=Key(str, ""),
    numbers=Key(
        list, [], _numbers, lambda some: [[one.key, str(one.value), one.source] for one in some]
    ),
)

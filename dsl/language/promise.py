"""Promises in the head comments of sketches: quality of a schedule within a time.

>>> from .parse import parse
>>> promised(parse("# Promise: allgather of 1MiB within 2% of the bound in 5s.\\nsketch x\\n"))
Promise(collective='allgather', bytes=1048576, gap=Fraction(1, 50), seconds=5.0, ruled=False)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..base.errors import UserError
from ..base.units import parse_bytes, parse_microseconds
from .ast import SketchText
from .load import about

FORM = "Promise: allgather of 1MiB within 2% of the bound in 5s."
_PROMISE = re.compile(
    r"Promise: (?P<collective>\w+) of (?P<size>\w+) within (?P<percent>\d+(\.\d+)?)% of the bound"
    r"(?P<ruled> under its rules)? in (?P<time>\w+)\."
)


@dataclass(frozen=True, slots=True)
class Promise:
    """Promised result of ``weft synth``.

    It finds a schedule of ``collective`` for messages of ``bytes`` within ``seconds`` that takes at
    most 1 + ``gap`` times the bound of the machine, or, where ``ruled``, the bound under the rules
    of the sketch (``weft explain``).
    """

    collective: str
    bytes: int
    gap: Fraction
    seconds: float
    ruled: bool


def promised(tree: SketchText) -> Promise | None:
    """Return the promise of a sketch with default parameters; None if it has none.

    Raises:
        UserError: a line that begins like a promise and cannot be parsed.
    """
    text = about(tree)
    if "Promise:" not in text:
        return None
    match = _PROMISE.search(text)
    if match is None:
        raise UserError("this promise cannot be read", where=tree.span, hint=f"write it: {FORM}")
    return Promise(
        match["collective"],
        parse_bytes(match["size"]),
        Fraction(match["percent"]) / 100,
        float(parse_microseconds(match["time"]) / 10**6),
        match["ruled"] is not None,
    )

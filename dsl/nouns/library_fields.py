"""Readers of the free-form objects of a library's manifest: bounds, timing, provenance, times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..base.errors import BadFile, placed
from ..base.files import only
from ..base.record import Key, Record, line, texts
from .program import protocol_of
from .runtime import target

LONGEST_US = 1e15
"""Longest time in µs that a library may state: 30 years."""

SHORTEST_US = 1e-9
"""Shortest time in µs that a library may state, beside 0 for operations that move nothing."""

RATIONAL = re.compile(r"\d{1,400}(/[1-9]\d{0,399})?")

Times = tuple[float | None, ...]
"""Times in µs at each size of a grid; None where not timed."""


def read_times(values: list[Any], key: str, where: str) -> Times:
    """Return a column of times in µs; null where not timed.

    Raises:
        BadFile: something else, or a time that nothing takes.
    """
    if not only(values, int, float, type(None)):
        raise BadFile(f"{key!r} must hold times in µs", where=where)
    for at, us in enumerate(values):
        if us is not None and us != 0 and not SHORTEST_US <= us <= LONGEST_US:
            raise BadFile(
                f"{key!r} must hold times in µs; {us!r} at {at} is none",
                where=where,
                hint=f"0, or {SHORTEST_US:g} to {LONGEST_US:g}",
            )
    return tuple(None if v is None else float(v) for v in values)


# --- how it was timed, and made -------------------------------------------------------------------


def _by(name: str, key: str, where: str) -> str:
    if name not in ("simulation", "measurement"):
        raise BadFile(f"'by' must be 'simulation' or 'measurement', not {name!r}", where=where)
    return name


def _runtime(name: str, key: str, where: str) -> None:
    if line(name, key, where):
        placed(lambda: target(name), f"{where}: runtime")


def _protocols(names: list[Any], key: str, where: str) -> None:
    for name in texts(names, key, where):
        placed(partial(protocol_of, name), f"{where}: protocols")


def _share(value: float, key: str, where: str) -> None:
    if not 0 <= value <= 1:
        raise BadFile(f"{key!r} must be a share from 0 to 1, not {value!r}", where=where)


def _turns(number: int, key: str, where: str) -> None:
    if not 1 <= number <= 1 << 30:
        raise BadFile(f"{key!r} must be a count, not {number}", where=where)


_TIMING: Record[Any] = Record(
    dict,
    by=Key(str, read=_by),
    runtime=Key(str, "", _runtime),
    model=Key(str, "", line),
    on=Key(str, "", line),
    protocols=Key(list, [], _protocols),
    within=Key((int, float), 0, _share),
    turns=Key(int, 1, _turns),
)


def read_timing(data: Any, key: str, where: str) -> dict[str, Any]:
    """Return how a library's candidates were timed; of the keys only ``by`` must be there."""
    _TIMING.read(data, f"{where}: {key}")
    return dict(data)


def read_provenance(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the inputs of a library: numbers, and texts of one line."""
    where = f"{where}: {key}"
    for name, value in data.items():
        line(name, "a key", where)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                line(one, name, where)
    return dict(data)


# --- bounds ---------------------------------------------------------------------------------------


def _rational(value: str, key: str, where: str) -> None:
    if not RATIONAL.fullmatch(value):
        raise BadFile(f"{key!r} must be a rational such as '7/6', not {value!r}", where=where)


def _steps(number: int, key: str, where: str) -> None:
    if number < 0:
        raise BadFile(f"{key!r} must be a count", where=where)


def _terms(terms: list[Any], key: str, where: str) -> None:
    for term in terms:
        pair = isinstance(term, list) and len(term) == 2
        if not pair or not all(isinstance(x, str) and RATIONAL.fullmatch(x) for x in term):
            raise BadFile(f"a term must be ['7/6', '25'] (µs, GB/s), not {term!r}", where=where)


_LINE, _EXACT = Key(str, read=line), Key(str, read=_rational)
_POSSIBLE = Key((str, type(None)), read=_rational)
_CERTIFICATE = Record(dict, kind=_LINE, text=_LINE, data=Key(dict)).one()
_BOUND: Record[Any] = Record(
    dict,
    latency_us=_EXACT,
    seconds_per_byte=_EXACT,
    rounds_per_chunk=_EXACT,
    algbw_GBps=_POSSIBLE,
    attainable_seconds_per_byte=_POSSIBLE,
    steps=Key(int, read=_steps),
    certificate=_CERTIFICATE,
    latency_certificate=_CERTIFICATE,
    steps_certificate=_CERTIFICATE,
    remark=_LINE,
    composite=Record(dict, us=_EXACT, seconds_per_byte=_EXACT, certificate=_CERTIFICATE).several(),
    reach=Record(
        dict, pairs=_EXACT, terms=Key(list, read=_terms), certificate=_CERTIFICATE
    ).several([]),  # older libraries have none
    rooted=Record(dict, holds_for=_LINE, seconds_per_byte=_EXACT, certificate=_CERTIFICATE).one(
        None
    ),  # where switches compute
)


def read_bound(data: Any, key: str, where: str) -> dict[str, Any]:
    """Return the bound of a collective, with the keys of ``weft bound --json``."""
    _BOUND.read(data, f"{where}: {key}")
    return dict(data)

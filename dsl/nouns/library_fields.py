"""Readers of the free-form objects of a library's manifest: bounds, timing, provenance, times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import BadFile, UnknownName
from ..base.files import Fields, only
from .program import protocol_of
from .runtime import target

LONGEST_US = 1e15
"""Longest time in µs that a library may state: 30 years."""

SHORTEST_US = 1e-9
"""Shortest time in µs that a library may state, beside 0 for what moves nothing."""

RATIONAL = re.compile(r"\d{1,400}(/[1-9]\d{0,399})?")
CERTIFICATES = ("certificate", "latency_certificate", "steps_certificate")
RATIONALS = ("latency_us", "seconds_per_byte", "rounds_per_chunk")
POSSIBLE = ("algbw_GBps", "attainable_seconds_per_byte")
"""Rationals of a bound that may be null."""

Times = tuple[float | None, ...]
"""Times in µs at each size of a grid; None where not timed."""


def read_times(fields: Fields, key: str, where: str, *default: list[Any]) -> Times:
    """Return a column of times in µs; null where not timed.

    Raises:
        BadFile: something else, or a time that nothing takes.
    """
    values = fields.get(key, list, *default)
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


def read_texts(values: Sequence[Any], key: str, where: str) -> tuple[str, ...]:
    """Return a list of texts of one line each."""
    if not only(values, str):
        raise BadFile(f"{key!r} must hold texts", where=where)
    return tuple(require_line(value, key, where) for value in values)


def require_line(value: str, key: str, where: str) -> str:
    """Return a text, refusing one with control characters, such as the ends of lines."""
    if not value.isprintable():
        raise BadFile(f"{key!r} must be one line of text, not {value!r}", where=where)
    return value


# --- how it was timed, and made -------------------------------------------------------------------


def read_timing(data: Any, where: str) -> dict[str, Any]:
    """Return how a library's candidates were timed; of the keys only ``by`` must be there."""
    where = f"{where}: timing"
    fields = Fields(data, where)
    by = fields.get("by", str)
    if by not in ("simulation", "measurement"):
        raise BadFile(f"'by' must be 'simulation' or 'measurement', not {by!r}", where=where)
    for key in ("runtime", "model", "on"):
        require_line(fields.get(key, str, ""), key, where)
    if runtime := data.get("runtime"):
        _known(target, runtime, f"{where}: runtime")
    for name in read_texts(fields.get("protocols", list, []), "protocols", where):
        _known(protocol_of, name, f"{where}: protocols")
    if not 0 <= (share := fields.get("within", (int, float), 0)) <= 1:
        raise BadFile(f"'within' must be a share from 0 to 1, not {share!r}", where=where)
    if not 1 <= (turns := fields.get("turns", int, 1)) <= 1 << 30:
        raise BadFile(f"'turns' must be a count, not {turns}", where=where)
    fields.finish(ignore=())
    return dict(data)


def _known(find: Callable[[str], object], name: str, where: str) -> None:
    try:
        find(name)
    except UnknownName as error:
        raise BadFile(error.message, where=where, hint=error.hint) from None


def read_provenance(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the inputs of a library: numbers, and texts of one line."""
    where = f"{where}: provenance"
    for key, value in data.items():
        require_line(key, "a key", where)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                require_line(one, key, where)
    return dict(data)


# --- bounds ---------------------------------------------------------------------------------------


def read_bound(data: Any, where: str) -> dict[str, Any]:
    """Return the bound of a collective, with the keys of ``weft bound --json``."""
    where = f"{where}: bound"
    fields = Fields(data, where)
    for key in RATIONALS:
        _rational(fields, key, where)
    for key in POSSIBLE:
        if fields.get(key, (str, type(None))) is not None:
            _rational(fields, key, where)
    if fields.get("steps", int) < 0:
        raise BadFile("'steps' must be a count", where=where)
    for key in CERTIFICATES:
        _certificate(fields, key, where)
    require_line(fields.get("remark", str), "remark", where)
    for part in fields.get("composite", list):
        one = Fields(part, f"{where}: composite")
        _rational(one, "us", f"{where}: composite")
        _rational(one, "seconds_per_byte", f"{where}: composite")
        _certificate(one, "certificate", f"{where}: composite")
        one.finish(ignore=())
    for part in fields.get("reach", list, []):  # older libraries have none
        one = Fields(part, f"{where}: reach")
        _rational(one, "pairs", f"{where}: reach")
        for term in one.get("terms", list):
            _term(term, f"{where}: reach")
        _certificate(one, "certificate", f"{where}: reach")
        one.finish(ignore=())
    rooted = fields.get("rooted", (dict, type(None)), None)  # where switches compute
    if rooted is not None:
        one = Fields(rooted, f"{where}: rooted")
        require_line(one.get("holds_for", str), "holds_for", f"{where}: rooted")
        _rational(one, "seconds_per_byte", f"{where}: rooted")
        _certificate(one, "certificate", f"{where}: rooted")
        one.finish(ignore=())
    fields.finish(ignore=())
    return dict(data)


def _term(term: Any, where: str) -> None:
    pair = isinstance(term, list) and len(term) == 2
    if not pair or not all(isinstance(x, str) and RATIONAL.fullmatch(x) for x in term):
        raise BadFile(f"a term must be ['7/6', '25'] (µs, GB/s), not {term!r}", where=where)


def _rational(fields: Fields, key: str, where: str) -> None:
    value = fields.get(key, str)
    if not RATIONAL.fullmatch(value):
        raise BadFile(f"{key!r} must be a rational such as '7/6', not {value!r}", where=where)


def _certificate(fields: Fields, key: str, where: str) -> None:
    where = f"{where}: {key}"
    one = Fields(fields.get(key, dict), where)
    require_line(one.get("kind", str), "kind", where)
    require_line(one.get("text", str), "text", where)
    one.get("data", dict)
    one.finish(ignore=())

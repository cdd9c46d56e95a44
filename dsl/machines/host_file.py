"""Host description files (TOML), read strictly: every number has a unit and a source.

The catalogue's files are ``topologies/*.toml``; user files have the same format
(``docs/topologies.md``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from ..base.errors import BadFile, placed
from ..base.files import SCHEMA, Fields, parse_toml
from ..base.units import exact, parse_bandwidth, parse_microseconds
from ..nouns.capabilities import CAPABILITIES, read_limits
from ..nouns.timing import MachineTiming, TimingNumber, flattened
from .fabric_links import parse_fabric
from .hosts import Cables, Host, HostSwitch, Nics
from .spec import MAX_GPUS


def looks_like_host(text: str) -> bool:
    """Return True if the first line that is not blank or a comment is a TOML key."""
    # Possessive: there is one way to take a line, and 2 ** lines with a plain star.
    return re.match(r"\ufeff?(?:[^\S\n]*+(?:#.*+)?\n)*+\s*+[a-z_]++\s*+=", text) is not None


def host_names() -> tuple[str, ...]:
    """Return the names of the hosts of the catalogue, sorted."""
    folder = resources.files("weft") / "topologies"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml")))


@cache
def load_host(name: str) -> Host:
    """Read a host description of the catalogue."""
    file = resources.files("weft") / "topologies" / f"{name}.toml"
    return read_host(file.read_text(encoding="utf-8"), f"topologies/{name}.toml")


def read_host(text: str, where: str) -> Host:
    """Parse a host description.

    Raises:
        BadFile: not TOML, an unknown key, a number without unit, an unknown GPU.
    """
    data = parse_toml(text, where, exact=True)
    if data.get("schema") != SCHEMA:
        raise BadFile(
            f"schema {data.get('schema')!r} is not known",
            where=where,
            hint=f"a host file has schema = {SCHEMA}",
        )
    fields = Fields(data, where)
    gpus = fields.get("gpus", int)
    if not 1 <= gpus <= MAX_GPUS:
        raise BadFile(f"gpus is {gpus}", where=where)
    host = Host(
        fields.get("name", str),
        fields.get("title", str, ""),
        gpus,
        tuple(_read_switch(x, gpus, at) for x, at in _entries(fields, "switch", where)),
        tuple(_read_cables(x, gpus, at) for x, at in _entries(fields, "cables", where)),
        _read_nics(fields.get("nics", dict), gpus, where) if "nics" in data else None,
        tuple(_read_move(x, gpus, where) for x in fields.get("symmetries", list, [])),
        _read_timing(fields, where),
    )
    fields.get("source", str, "")
    fields.finish()
    return host


def _read_timing(fields: Fields, where: str) -> MachineTiming:
    """Parse ``family``, and the table ``timing``: a value for each key, and their source.

    Which keys there are is known where times are (``synth/time/calibrated.py``).
    """
    family, table = fields.get("family", str, ""), dict(fields.get("timing", dict, {}))
    where = f"{where}: timing"
    source = table.pop("source", None)
    if table and not isinstance(source, str):
        raise BadFile("the key 'source' is missing", where=where)
    values = flattened(table)
    numbers = (TimingNumber(key, exact(x, key), str(source)) for key, x in values.items())
    return placed(lambda: MachineTiming(family, tuple(numbers)), where)


def _entries(fields: Fields, key: str, where: str) -> Iterator[tuple[Any, str]]:
    """Yield the tables of an array with the location of each for messages."""
    tables = fields.get(key, list, [])
    for number, one in enumerate(tables, 1):
        which = f" {number} of {len(tables)}" if len(tables) > 1 else ""
        yield one, f"{where}: {key}{which}"


def _read_switch(data: Any, gpus: int, where: str) -> HostSwitch:
    fields = Fields(data, where)
    one = HostSwitch(
        fields.get("name", str),
        _read_gpus(fields.get("gpus", list, list(range(gpus))), gpus, where),
        _parsed(fields, "bandwidth", where),
        _parsed(fields, "alpha", where),
        able=frozenset(word for word in CAPABILITIES if fields.get(word, bool, False)),
        limits=read_limits(fields, where),
    )
    if "turns" in one.able and "reduces" not in one.able:
        raise BadFile("turns is true and reduces is not", where=where, hint="turns needs reduces")
    _cited(fields)
    return one


def _read_cables(data: Any, gpus: int, where: str) -> Cables:
    fields = Fields(data, where)
    pairs = []
    for row in fields.get("pairs", list):
        if not isinstance(row, list) or len(row) not in (2, 3):
            raise BadFile(
                f"{row!r} is not a cable: write [GPU, GPU] or [GPU, GPU, lanes]", where=where
            )
        a, b = _read_gpus(row[:2], gpus, where)
        lanes = row[2] if len(row) == 3 else 1
        if type(lanes) is not int or not 1 <= lanes <= 1000:
            raise BadFile(f"{lanes!r} lanes in {row!r}", where=where)
        pairs.append((a, b, lanes))
    width = _parsed(fields, "lane", where)
    one = Cables(tuple(pairs), width, _parsed(fields, "alpha", where))
    _cited(fields)
    return one


def _read_nics(data: Any, gpus: int, where: str) -> Nics:
    where = f"{where}: nics"
    fields = Fields(data, where)
    attach = tuple(_read_gpus(x, gpus, where) for x in fields.get("attach", list))
    if not attach:
        raise BadFile("attach: expected a NIC, got none", where=where)
    fabric = fields.get("fabric", str, "star")
    placed(lambda: parse_fabric(fabric), where)
    width = _parsed(fields, "bandwidth", where)
    alpha = _parsed(fields, "alpha", where)
    shared = any(len(served) > 1 for served in attach)
    stated = shared or fields.get("pcie", str, "")
    port = _parsed(fields, "pcie", where) if stated else None
    loopback = fields.get("loopback", bool, False)
    names = tuple(_read_names(x, where) for x in fields.get("names", list, []))
    if names and len(names) != len(attach):
        raise BadFile(f"names are of {len(names)} NICs, attach has {len(attach)}", where=where)
    _cited(fields)
    return Nics(attach, width, alpha, port or width, fabric, names, port, port, loopback)


def _read_names(data: Any, where: str) -> tuple[str, ...]:
    names = data if isinstance(data, list) else [data]
    if not names or not all(isinstance(x, str) and x for x in names):
        raise BadFile(f"a name is expected, not {data!r}"[:120], where=where)
    return tuple(names)


def _parsed(fields: Fields, key: str, where: str) -> Fraction:
    """Return a bandwidth or, under ``alpha``, a time; both are texts with a unit."""
    parse = parse_microseconds if key == "alpha" else parse_bandwidth
    return placed(lambda: parse(fields.get(key, str)), where)


def _cited(fields: Fields) -> None:
    fields.get("source", str)
    fields.finish()


def _read_gpus(data: Any, gpus: int, where: str) -> tuple[int, ...]:
    if not isinstance(data, list) or not data or not all(type(x) is int for x in data):
        raise BadFile(f"a list of GPU numbers is expected, not {data!r}"[:120], where=where)
    if len(set(data)) < len(data):
        raise BadFile(f"a GPU is listed twice in {data}"[:120], where=where)
    if not all(0 <= x < gpus for x in data):
        raise BadFile(f"GPUs are 0 … {gpus - 1}, not {data}"[:120], where=where)
    return tuple(data)


def _read_move(data: Any, gpus: int, where: str) -> tuple[int, ...]:
    move = _read_gpus(data, gpus, f"{where}: symmetries")
    if len(move) != gpus:
        raise BadFile(f"a symmetry has {len(move)} of {gpus} GPUs", where=f"{where}: symmetries")
    return move

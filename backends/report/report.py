"""Tables of answers: an entry of ``--json`` is a row, and text shows some of its keys.

A column is ``head:key`` or ``head:key:look``. Without a look, the unit that ends the key decides,
so that all verbs tell a size or a time alike.

>>> found = [{"bytes": 1024, "us": 2, "of_bound": 1}, {"bytes": 2048, "us": 4, "of_bound": None}]
>>> print(shown(found, "size:bytes", "µs:us", "of bound:of_bound:.1%", "plan:name"))
size     µs  of bound
1KiB  2.000    100.0%
2KiB  4.000         -
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import microseconds, table
from weft.dsl.base.units import format_binary, format_bytes

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.topology import Topology

LOOKS: Mapping[str, Callable[[Any], str]] = MappingProxyType(
    {"us": microseconds, "bytes": format_bytes, "binary": format_binary}
)
"""Texts of values by the unit that ends a key, or by name; others are format specifications."""

TIMED = (
    *("size:bytes", "type:dtype", "plan:name", "µs:us", "least µs:least_us"),
    *("algbw GB/s:algbw_GBps", "busbw GB/s:busbw_GBps", ":mark", "of bound:of_bound:.1%"),
    *("over runtime's bound:over_runtime:.3f", "predicted µs:predicted_us", "error:error:+.0%"),
    "times:of_predicted:.1f",
)
"""Columns of ``sizes`` of ``simulate``, ``bench`` and ``run``: printed, shown, and on a page."""


def shown(entries: Sequence[Mapping[str, Any]], *columns: str, width: int = 0) -> str:
    """Return the table of some entries.

    A key that none of several entries has makes no column; a cell is empty where its entry lacks
    it, and ``-`` for None. ``a.b`` is the key ``b`` of the entry's object ``a``. ``width``: as of
    :func:`table`.
    """
    heads, rows = heads_and_rows(entries, columns)
    return table(heads, rows, width)


def heads_and_rows(
    entries: Sequence[Mapping[str, Any]],
    columns: Iterable[str],
    looks: Mapping[str, Callable[[Any], str]] = LOOKS,
) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return the heads and the rows of :func:`shown`; ``looks``: in place of :data:`LOOKS`."""
    kept = []
    for head, key, *look in (column.split(":") for column in columns):
        values = [_value(entry, key) for entry in entries]
        if not entries or any(value is not _LACKS for value in values):
            kept.append((head, [_cell(looks, x, key, *look) for x in values]))
    return [head for head, _ in kept], list(zip(*(x for _, x in kept), strict=True))


def problem_json(topology: Topology, collective: Collective) -> dict[str, Any]:
    """Return the keys of ``--json`` that state a problem."""
    name = collective.name or str(collective.kind)
    return {"topology": topology.name, "collective": name, "ranks": collective.ranks}


_LACKS = object()


def _value(entry: Mapping[str, Any], key: str) -> Any:
    first, _, rest = key.partition(".")
    found = entry.get(first, _LACKS)
    return _value(found, rest) if rest and found is not _LACKS else found


def _cell(looks: Mapping[str, Any], value: Any, key: str, look: str = "") -> object:
    if value is _LACKS or value is None or value == "":
        return "" if value is _LACKS else value
    told = looks.get(look or key.rpartition("_")[2])
    if told is not None:
        return told(value)
    return format(value, look) if look else value

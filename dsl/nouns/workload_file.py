"""Files of workloads: JSON and CSV.

Both may name an axis (``tp``) in the place of a group; the operation then stands for one operation
for each group of that axis, called ``NAME[0]``, ``NAME[1]`` …, all of one class. What comes after
it comes after those of them that share a rank with it, or after all if none does.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, prod
from typing import Any

from ..base.errors import BadFile, UserError, placed, suggest
from ..base.files import Fields, only, require_kind
from ..base.lazy_dataclass import Frozen
from ..base.units import exact, parse_bytes, parse_microseconds
from .ranks_text import ranks_or_axes
from .reshard import resharding
from .workload import (
    COLLECTIVES,
    Forwarders,
    Shard,
    WorkKind,
    Workload,
    WorkloadOperation,
    axis_groups,
    kind_named,
    require_size,
)

LARGEST_AXIS = 1 << 20

Axes = tuple[tuple[str, int], ...]


class _Entry(Frozen):
    """An operation as a file states it; ``axes``: the names in the place of its group."""

    operation: Callable[[tuple[int, ...]], WorkloadOperation]
    name: str
    where: str
    axes: tuple[str, ...] = ()


def load(data: Any, where: str, unnamed: str = "workload") -> Workload:
    """Return the workload in an object of a file; ``unnamed``: its name where none is stated.

    Raises:
        BadFile: it is not one; the place names the operation.
    """
    require_kind(data, "workload", where)
    fields = Fields(data, where)
    name = fields.get("name", str, unnamed)
    rows = fields.get("operations", list)
    axes = _axes(fields.get("axes", dict, {}), where)
    period = _time(fields.get("period", (int, float, str, type(None)), None), "period", where)
    resources = fields.get("resources", dict, {})
    notes = fields.get("notes", list, [])
    size = fields.get("ranks", int, 0)
    fields.finish()
    if not only(notes, str):
        raise BadFile("'notes' must hold texts", where=where)
    if size < 0:
        raise BadFile(f"'ranks' must be a count, not {size}", where=where)
    entries = [
        entry
        for at, row in enumerate(rows)
        for entry in _entries(row, f"{where}: operations[{at}]")
    ]
    widths = [(key, exact(value, f"{where}: resources: {key}")) for key, value in resources.items()]
    for key, width in widths:
        if width <= 0:
            raise BadFile(f"the bandwidth of {key!r} is not positive", where=f"{where}: resources")

    def build() -> Workload:
        return Workload(
            name,
            _expanded(entries, axes),
            axes=axes,
            period=period,
            resources=tuple(widths),
            notes=tuple(notes),
            size=size,
        )

    return placed(build, where)


# --- one operation of a JSON file -----------------------------------------------------------------


def _entries(row: Any, where: str) -> list[_Entry]:
    if isinstance(row, dict) and row.get("kind") in COMPOSITES:
        where = f"{where} {row.get('name')!r}"
        return [_entry(one, where) for one in placed(lambda: composed(row, where), where)]
    return [_entry(row, where)]


def _entry(row: Any, where: str) -> _Entry:
    fields = Fields(row, where)
    name = fields.get("name", str)
    where = f"{where} {name!r}"
    kind = placed(lambda: kind_named(fields.get("kind", str)), where)
    given: dict[str, Any] = {
        "of_class": fields.get("class", str, ""),
        "after": _names(fields.get("after", (list, str), []), "after", where),
        "priority": fields.get("priority", (int, type(None)), None),
        "due_us": _time(fields.get("due_us", (int, float, str, type(None)), None), "due_us", where),
    }
    group: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    if kind == WorkKind.COMPUTE:
        given["ranks"] = _ranks(fields.get("ranks", (list, str), []), "ranks", where)[0]
        us = fields.get("us", (int, float, str, type(None)), None)
        if us is None:
            raise BadFile("a computation without a duration", where=where, hint='"us": 700')
        given["us"] = _time(us, "us", where)
    elif kind == WorkKind.LOAD:
        loads = fields.get("us", dict)
        given["loads"] = tuple((key, _time(value, key, where)) for key, value in loads.items())
    elif kind == WorkKind.MULTICAST:
        given["shards"] = tuple(_shard(one, where) for one in fields.get("shards", list))
        given["relays"] = relays_of(fields.get("relays", str, "none"), where)
    else:
        group, axes = _group(kind, fields, where)
        given |= _message(kind, fields, where)
    fields.finish(ignore=())

    def operation(ranks: tuple[int, ...]) -> WorkloadOperation:
        return placed(lambda: WorkloadOperation(name, kind, group=ranks, **given), where)

    if axes:
        return _Entry(operation, name, where, axes)
    made = operation(group)
    return _Entry(lambda _: made, name, where)


def _group(kind: str, fields: Fields, where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if kind == WorkKind.TRANSFER:
        return (fields.get("src", int), fields.get("dst", int)), ()
    return _ranks(fields.get("group", (list, str)), "group", where)


def _message(kind: str, fields: Fields, where: str) -> dict[str, Any]:
    """Return size, matrix, root and relays of a collective or a transfer."""
    given: dict[str, Any] = {"relays": relays_of(fields.get("relays", str, "none"), where)}
    if kind == WorkKind.ALLTOALLV:
        given["matrix"] = _matrix(fields.get("matrix", list), where)
        return given
    size = fields.get("bytes", (int, float, str))
    if isinstance(size, str):
        size = placed(lambda: parse_bytes(size), where)
    if size != int(size):
        raise BadFile(f"'bytes' must be a whole number, not {size}", where=where)
    given["bytes"] = int(size)
    if kind in COLLECTIVES:
        given["root"] = fields.get("root", (int, type(None)), None)
    return given


def relays_of(text: str, where: str) -> Forwarders:
    """Return which ranks may forward; raise BadFile for another word."""
    names = [str(one) for one in Forwarders]
    if text not in names:
        raise BadFile(f"unknown relays {text!r}", where=where, hint=suggest(text, names))
    return Forwarders(text)


def _matrix(rows: list[Any], where: str) -> tuple[tuple[int, ...], ...]:
    for at, row in enumerate(rows):
        if not isinstance(row, list) or not only(row, int):
            raise BadFile(f"row {at} of the matrix is not a list of whole bytes", where=where)
    return tuple(map(tuple, rows))


def _shard(data: Any, where: str) -> Shard:
    fields = Fields(data, f"{where}: shards")
    holders, receivers = (fields.integers(key) for key in ("holders", "receivers"))
    size = fields.get("bytes", int)
    fields.finish(ignore=())
    return Shard(tuple(holders), tuple(receivers), size)


def _time(value: Any, what: str, where: str) -> Fraction | None:
    if value is None:
        return None
    return placed(lambda: exact(value, what), where)


def _names(value: list[Any] | str, key: str, where: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not only(listed, str):
        raise BadFile(f"{key!r} must hold names of operations", where=where)
    return tuple(listed)


def _ranks(value: list[Any] | str, key: str, where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return ranks, or axes: a list of numbers, a text such as ``0..7``, or names of axes."""
    if isinstance(value, str):
        return ranks_or_axes(value, where)
    if value and only(value, str):
        return (), tuple(value)
    if not only(value, int):
        raise BadFile(f"{key!r} must hold ranks, or names of axes", where=where)
    return tuple(value), ()


_DIGITS = re.compile(r"[0-9]{1,18}")


def _axes(data: Mapping[str, Any], where: str) -> Axes:
    for key, size in data.items():
        if type(size) is not int or not 1 <= size <= LARGEST_AXIS:
            raise BadFile(f"axis {key!r} must have a positive size, not {size!r}", where=where)
    return tuple(data.items())


# --- operations for axes --------------------------------------------------------------------------


def _expanded(entries: Sequence[_Entry], axes: Axes) -> tuple[WorkloadOperation, ...]:
    made: dict[str, list[WorkloadOperation]] = {}
    everyone = math.prod(size for _, size in axes)
    require_size(len(entries), everyone * sum(1 for entry in entries if entry.axes))
    for entry in entries:
        if entry.name in made:
            raise BadFile(f"two operations are called {entry.name!r}", where=entry.where)
        made[entry.name] = _for_groups(entry, axes)
    if not any(entry.axes for entry in entries):
        return tuple(one for several in made.values() for one in several)
    found = []
    for several in made.values():
        for one in several:
            after = [name for before in one.after for name in _sharing(made, before, one)]
            found.append(replace(one, after=tuple(after)))
    return tuple(found)


def _for_groups(entry: _Entry, axes: Axes) -> list[WorkloadOperation]:
    if not entry.axes:
        return [entry.operation(())]
    if not axes:
        raise BadFile(
            f"the group is {' '.join(entry.axes)!r}, and the workload has no axes",
            where=entry.where,
            hint='"axes": {"tp": 8, "dp": 4}',
        )
    groups = placed(lambda: axis_groups(axes, entry.axes), entry.where)
    ones = [entry.operation(group) for group in groups]
    return [
        replace(one, name=f"{one.name}[{at}]", of_class=one.of_class or entry.name)
        for at, one in enumerate(ones)
    ]


def _sharing(
    made: Mapping[str, Sequence[WorkloadOperation]], name: str, one: WorkloadOperation
) -> list[str]:
    several = made.get(name)
    if several is None or len(several) == 1:
        return [several[0].name if several else name]
    own = set(one.members)
    some = [other.name for other in several if own & set(other.members)]
    return some or [other.name for other in several]


# --- CSV ------------------------------------------------------------------------------------------

CSV_COLUMNS = "name class kind group size after duration priority period relays".split()


def looks_like_csv(text: str) -> bool:
    """Return True if the first row of a text names columns of a workload."""
    first = next((x for x in text.splitlines() if x.strip() and not x.startswith("#")), "")
    try:
        names = {word.strip().lower() for row in csv.reader([first]) for word in row}
    except csv.Error:  # a word of more than 131,072 characters
        return False
    return {"name", "kind"} <= names


def load_csv(text: str, where: str, name: str = "workload") -> Workload:
    """Return the workload of a table, under a name that it does not state.

    Columns: name, class, kind, group (``0..7``, ``0 8 16`` or an axis), size (``96MB``), after
    (names with spaces between), duration (``700us``, or µs; of a load ``nic=960 nvlink=10``),
    priority, period, relays. A row whose kind is ``axis`` gives the size of an axis.

    Raises:
        BadFile: it is not one; the place is the row.
    """
    lines = [x for x in text.splitlines() if x.strip() and not x.lstrip().startswith("#")]
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), skipinitialspace=True))
    except csv.Error as error:
        raise BadFile(f"not a table: {error}", where=where) from None
    head = [word.strip().lower() for word in rows[0]] if rows else []
    for word in head:
        if word not in CSV_COLUMNS:
            hint = suggest(word, CSV_COLUMNS)
            raise BadFile(f"unknown column {word!r}", where=f"{where}:1", hint=hint)
    if "name" not in head or "kind" not in head:
        raise BadFile("the columns name and kind are missing", where=f"{where}:1")
    entries, known, periods = [], [], set()
    numbers = [n for n, x in enumerate(text.splitlines(), 1) if x.strip() and x.lstrip()[0] != "#"]
    for number, row in zip(numbers[1:], rows[1:], strict=False):
        place = f"{where}:{number}"
        if len(row) > len(head):
            raise BadFile(f"{len(row)} cells for {len(head)} columns", where=place)
        cells = dict(zip(head, (cell.strip() for cell in row), strict=False))
        if not {"name", "kind"} <= cells.keys():
            raise BadFile("the row ends before its name and kind", where=place)
        if cells.get("kind") == "axis":
            known.append((cells["name"], _axis_size(cells.get("size", ""), place)))
            continue
        if cells.get("period"):
            periods.add(_csv_time(cells["period"], place))
        entries.append(_csv_entry(cells, place))
    if len(periods) > 1:
        raise BadFile("two rows name different periods", where=where)
    period = periods.pop() if periods else None

    def build() -> Workload:
        all_axes = tuple(known)
        return Workload(name, _expanded(entries, all_axes), axes=all_axes, period=period)

    return placed(build, where)


def _axis_size(text: str, where: str) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= LARGEST_AXIS:
        raise BadFile(f"the size of an axis must be a count, not {text[:40]!r}", where=where)
    return int(text)


def _csv_entry(cells: Mapping[str, str], where: str) -> _Entry:
    """Return an operation by the object that a JSON file would have for it."""
    resharded = cells["kind"] == "reshard"
    kind = "reshard" if resharded else placed(lambda: kind_named(cells["kind"]), where)
    row: dict[str, Any] = {"name": cells["name"], "kind": kind}
    if cells.get("class"):
        row["class"] = cells["class"]
    if cells.get("after"):
        row["after"] = cells["after"].split()
    if cells.get("relays"):
        row["relays"] = cells["relays"]
    if cells.get("priority"):
        priority = _csv_number(cells["priority"], where)
        if priority.denominator != 1:
            raise BadFile(f"a priority is an integer, not {cells['priority'][:40]}", where=where)
        row["priority"] = int(priority)
    duration, group = cells.get("duration", ""), cells.get("group", "")
    if kind == WorkKind.LOAD:
        row["us"] = _csv_loads(duration, where)
    elif kind == WorkKind.COMPUTE:
        row["ranks"] = group
        row["us"] = str(_csv_time(duration, where)) if duration else None
    elif kind == WorkKind.TRANSFER:
        ranks = ranks_or_axes(group, where)[0]
        if len(ranks) != 2:
            raise BadFile("a transfer has one source and one destination", where=where)
        row |= {"src": ranks[0], "dst": ranks[1], "bytes": _csv_size(cells, where)}
    elif resharded:
        layouts = group.split()
        if len(layouts) != 2:
            raise BadFile("a reshard has two layouts", where=where, hint="group: 0..7/1 8..15/8")
        row |= {"from": layouts[0], "to": layouts[1], "bytes": _csv_size(cells, where)}
        return _entries(row, where)[0]
    else:
        row |= {"group": group, "bytes": _csv_size(cells, where)}
    return _entry(row, where)


def _csv_size(cells: Mapping[str, str], where: str) -> int:
    text = cells.get("size", "")
    if not text:
        raise BadFile("a size is missing", where=where, hint="the column size: 96MB")
    return int(text) if _DIGITS.fullmatch(text) else placed(lambda: parse_bytes(text), where)


def _csv_number(text: str, where: str) -> Fraction:
    return placed(lambda: exact(text, "a number"), where)


def _csv_time(text: str, where: str) -> Fraction:
    if re.search(r"[A-Za-zµμ]", text.rstrip("eE")) and not re.fullmatch(r"[\d.]+[eE][\d+-]+", text):
        return placed(lambda: parse_microseconds(text), where)
    return _csv_number(text, where)


def _csv_loads(text: str, where: str) -> dict[str, str]:
    """Return resource and µs of a text such as ``nic=960 nvlink=10us``."""
    found = {}
    for word in text.split():
        name, equals, us = word.partition("=")
        if not equals or not name:
            raise BadFile(f"{word[:40]!r} is not a load", where=where, hint="nic=960 nvlink=10")
        found[name] = str(_csv_time(us, where))
    return found


# --- composites -----------------------------------------------------------------------------------
# Demands that are stated shortly and stand for others: in files of workloads.
#
# * ``reshard``: ``from`` and ``to`` (:mod:`.reshard`), ``bytes`` of the whole tensor; a multicast.
# * ``neighbours``: ``grid``, ``wrap``, ``bytes`` for each neighbour: each rank of a grid sends to
#   the next ones along each dimension (halo exchange); an alltoallv.
# * ``sparse_allreduce``: ``bytes`` of the dense vector, ``density`` of what is not zero on a rank,
#   ``element`` and ``index`` bytes. Either each rank sends its non-zeros to all (``gather``: a
#   multicast), or each sums a part, an alltoallv, and hands it on, a multicast (``split``), or all
#   is dense, an allreduce; ``form`` says which, else the one that moves the least does.

COMPOSITES = ("reshard", "neighbours", "sparse_allreduce")

COMMON = ("class", "after", "priority", "due_us", "relays")
"""Fields that an operation of any kind may have."""


def composed(row: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the rows of plain operations that a row stands for; others stand for themselves.

    The last one has its name.

    Raises:
        BadFile: a key that is missing, unknown, or of a wrong type; UserError: a wrong value.
    """
    fields = Fields(row, where)
    kind = fields.get("kind", str)
    name = fields.get("name", str)
    common = {key: row[key] for key in COMMON if key in row}
    for key in COMMON:
        fields.get(key, object, None)
    size = _bytes(fields)
    if kind == "reshard":
        source, target = fields.get("from", str), fields.get("to", str)
        shards = resharding(source, target, size)
        made = [_multicast([(s.holders, s.receivers, s.bytes) for s in shards])]
    elif kind == "neighbours":
        made = [_neighbours(fields, size, where)]
    else:
        made = _sparse(fields, size, where)
    fields.finish(ignore=())
    names = [f"{name}.{i}" for i in range(len(made) - 1)] + [name]
    rows = [{"name": n, **common, **one} for n, one in zip(names, made, strict=True)]
    for before, one in pairwise(rows):
        one["after"] = [before["name"]]
    return rows


def _bytes(fields: Fields) -> int:
    size = fields.get("bytes", (int, str))
    found = parse_bytes(size) if isinstance(size, str) else size
    if not 0 < found <= 1 << 60:
        raise UserError(f"'bytes' must be a positive size, not {size}")
    return found


def _multicast(shards: list[tuple[tuple[int, ...], tuple[int, ...], int]]) -> dict[str, Any]:
    rows = [{"holders": list(h), "receivers": list(r), "bytes": size} for h, r, size in shards]
    return {"kind": "multicast", "shards": rows}


def _ranks_of_group(fields: Fields, where: str) -> tuple[int, ...]:
    value = fields.get("group", (list, str))
    ranks = ranks_or_axes(value, where)[0] if isinstance(value, str) else tuple(value)
    if not ranks or any(type(v) is not int for v in ranks):
        raise UserError("'group' must hold ranks here", hint='"group": "0..15"')
    return ranks


def _neighbours(fields: Fields, size: int, where: str) -> dict[str, Any]:
    group = _ranks_of_group(fields, where)
    grid = fields.integers("grid", [len(group)])
    wrap = fields.get("wrap", bool, False)
    if min(grid, default=0) < 1 or prod(grid) != len(group):
        raise UserError(f"a grid of {' x '.join(map(str, grid))} is not {len(group)} ranks")
    place = {at: i for i, at in enumerate(product(*map(range, grid)))}
    matrix = [[0] * len(group) for _ in group]
    for at, i in place.items():
        for axis, length in enumerate(grid):
            for step in (-1, 1):
                other = at[axis] + step
                if wrap:
                    other %= length
                j = place.get((*at[:axis], other, *at[axis + 1 :]))
                if j is not None and j != i:
                    matrix[i][j] += size
    return {"kind": "alltoallv", "group": list(group), "matrix": matrix}


def _sparse(fields: Fields, size: int, where: str) -> list[dict[str, Any]]:
    group = _ranks_of_group(fields, where)
    density = exact(fields.get("density", (int, float, str)), "the density")
    element, index = fields.get("element", int, 4), fields.get("index", int, 4)
    form = fields.get("form", str, "")
    if not 0 < density <= 1:
        raise UserError(f"a density is above 0 and at most 1, not {float(density):g}")
    if element < 1 or index < 0 or size % element:
        raise UserError(f"{size} bytes are not elements of {element}, with an index of {index}")
    n = len(group)
    some = _non_zeros(density, size // element) * (element + index)
    part = -(-some // n)
    union = _non_zeros(1 - (1 - density) ** n, -(-size // element // n)) * (element + index)
    forms = {
        "gather": [_multicast([((v,), _others(group, v), some) for v in group])],
        "split": [
            {
                "kind": "alltoallv",
                "group": list(group),
                "matrix": [[part * (i != j) for j in range(n)] for i in range(n)],
            },
            _multicast([((v,), _others(group, v), union) for v in group]),
        ],
        "dense": [{"kind": "allreduce", "group": list(group), "bytes": size}],
    }
    moved = {"gather": n * some, "split": n * (part + union), "dense": 2 * size}
    if form and form not in forms:
        raise UserError(f"unknown form {form[:40]!r}", hint=" or ".join(forms))
    return forms[form or min(moved, key=moved.__getitem__)]


def _others(group: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(v for v in group if v != rank)


def _non_zeros(density: Fraction, elements: int) -> int:
    return max(1, ceil(density * elements))

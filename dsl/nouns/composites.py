"""Demands that are stated shortly and stand for others: in files of workloads.

* ``reshard``: ``from`` and ``to`` (:mod:`.reshard`), ``bytes`` of the whole tensor; a multicast.
* ``neighbours``: ``grid``, ``wrap``, ``bytes`` for each neighbour: each rank of a grid sends to the
  next ones along each dimension (halo exchange); an alltoallv.
* ``sparse_allreduce``: ``bytes`` of the dense vector, ``density`` of what is not zero on a rank,
  ``element`` and ``index`` bytes. Either each rank sends its non-zeros to all (``gather``: a
  multicast), or each sums a part, an alltoallv, and hands it on, a multicast (``split``), or all is
  dense, an allreduce; ``form`` says which, else the one that moves the least does.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise, product
from math import ceil, prod
from typing import Any

from ..base.errors import UserError
from ..base.files import Fields
from ..base.units import exact, parse_bytes
from .ranks_text import ranks_or_axes
from .reshard import resharding

COMPOSITES = ("reshard", "neighbours", "sparse_allreduce")

COMMON = ("class", "after", "priority", "due_us", "relays")
"""What an operation of any kind may have."""


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


def _group(fields: Fields, where: str) -> tuple[int, ...]:
    value = fields.get("group", (list, str))
    ranks = ranks_or_axes(value, where)[0] if isinstance(value, str) else tuple(value)
    if not ranks or any(type(v) is not int for v in ranks):
        raise UserError("'group' must hold ranks here", hint='"group": "0..15"')
    return ranks


def _neighbours(fields: Fields, size: int, where: str) -> dict[str, Any]:
    group = _group(fields, where)
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
    """Return the operations of a sum of sparse vectors, in their order."""
    group = _group(fields, where)
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

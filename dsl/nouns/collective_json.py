"""A collective as a JSON object (``docs/formats.md``): placements as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.arrays import Ints32
from ..base.errors import BadFile, UnknownName
from ..base.files import SCHEMA, Fields, require_kind
from ..base.json_text import plain
from .collective import Collective, Kind, make, one_shot_allreduce
from .placement import Placement


def dump(c: Collective) -> dict[str, Any]:
    """The JSON object of a collective."""
    data: dict[str, Any] = plain(described(c))
    return data


def described(c: Collective) -> dict[str, Any]:
    """The JSON object of a collective, with arrays as columns (:mod:`.compact_json`)."""

    def columns(p: Placement) -> dict[str, Ints32]:
        return {"rank": p.ranks, "chunk": p.chunks, "set": p.sets, "offset": p.offsets}

    return {
        "weft": "collective",
        "schema": SCHEMA,
        "kind": str(c.kind),
        "name": c.name,
        "ranks": c.ranks,
        "chunks": c.chunks,
        "factor": c.factor,
        "roots": list(c.roots),
        "contributions": [sorted(s) for s in c.contributions],
        "pre": columns(c.pre),
        "post": columns(c.post),
        "local_reduce": [list(g) for g in c.local_reduce],
        **({"sizes": list(c.sizes)} if c.sizes else {}),
    }


def load(data: Any, where: str = "collective") -> Collective:
    """Read the object that :func:`dump` writes.

    Raises:
        BadFile: not such an object. UserError: a collective that makes no sense.
    """
    require_kind(data, "collective", where)

    def placement(key: str) -> Placement:
        columns = Fields(fields.get(key, dict), f"{where}: {key}")
        lists = [columns.integers(name) for name in ("rank", "chunk", "set", "offset")]
        columns.finish()
        if len({len(x) for x in lists}) != 1:
            raise BadFile("columns of different lengths", where=f"{where}: {key}")
        table = np.array(lists, np.int64)
        if table.size and not (table.min() >= 0 and table.max() < 1 << 31):
            raise BadFile("a number is negative or absurdly large", where=f"{where}: {key}")
        return Placement(*table.astype(np.int32))

    def groups(key: str, limit: int, *default: Any) -> tuple[tuple[int, ...], ...]:
        found = fields.get(key, list, *default)
        for group in found:
            if not isinstance(group, list) or not all(type(v) is int for v in group):
                raise BadFile("each entry must be a list of integers", where=f"{where}: {key}")
            if len(set(group)) < max(1, len(group)) or not all(0 <= v < limit for v in group):
                raise BadFile(f"not different numbers of 0 … {limit - 1}", where=f"{where}: {key}")
        return tuple(map(tuple, found))

    fields = Fields(data, where)
    kind = fields.get("kind", str)
    if kind not in set(Kind):
        raise UnknownName("collective", kind, Kind, where=where)
    ranks, chunks, pre = fields.get("ranks", int), fields.get("chunks", int), placement("pre")
    if chunks > 2 * len(pre):
        raise BadFile(f"of {chunks} chunks only {len(pre)} start anywhere", where=where)
    collective = Collective(
        Kind(kind),
        ranks,
        chunks,
        tuple(map(frozenset, groups("contributions", ranks))),
        pre,
        placement("post"),
        fields.get("factor", int, 1),
        tuple(fields.integers("roots", [])),
        groups("local_reduce", chunks, []),
        fields.get("name", str, ""),
        tuple(fields.integers("sizes", [])),
    )
    fields.finish()
    if not _is_what_it_says(collective):
        raise BadFile(
            f"this is no {collective.kind} of factor {collective.factor}",
            where=where,
            hint="a collective of one's own has the kind custom",
        )
    return collective


def _is_what_it_says(c: Collective) -> bool:
    """Whether a collective of a standard kind has that kind's pre- and postcondition."""
    if c.kind is Kind.CUSTOM:
        return True
    paired = c.local_reduce or c.kind in (Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLTOALL)
    rows = c.ranks * (c.ranks if paired else max(1, len(c.roots)))
    if max(len(c.pre), len(c.post)) < rows - 1:
        return False  # too few for such a group: do not build it to find out
    if c.local_reduce:
        standard = one_shot_allreduce(c.ranks, chunks=c.factor)
    elif c.sizes:
        standard = make(c.kind, c.ranks, roots=c.roots)
        pieces = _pieces(c)
        if len(pieces) != standard.chunks:
            return False
        standard = standard.cut(pieces)
    else:
        standard = make(c.kind, c.ranks, chunks=c.factor, roots=c.roots)
    if (c.chunks, c.local_reduce) != (standard.chunks, standard.local_reduce):
        return False
    return all(
        _same(c, one, standard, other)
        for one, other in ((c.pre, standard.pre), (c.post, standard.post))
    )


def _pieces(c: Collective) -> list[list[int]]:
    """The sizes of a cut collective, in runs that add up to one chunk of the plain one."""
    ends = np.cumsum(c.sizes)
    cuts = np.flatnonzero(ends % c.factor == 0) + 1
    whole = len(cuts) * c.factor == ends[-1]  # else one of the runs is several chunks long
    parts = np.split(np.array(c.sizes, np.int64), cuts[:-1]) if whole else []
    return [x.tolist() for x in parts]


def _same(a: Collective, one: Placement, b: Collective, other: Placement) -> bool:
    """Whether two placements say the same: in any order of rows and of the sets they refer to."""
    index: dict[frozenset[int], int] = {}
    rows = []
    for c, p in ((a, one), (b, other)):
        name = np.array([index.setdefault(s, len(index)) for s in c.contributions], np.int32)
        # No rank and chunk stand twice in a placement.
        order = np.argsort(p.ranks.astype(np.int64) * c.chunks + p.chunks)
        rows.append(np.stack([p.ranks, p.chunks, name[p.sets], p.offsets])[:, order])
    return np.array_equal(rows[0], rows[1])

"""A collective as a JSON object (``docs/formats.md``): placements as columns."""

from __future__ import annotations

from typing import Any

from .collective import Collective, Kind, Placement, make, one_shot_allreduce
from .errors import BadFile, UnknownName
from .files import SCHEMA, Fields, require_kind


def dump(c: Collective) -> dict[str, Any]:
    """The JSON object of a collective."""

    def columns(p: Placement) -> dict[str, list[int]]:
        return {
            "rank": p.ranks.tolist(), "chunk": p.chunks.tolist(),
            "set": p.sets.tolist(), "offset": p.offsets.tolist(),
        }  # fmt: skip

    return {
        "weft": "collective", "schema": SCHEMA, "kind": str(c.kind), "name": c.name,
        "ranks": c.ranks, "chunks": c.chunks, "factor": c.factor, "roots": list(c.roots),
        "contributions": [sorted(s) for s in c.contributions],
        "pre": columns(c.pre), "post": columns(c.post),
        "local_reduce": [list(g) for g in c.local_reduce],
    }  # fmt: skip


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
        if not all(0 <= v < 1 << 31 for column in lists for v in column):
            raise BadFile("a number is negative or absurdly large", where=f"{where}: {key}")
        return Placement.of(zip(*lists, strict=True))

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
        Kind(kind), ranks, chunks, tuple(map(frozenset, groups("contributions", ranks))),
        pre, placement("post"), fields.get("factor", int, 1),
        tuple(fields.integers("roots", [])), groups("local_reduce", chunks, []),
        fields.get("name", str, ""),
    )  # fmt: skip
    fields.finish()
    if not _is_what_it_says(collective):
        raise BadFile(
            f"this is no {collective.kind} of factor {collective.factor}", where=where,
            hint="a collective of one's own has the kind custom",
        )  # fmt: skip
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
        plain = one_shot_allreduce(c.ranks, chunks=c.factor)
    else:
        plain = make(c.kind, c.ranks, chunks=c.factor, roots=c.roots)
    same = (c.kind, c.chunks, c.local_reduce) == (plain.kind, plain.chunks, plain.local_reduce)
    return same and all(
        _meaning(c, one) == _meaning(plain, other)
        for one, other in ((c.pre, plain.pre), (c.post, plain.post))
    )


def _meaning(c: Collective, p: Placement) -> set[tuple[int, int, frozenset[int], int]]:
    return {(r, k, c.contributions[s], o) for r, k, s, o in p.rows().tolist()}

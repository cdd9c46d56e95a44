"""Casts: operations of switches that copy or sum, on one chunk in one pass.

A transfer has one source, one destination and one route. A *cast* has several of one or of both,
and uses a tree of links through switches: the data of all its sources meets on its way up (at
switches that ``reduces``) and is copied on its way down (at switches that ``multicast``); a switch
that does both ``turns``. A tree may pass a switch twice, on the way up and on the way down: a link
that enters it behind one that leaves it, in the order of ``links``, begins the second pass. A
switch that can do neither passes on what comes, the k-th copy that enters over the k-th of the
links that leave it, so several switches may lie on the tree. Every destination gets the same value:
the sum of the sources' values.

How one is stored: ``links`` has the links of the tree, each behind those that lead to the switch
where it starts, once for each copy that passes it (more than one only beside a switch that can do
neither). A *leg* is one link. A source is where links start that no link leads to, a destination
where they end; a rank may be both (its copy goes up, the result comes down), and that is how the
*issuer* of a switch with ``issuer_in_group`` is stored: a load-reduce of NVLink has all members as
sources, the issuer too, and the issuer as the one destination; a multicast store has the issuer as
its one source and all members as destinations, the issuer too. ``reduce``: destinations add the
result to what they hold instead of storing it. ``issuer``: the rank that starts the cast, or -1
where all sources push (SHARP). Everything that a cast reads held before its step.

``GBps``: what a switch lets through of the cast at most, of its chunk's bytes, where it keeps them
in a pool of slots until the sum is back (SwitchML): slots · packet ÷ round-trip time. None: as much
as its links carry.

>>> one = Cast(0, (0, 1, 2), (0,), (0, 2, 4, 1), issuer=0)
>>> casts = Casts.of([one])
>>> len(casts), casts[0] == one
(1, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import chain
from typing import Any, Self

import numpy as np

from ..base.arrays import AnyArray, Bools, Ints, Ints32
from ..base.errors import BadFile
from ..base.files import Fields, only
from ..base.json_text import RaggedRows
from ..base.lazy_dataclass import Frozen, dataclass
from ..base.unique_rows import rows_of
from ..base.units import exact

PUSHED = -1
"""Issuer of a cast that all its sources push."""


@dataclass(frozen=True, slots=True)
class Cast:
    """One cast; see the module's text. ``links`` are indices of the machine's links."""

    chunk: int
    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    links: tuple[int, ...]
    step: int = 0
    reduce: bool = False
    issuer: int = PUSHED
    GBps: Fraction | None = None

    def turned(self, step: int) -> Cast:
        """Return a multicast of the reversed machine as the sum that it is on the machine itself.

        An issuer that is a member stores the sum, which its own copy is part of; any other adds it.
        """
        adds = self.issuer not in self.destinations
        links = self.links[::-1]
        return Cast(self.chunk, self.destinations, self.sources, links, step, adds, self.issuer)


_COLUMNS = ("chunk", "step", "issuer", "reduce")
_ROWS = (
    ("source_start", "sources"),
    ("destination_start", "destinations"),
    ("link_start", "links"),
)
"""Columns of rows of different lengths: where each begins, and all values."""


class Casts(Frozen, eq=False):
    """The casts of a schedule in columns, one entry for each, sorted by step.

    Rows of different lengths are two columns: the sources of cast i are
    ``sources[source_start[i]:source_start[i+1]]``, and so are ``destinations`` and ``links``.
    ``priority`` as of a schedule's transfers: the smallest ``priority + slice * stride`` of those
    that wait for a link goes first. ``GBps`` is empty where no cast has a limit.
    """

    chunk: Ints32
    step: Ints32
    issuer: Ints32
    reduce: Bools
    source_start: Ints
    sources: Ints32
    destination_start: Ints
    destinations: Ints32
    link_start: Ints
    links: Ints32
    priority: Ints32 | None = None
    GBps: tuple[Fraction | None, ...] = ()

    @classmethod
    def of(cls, casts: Iterable[Cast], priority: Sequence[int] | None = None) -> Self:
        """Return the columns of casts in any order; ``priority`` has one number for each."""
        rows = list(casts)
        order = sorted(range(len(rows)), key=lambda i: rows[i].step)
        rows = [rows[i] for i in order]

        def column(values: Iterable[int]) -> Ints32:
            found = np.fromiter(values, np.int32, len(rows))
            found.setflags(write=False)
            return found

        limits = tuple(one.GBps for one in rows)
        held: dict[str, Any] = {n: column(getattr(one, n) for one in rows) for n in _COLUMNS[:3]}
        for start, values in _ROWS:
            held[start], held[values] = _ragged([getattr(one, values) for one in rows])
        return cls(
            reduce=_frozen(np.array([one.reduce for one in rows], np.bool_)),
            **held,
            priority=None if priority is None else column(priority[i] for i in order),
            GBps=limits if any(x is not None for x in limits) else (),
        )

    def __len__(self) -> int:
        return len(self.chunk)

    def __iter__(self) -> Iterator[Cast]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Cast:
        held = ((getattr(self, start), getattr(self, values)) for start, values in _ROWS)
        rows = (tuple(values[start[i] : start[i + 1]].tolist()) for start, values in held)
        sources, destinations, links = rows
        return Cast(
            int(self.chunk[i]),
            sources,
            destinations,
            links,
            int(self.step[i]),
            bool(self.reduce[i]),
            int(self.issuer[i]),
            self.GBps[i] if self.GBps else None,
        )

    def select(self, kept: Bools) -> Casts:
        """Return those of a mask, in the same order."""
        rows = np.flatnonzero(kept)
        held: dict[str, Any] = {name: getattr(self, name)[rows] for name in _COLUMNS}
        for start, values in _ROWS:
            held[start], at = rows_of(getattr(self, start), rows)
            held[values] = getattr(self, values)[at]
        priority = None if self.priority is None else self.priority[rows]
        limits = tuple(self.GBps[i] for i in rows.tolist()) if self.GBps else ()
        return Casts(**held, priority=priority, GBps=limits)

    def anchors(self) -> tuple[Any, ...]:
        """Return the columns: the key of results that are kept for a schedule."""
        return tuple(getattr(self, one.name) for one in fields(self)) if len(self) else ()

    def described(self) -> dict[str, Any]:
        """Return the JSON object, with arrays as columns (``docs/formats.md``)."""
        return {
            "chunk": self.chunk,
            "sources": RaggedRows(self.source_start, self.sources),
            "destinations": RaggedRows(self.destination_start, self.destinations),
            "links": RaggedRows(self.link_start, self.links),
            "issuer": self.issuer,
            "reduce": self.reduce.astype(np.int8),
            "step": self.step,
            **({} if self.priority is None else {"priority": self.priority}),
            **({"GBps": [None if x is None else str(x) for x in self.GBps]} if self.GBps else {}),
        }


class CastRanges(Frozen):
    """Numbers of chunks, ranks and links: limits of the indices of casts."""

    chunks: int
    ranks: int
    links: int


def read_casts(data: Mapping[str, Any], within: CastRanges, where: str) -> Casts:
    """Parse the object that :meth:`Casts.described` describes.

    Raises:
        BadFile: columns of different lengths, or an index outside the machine or collective.
    """
    where = f"{where}: casts"
    fields = Fields(data, where)
    columns = {k: fields.integers(k) for k in ("chunk", "issuer", "reduce", "step")}
    rows = {k: fields.get(k, list) for k in ("sources", "destinations", "links")}
    priority = fields.integers("priority") if "priority" in data else None
    most = [_limit(x, where) for x in fields.get("GBps", list, [])]
    fields.finish()
    lengths = {len(x) for x in (*columns.values(), *rows.values())}
    uneven = [x for x in (priority, most or None) if x is not None and {len(x)} != lengths]
    if len(lengths) != 1 or uneven:
        raise BadFile("columns of different lengths", where=where)
    limits = {"chunk": (0, within.chunks), "issuer": (PUSHED, within.ranks), "reduce": (0, 2)}
    for name, (low, high) in {**limits, "step": (0, 1 << 24)}.items():
        for i, value in enumerate(columns[name]):
            if not low <= value < high:
                raise BadFile(
                    f"cast {i}: {name} {value} is outside {low} … {high - 1}", where=where
                )
    for name, lists in rows.items():
        _check_rows(name, lists, within.links if name == "links" else within.ranks, where)
    if priority is not None and not all(0 <= p < 1 << 31 for p in priority):
        raise BadFile("a priority is outside 0 … 2^31 - 1", where=where)
    listed = zip(
        columns["chunk"],
        *(map(tuple, lists) for lists in rows.values()),
        columns["step"],
        map(bool, columns["reduce"]),
        columns["issuer"],
        most or [None] * len(columns["issuer"]),
        strict=True,
    )
    return Casts.of((Cast(*one) for one in listed), priority)


def _limit(value: Any, where: str) -> Fraction | None:
    if value is None:
        return None
    found = exact(value, "GBps") if isinstance(value, str) else Fraction(0)
    if found <= 0:
        raise BadFile(f"GBps of a cast is {value!r}, not a positive number as a text", where=where)
    return found


def _check_rows(name: str, lists: list[Any], limit: int, where: str) -> None:
    for i, row in enumerate(lists):
        if type(row) is not list or not row or not only(row, int):
            raise BadFile(f"cast {i}: {name} must be a list of integers, not empty", where=where)
        for value in row:
            if not 0 <= value < limit:
                raise BadFile(f"cast {i}: {name} {value} is outside 0 … {limit - 1}", where=where)


def _ragged(rows: list[tuple[int, ...]]) -> tuple[Ints, Ints32]:
    start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=start[1:])
    flat = np.fromiter(chain.from_iterable(rows), np.int32, int(start[-1]))
    return _frozen(start), _frozen(flat)


def _frozen(column: AnyArray) -> Any:
    column.setflags(write=False)
    return column


NO_CASTS = Casts.of(())
"""The casts of a schedule of transfers alone."""


def cast_name(one: Cast, i: int) -> str:
    """Name of a cast: ``cast 3 (chunk 0, ranks 0, 1, 2 -> 0, step 4)``."""
    ends = " -> ".join(rank_words(side) for side in (one.sources, one.destinations))
    return f"cast {i} (chunk {one.chunk}, {ends}, step {one.step})"


def rank_words(side: tuple[int, ...]) -> str:
    """Words for one side of a cast: ``ranks 0, 1, 2``, eight of them at most."""
    shown = ", ".join(map(str, side[:8])) + (", …" if len(side) > 8 else "")
    return f"rank{'s' if len(side) > 1 else ''} {shown}"

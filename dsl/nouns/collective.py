"""Collectives as chunks with pre- and postconditions: where each starts, where it must end.

The state of a chunk on a rank is the **set of ranks whose contribution it holds**, so copying and
combining collectives share one form: allgather ends with ``{owner}`` everywhere, allreduce with
``{all}`` everywhere. Placements are stored in columns, so that a thousand ranks stay practical.

A placement also gives the *buffer offset* of each chunk, in chunks (in grains where chunks differ
in size); lowering and the interpreter need nothing else of a collective.

>>> ag = make("allgather", range(2))
>>> ag.post.ranks.tolist(), ag.post.chunks.tolist(), ag.post.offsets.tolist()
([0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1])
>>> ag.split(3).message_chunks
6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.arrays import Ints, Ints32, distinct_values
from ..base.errors import BadFile, UnknownName, UserError, an
from ..base.files import SCHEMA, Fields, require_kind
from ..base.integers import integer
from ..base.json_text import plain
from ..base.lazy_dataclass import Frozen
from ..base.unique_rows import any_twice, in_blocks, placed
from .placement import LARGEST_OFFSET, Placement, one_by_one, split, uneven

LARGEST_GROUP = 1 << 20
LARGEST_PLACEMENT = 1 << 27
"""Most rows of a placement; more would not fit the memory of a usual machine."""


class Kind(StrEnum):
    """Standard collectives, and ``custom`` for user-defined ones."""

    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SCATTER = "scatter"
    GATHER = "gather"
    ALLGATHER = "allgather"
    REDUCE_SCATTER = "reduce_scatter"
    ALLREDUCE = "allreduce"
    ALLTOALL = "alltoall"
    ALLTONEXT = "alltonext"
    MULTIROOT_BROADCAST = "multiroot_broadcast"
    MULTIROOT_SCATTER = "multiroot_scatter"
    MULTIROOT_GATHER = "multiroot_gather"
    CUSTOM = "custom"


ROOTED = frozenset({Kind.BROADCAST, Kind.REDUCE, Kind.SCATTER, Kind.GATHER})
MULTIROOT = frozenset({Kind.MULTIROOT_BROADCAST, Kind.MULTIROOT_SCATTER, Kind.MULTIROOT_GATHER})


class Collective(Frozen):
    """A collective on ranks ``0 … ranks-1`` of its process group.

    Attributes:
        kind: the standard collective, or custom.
        ranks: size of the group; the topology is restricted to the group first.
        chunks: number of chunks.
        contributions: the sets of ranks that placements refer to by index.
        pre, post: precondition and postcondition.
        factor: number of pieces into which each unit of the plain collective is cut (SCCL's C);
            number of grains where pieces differ in size.
        roots: the root or roots, for kinds that have any.
        local_reduce: groups of chunks that a rank sums locally once it holds them all; their
            postconditions name one output offset (one-shot allreduce).
        sizes: size of each chunk in grains; empty where every chunk is one grain.
            Offsets and ``factor`` count grains. Excludes ``local_reduce``.
        name: name of a custom collective.
    """

    kind: Kind
    ranks: int
    chunks: int
    contributions: tuple[frozenset[int], ...]
    pre: Placement
    post: Placement
    factor: int = 1
    roots: tuple[int, ...] = ()
    local_reduce: tuple[tuple[int, ...], ...] = ()
    name: str = field(default="", compare=False)
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _validate(self)

    def __repr__(self) -> str:
        return f"<Collective {self}>"

    def __str__(self) -> str:
        label = self.name or str(self.kind)
        roots = f" root {','.join(map(str, self.roots))}" if self.roots else ""
        ranks, chunks = ("" if n == 1 else "s" for n in (self.ranks, self.chunks))
        return f"{label}{roots} on {self.ranks} rank{ranks}, {self.chunks} chunk{chunks}"

    @cached_property
    def combining(self) -> bool:
        """Return True if ranks must add contributions: a wanted set is held by no rank at start."""
        first = {who: index for index, who in reversed([*enumerate(self.contributions)])}
        # A set may be listed twice (with one rank, {0} is a single contribution and the full sum).
        same = np.array([first[who] for who in self.contributions])
        held, wanted = (
            replace(p, sets=same[p.sets].astype(np.int32)) for p in (self.pre, self.post)
        )
        return not np.isin(_chunk_sets(self, wanted), _chunk_sets(self, held)).all()

    @property
    def message_chunks(self) -> int:
        """Return the size of message *M* in grains: the larger of input and output buffer.

        Allgather: total output per rank; reduce_scatter: total input per rank; alltoall: send
        buffer per rank; allreduce, broadcast: the buffer. A grain is a chunk, unless ``sizes`` says
        otherwise.
        """
        return max(self.input_chunks, self.output_chunks)

    @property
    def input_chunks(self) -> int:
        """Return the size of the largest input buffer, in grains."""
        return self._end(self.pre)

    @property
    def output_chunks(self) -> int:
        """Return the size of the largest output buffer, in grains."""
        return self._end(self.post)

    def _end(self, p: Placement) -> int:
        if not self.sizes:
            return int(p.offsets.max(initial=-1)) + 1
        return int((p.offsets + self.grains[p.chunks]).max(initial=0))

    @cached_property
    def grains(self) -> Ints:
        """Return the size of every chunk in grains, shape (chunks,)."""
        return np.array(self.sizes, np.int64) if self.sizes else np.ones(self.chunks, np.int64)

    def in_place_shift(self, rank: int) -> int:
        """Return s such that input chunk k of ``rank`` is output chunk k + s in an in-place call.

        Allgather, gather: the rank's own block of the output, which on the root of a gather is
        ``root * count``, as ``MPI_IN_PLACE`` there means in MPI and as NCCL and RCCL compare
        pointers. reduce_scatter, scatter: minus its own block (the output is a block of the input).
        All others: 0, sendbuff == recvbuff as in NCCL and MSCCL.
        """
        if self.kind in (Kind.ALLGATHER, Kind.GATHER):
            return rank * self.factor
        if self.kind in (Kind.REDUCE_SCATTER, Kind.SCATTER):
            return -rank * self.factor
        return 0

    def split(self, pieces: int) -> Collective:
        """Return the collective with every chunk cut into ``pieces`` equal ones."""
        pieces = integer(pieces, "pieces of a chunk")
        if pieces < 1:
            raise UserError(f"a chunk cannot be cut into {pieces} pieces")
        if pieces == 1:
            return self
        if self.sizes:
            raise UserError("chunks of unequal sizes are cut once, not again")
        most = max(len(self.pre), len(self.post), self.chunks)
        if most * pieces > LARGEST_PLACEMENT:
            raise UserError(f"{self} cut into {pieces} pieces each is too large to hold")
        groups = tuple(
            tuple(c * pieces + j for c in group)
            for group in self.local_reduce
            for j in range(pieces)
        )
        return replace(
            self,
            chunks=self.chunks * pieces,
            pre=split(self.pre, pieces),
            post=split(self.post, pieces),
            factor=self.factor * pieces,
            local_reduce=groups,
        )

    def cut(self, sizes: Sequence[Sequence[int]]) -> Collective:
        """Return the plain collective with chunk c cut into pieces of ``sizes[c]`` grains.

        Packed trees carry unequal fractions of the data, which this represents exactly. All chunks
        have the same number of grains; pieces are numbered in order, chunk after chunk.

        Raises:
            UserError: sums that differ, an empty piece, a collective that is cut already.
        """
        count = np.array([len(x) for x in sizes], np.int64)
        return self.cut_in(np.array([*chain.from_iterable(sizes)], np.int64), count)

    def cut_in(self, pieces: Ints, count: Ints) -> Collective:
        """Return :meth:`cut` from the grains of all pieces in one column, without a loop per chunk.

        The first ``count[0]`` pieces belong to chunk 0, the next ``count[1]`` to chunk 1, ….

        Raises:
            UserError: as :meth:`cut`.
        """
        if self.sizes or self.factor != 1 or self.local_reduce:
            raise UserError(f"{self} is cut already, or sums by itself")
        whole_chunks = len(count) == self.chunks and count.min(initial=1) > 0
        totals = np.add.reduceat(pieces, np.cumsum(count) - count) if whole_chunks else pieces[:0]
        if not whole_chunks or pieces.min(initial=1) < 1 or (totals != totals[0]).any():
            raise UserError(f"these pieces do not make up the chunks of {self}")
        factor = int(totals[0])
        return replace(
            self,
            chunks=len(pieces),
            pre=uneven(self.pre, pieces, count, factor),
            post=uneven(self.post, pieces, count, factor),
            factor=factor,
            sizes=tuple(pieces.tolist()),
        )

    def cut_further(self, shares: Sequence[Sequence[int]]) -> Collective:
        """Return the collective with chunk c cut into pieces in the ratio of ``shares[c]``.

        As :meth:`cut`, but chunks may be of unequal sizes: all shares have one sum, and a grain
        becomes as many.

        Raises:
            UserError: sums that differ, an empty piece, a collective with a factor or local sums.
        """
        if self.factor != 1 or self.local_reduce:
            raise UserError(f"{self} is cut already, or sums by itself")
        if len({sum(cut) for cut in shares}) != 1 or min(map(min, shares)) < 1:
            raise UserError(f"these pieces do not make up the chunks of {self}")
        factor = sum(shares[0])
        count = np.array([len(cut) for cut in shares], np.int64)
        pieces = np.array([*chain.from_iterable(shares)], np.int64) * np.repeat(self.grains, count)
        sizes = () if (pieces == 1).all() else tuple(pieces.tolist())
        return replace(
            self,
            chunks=len(pieces),
            pre=uneven(self.pre, pieces, count, factor),
            post=uneven(self.post, pieces, count, factor),
            factor=factor,
            sizes=sizes,
        )

    def within(self, group: Sequence[int], ranks: int) -> Collective:
        """Return the collective of a group as a custom one on all ranks of a machine.

        Raises:
            UserError: groups of chunks that a rank sums by itself.
        """
        if self.local_reduce:
            raise UserError(f"{self} sums by itself, which cannot be said among other ranks")
        where = np.array(group)
        before, after = (
            replace(p, ranks=where[p.ranks].astype(np.int32)) for p in (self.pre, self.post)
        )
        return Collective(
            Kind.CUSTOM,
            ranks,
            self.chunks,
            tuple(frozenset(group[v] for v in who) for who in self.contributions),
            before,
            after,
            factor=self.factor,
            name=self.name or str(self.kind),
            sizes=self.sizes,
        )

    def in_grains(self) -> Collective:
        """Return the collective with every chunk cut into pieces of one grain."""
        if not self.sizes:
            return self
        if sum(self.sizes) > LARGEST_PLACEMENT:
            raise UserError(f"{self}: {sum(self.sizes)} grains are too many to name")
        start = np.cumsum(self.grains) - self.grains
        return replace(
            self,
            chunks=sum(self.sizes),
            pre=one_by_one(self.pre, self.grains, start),
            post=one_by_one(self.post, self.grains, start),
            sizes=(),
        )

    def coarsest(self) -> Collective:
        """Return the collective in the largest grains of which all sizes and places are multiples.

        A factor above 1 counts grains of a plain chunk, so it is divided as well.
        """
        if not self.sizes:
            return self
        factor = self.factor if self.factor > 1 else 0
        places = np.concatenate([self.pre.offsets, self.post.offsets])
        unit = math.gcd(factor, *self.sizes, int(np.gcd.reduce(places)))
        if unit < 2:
            return self
        pre, post = (
            replace(p, offsets=(p.offsets // unit).astype(np.int32)) for p in (self.pre, self.post)
        )
        return replace(
            self,
            pre=pre,
            post=post,
            factor=max(1, self.factor // unit),
            sizes=tuple(size // unit for size in self.sizes),
        )

    def plain(self) -> Collective:
        """Return the standard collective that this one cuts; a custom one is cut into grains."""
        if self.kind is Kind.CUSTOM or self.local_reduce:
            return self.in_grains()
        return make(self.kind, self.ranks, roots=self.roots)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the collective (``docs/formats.md``)."""
        data: dict[str, Any] = plain(self.described())
        return data

    def described(self) -> dict[str, Any]:
        """Return the JSON object of the collective, with arrays as columns (:mod:`.json_text`)."""

        def columns(p: Placement) -> dict[str, Ints32]:
            return {"rank": p.ranks, "chunk": p.chunks, "set": p.sets, "offset": p.offsets}

        return {
            "weft": "collective",
            "schema": SCHEMA,
            "kind": str(self.kind),
            "name": self.name,
            "ranks": self.ranks,
            "chunks": self.chunks,
            "factor": self.factor,
            "roots": list(self.roots),
            "contributions": [sorted(s) for s in self.contributions],
            "pre": columns(self.pre),
            "post": columns(self.post),
            "local_reduce": [list(g) for g in self.local_reduce],
            **({"sizes": list(self.sizes)} if self.sizes else {}),
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "collective") -> Collective:
        """Parse the object that :meth:`Collective.to_json` writes.

        Raises:
            BadFile: not such an object. UserError: an invalid collective.
        """
        require_kind(data, "collective", where)

        fields = Fields(data, where)
        kind = fields.get("kind", str)
        if kind not in set(Kind):
            raise UnknownName("collective", kind, Kind, where=where)
        ranks, chunks, pre = (
            fields.get("ranks", int),
            fields.get("chunks", int),
            _read_placement(fields, "pre", where),
        )
        if chunks > 2 * len(pre):
            raise BadFile(
                f"the precondition has {len(pre)} entries for {chunks} chunks", where=where
            )
        collective = cls(
            Kind(kind),
            ranks,
            chunks,
            tuple(map(frozenset, _read_groups(fields, "contributions", ranks, where))),
            pre,
            _read_placement(fields, "post", where),
            fields.get("factor", int, 1),
            tuple(fields.integers("roots", [])),
            _read_groups(fields, "local_reduce", chunks, where, []),
            fields.get("name", str, ""),
            tuple(fields.integers("sizes", [])),
        )
        fields.finish()
        if not _is_what_it_says(collective):
            raise BadFile(
                f"this is not {an(str(collective.kind))} of factor {collective.factor}",
                where=where,
                hint="a collective of your own has the kind custom",
            )
        return collective


# --- the standard collectives -------------------------------------------------------------------

_Row = tuple[int, int, int, int]
_Ends = tuple[Placement, Placement]
_Maker = Callable[[int, Sequence[int]], _Ends]


def _table(*columns: npt.ArrayLike) -> Placement:
    """Return a placement from columns, broadcast against each other and read in row-major order."""
    full = np.broadcast_arrays(*(np.asarray(x, np.int32) for x in columns))
    return Placement(*(x.flatten() for x in full))


_WITH_V = "alltoallv is written as a workload with a matrix, or planned by weft.rail_planner"


def make(
    kind: str | Kind,
    ranks: int | Sequence[int],
    *,
    chunks: int = 1,
    roots: Sequence[int] = (),
) -> Collective:
    """Return a standard collective on ``ranks`` ranks, each unit cut into ``chunks`` pieces.

    The unit is the data that one rank contributes to, or gets from, one other: the whole input of a
    rank for allgather; the block of a pair for alltoall, gather and scatter; one block per rank for
    reduce_scatter; the whole buffer for broadcast, reduce and allreduce.

    Raises:
        UnknownName: no such kind. UserError: an empty group, a root outside it, or a count that
            is not an integer.
    """
    n = _size(ranks)
    known = [str(k) for k in Kind if k is not Kind.CUSTOM]
    if str(kind) not in known:
        meant = dict.fromkeys(("alltoallv", "all_to_all_v", "all-to-all-v", "all_to_allv"), _WITH_V)
        raise UnknownName("collective", str(kind), known, meant=meant)
    kind = Kind(kind)
    if n < 1:
        raise UserError("the process group is empty", hint="name at least one rank")
    chunks = integer(chunks, "chunks")
    if not isinstance(roots, Iterable):
        raise UserError(f"roots: {roots!r} is not a list", hint=f"roots=({roots!r},)")
    roots = _roots_for(kind, n, tuple(integer(root, "root") for root in roots))
    if n * (n if kind in _FROM_ALL_TO_ALL else max(1, len(roots))) > LARGEST_PLACEMENT:
        raise UserError(f"{kind} on {n} ranks is too large to hold")
    pre, post = _MAKERS[kind](n, roots)
    # Sets 0 … n-1 are the single contributions, set n holds all ranks.
    sets = (*(frozenset([r]) for r in range(n)), frozenset(range(n)))
    plain = Collective(kind, n, int(pre.chunks.max()) + 1, sets, pre, post, 1, roots)
    return plain.split(chunks)


_FROM_ALL_TO_ALL = frozenset({Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLTOALL})


def _size(ranks: Any) -> int:
    if isinstance(ranks, Sequence) and not isinstance(ranks, str):
        return len(ranks)
    if isinstance(ranks, np.ndarray) and ranks.ndim:
        return len(ranks)
    return integer(ranks, "ranks", high=LARGEST_GROUP)


def _roots_for(kind: Kind, n: int, roots: tuple[int, ...]) -> tuple[int, ...]:
    if kind in ROOTED:
        roots = roots or (0,)
        if len(roots) > 1:
            raise UserError(f"{kind} has one root, not {len(roots)}", hint=f"multiroot_{kind}")
    elif kind in MULTIROOT:
        roots = roots or tuple(range(n))
        if len(set(roots)) < len(roots):
            raise UserError(f"{kind}: a root is named twice")
    elif roots:
        raise UserError(f"{kind} has no root")
    for root in roots:
        if not 0 <= root < n:
            raise UserError(f"root {root} is outside the group", hint=f"its ranks are 0 … {n - 1}")
    return roots


def _own(n: int) -> Placement:
    """Return where all chunks are one that each rank contributes to."""
    return _table(np.arange(n), 0, np.arange(n), 0)


def _broadcast(n: int, roots: Sequence[int]) -> _Ends:
    root, i = np.array(roots), np.arange(len(roots))
    return _table(root, i, root, 0), _table(np.arange(n), *(x[:, None] for x in (i, root, i)))


def _scatter(n: int, roots: Sequence[int]) -> _Ends:
    root, i, v = np.array(roots)[:, None], np.arange(len(roots))[:, None], np.arange(n)
    return _table(root, i * n + v, root, v), _table(v, i * n + v, root, i)


def _gather(n: int, roots: Sequence[int]) -> _Ends:
    root, i, v = np.array(roots)[:, None], np.arange(len(roots))[:, None], np.arange(n)
    return _table(v, i * n + v, v, i), _table(root, i * n + v, v, v)


def _reduce_scatter(n: int, _: Sequence[int]) -> _Ends:
    v = np.arange(n)
    return _table(v, v[:, None], v, v[:, None]), _table(v, v, n, 0)


def _alltoall(n: int, _: Sequence[int]) -> _Ends:
    # Each column is built once: thousands of ranks have millions of pairs.
    d = np.arange(n, dtype=np.int32)
    source, dest, chunk = np.repeat(d, n), np.tile(d, n), np.arange(n * n, dtype=np.int32)
    return Placement(source, chunk, source, dest), Placement(dest, chunk, source, source)


def _alltonext(n: int, _: Sequence[int]) -> _Ends:
    if n < 2:
        raise UserError("alltonext needs at least two ranks")
    v = np.arange(n - 1)
    return _table(v, v, v, 0), _table(v + 1, v, v, 0)


_MAKERS: dict[Kind, _Maker] = {
    Kind.BROADCAST: _broadcast,
    Kind.REDUCE: lambda n, roots: (_own(n), _table(roots, 0, n, 0)),
    Kind.SCATTER: _scatter,
    Kind.GATHER: _gather,
    Kind.ALLGATHER: lambda n, _: _broadcast(n, range(n)),
    Kind.REDUCE_SCATTER: _reduce_scatter,
    # The unit is the whole buffer; reduce_scatter followed by allgather cuts it in n * k.
    Kind.ALLREDUCE: lambda n, _: (_own(n), _table(np.arange(n), 0, n, 0)),
    Kind.ALLTOALL: _alltoall,
    Kind.ALLTONEXT: _alltonext,
    Kind.MULTIROOT_BROADCAST: _broadcast,
    Kind.MULTIROOT_SCATTER: _scatter,
    Kind.MULTIROOT_GATHER: _gather,
}


def one_shot_allreduce(ranks: int, *, chunks: int = 1) -> Collective:
    """Return allreduce as the allgather of every rank's whole buffer, then a local sum.

    Chunk ``r * chunks + k`` is piece k of the buffer of rank r; every rank sums the group
    ``{(r, k) : r}`` into output chunk k. Takes the fewest steps a machine allows, at N times the
    traffic.
    """
    n = ranks
    sets = (*(frozenset([r]) for r in range(n)), frozenset(range(n)))
    rows = [(v, r, r, 0) for r in range(n) for v in range(n)]
    plain = Collective(
        Kind.ALLREDUCE,
        n,
        n,
        sets,
        Placement.of([(r, r, r, 0) for r in range(n)]),
        Placement.of(rows),
        local_reduce=(tuple(range(n)),),
    )
    return plain.split(chunks)


def custom(
    name: str,
    ranks: int,
    pre: Iterable[tuple[int, int, Iterable[int], int]],
    post: Iterable[tuple[int, int, Iterable[int], int]],
) -> Collective:
    """Return a custom collective from rows (rank, chunk, contributing ranks, buffer offset).

    Raises:
        UserError: an invalid row, or a postcondition that no rank can reach.
    """
    if not isinstance(name, str):
        raise UserError(
            f"custom: the name must be a string, not {name!r}", hint="the name comes first"
        )
    ranks = integer(ranks, f"{name}: ranks", high=LARGEST_GROUP)
    sets: dict[frozenset[int], int] = {}

    def rows(source: Iterable[tuple[int, int, Iterable[int], int]], label: str) -> list[_Row]:
        what = f"{name}: {label}condition"
        if not isinstance(source, Iterable):
            raise UserError(f"{what} is {source!r}", hint=_ROW)
        return [_row(row, f"{what}, row {i}", ranks, sets) for i, row in enumerate(source)]

    before, after = rows(pre, "pre"), rows(post, "post")
    chunks = 1 + max((chunk for _, chunk, _, _ in (*before, *after)), default=-1)
    return Collective(
        Kind.CUSTOM,
        ranks,
        chunks,
        tuple(sets),
        Placement.of(before),
        Placement.of(after),
        name=name,
    )


_ROW = "rows are (rank, chunk, [contributing ranks], buffer offset)"


def _row(
    row: Any, what: str, ranks: int, sets: dict[frozenset[int], int]
) -> tuple[int, int, int, int]:
    """Return one row as numbers; sets of contributions are numbered as they occur."""
    try:
        rank, chunk, given, offset = row
        who = list(given)
    except (TypeError, ValueError):
        raise UserError(f"{what} is {row!r}", hint=_ROW) from None
    numbers = frozenset(integer(r, f"{what}: contribution", 0, max(ranks, 1) - 1) for r in who)
    return (
        integer(rank, f"{what}: rank"),
        integer(chunk, f"{what}: chunk", high=LARGEST_PLACEMENT),
        sets.setdefault(numbers, len(sets)),
        integer(offset, f"{what}: offset"),
    )


def _validate(c: Collective) -> None:
    what = c.name or str(c.kind)
    if c.ranks < 1 or c.chunks < 1:
        raise UserError(
            f"{what}: a collective needs ranks and chunks; these are {c.ranks} and {c.chunks}"
        )
    if c.sizes and (len(c.sizes) != c.chunks or min(c.sizes) < 1):
        raise UserError(f"{what}: sizes are given for other than its {c.chunks} chunks, or empty")
    if c.sizes and c.local_reduce:
        raise UserError(f"{what}: groups are summed of equal chunks; these have unequal sizes")
    if c.factor < 1 or (sum(c.sizes) or c.chunks) % c.factor:
        raise UserError(
            f"{what}: {sum(c.sizes) or c.chunks} chunks are not a multiple of {c.factor}"
        )
    for label, p in (("pre", c.pre), ("post", c.post)):
        if not len(p):
            raise UserError(f"{what}: the {label}condition is empty")
        limits = (
            (p.ranks, c.ranks, "rank"),
            (p.chunks, c.chunks, "chunk"),
            (p.sets, len(c.contributions), "contribution"),
            (p.offsets, LARGEST_OFFSET, "offset"),
        )
        for column, limit, noun in limits:
            if column.min() < 0 or column.max() >= limit:
                bad = column[(column < 0) | (column >= limit)]
                raise UserError(
                    f"{what}: {label}condition names {noun} {bad[0]}, outside 0 … {limit - 1}"
                )
        if any_twice(p.ranks, p.chunks):
            raise UserError(f"{what}: the {label}condition names a rank and chunk twice")
    _validate_reachable(c, what)
    _validate_offsets(c, what)


def _validate_reachable(c: Collective, what: str) -> None:
    """Raise UserError if a wanted contribution starts on no rank."""
    empty = np.array([not who for who in c.contributions])
    if empty.any() and (empty[c.pre.sets].any() or empty[c.post.sets].any()):
        raise UserError(f"{what}: a placement names an empty set of contributions")
    summed = _not_held(c)
    if not len(summed):
        return
    there, wanted = _contributed(c, c.pre), _contributed(c, c.post.some(summed))
    lost = np.setdiff1d(wanted, there, assume_unique=True)
    if not len(lost):
        return
    chunk = int(lost[0]) // c.ranks
    who = sorted((lost[lost // c.ranks == chunk] % c.ranks).tolist())
    raise UserError(
        f"{what}: no rank holds what chunk {chunk} must become",
        hint=f"contributions of ranks {who} are in no precondition",
    )


def _not_held(c: Collective) -> Ints:
    """Return the entries of the postcondition that no rank seems to hold as they are wanted.

    None of copied chunks; of a chunk that starts in several states one is looked at.
    """
    held = placed(c.chunks, c.pre.chunks, c.pre.sets)
    found = [np.zeros(0, np.int64)]
    for block in in_blocks(len(c.post)):
        new = np.flatnonzero(held[c.post.chunks[block]] != c.post.sets[block])
        if len(new):
            found.append(new + block.start)
    return np.concatenate(found)


def _contributed(c: Collective, p: Placement) -> Ints:
    """Return the distinct (chunk, contributing rank) pairs as keys ``chunk * ranks + rank``."""
    chunk, index = np.divmod(_chunk_sets(c, p), len(c.contributions))
    count = np.array([len(s) for s in c.contributions])
    flat = np.array([who for s in c.contributions for who in sorted(s)], np.int64)
    start, repeats = (np.cumsum(count) - count)[index], count[index]
    ends = np.cumsum(repeats)
    inside = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
    who = flat[np.repeat(start, repeats) + inside]
    return distinct_values(np.repeat(chunk, repeats) * c.ranks + who)


def _chunk_sets(c: Collective, p: Placement) -> Ints:
    """Return the distinct (chunk, set) pairs as keys ``chunk * sets + set``, ascending."""
    return distinct_values(p.chunks.astype(np.int64) * len(c.contributions) + p.sets)


def _validate_offsets(c: Collective, what: str) -> None:
    """Raise UserError if two chunks share a buffer offset, unless a rank sums them there."""
    grouped = {chunk: i for i, group in enumerate(c.local_reduce) for chunk in group}
    for label, p in (("input", c.pre), ("output", c.post)):
        if c.sizes:
            places = p.ranks.astype(np.int64) << 32 | p.offsets
            _validate_apart(c, p, places, f"{what}: {label}")
        if not any_twice(p.ranks, p.offsets):
            continue
        seen: dict[tuple[int, int], int] = {}
        rows = zip(p.ranks.tolist(), p.offsets.tolist(), p.chunks.tolist(), strict=True)
        for rank, offset, chunk in rows:
            other = seen.setdefault((rank, offset), chunk)
            same_group = grouped.get(chunk, -1) == grouped.get(other, -2)
            if other != chunk and not (label == "output" and same_group):
                raise UserError(
                    f"{what}: chunks {other} and {chunk} share {label} offset {offset} "
                    f"of rank {rank}"
                )


def _validate_apart(c: Collective, p: Placement, places: Ints, what: str) -> None:
    """Raise UserError if a chunk of several grains overlaps the next one."""
    order = np.argsort(places)
    ends = places[order] + c.grains[p.chunks[order]]
    for i in np.flatnonzero(ends[:-1] > places[order][1:]).tolist():
        one, other = p.chunks[order[i]], p.chunks[order[i + 1]]
        raise UserError(f"{what} chunks {one} and {other} of rank {p.ranks[order[i]]} overlap")


# --- the file form --------------------------------------------------------------------------------


def _read_placement(fields: Fields, key: str, where: str) -> Placement:
    columns = Fields(fields.get(key, dict), f"{where}: {key}")
    lists = [columns.integers(name) for name in ("rank", "chunk", "set", "offset")]
    columns.finish()
    if len({len(x) for x in lists}) != 1:
        raise BadFile("columns of different lengths", where=f"{where}: {key}")
    table = np.array(lists, np.int64)
    if table.size and not (table.min() >= 0 and table.max() < 1 << 31):
        raise BadFile("a number is negative or too large", where=f"{where}: {key}")
    return Placement(*table.astype(np.int32))


def _read_groups(
    fields: Fields, key: str, limit: int, where: str, *default: Any
) -> tuple[tuple[int, ...], ...]:
    """Parse lists of distinct numbers below ``limit``."""
    found = fields.get(key, list, *default)
    for group in found:
        if not isinstance(group, list) or not all(type(v) is int for v in group):
            raise BadFile("each entry must be a list of integers", where=f"{where}: {key}")
        if len(set(group)) < max(1, len(group)) or not all(0 <= v < limit for v in group):
            raise BadFile(f"not different numbers of 0 … {limit - 1}", where=f"{where}: {key}")
    return tuple(map(tuple, found))


def _is_what_it_says(c: Collective) -> bool:
    """Return True if a collective of a standard kind has that kind's pre- and postcondition."""
    if c.kind is Kind.CUSTOM:
        return True
    paired = c.local_reduce or c.kind in (Kind.ALLGATHER, Kind.REDUCE_SCATTER, Kind.ALLTOALL)
    rows = c.ranks * (c.ranks if paired else max(1, len(c.roots)))
    if max(len(c.pre), len(c.post)) < rows - 1:
        return False  # too few chunks for such a group; building it would only cost memory
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
    """Return the sizes of a cut collective as one list per chunk of the plain collective."""
    ends = np.cumsum(c.sizes)
    cuts = np.flatnonzero(ends % c.factor == 0) + 1
    whole = len(cuts) * c.factor == ends[-1]  # else one of the lists spans several chunks
    parts = np.split(np.array(c.sizes, np.int64), cuts[:-1]) if whole else []
    return [x.tolist() for x in parts]


def _same(a: Collective, one: Placement, b: Collective, other: Placement) -> bool:
    """Return True if two placements are equal up to the order of rows and of contributions."""
    index: dict[frozenset[int], int] = {}
    rows = []
    for c, p in ((a, one), (b, other)):
        name = np.array([index.setdefault(s, len(index)) for s in c.contributions], np.int32)
        # No (rank, chunk) pair occurs twice in a placement.
        order = np.argsort(p.ranks.astype(np.int64) * c.chunks + p.chunks)
        rows.append(np.stack([p.ranks, p.chunks, name[p.sets], p.offsets])[:, order])
    return np.array_equal(rows[0], rows[1])

"""Resharding of a tensor between two meshes: the tiles of each rank, and the data it still needs.

A layout is a text ``RANKS/TILES``: ``0..7/8`` is cut into eight, ``0..7/1`` is a whole copy on each
rank, ``0..7/2x4`` is cut into two by four along two dimensions, ``0..7/2`` is two tiles, each on
four ranks that follow one another. ``0..7`` alone has a tile for each rank. Tiles are numbered in
row-major order.

>>> [(s.holders, s.receivers, s.bytes) for s in resharding("0..1/1", "2..3/2", 8)]
[((0, 1), (2,), 4), ((0, 1), (3,), 4)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain, product, zip_longest
from math import gcd, lcm, prod

from ..base.errors import UserError, suggest
from ..base.lazy_dataclass import Frozen
from ..base.units import parse_bytes
from .collective import Collective
from .deliveries import shard_collective
from .ranks_text import ranks_or_axes
from .workload import Forwarders, Shard, WorkKind, Workload, WorkloadOperation

MOST_SHARDS = 1 << 16
"""Pieces of a resharding, at most."""

_FORM = "a layout is RANKS/TILES: 0..7/8 (cut into eight), 0..7/1 (a copy each), 0..7/2x4"


class TensorLayout(Frozen):
    """Which ranks hold which tile of a tensor.

    Attributes:
        ranks: in the order of the tiles; the copies of a tile follow one another.
        grid: number of tiles along each dimension.
    """

    ranks: tuple[int, ...]
    grid: tuple[int, ...]

    @staticmethod
    def of(text: str, where: str = "reshard") -> TensorLayout:
        """Parse ``RANKS/TILES``.

        Raises:
            UserError: not such a text, or the tiles do not divide the ranks.
        """
        named, slash, tiles = text.strip().partition("/")
        ranks, axes = ranks_or_axes(named, where)
        if axes or not ranks or not (not slash or re.fullmatch(r"\d{1,6}(x\d{1,6}){0,3}", tiles)):
            raise UserError(f"expected a layout, got {text[:60]!r}", where=where, hint=_FORM)
        grid = tuple(int(x) for x in tiles.split("x")) if slash else (len(ranks),)
        if len(set(ranks)) < len(ranks):
            raise UserError(f"{text[:60]!r} names a rank twice", where=where)
        if not prod(grid) or len(ranks) % prod(grid):
            raise UserError(
                f"{text[:60]!r}: {prod(grid)} tiles do not divide {len(ranks)} ranks",
                where=where,
                hint=_FORM,
            )
        return TensorLayout(ranks, grid)

    def holders(self, tile: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ranks that have a tile."""
        number = 0
        for size, at in zip(self.grid, tile, strict=True):
            number = number * size + at
        copies = len(self.ranks) // prod(self.grid)
        return self.ranks[number * copies : (number + 1) * copies]


def resharding(source: str, target: str, size: int) -> tuple[Shard, ...]:
    """Return the shards that lay out a tensor of ``size`` bytes anew.

    A piece is where a tile of the one layout and a tile of the other overlap.

    Raises:
        UserError: not two layouts, or pieces of no whole number of bytes.
    """
    before, after = TensorLayout.of(source, "from"), TensorLayout.of(target, "to")
    cuts = [list(_overlaps(a, b)) for a, b in zip_longest(before.grid, after.grid, fillvalue=1)]
    if prod(map(len, cuts)) > MOST_SHARDS:
        raise UserError(f"the layouts overlap in more than {MOST_SHARDS} pieces")
    pieces = [*product(*cuts)]
    shares = [prod((part for _, _, part in piece), start=Fraction(1)) for piece in pieces]
    unit = lcm(*(share.denominator for share in shares))
    if size % unit:
        raise UserError(
            f"{size} bytes do not divide into the pieces of the layouts",
            hint=f"a multiple of {unit} does",
        )
    found = []
    for piece, share in zip(pieces, shares, strict=True):
        one = before.holders(tuple(a for a, _, _ in piece)[: len(before.grid)])
        other = after.holders(tuple(b for _, b, _ in piece)[: len(after.grid)])
        found.append(Shard(one, other, int(share * size)))
    return tuple(found)


def is_reshard(text: str) -> bool:
    """Return True for ``reshard:FROM,TO`` and more."""
    return text.startswith("reshard:")


def reshard_layouts(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the two layouts of ``reshard:FROM,TO,…``, and the words after them.

    Raises:
        UserError: fewer.
    """
    words = text.removeprefix("reshard:").split(",")
    if len(words) < 2:
        raise UserError(
            f"expected a resharding, got {text[:60]!r}", hint=f"reshard:0..7/1,8..15/8; {_FORM}"
        )
    return words[0], words[1], tuple(words[2:])


def reshard_collective(text: str, group: Sequence[int]) -> Collective:
    """Return the collective of ``reshard:FROM,TO`` on a group, some of which may stay idle.

    Raises:
        UserError: not such a text, or a rank outside the group.
    """
    source, target, more = reshard_layouts(text)
    if more:
        raise UserError(f"{text[:60]!r}: {more[0][:20]!r} is too much", hint="--size has the size")
    grids = TensorLayout.of(source, "from").grid, TensorLayout.of(target, "to").grid
    shards = resharding(source, target, prod(chain(*grids)))
    place = {rank: i for i, rank in enumerate(group)}
    for rank in (v for one in shards for v in (*one.holders, *one.receivers)):
        if rank not in place:
            raise UserError(f"rank {rank} is not in the group", where=text[:60])
    common = gcd(*(one.bytes for one in shards))
    moved = [
        Shard(
            tuple(place[v] for v in one.holders), tuple(place[v] for v in one.receivers), one.bytes
        )
        for one in shards
    ]
    return shard_collective(len(group), moved, [[one.bytes // common] for one in moved], "reshard")


def part_of_tensor(collective: Collective) -> Fraction:
    """Return M, the largest buffer of a rank, of a resharding as a part of the tensor.

    >>> part_of_tensor(reshard_collective("reshard:0..3/4,4..7/2", range(8)))
    Fraction(1, 2)
    """
    return Fraction(collective.message_chunks, int(collective.grains.sum()))


def reshard_workload(text: str) -> Workload:
    """Return the workload of ``reshard:FROM,TO,SIZE[,RELAYS]``.

    Raises:
        UserError: not such a text.
    """
    source, target, more = reshard_layouts(text)
    if not 1 <= len(more) <= 2:
        raise UserError(
            f"{text[:60]!r} lacks the size of the tensor, or has too much",
            hint="reshard:0..7/1,8..15/8,800MB or reshard:0..7/1,8..15/8,800MB,all",
        )
    known = [str(x) for x in Forwarders]
    relays = more[1] if len(more) == 2 else "none"
    if relays not in known:
        raise UserError(f"unknown relays {relays[:20]!r}", hint=suggest(relays[:20], known))
    shards = resharding(source, target, parse_bytes(more[0]))
    one = WorkloadOperation("reshard", WorkKind.MULTICAST, shards=shards, relays=Forwarders(relays))
    return Workload("reshard", (one,))


def _overlaps(one: int, other: int) -> Iterator[tuple[int, int, Fraction]]:
    """Yield the overlaps of a line cut into ``one`` and ``other`` equal parts, with lengths."""
    borders = {Fraction(i, one) for i in range(one)} | {Fraction(i, other) for i in range(other)}
    begins = sorted(borders)
    for begin, end in zip(begins, [*begins[1:], Fraction(1)], strict=True):
        yield int(begin * one), int(begin * other), end - begin

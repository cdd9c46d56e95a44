"""Round unequal fractions to a grid of equal chunks, for runtimes without unequal chunks.

Largest remainder, chunk by chunk (:func:`largest_remainder`). The finest grid is not
always the best one: 28 equal shares fit a grid of 28 and not one of 1024. So several
grids are tried, those that overload a fraction least, and the least loaded schedule is kept. The
loss is reported exactly.

Fractions of trees in grains: exact where the denominator is small, else on a fine grid.

Trees carry rational fractions of a chunk. With D their common denominator, a chunk of D grains is
cut exactly. D may become huge (solutions of linear programs are quotients of determinants), and
offsets are limited: then fractions are rounded to a grid by largest remainder, and trees rounded
to zero are dropped. The loss is visible in the load of the schedule, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.unique_rows import rows_of
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.placement import LARGEST_OFFSET
from weft.dsl.nouns.schedule import Schedule

from ....fabric.occupancy import us_per_byte
from .model import Packing


@dataclass(frozen=True, eq=False)
class TemplateShares:
    """Grains of each template that is kept."""

    kept: tuple[int, ...]  # numbers of the templates that carry anything
    grains: Ints  # load of each image of them, shape (kept,)
    plain: Ints  # the plain chunk of each of their images, shape (kept, elements)
    factor: int  # grains of a chunk
    exact: bool  # grains are the shares, not rounded


def shares(packing: Packing, plain: Ints, grains_of_message: int = 0) -> TemplateShares:
    """The grains of a packing whose images carry the chunks ``plain`` (templates, elements).

    ``grains_of_message``: the finest grid that is allowed; by default as fine as offsets are.

    Raises:
        UserError: the shares do not make up every chunk, or the grid is coarser than chunks.
    """
    weights = [t.weight for t in packing.trees]
    groups, copies = _groups(packing, plain)
    for members in groups:
        total = sum((weights[t] * copies[t] for t in members), Fraction(0))
        if total != 1 or any(weights[t] <= 0 for t in members):
            raise UserError(f"the trees of chunk {plain[members[0], 0]} carry {total} of it, not 1")
    chunks = packing.collective.message_chunks
    most = (grains_of_message or LARGEST_OFFSET - 1) // chunks
    if most < max(copies, default=1):
        raise UserError(
            f"{grains_of_message} grains are too few for {packing.collective}",
            hint=f"at least {chunks * max(copies)}",
        )
    denominator = lcm(*(w.denominator for w in weights))
    exact = denominator <= most
    if exact:
        factor = denominator
        grains = np.array([int(w * denominator) for w in weights], np.int64)
    else:
        factor = most // max(copies) * max(copies)
        grains = np.zeros(len(weights), np.int64)
        for members in groups:  # they sum to ``factor`` in every chunk
            units = factor // copies[members[0]]
            parts = [weights[t] * copies[t] for t in members]
            grains[members] = largest_remainder(parts, units)
    kept = np.flatnonzero(grains)
    return TemplateShares(tuple(kept.tolist()), grains[kept], plain[kept], factor, exact)


def _groups(packing: Packing, plain: Ints) -> tuple[list[list[int]], list[int]]:
    """Templates that share a chunk (up to symmetry), and how often each serves one chunk."""
    least = plain.min(axis=1, initial=packing.collective.chunks)
    # No element but the identity fixes a rank: it moves a chunk, or (allreduce) all fix it.
    fixed = (plain == plain[:, :1]).all(axis=1)
    groups: dict[int, list[int]] = {}
    for template, chunk in enumerate(least.tolist()):
        groups.setdefault(chunk, []).append(template)
    return [*groups.values()], np.where(fixed, plain.shape[1], 1).tolist()


def largest_remainder(parts: list[Fraction], units: int) -> list[int]:
    """Return integers that sum to ``units``, as near to its ``parts`` (summing to 1) as can be.

    No part is off by a whole unit (Hamilton's method of apportionment).
    """
    exact = [x * units for x in parts]
    whole = [int(x) for x in exact]
    by_rest = sorted(range(len(parts)), key=lambda i: (whole[i] - exact[i], i))
    for i in by_rest[: units - sum(whole)]:
        whole[i] += 1
    return whole


MOST = 1024
"""Grains of a message that MSCCL's runtime can distinguish."""

_LOOKED_AT = 8

_AS_GOOD = Fraction(101, 100)
"""A grid of a power of two that loads the busiest resource at most so much more is taken before
others: runtimes run a file for messages that divide into its chunks, and most are round in binary.
"""


def quantize(schedule: Schedule, grains: int = MOST) -> tuple[Schedule, Fraction]:
    """The schedule with at most ``grains`` in the message, and how much busier its busiest
    resource is (0: not at all; 1/50: by 2 %). Pieces of which nothing is left are dropped.

    Raises:
        UserError: fewer grains than the plain collective has chunks in its message, or pieces of a
            custom collective.
    """
    collective = schedule.collective
    if collective.kind is Kind.CUSTOM and collective.sizes:
        raise UserError(
            f"{collective.name}: its pieces are {collective.message_chunks} grains of the message, "
            f"of which {grains} can be told apart here; a custom collective is not rounded",
            hint="weft compile --to program takes all of them, and executes the result",
        )
    chunks = collective.message_chunks // collective.factor
    if grains < chunks:
        raise UserError(
            f"{grains} grains are too few for {collective.plain()}", hint=f"at least {chunks}"
        )
    if not collective.sizes or collective.message_chunks <= grains:
        return schedule, Fraction(0)
    before = us_per_byte(schedule)
    best: tuple[Fraction, Schedule] | None = None
    for sizes in _grids(collective, grains // chunks):
        attempt = _with_sizes(schedule, sizes)
        load = us_per_byte(attempt)
        if best is None or load < best[0]:
            best = load, attempt
        if load <= before:
            break
    assert best is not None
    limit, powers = best[0] * _AS_GOOD, list(_powers(schedule, grains))
    if powers and not collective.factor & (collective.factor - 1):
        # Shares that were rounded so before, and are cut in segments now, stay on such a grid.
        limit = max(limit, min(load for load, _ in powers))
    best = next((one for one in powers if one[0] <= limit), best)
    return best[1], best[0] / before - 1 if before else Fraction(0)


def halved(schedule: Schedule, grains: int, most: Fraction) -> Schedule | None:
    """The schedule on the coarsest grid of a power of two of grains a chunk, at most ``grains`` in
    the message, that loads the busiest resource for ``most`` µs a byte; None: none does."""
    return next((found for load, found in _powers(schedule, grains) if load <= most), None)


def with_common_grains(schedule: Schedule, finest: int, lost: Fraction) -> Schedule:
    """The schedule with each chunk in a power of two of grains, at most ``finest``, if its busiest
    resource is busier by at most a part ``lost`` then; else as it is. Schedules whose shares lack a
    common denominator can be joined so."""
    collective = schedule.collective
    chunks = collective.message_chunks // collective.factor
    most = us_per_byte(schedule) * (1 + lost)
    return (halved(schedule, chunks * finest, most) if collective.sizes else None) or schedule


def _powers(schedule: Schedule, grains: int) -> Iterator[tuple[Fraction, Schedule]]:
    """The load of the busiest resource, and the schedule, on grids of 2^k grains a chunk."""
    collective = schedule.collective
    if collective.kind is Kind.CUSTOM or collective.local_reduce:
        return
    chunks = collective.message_chunks // collective.factor
    factor = 1
    while factor * chunks <= grains:
        sizes = _round_pieces(_pieces(collective), collective.factor, factor)
        attempt = _with_sizes(schedule, sizes)
        yield us_per_byte(attempt), attempt
        factor *= 2


def _round_pieces(pieces: list[Ints], old: int, new: int) -> list[Ints]:
    """Pieces of ``old`` grains in all, in ``new`` ones."""
    return [np.array(largest_remainder([Fraction(int(g), old) for g in x], new)) for x in pieces]


def _pieces(collective: Collective) -> list[Ints]:
    """The grains of the pieces of each plain chunk."""
    sizes = collective.grains
    plain = (np.cumsum(sizes) - sizes) // collective.factor
    return np.split(sizes, np.flatnonzero(np.diff(plain)) + 1)


def _grids(collective: Collective, most: int) -> Iterator[list[Ints]]:
    """Pieces of each plain chunk on some grids of at most ``most`` grains a chunk, the one first
    that makes no piece much larger than its share; the same shares come once."""
    known: dict[bytes, int] = {}
    pieces = _pieces(collective)
    kinds = [known.setdefault(x.tobytes(), len(known)) for x in pieces]
    distinct = [np.frombuffer(key, np.int64) for key in known]
    found = []
    least = max(1, most // 2) if most <= MOST else most
    for factor in range(least, most + 1):
        rounded = _round_pieces(distinct, collective.factor, factor)
        over = max(
            float((new * collective.factor / (old * factor)).max())
            for new, old in zip(rounded, distinct, strict=True)
        )
        found.append((over, -factor, rounded))
    seen: set[tuple[bytes, ...]] = set()
    for _, _, rounded in sorted(found, key=lambda x: x[:2]):
        shares = tuple((x // np.gcd.reduce(x)).tobytes() for x in rounded)
        if shares not in seen and len(seen) < _LOOKED_AT:
            seen.add(shares)
            yield [rounded[kind] for kind in kinds]


def _with_sizes(schedule: Schedule, sizes: list[Ints]) -> Schedule:
    """The schedule with pieces of these grains; transfers of empty ones are left out."""
    flat = np.concatenate(sizes)
    number = np.cumsum(flat > 0) - 1
    collective = schedule.collective.plain().cut([x[x > 0].tolist() for x in sizes])
    rows = np.flatnonzero(flat[schedule.chunk] > 0)
    start, at = rows_of(schedule.route_start, rows)
    step = np.unique(schedule.step[rows], return_inverse=True)[1]
    made = Schedule.from_columns(
        schedule.topology,
        collective,
        number[schedule.chunk[rows]],
        schedule.src[rows],
        schedule.dst[rows],
        step,
        schedule.reduce[rows],
        np.diff(start),
        schedule.route_links[at],
        priority=None if schedule.priority is None else schedule.priority[rows],
        stride=schedule.stride,
        segments=schedule.segments,
        provenance=schedule.provenance,
    )
    return replace(made, bytes=schedule.bytes)

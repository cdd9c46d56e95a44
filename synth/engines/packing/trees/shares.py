"""Fractions of trees in grains: exact where the denominator is small, else on a fine grid.

Trees carry rational fractions of a chunk. With D their common denominator, a chunk of D grains is
cut exactly. D may become huge (solutions of linear programs are quotients of determinants), and
offsets are limited: then fractions are rounded to a grid by largest remainder, and trees rounded
to zero are dropped. The loss is visible in the load of the schedule, exactly.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.placement import LARGEST_OFFSET

from .model import Packing


@dataclass(frozen=True, eq=False)
class TemplateShares:
    """Grains of each template that is kept.

    Attributes:
        kept: numbers of the templates that carry anything.
        grains: what each image of them carries, shape (kept,).
        plain: the plain chunk of each of their images, shape (kept, elements).
        factor: grains of a chunk.
        exact: whether grains are the shares, not rounded.
    """

    kept: tuple[int, ...]
    grains: Ints
    plain: Ints
    factor: int
    exact: bool


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
        grains = _on_grid(weights, groups, copies, factor)
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


def _on_grid(
    weights: list[Fraction], groups: list[list[int]], copies: list[int], factor: int
) -> Ints:
    """Grains that sum to ``factor`` in every chunk, the largest remainders rounded up."""
    grains = np.zeros(len(weights), np.int64)
    for members in groups:
        units = factor // copies[members[0]]
        part = largest_remainder([weights[t] * copies[t] for t in members], units)
        grains[members] = part
    return grains


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

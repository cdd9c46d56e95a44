"""Summary of a packing's schedule in words: rate and bound, trees, slices and order."""

from __future__ import annotations

from dataclasses import replace

from weft.dsl.nouns.collective import Kind

from ....base.engine import Point
from ..trees.demands import moves_pairs
from ..trees.model import Packing, counted, halves, trees_per_root
from .order_search import Planned

_VISIBLE = 1e-4
"""A loss that two decimals of a percentage show."""


def summary(found: Planned, point: Point) -> str:
    """Rate and bound, trees, height, slices and order of a schedule, in words."""
    packing = found.quotient.plan.packing
    return (
        f"{_rate(found, point)}: {_trees(packing)}, {_height(packing)}, "
        f"{counted(found.segments, 'segment')}, order {found.order.rule}"
    )


def _rate(found: Planned, point: Point) -> str:
    plan, load = found.quotient.plan, point.rounds_per_chunk
    rounds = f"{load} round{'' if load == 1 else 's'} per chunk"
    if point.optimal:
        return f"{rounds}, which is the bound"
    over = float(load / point.bound - 1) if point.bound else 0.0
    if plan.shares.exact:
        return f"{rounds}, a load {over:.2%} above the bound {point.bound}"
    what = "paths" if moves_pairs(plan.packing.collective) else "trees"
    grid = f"in the file their shares are multiples of 1/{plan.shares.factor} of a chunk"
    if plan.packing.optimal:
        loss = f"{over:.2%}" if over > _VISIBLE else f"{over:.1e} of it"
        return f"the {what} attain the bound {point.bound} exactly; {grid}, {loss} above"
    return f"{rounds}, a load {over:.2%} above the bound {point.bound}; {grid}"


def _trees(packing: Packing) -> str:
    moving = [t for t in packing.trees if len(t)]
    pieces = len(moving) * len(packing.images)
    if moves_pairs(packing.collective):
        return counted(pieces, "path")
    most, least = trees_per_root(replace(packing, trees=tuple(moving)))
    if most == 1:
        return counted(pieces, "tree")
    return f"{counted(pieces, 'tree')}, {'' if most == least else 'at most '}{most} per root"


def _height(packing: Packing) -> str:
    tall = max(packing.heights, default=0)
    if packing.collective.kind is not Kind.ALLREDUCE:
        return f"height {tall}"
    up, down = (max(x, default=0) for x in zip(*map(halves, packing.trees), strict=True))
    return f"height {tall} ({up} up to the root, {down} down from it)"

"""What is said of a packing's schedule: its rate beside the bound, its trees, slices and order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from weft.dsl.nouns.collective import Kind

from ....base.engine import Point
from ..trees.demands import moves_pairs
from ..trees.model import Packing, Tree, height
from ..trees.templates import root
from .order_search import Planned

_VISIBLE = 1e-4
"""A loss that two decimals of a percentage show."""


def said(found: Planned, point: Point) -> str:
    """Rate and bound, trees, height, slices and order of a schedule, in words."""
    packing = found.quotient.plan.packing
    return (
        f"{_rate(found, point)}: {_trees(packing)}, {_height(packing)}, "
        f"{counted(found.segments, 'segment')}, order {found.order.rule}"
    )


def counted(number: int, noun: str) -> str:
    """``1 tree``, ``2 trees``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
    most, least = _per_root(replace(packing, trees=tuple(moving)))
    if most == 1:
        return counted(pieces, "tree")
    return f"{counted(pieces, 'tree')}, {'' if most == least else 'at most '}{most} per root"


def _per_root(packing: Packing) -> tuple[int, int]:
    """The most and the fewest templates of one chunk and root."""
    many = Counter((t.chunk, root(t)) for t in packing.trees).values()
    return max(many, default=0), min(many, default=0)


def tree_limits(packing: Packing) -> str:
    """``at most 7 trees per root, 5 hops``."""
    most, least = _per_root(packing)
    bound = "" if most == least else "at most "
    return f"{bound}{counted(most, 'tree')} per root, {counted(low(packing), 'hop')}"


def _height(packing: Packing) -> str:
    tall = max(packing.heights, default=0)
    if packing.collective.kind is not Kind.ALLREDUCE:
        return f"height {tall}"
    up, down = (max(x, default=0) for x in zip(*map(_halves, packing.trees), strict=True))
    return f"height {tall} ({up} up to the root, {down} down from it)"


def low(packing: Packing) -> int:
    """Hops between a root and its farthest leaf: what a limit of the height is about.

    In allreduce sums go up a tree and results go down one; each of the two is limited.
    """
    if packing.collective.kind is not Kind.ALLREDUCE:
        return max(packing.heights, default=0)
    return max((max(_halves(t)) for t in packing.trees), default=0)


def _halves(tree: Tree) -> tuple[int, int]:
    """The heights of the part that sums up and of the part that hands out."""
    sums = int(np.count_nonzero(tree.reduce))
    return height(_hops(tree, slice(0, sums))), height(_hops(tree, slice(sums, None)))


def _hops(tree: Tree, part: slice) -> Tree:
    return replace(tree, src=tree.src[part], dst=tree.dst[part])

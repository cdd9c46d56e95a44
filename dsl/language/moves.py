"""Rank permutations of ``symmetry:`` lines."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..base.errors import BadSketch
from ..symmetry.symmetry import extend
from . import ast
from .evaluate import Meaning
from .format import generator_text
from .grid import moved_along, swapped

Image = tuple[int, ...]


def image_of(generator: ast.Generator, meaning: Meaning) -> Image:
    """Return the image of each rank, checked to be a symmetry of the machine.

    Raises:
        BadSketch: blocks that do not divide the ranks, a rank in two cycles, hosts of different
            size, no such dimension, or a permutation that does not map the machine to itself.
    """
    match generator:
        case ast.Rotate(by=by, axis=ast.Axis() as axis):
            # The rank k positions before a position is mapped to it.
            turn = -meaning.number(by)
            image = moved_along(axis, meaning, lambda places, n: np.roll(places, turn, axis=n))
        case ast.Rotate():
            image = _rotation(generator, meaning)
        case ast.Reflect(axis=axis):
            image = moved_along(axis, meaning, lambda places, n: np.flip(places, axis=n))
        case ast.Swap(one=one, other=other):
            image = swapped(one, other, meaning)
        case ast.RotateNodes():
            image = _node_rotation(generator, meaning)
        case ast.Permute():
            image = _permutation(generator, meaning)
    if extend(meaning.machine.topology, image) is None:
        raise BadSketch(
            f"{generator_text(generator)} is no symmetry of {meaning.machine.topology.name}",
            where=generator.span,
            hint=_reason(image, meaning),
        )
    return image


def _rotation(generator: ast.Rotate, meaning: Meaning) -> Image:
    by = meaning.number(generator.by)
    ranks = meaning.machine.ranks
    if generator.within_node:
        image = [0] * ranks
        for box in meaning.machine.boxes:
            for place, rank in enumerate(box):
                image[rank] = box[(place + by) % len(box)]
        return tuple(image)
    size = ranks
    if generator.blocks is not None:
        size = meaning.block_size(generator.blocks)
    # TACCL's symmetry_offsets [[by, size]].
    return tuple((r % size + by) % size + r - r % size for r in range(ranks))


def _node_rotation(generator: ast.RotateNodes, meaning: Meaning) -> Image:
    by = 1 if generator.by is None else meaning.number(generator.by)
    boxes = meaning.machine.boxes
    if len({len(box) for box in boxes}) > 1:
        raise BadSketch("the nodes have different numbers of GPUs", where=generator.span)
    image = [0] * meaning.machine.ranks
    for i, box in enumerate(boxes):
        for rank, target in zip(box, boxes[(i + by) % len(boxes)], strict=True):
            image[rank] = target
    return tuple(image)


def _permutation(generator: ast.Permute, meaning: Meaning) -> Image:
    image = list(range(meaning.machine.ranks))
    boxes = range(len(meaning.machine.boxes)) if generator.within_node else (None,)
    for box in boxes:
        cycles = [[meaning.rank(e, box) for e in cycle] for cycle in generator.cycles]
        twice = [r for r, n in Counter(r for c in cycles for r in c).items() if n > 1]
        if twice:
            raise BadSketch(f"rank {twice[0]} is twice in the cycles", where=generator.span)
        for cycle in cycles:
            for rank, target in zip(cycle, cycle[1:] + cycle[:1], strict=True):
                image[rank] = target
    return tuple(image)


def _reason(image: Image, meaning: Meaning) -> str:
    """Return the reason why a permutation is not a symmetry: a hop that it breaks, if any."""
    hops = meaning.machine.hops
    moved = np.asarray(image)
    broken = np.argwhere(hops & ~hops[np.ix_(moved, moved)])
    if len(broken):
        a, b = map(int, broken[0])
        return f"it moves the hop {a} -> {b} to {image[a]} -> {image[b]}, which is not there"
    return "it moves links to links of another speed, or apart from what they share"

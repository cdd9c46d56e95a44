"""Rank permutations of ``symmetry:`` lines, dimensions of grids, and groups of ``phases:``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from ..base.arrays import Ints
from ..base.errors import BadSketch
from ..nouns.collective import Kind
from ..nouns.composition import NoComposition, composed
from ..nouns.sketch import Phase
from ..symmetry.symmetry import extend
from . import ast
from .evaluate import Meaning
from .format import text_of

Image = tuple[int, ...]
Shape = tuple[int, ...]

_LETTERS = "xyz"


def image_of(generator: ast.Generator, meaning: Meaning) -> Image:
    """Return the image of each rank, checked to be a symmetry of the machine.

    Raises:
        BadSketch: blocks that do not divide the ranks, a rank in two cycles, hosts of different
            size, no such dimension, or a permutation that does not map the machine to itself.
    """
    match generator:
        case ast.Rotate(by=by, axis=ast.Dimension() as axis):
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
            f"{text_of(generator)} is not a symmetry of {meaning.machine.topology.name}",
            where=generator.span,
            hint=_reason(image, meaning),
        )
    return image


def _rotation(generator: ast.Rotate, meaning: Meaning) -> Image:
    by = meaning.number(generator.by)
    ranks = meaning.machine.ranks
    if generator.within_node:
        image = [0] * ranks
        for host in meaning.machine.hosts:
            for place, rank in enumerate(host):
                image[rank] = host[(place + by) % len(host)]
        return tuple(image)
    size = ranks
    if generator.blocks is not None:
        size = meaning.block_size(generator.blocks)
    # TACCL's symmetry_offsets [[by, size]].
    return tuple((r % size + by) % size + r - r % size for r in range(ranks))


def _node_rotation(generator: ast.RotateNodes, meaning: Meaning) -> Image:
    by = 1 if generator.by is None else meaning.number(generator.by)
    hosts = meaning.machine.hosts
    if len({len(host) for host in hosts}) > 1:
        raise BadSketch("the nodes have different numbers of GPUs", where=generator.span)
    image = [0] * meaning.machine.ranks
    for i, host in enumerate(hosts):
        for rank, target in zip(host, hosts[(i + by) % len(hosts)], strict=True):
            image[rank] = target
    return tuple(image)


def _permutation(generator: ast.Permute, meaning: Meaning) -> Image:
    image = list(range(meaning.machine.ranks))
    hosts = range(len(meaning.machine.hosts)) if generator.within_node else (None,)
    for host in hosts:
        cycles = [[meaning.rank(e, host) for e in cycle] for cycle in generator.cycles]
        twice = [r for r, n in Counter(r for c in cycles for r in c).items() if n > 1]
        if twice:
            raise BadSketch(f"rank {twice[0]} is listed twice in the cycles", where=generator.span)
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
        return f"it moves the hop {a} -> {b} to {image[a]} -> {image[b]}, which does not exist"
    return "it moves links to links of another speed, or apart from what they share"


# ---- grids


def shape_of(name: str) -> Shape | None:
    """Return the sides of a grid from its catalogue name, x first; None if not a grid.

    >>> shape_of("torus:4x3,bw=50GB/s"), shape_of("hypercube:3"), shape_of("dgx1")
    ((4, 3), (2, 2, 2), None)
    """
    found = re.match(r"(mesh|torus|ring|line|hypercube):(\d+(?:x\d+)*)(?![\w.])", name)
    if found is None:
        return None
    sides = tuple(map(int, found[2].split("x")))
    return (2,) * sides[0] if found[1] == "hypercube" else sides


def places_of(axis: ast.Dimension, meaning: Meaning) -> tuple[Ints, int]:
    """Return the grid of ranks, and the number of the named dimension.

    Raises:
        BadSketch: the machine is not a grid, or lacks the dimension.
    """
    topology = meaning.machine.topology
    shape = shape_of(topology.name)
    if shape is None or int(np.prod(shape)) != topology.ranks:
        raise BadSketch(
            f"expected a machine with dimensions, got {topology.name}",
            where=axis.span,
            hint="mesh, torus, hypercube, ring and line machines of the catalogue have",
        )
    if isinstance(axis.which, str):
        number = _LETTERS.find(axis.which) if len(axis.which) == 1 else -1
    else:
        number = meaning.number(axis.which)
    if not 0 <= number < len(shape):
        known = [*_LETTERS[: len(shape)], *(f"dimension {i}" for i in range(3, len(shape)))]
        raise BadSketch(
            f"expected a dimension of {topology.name}, "
            f"got {axis.which if isinstance(axis.which, str) else number}",
            where=axis.span,
            hint=f"it has {', '.join(known)}; x is dimension 0",
        )
    # The first coordinate varies fastest: column-major.
    return np.arange(topology.ranks).reshape(shape, order="F"), number


def lines_along(axis: ast.Dimension, meaning: Meaning) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every line of the grid in one dimension, in order."""
    places, number = places_of(axis, meaning)
    rows = np.moveaxis(places, number, -1).reshape(-1, places.shape[number])
    return tuple(sorted(tuple(map(int, row)) for row in rows))


def moved_along(
    axis: ast.Dimension, meaning: Meaning, move: Callable[[Ints, int], Ints]
) -> tuple[int, ...]:
    """Return the image of each rank; ``move`` maps the grid of ranks to the grid of images."""
    places, number = places_of(axis, meaning)
    return _image(places, move(places, number))


def swapped(one: ast.Dimension, other: ast.Dimension, meaning: Meaning) -> tuple[int, ...]:
    """Return the image of each rank when two dimensions are exchanged.

    Raises:
        BadSketch: dimensions of different size.
    """
    places, a = places_of(one, meaning)
    _, b = places_of(other, meaning)
    if places.shape[a] != places.shape[b]:
        raise BadSketch(
            f"these dimensions have {places.shape[a]} and {places.shape[b]} places",
            where=other.span,
            hint="only dimensions of equal size can be swapped",
        )
    return _image(places, np.swapaxes(places, a, b))


def _image(places: Ints, targets: Ints) -> tuple[int, ...]:
    image = np.empty(places.size, np.int64)
    image[places.ravel()] = targets.ravel()
    return tuple(map(int, image))


# --- phases ---------------------------------------------------------------------------------------

Groups = tuple[tuple[int, ...], ...]


def phases_of(line: ast.PhasesRule, meaning: Meaning) -> tuple[tuple[Phase, ...], Kind]:
    """Return the phases with their groups, and the collective that they make.

    Raises:
        BadSketch: a rank in two groups, blocks that do not divide the ranks, no such dimension, or
            phases that make no collective (see ``weft.dsl.nouns.composition``).
    """
    phases = tuple(Phase(Kind(one.kind), groups_of(one.place, meaning)) for one in line.phases)
    try:
        return phases, composed(phases)
    except NoComposition as error:
        where = line.phases[error.phase].span
        raise BadSketch(error.message, where=where, hint=error.hint) from None


def groups_of(place: ast.Place, meaning: Meaning) -> Groups:
    """Return the groups of ranks of a phase; unnamed ranks are groups of one."""
    machine = meaning.machine
    match place:
        case ast.WithinNode():
            return machine.hosts
        case ast.ByLocalRank():
            size = max(map(len, machine.hosts))
            return tuple(tuple(b[i] for b in machine.hosts if i < len(b)) for i in range(size))
        case ast.InBlocks(size=size):
            count = meaning.block_size(size)
            return tuple(
                tuple(range(start, start + count)) for start in range(0, machine.ranks, count)
            )
        case ast.AcrossBlocks(size=size):
            count = meaning.block_size(size)
            return tuple(tuple(range(i, machine.ranks, count)) for i in range(count))
        case ast.Along(axis=axis):
            return lines_along(axis, meaning)
        case ast.InGroups(groups=groups):
            return _written_out(place, groups, meaning)


def _written_out(
    place: ast.InGroups, groups: tuple[tuple[ast.Expression, ...], ...], meaning: Meaning
) -> Groups:
    named = tuple(tuple(meaning.rank(e) for e in group) for group in groups)
    count = Counter(rank for group in named for rank in group)
    twice = next((rank for rank, n in count.items() if n > 1), None)
    if twice is not None:
        raise BadSketch(f"rank {twice} is listed twice in the groups", where=place.span)
    return (*named, *((r,) for r in range(meaning.machine.ranks) if r not in count))

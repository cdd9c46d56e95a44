"""Dimensions of meshes, tori and hypercubes: lines of ranks, and moves along them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..base.arrays import Ints
from ..base.errors import BadSketch
from . import ast
from .evaluate import Meaning

Shape = tuple[int, ...]

_LETTERS = "xyz"


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


def places_of(axis: ast.Axis, meaning: Meaning) -> tuple[Ints, int]:
    """Return the grid of ranks, and the number of the named dimension.

    Raises:
        BadSketch: the machine is not a grid, or has no such dimension.
    """
    topology = meaning.machine.topology
    shape = shape_of(topology.name)
    if shape is None or int(np.prod(shape)) != topology.ranks:
        raise BadSketch(
            f"{topology.name} has no dimensions",
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
            f"{topology.name} has no such dimension",
            where=axis.span,
            hint=f"it has {', '.join(known)}; x is dimension 0",
        )
    # The first coordinate varies fastest: column-major.
    return np.arange(topology.ranks).reshape(shape, order="F"), number


def lines_along(axis: ast.Axis, meaning: Meaning) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of every line of the grid in one dimension, in order."""
    places, number = places_of(axis, meaning)
    rows = np.moveaxis(places, number, -1).reshape(-1, places.shape[number])
    return tuple(sorted(tuple(map(int, row)) for row in rows))


def moved_along(
    axis: ast.Axis, meaning: Meaning, move: Callable[[Ints, int], Ints]
) -> tuple[int, ...]:
    """Return the image of each rank; ``move`` maps the grid of ranks to the grid of images."""
    places, number = places_of(axis, meaning)
    return _image(places, move(places, number))


def swapped(one: ast.Axis, other: ast.Axis, meaning: Meaning) -> tuple[int, ...]:
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

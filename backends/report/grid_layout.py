"""Machines that are grids: their sides by their links, and where their GPUs are drawn.

A name says nothing about a file or a machine with dead cables, so the sides are found by the links:
every link joins neighbours of the grid, or the two ends of a row (a wrap).
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from weft.dsl.base.arrays import Ints
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.topology import Topology

MOST_GPUS = 4096
"""Largest number of GPUs whose sides are looked for."""

CABLES_LEFT = 0.6
"""Smallest share of a grid's cables that a machine has to have: some may be dead."""


@dataclass(frozen=True, slots=True)
class GpuGrid:
    """Sides of a grid, first coordinate fastest, and its links that go round the ends."""

    sides: tuple[int, ...]
    wraps: frozenset[int]

    def places(self, spacing: float) -> list[tuple[float, float]]:
        """Return the positions of all GPUs around the middle of the drawing.

        The first side is horizontal, unless the other is at least twice as long: screens are wide.
        The layers of a third side are shifted along the diagonal, so that no straight link crosses
        a GPU of another layer.
        """
        across, down, *deep = self.sides
        layers = math.prod(deep)
        turned = down >= 2 * across
        cell = spacing * max(1, layers)
        ends = [(x, y) for x, y in ((across, down), (down, across))][turned]
        found = []
        for z, y, x in product(range(layers), range(down), range(across)):
            column, row = (y, x) if turned else (x, y)
            shift = z / layers
            found.append(
                (
                    (column + shift - (ends[0] - 1 + (layers - 1) / layers) / 2) * cell,
                    (row + shift - (ends[1] - 1 + (layers - 1) / layers) / 2) * cell,
                )
            )
        return found


def grid_of(topology: Topology) -> GpuGrid | None:
    """Return the sides of a machine that is a grid or torus of two or three; None of any other."""
    gpus = topology.ranks
    if gpus != len(topology.nodes) or not 4 <= gpus <= MOST_GPUS or not topology.links:
        return None
    ends = topology.link_ends()
    for sides in _shapes(gpus):
        wraps = _wraps(ends, sides)
        if wraps is not None:
            return GpuGrid(sides, wraps)
    return None


def _shapes(gpus: int) -> list[tuple[int, ...]]:
    """Return the shapes of two and of three sides, those of two first."""
    divisors = [d for d in range(2, gpus // 2 + 1) if gpus % d == 0]
    flat: list[tuple[int, ...]] = [(d, gpus // d) for d in divisors]
    solid = [(d, e, gpus // d // e) for d in divisors for e in divisors if gpus // d % e == 0]
    return [*flat, *(shape for shape in solid if shape[2] > 1)]


def _wraps(ends: Ints, sides: tuple[int, ...]) -> frozenset[int] | None:
    """Return the links that go round if all links are of such a grid and few are missing."""
    strides = np.cumprod([1, *sides[:-1]])
    at = ends[:, :, None] // strides % np.array(sides)
    far = np.abs(at[:, 0] - at[:, 1])
    long = np.array(sides) - 1
    near, round_ = far == 1, (far == long) & (long > 1)
    fits = ((far > 0).sum(axis=1) == 1) & (near | round_).any(axis=1)
    if not fits.all():
        return None
    joined = {tuple(sorted(pair)) for pair in ends.tolist()}
    size = math.prod(sides)
    cables = sum(size - size // side for side in sides)
    wraps = frozenset(np.flatnonzero((round_ & ~near).any(axis=1)).tolist())
    around = {tuple(sorted(ends[i].tolist())) for i in wraps}
    return wraps if len(joined - around) >= CABLES_LEFT * cables else None

"""Groups of permutations that act semiregularly on the ranks: no element but one fixes a rank.

Such a group has one element for each rank of an orbit, and is found by following rank 0. All its
orbits on the ranks have as many members as it has elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..base.arrays import Ints, Ints32

Permutation = Ints32 | Ints
Some = TypeVar("Some", Ints32, Ints)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """``elements`` is (order, points), the identity first; points 0 … ranks-1 are the ranks."""

    ranks: int
    generators: tuple[Ints32, ...]
    elements: Ints32

    @property
    def order(self) -> int:
        """How many elements there are."""
        return len(self.elements)

    def reach(self, image: Permutation) -> int:
        """A lower bound on the order of the group that this one and an image generate.

        The orbits that rank 0 visits under the image's powers all become one.
        """
        lowest = self.elements[:, : self.ranks].min(axis=0)
        visited, rank = {int(lowest[0])}, int(image[0])
        while rank:
            visited.add(int(lowest[rank]))
            rank = int(image[rank])
        return len(visited) * self.order

    def commutes(self, image: Ints32) -> bool:
        """Whether an image commutes with every element."""
        return all(np.array_equal(g[image], image[g]) for g in self.generators)

    def __contains__(self, image: Permutation) -> bool:
        """Whether some element moves the ranks so."""
        likely = self.elements[self.elements[:, 0] == image[0], : self.ranks]
        return bool((likely == image[: self.ranks]).all(axis=1).any())


def trivial(ranks: int, points: int) -> Group:
    """The identity alone."""
    return Group(ranks, (), np.arange(points, dtype=np.int32)[None])


def spread(generators: Sequence[Ints32], ranks: int, limit: int) -> Group | None:
    """The group that permutations generate, or None if not semiregular or above ``limit`` elements.

    Each element is known by where it takes rank 0. The elements found are all of them if a
    generator after any of them is again one of them, on all points: otherwise there is an element
    that fixes rank 0 (Schreier's lemma). Cost: elements × generators × points.
    """
    if not generators:
        raise ValueError("a group without generators has no points")
    points = len(generators[0])
    # NumPy gathers fastest with indices of the machine's own width.
    wide = [np.asarray(generator, np.intp) for generator in generators]
    place = np.full(ranks, -1)
    place[0] = 0
    elements, reached = [np.arange(points)], [0]
    for element, rank in zip(elements, reached, strict=True):  # both grow on the way
        for generator in wide:
            image = int(generator[rank])
            if place[image] >= 0:
                continue
            if len(elements) == limit:
                return None
            place[image] = len(elements)
            reached.append(image)
            elements.append(generator[element])
    table = np.empty((len(elements), points), np.int32)
    np.stack(elements, out=table, casting="same_kind")
    for generator in wide:
        for element, image in zip(elements, place[generator[reached]].tolist(), strict=True):
            if not np.array_equal(generator[element], elements[image]):
                return None
    if (table[1:, :ranks] == table[0, :ranks]).any():
        return None
    return Group(ranks, tuple(generators), table)


def grow(group: Group, image: Ints32, bound: int, limit: int) -> Group:
    """The group with the permutation, or its largest power that fits; itself where none does.

    ``bound`` is a multiple of the order of every such group (:func:`multiple`).
    """
    for power in semiregular_powers(image, group.ranks, bound):
        if power in group or group.reach(power) > min(bound, limit):
            continue
        larger = spread((*group.generators, power), group.ranks, limit)
        if larger is not None and bound % larger.order == 0:
            return larger
    return group


def semiregular_powers(image: Some, ranks: int, bound: int) -> Iterator[Some]:
    """Powers of a permutation whose cycles on the ranks are equally long, the longest first.

    For each divisor m of ``bound`` at most one: the powers of order m generate the same group.
    """
    lengths = cycle_lengths(image[:ranks]).tolist()
    order = math.lcm(*lengths)
    for m in divisors(bound):
        if m > 1 and order % m == 0 and all(x // math.gcd(x, order // m) == m for x in lengths):
            yield power(image, order // m)


def cycle_lengths(image: Permutation) -> Ints:
    """The different lengths of the cycles of a permutation, ascending."""
    label, jump = np.arange(len(image)), image
    # The least member of every cycle, by doubling the distance that is looked ahead.
    for _ in range(len(image).bit_length()):
        label = np.minimum(label, label[jump])
        jump = jump[jump]
    sizes = np.bincount(label)
    return np.unique(sizes[sizes > 0])


def power(image: Some, exponent: int) -> Some:
    """A permutation repeated."""
    result = np.arange(len(image), dtype=image.dtype)
    while exponent:
        if exponent & 1:
            result = image[result]
        image = image[image]
        exponent >>= 1
    return result


def multiple(classes: Ints) -> int:
    """A multiple of the order of every group that acts semiregularly and keeps some classes."""
    return math.gcd(*np.unique(classes, return_counts=True)[1].tolist())


def divisors(n: int) -> tuple[int, ...]:
    """All divisors, the largest first."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}, reverse=True))

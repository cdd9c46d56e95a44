"""Permutation groups acting semiregularly on the ranks: only the identity fixes a rank.

Such a group has one element for each rank of an orbit, determined by the image of rank 0. All its
orbits on the ranks have as many members as the group has elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from ..base.arrays import Ints, Ints32, distinct_values
from ..base.lazy_dataclass import Frozen

Permutation = Ints32 | Ints
Some = TypeVar("Some", Ints32, Ints)


class Group(Frozen, eq=False):
    """A group of permutations of points, of which the first are the ranks."""

    ranks: int
    generators: tuple[Ints32, ...]  # images of all points
    elements: Ints32  # (order, points): the image of each point; row 0 is the identity

    @property
    def order(self) -> int:
        """Return the number of elements."""
        return len(self.elements)

    def reach(self, image: Permutation) -> int:
        """Return a lower bound on the order of the group that this one and an image generate.

        The orbits that rank 0 visits under the image's powers merge into one.
        """
        lowest = self.elements[:, : self.ranks].min(axis=0)
        visited, rank = {int(lowest[0])}, int(image[0])
        while rank:
            visited.add(int(lowest[rank]))
            rank = int(image[rank])
        return len(visited) * self.order

    def commutes(self, image: Ints32) -> bool:
        """Return True if an image commutes with every element."""
        return all(np.array_equal(g[image], image[g]) for g in self.generators)

    def __contains__(self, image: Permutation) -> bool:
        """Return True if some element acts on the ranks as the image."""
        likely = self.elements[self.elements[:, 0] == image[0], : self.ranks]
        return bool((likely == image[: self.ranks]).all(axis=1).any())


def trivial(ranks: int, points: int) -> Group:
    """Return the group of the identity alone."""
    return Group(ranks, (), np.arange(points, dtype=np.int32)[None])


def spread(generators: Sequence[Ints32], ranks: int, limit: int) -> Group | None:
    """Return the generated group, or None if not semiregular or of more than ``limit`` elements.

    Each element is identified by its image of rank 0. The elements found are complete if each
    product with a generator is one of them, on all points; otherwise some element other than the
    identity fixes rank 0 (Schreier's lemma). Cost: elements × generators × points.
    """
    if not generators:
        raise ValueError("a group without generators has no points")
    points = len(generators[0])
    # NumPy gathers fastest with indices of the native width.
    wide = [np.asarray(generator, np.intp) for generator in generators]
    place = np.full(ranks, -1)  # number of the element that maps rank 0 to each rank; -1: none yet
    place[0] = 0
    elements, reached = [np.arange(points)], [0]
    for element, rank in zip(elements, reached, strict=True):  # both grow during the loop
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
    """Return the group extended by the permutation or its largest power that fits, else itself.

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
    """Yield powers of a permutation with cycles of equal length on the ranks, longest first.

    For each divisor m of ``bound`` at most one: the powers of order m generate the same group.
    """
    lengths = cycle_lengths(image[:ranks]).tolist()
    order = math.lcm(*lengths)
    for m in divisors(bound):
        if m > 1 and order % m == 0 and all(x // math.gcd(x, order // m) == m for x in lengths):
            yield power(image, order // m)


def cycle_lengths(image: Permutation) -> Ints:
    """Return the distinct cycle lengths of a permutation, ascending."""
    # least member seen within 2^k steps, and the image after these
    label, jump = np.arange(len(image)), image
    # Smallest member of every cycle, by pointer doubling.
    for _ in range(len(image).bit_length()):
        label = np.minimum(label, label[jump])
        jump = jump[jump]
    sizes = np.bincount(label)
    return distinct_values(sizes[sizes > 0])


def power(image: Some, exponent: int) -> Some:
    """Return a power of a permutation."""
    result = np.arange(len(image), dtype=image.dtype)
    while exponent:
        if exponent & 1:
            result = image[result]
        image = image[image]
        exponent >>= 1
    return result


def multiple(classes: Ints) -> int:
    """Return a multiple of the order of every semiregular group that preserves some classes."""
    return math.gcd(*np.unique(classes, return_counts=True)[1].tolist())


def divisors(n: int) -> tuple[int, ...]:
    """Return all divisors, largest first."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}, reverse=True))

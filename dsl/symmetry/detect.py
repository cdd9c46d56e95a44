"""Search for a group acting semiregularly on the ranks: declared, usual numberings, or searched.

Colour refinement first bounds the order of such a group: it divides the size of every class of
ranks, so that one rank unlike all others (with a dead cable) ends the search. Every image is
verified before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from ..base.arrays import Ints, Ints32
from ..nouns.topology import Topology
from .groups import Group, grow, multiple, semiregular_powers, trivial
from .refine import numbering, stable
from .structure import Structure, structure_of
from .symmetry import Image, automorphisms, extended, orbits, plausible, usual_moves

LIMIT = 65536
"""Largest order of a group."""

CELLS = 1 << 25
"""Most entries of the table of images of all nodes, links and resources: 128 MiB, and three times
that while it is built."""

SEARCHED = 65_536
"""Largest number of nodes plus links for which undeclared symmetries are searched."""

DRAWS = 200
"""Number of random automorphisms drawn (seeded)."""

STARTS = 12
"""Number of them from which a group is grown."""

WORK = 20_000_000
"""Limit of node images examined while groups are grown."""

MIXING = 1000
"""Most products computed before the first element counts as random."""

SIGHTS = 300
"""Most rotations, mirror images and bit flips of the ranks that are tried."""


def search(topology: Topology, made: Structure, *, limit: int = LIMIT) -> Group:
    """Return a group whose elements are verified automorphisms and, but the identity, fix no rank.

    The search is cheap and not exhaustive: the declared symmetries that hold and their powers, then
    rotations, mirror images and bit flips of the usual GPU numberings, then elements drawn from the
    automorphism group. Without symmetry, the identity alone. At most ``limit`` elements, fewer on
    huge machines (``CELLS``).
    """
    nodes, links, _ = made.sizes
    limit = max(1, min(limit, CELLS // sum(made.sizes)))
    group = trivial(made.ranks, nodes)
    bound = multiple(stable(made)[: made.ranks])  # every order that is possible divides it
    group = _grown(made, group, _declared(topology), bound, limit)
    if _enough(group, bound, limit) or nodes + links > SEARCHED:
        return group
    group = _sighted(made, group, np.arange(made.ranks), bound, limit)
    if _enough(group, bound, limit):
        return group
    generators = automorphisms(made)
    bound = multiple(orbits(generators, made.ranks))
    if not _enough(group, bound, limit):
        group = _sighted(made, group, numbering(made), bound, limit)
    return _drawn(made, group, generators, bound, limit)


def _enough(group: Group, bound: int, limit: int) -> bool:
    """Return True if twice as many elements exceed the limit or the bound."""
    return group.order == bound or 2 * group.order > limit


def surviving(whole: Topology, left: Topology, dead: set[int]) -> tuple[Image, ...]:
    """Return generators of the declared symmetries that still hold when links are dead.

    Products of declared symmetries count as well: two dead cables on opposite sides of a ring leave
    the half turn.
    """
    made, rest = structure_of(whole), structure_of(left)
    nodes = made.sizes[0]
    limit = max(1, min(LIMIT, CELLS // sum(made.sizes)))
    group = trivial(made.ranks, nodes)
    group = _grown(made, group, _declared(whole), made.ranks, limit)
    # Which of equal parallel links is dead does not matter: ends and class are compared.
    gone = np.array(sorted(dead), np.int64)
    kinds, ends = made.link_class[gone], made.ends[gone]
    classes, before = int(kinds.max(initial=0)) + 1, group.elements[:, ends].astype(np.int64)
    # (order, dead links): where each element moves them
    keys = np.sort((before[..., 0] * nodes + before[..., 1]) * classes + kinds, axis=1)
    keeps = (keys == keys[0]).all(axis=1)
    images = (element.astype(np.int64) for element in group.elements[keeps])
    kept = _grown(rest, trivial(made.ranks, nodes), images, int(keeps.sum()), limit)
    return tuple(tuple(image.tolist()) for image in kept.generators)


def _declared(topology: Topology) -> Iterator[Ints]:
    for image in topology.symmetries:
        yield np.asarray(image, np.int64)


def _grown(made: Structure, group: Group, images: Iterable[Ints], bound: int, limit: int) -> Group:
    """Return the group grown by verified images of the nodes, up to the largest possible order."""
    for image in images:
        if _enough(group, bound, limit):
            break
        if next(semiregular_powers(image, made.ranks, bound), None) is None:
            continue
        if made.act(image) is not None:
            group = grow(group, image.astype(np.int32), bound, limit)
    return group


def _sighted(made: Structure, group: Group, order: Ints, bound: int, limit: int) -> Group:
    """Return the group grown by the usual moves of the ranks in some order."""
    back = np.argsort(order)  # the place of each rank in the order
    for move in islice(usual_moves(made.ranks), SIGHTS):
        if _enough(group, bound, limit):
            break
        image = order[move[back]]
        if group.reach(image) > min(bound, limit) or image in group or not plausible(made, image):
            continue
        if (found := extended(made, image)) is not None:
            group = _grown(made, group, [found], bound, limit)
    return group


def _drawn(
    made: Structure, group: Group, generators: tuple[Ints, ...], bound: int, limit: int
) -> Group:
    """Return the largest group grown from random automorphisms, from each of ``STARTS`` of them.

    Automorphisms that commute with the group so far go first: they lead to a regular abelian group
    (the translations of a torus), where others exclude each other.
    """
    if _enough(group, bound, limit):
        return group
    pool: list[Ints32] = []  # verified images, each with cycles of one length on the ranks
    for image in _draws(made.ranks, generators):
        longest = next(semiregular_powers(image, made.ranks, bound), None)
        if longest is not None and made.act(longest) is not None:
            pool.append(longest.astype(np.int32))
    alone = trivial(made.ranks, made.sizes[0])
    work = 0  # images of nodes that were examined
    starts = [group, *(grow(alone, image, bound, limit) for image in pool[:STARTS])]
    for start in starts:
        grown = start
        for commuting in (True, False):
            for seen in pool:
                if _enough(grown, bound, limit) or work > WORK:
                    break
                if grown.commutes(seen) or not commuting:
                    work += grown.order * made.sizes[0]
                    grown = grow(grown, seen, bound, limit)
        group = max(group, grown, key=lambda found: found.order)
        if _enough(group, bound, limit):
            break
    return group


def _draws(ranks: int, generators: tuple[Ints, ...]) -> Iterator[Ints]:
    """Yield random group elements (product replacement: Celler et al., Comm. Algebra 1995)."""
    if not generators:
        return
    yield from generators[:DRAWS]
    seeded = np.random.default_rng(ranks)
    # At least ten slots, as the paper advises; elements before the mixing are not random.
    slots = [generators[i % len(generators)] for i in range(max(10, len(generators)))]
    product = slots[0]
    mixing = min(10 * len(slots), MIXING)
    for draw in range(mixing + DRAWS):
        one, other = seeded.choice(len(slots), 2, replace=False)
        # or its inverse
        factor = slots[other] if seeded.random() < 0.5 else np.argsort(slots[other])
        slots[one] = factor[slots[one]]
        product = slots[one][product]
        if draw >= mixing:
            yield product

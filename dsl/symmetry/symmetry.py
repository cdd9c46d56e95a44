"""Symmetries of a topology: permutations of its nodes that map the machine to itself.

An *image* is a tuple: node i goes to ``image[i]``. Images declared by a topology are verified here
before use. A group of symmetries whose elements move every rank (it acts *semiregularly*) lets an
engine solve one rank's part and copy it to the whole orbit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat

import numpy as np

from ..base.arrays import Ints
from ..nouns.topology import Topology
from .groups import multiple
from .refine import individualized, kinds, refine, stable
from .structure import Structure, permutation, structure_of

Image = tuple[int, ...]
"""The image of every node (or of every rank)."""

Moved = Sequence[int] | Ints
"""An image as a sequence or an array."""

SEARCHED_LINKS = 40_000_000
"""Links of refined copies after which :func:`automorphisms` ends with a subgroup: a few CPU s."""

GUESSED = 1024
"""Largest number of ranks for which undeclared symmetries are guessed (:func:`guess`)."""

FEW = 128
"""Largest number of ranks for which all bit flips are tried, not only single bits."""


def is_automorphism(topology: Topology, image: Moved) -> bool:
    """Return True if an image preserves kinds, capabilities, links and shared resources.

    Links are compared with bandwidth, latency, lanes and multiplicity; parallel equal links are
    matched in order, also where resources hold some of them. Names and hosts are ignored.
    Cost O(L log L).
    """
    where = permutation(image, len(topology.nodes))
    return where is not None and structure_of(topology).act(where) is not None


def verified(topology: Topology) -> tuple[Image, ...]:
    """Return the declared symmetries that hold."""
    if not topology.symmetries:
        return ()
    made = structure_of(topology)
    return tuple(
        image for image in topology.symmetries if made.act(np.asarray(image, np.int64)) is not None
    )


def link_image(topology: Topology, image: Moved) -> tuple[int, ...]:
    """Return the image of each link; parallel equal links are mapped in order.

    Raises:
        ValueError: the image is not an automorphism (verify it first).
    """
    moved = structure_of(topology).link_image(np.asarray(image, np.int64))
    if moved is None:
        raise ValueError("not an automorphism of this topology")
    return tuple(moved.tolist())


def extend(topology: Topology, rank_image: Moved) -> Image | None:
    """Return an automorphism with the given image of the ranks, or None if there is none.

    Switches and NICs are matched by colour refinement (two nodes may correspond only if their
    neighbourhoods do), with backtracking among those of equal colour.
    """
    moved = permutation(rank_image, topology.ranks)
    if moved is None:
        return None
    found = extended(structure_of(topology), moved)
    return None if found is None else tuple(found.tolist())


def extended(made: Structure, rank_image: Ints) -> Ints | None:
    """Return the result of :func:`extend` as an array, for many images of one structure."""
    ranks = made.ranks
    colours = np.stack([ranks + kinds(made)] * 2)
    # A rank and its image start with the same colour, other nodes with the colour of their kind.
    colours[0, :ranks] = np.arange(ranks)
    colours[1, rank_image] = np.arange(ranks)
    return _matched(made, colours, _copies(made))


def automorphisms(made: Structure) -> tuple[Ints, ...]:
    """Return generators of the automorphism group, as images of the nodes, each verified.

    A strong generating set (Sims 1970) by individualization and refinement (McKay and Piperno,
    J. Symb. Comput. 2014): nodes are fixed one by one until all have a colour of their own. Then,
    from the last fixed node back to the first, one automorphism that fixes all nodes before it is
    searched for each orbit of its class that it is not known to reach. Classes whose members can
    be swapped freely are fixed at once. Swaps of equal links are left out. If ``SEARCHED_LINKS``
    do not suffice, the generators are those of a subgroup.
    """
    nodes, copies = made.sizes[0], _copies(made)
    path, colours = [], stable(made)  # per fixed node: its class, the colours before it, free swaps
    while len(members := _smallest_class(colours[:nodes])) and next(copies, False):
        swaps = _swaps(made, members)
        path.append((members, colours, swaps))
        colours = individualized(made, colours, members if swaps else members[:1])
    found: list[Ints] = []
    orbit = np.arange(nodes)  # least member of each node's orbit under what was found so far
    for members, colours, swaps in reversed(path):
        found += swaps
        orbit = orbits((orbit, *swaps), nodes)
        node = members[0]
        for other in members[1:]:
            # One member of each orbit: the others are reached, or not, together with it.
            if orbit[other] == orbit[node] or orbit[other] != other:
                continue
            pair = np.stack((colours, colours))
            pair[0, node] = pair[1, other] = colours.max() + 1
            if (image := _matched(made, pair, copies)) is not None:
                found.append(image)
                orbit = orbits((orbit, image), nodes)
    return tuple(found)


def _copies(made: Structure) -> Iterator[bool]:
    """Yield True for each pair of copies of the machine that a search may refine."""
    return repeat(True, SEARCHED_LINKS // (2 * (len(made.link_class) + 1)))


def _smallest_class(colours: Ints) -> Ints:
    """Return the members of the smallest class of at least two nodes; none if all are apart."""
    sizes = np.bincount(colours)[colours]
    least = np.where(sizes > 1, sizes, len(colours) + 1).argmin()
    return np.flatnonzero((colours == colours[least]) & (sizes > 1))


def _swaps(made: Structure, members: Ints) -> list[Ints]:
    """Return the swaps of neighbours in a class, or none if one is not an automorphism."""
    swaps = []
    for pair in pairwise(members):
        swap = np.arange(made.sizes[0])
        swap[list(pair)] = pair[::-1]
        if made.act(swap) is None:
            return []
        swaps.append(swap)
    return swaps


def _matched(made: Structure, colours: Ints, copies: Iterator[bool]) -> Ints | None:
    """Return an automorphism from the first copy to the second, by depth-first search.

    None if there is none, or if no further copies may be refined.
    """
    refined = refine(made, colours) if next(copies, False) else None
    if refined is None:
        return None
    before, after = refined[:, : made.sizes[0]]  # stable colours of the nodes of both copies
    image = np.empty(len(before), np.int64)
    # Nodes of equal stable colour are mostly interchangeable, so the first choice succeeds.
    image[np.argsort(before, kind="stable")] = np.argsort(after, kind="stable")
    if made.act(image) is not None:
        return image
    doubtful = np.flatnonzero(np.bincount(before)[before] > 1)  # nodes that share their colour
    if not len(doubtful):
        return None
    fresh = refined.max() + 1  # a colour for one node of each copy, which are to correspond
    for candidate in np.flatnonzero(after == before[doubtful[0]]):
        split = refined.copy()
        split[0, doubtful[0]] = split[1, candidate] = fresh
        if (found := _matched(made, split, copies)) is not None:
            return found
    return None


def generate(images: Iterable[Moved], *, limit: int = 4096) -> tuple[Image, ...] | None:
    """Return all elements of the group that the images generate, the identity first.

    None if there are more than ``limit``. Cost: elements × generators × nodes.
    """
    generators = [np.asarray(image, np.int64) for image in images]
    if not generators:
        return ()
    one = np.arange(len(generators[0]))
    seen = {one.tobytes()}
    elements = [one]
    for element in elements:
        for generator in generators:
            product = generator[element]
            key = product.tobytes()
            if key not in seen:
                if len(elements) == limit:
                    return None
                seen.add(key)
                elements.append(product)
    return tuple(tuple(element.tolist()) for element in elements)


def is_semiregular(elements: Iterable[Moved], ranks: int) -> bool:
    """Return True if every element of a group but the identity moves every rank.

    An element that fixes all ranks (it moves only switches) counts as the identity here.
    """
    still = np.arange(ranks)  # the image of the ranks under the identity
    for element in elements:
        fixed = np.asarray(element)[:ranks] == still
        if fixed.any() and not fixed.all():
            return False
    return True


def guess(topology: Topology, most: int = GUESSED) -> tuple[Image, ...]:
    """Return generators of a semiregular group, found among rotations, bit flips and mirror images.

    Importers declare them for machines that they read. Only the symmetries of usual GPU numberings
    are found, and none of a machine of more than ``most`` GPUs. Cost: some hundred candidates, most
    of them refuted by one comparison.
    """
    n = topology.ranks
    if n > most:
        return ()
    made = structure_of(topology)
    if multiple(stable(made)[:n]) == 1:
        return ()  # some rank is alone in its class
    generators: list[Ints] = []
    group: set[bytes] = {np.arange(n).tobytes()}  # images of the ranks under all elements
    for move in usual_moves(n):
        if len(group) == n:
            break
        if move.tobytes() in group or not plausible(made, move):
            continue
        elements = generate([*(g[:n] for g in generators), move], limit=n)
        if elements is None or not is_semiregular(elements, n):
            continue
        if (image := extended(made, move)) is not None:
            generators.append(image)
            group = {np.asarray(element, np.int64).tobytes() for element in elements}
    return tuple(tuple(image.tolist()) for image in generators)


def usual_moves(n: int) -> Iterator[Ints]:
    """Yield rotations of all ranks or inside equal blocks, mirror images, bit flips: shape (n,).

    With many ranks only bit flips of a single bit; the others are their products.
    """
    every = np.arange(n)
    sizes = [k for k in range(n, 1, -1) if n % k == 0]
    for k in sizes:
        for step in (1, *(s for s in sizes[::-1] if s < k and k % s == 0)):
            yield every - every % k + (every % k + step) % k
    for k in sizes:
        yield every - every % k + (k - 1 - every % k)
    for b in range(1, n):
        few = n <= FEW or b & (b - 1) == 0
        if few and n % (1 << b.bit_length()) == 0:
            yield every ^ b


def plausible(made: Structure, rank_image: Ints) -> bool:
    """Return True if an image of the ranks keeps the rank-to-rank links: a cheap first test."""
    direct = (made.ends < made.ranks).all(axis=1)
    ends, classes = made.ends[direct], made.link_class[direct]
    moved = rank_image[ends]
    here, there = (
        np.sort((e[:, 0] * made.ranks + e[:, 1]) * (classes.max(initial=0) + 1) + classes)
        for e in (ends, moved)
    )
    return np.array_equal(here, there)


def orbits(images: Iterable[Moved], size: int) -> Ints:
    """Return the smallest member of each index's orbit under the generated group, shape (size,).

    Indices are nodes, links, demands: anything that the images permute.
    """
    label = np.arange(size)  # least index known to be of the same orbit
    moves = [np.asarray(image, np.int64)[:size] for image in images]
    while True:
        old = label.copy()
        for move in moves:
            low = np.minimum(label, label[move])
            np.minimum.at(low, move, label)
            label = low[low]
        if np.array_equal(old, label):
            return label

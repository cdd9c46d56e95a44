"""Symmetries of a topology: permutations of its nodes that map the machine to itself.

An *image* is a tuple: node i goes to ``image[i]``. Whoever builds a topology may declare images;
whoever uses one verifies it here first. A group of symmetries that moves every rank (it acts
*semiregularly*) lets an engine solve one rank's part and copy it to the whole orbit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..base.arrays import Ints
from ..nouns.topology import Topology
from .groups import multiple
from .refine import kinds, refine, stable
from .structure import Structure, permutation, structure_of

Image = tuple[int, ...]
"""The image of every node (or of every rank)."""

Moved = Sequence[int] | Ints
"""An image in either form."""

GUESSED = 1024
"""Up to so many ranks, symmetries that nobody declared are looked for (:func:`guess`)."""

FEW = 128
"""Up to so many ranks all bit flips are tried, not only those of one bit."""


def is_automorphism(topology: Topology, image: Moved) -> bool:
    """Whether an image preserves kinds, capabilities, links and shared resources.

    Links are compared with bandwidth, latency, lanes and multiplicity; parallel equal links are
    matched in order, also where resources hold some of them. Names and hosts do not matter.
    Cost O(L log L).
    """
    where = permutation(image, len(topology.nodes))
    return where is not None and structure_of(topology).act(where) is not None


def verified(topology: Topology) -> tuple[Image, ...]:
    """The declared symmetries that hold."""
    if not topology.symmetries:
        return ()
    made = structure_of(topology)
    return tuple(
        image for image in topology.symmetries if made.act(np.asarray(image, np.int64)) is not None
    )


def link_image(topology: Topology, image: Moved) -> tuple[int, ...]:
    """The link each link goes to; of parallel equal links the first goes to the first.

    Raises:
        ValueError: the image is no automorphism (verify it first).
    """
    moved = structure_of(topology).link_image(np.asarray(image, np.int64))
    if moved is None:
        raise ValueError("not an automorphism of this topology")
    return tuple(moved.tolist())


def extend(topology: Topology, rank_image: Moved) -> Image | None:
    """An automorphism that moves the ranks so, or None if there is none.

    Switches and NICs are placed by colour refinement (two nodes may correspond only if their
    neighbourhoods do), with backtracking among those it cannot tell apart.
    """
    moved = permutation(rank_image, topology.ranks)
    if moved is None:
        return None
    found = extended(structure_of(topology), moved)
    return None if found is None else tuple(found.tolist())


def extended(made: Structure, rank_image: Ints) -> Ints | None:
    """As :func:`extend`, on arrays; several images of one machine share its structure."""
    ranks = made.ranks
    colours = np.stack([ranks + kinds(made)] * 2)
    # A rank and its image start with the same colour, other nodes with that of their kind.
    colours[0, :ranks] = np.arange(ranks)
    colours[1, rank_image] = np.arange(ranks)
    return _matched(made, colours)


def _matched(made: Structure, colours: Ints) -> Ints | None:
    """The automorphism from the first copy to the second that keeps colours, depth first."""
    refined = refine(made, colours)
    if refined is None:
        return None
    before, after = refined[:, : made.sizes[0]]
    image = np.empty(len(before), np.int64)
    # Nodes that refinement cannot tell apart are mostly twins: any order of them will do.
    image[np.argsort(before, kind="stable")] = np.argsort(after, kind="stable")
    if made.act(image) is not None:
        return image
    doubtful = np.flatnonzero(np.bincount(before)[before] > 1)
    if not len(doubtful):
        return None
    fresh = refined.max() + 1
    for candidate in np.flatnonzero(after == before[doubtful[0]]):
        split = refined.copy()
        split[0, doubtful[0]] = split[1, candidate] = fresh
        if (found := _matched(made, split)) is not None:
            return found
    return None


def generate(images: Iterable[Moved], *, limit: int = 4096) -> tuple[Image, ...] | None:
    """All elements of the group that the images generate, the identity first.

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
    """Whether every element of a group but the identity moves every rank.

    An element that fixes all ranks (it moves only switches) counts as the identity here.
    """
    still = np.arange(ranks)
    for element in elements:
        fixed = np.asarray(element)[:ranks] == still
        if fixed.any() and not fixed.all():
            return False
    return True


def guess(topology: Topology) -> tuple[Image, ...]:
    """Generators of a semiregular group, found among rotations, bit flips and mirror images.

    What an importer declares for a machine it did not build. Not all symmetries: those by which
    people number GPUs. Cost: some hundred candidates, most of them refuted by one comparison.
    """
    made = structure_of(topology)
    n = topology.ranks
    if multiple(stable(made)[:n]) == 1:
        return ()  # some rank is unlike all others
    generators: list[Ints] = []
    group: set[bytes] = {np.arange(n).tobytes()}
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
    """Rotations of all ranks or inside equal blocks, mirror images, bit flips: shape (n,) each.

    Of bit flips, those of a single bit where there are many ranks; the others are their products.
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
    """Whether an image of the ranks keeps the links from rank to rank: a cheap refutation."""
    direct = (made.ends < made.ranks).all(axis=1)
    ends, classes = made.ends[direct], made.link_class[direct]
    moved = rank_image[ends]
    here, there = (
        np.sort((e[:, 0] * made.ranks + e[:, 1]) * (classes.max(initial=0) + 1) + classes)
        for e in (ends, moved)
    )
    return np.array_equal(here, there)


def orbits(images: Iterable[Moved], size: int) -> Ints:
    """The smallest member of each index's orbit under the generated group, shape (size,).

    Of nodes, links, demands: anything the images permute.
    """
    label = np.arange(size)
    moves = [np.asarray(image, np.int64)[:size] for image in images]
    while True:
        old = label.copy()
        for move in moves:
            low = np.minimum(label, label[move])
            np.minimum.at(low, move, label)
            label = low[low]
        if np.array_equal(old, label):
            return label

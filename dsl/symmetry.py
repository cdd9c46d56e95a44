"""Symmetries of a topology: permutations of its nodes that map the machine to itself.

An *image* is a tuple: node i goes to ``image[i]``. Whoever builds a topology may declare images;
whoever uses one verifies it here first. A group of symmetries that moves every rank (it acts
*semiregularly*) lets an engine solve one rank's part and copy it to the whole orbit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from .topology import Topology

Image = tuple[int, ...]
"""The image of every node (or of every rank)."""

GUESSED = 128
"""Up to so many ranks, symmetries that nobody declared are looked for (:func:`guess`)."""

IntArray = npt.NDArray[np.int64]


def is_automorphism(topology: Topology, image: Sequence[int]) -> bool:
    """Whether an image preserves kinds, capabilities, links and shared resources.

    Links are compared with bandwidth, latency, lanes and multiplicity; parallel equal links are
    matched in order, also where resources hold some of them. Names and hosts do not matter.
    Cost O(L log L).
    """
    if not _is_permutation(image, len(topology.nodes)):
        return False
    kinds = _node_classes(topology)
    where = np.asarray(image)
    if not np.array_equal(kinds[where], kinds):
        return False
    moved = _match_links(topology, where)
    return moved is not None and _keeps_resources(topology, moved)


def verified(topology: Topology) -> tuple[Image, ...]:
    """The declared symmetries that hold."""
    return tuple(image for image in topology.symmetries if is_automorphism(topology, image))


def link_image(topology: Topology, image: Sequence[int]) -> tuple[int, ...]:
    """The link each link goes to; of parallel equal links the first goes to the first.

    Raises:
        ValueError: the image is no automorphism (verify it first).
    """
    moved = _match_links(topology, np.asarray(image))
    if moved is None:
        raise ValueError("not an automorphism of this topology")
    return tuple(moved.tolist())


def extend(topology: Topology, rank_image: Sequence[int]) -> Image | None:
    """An automorphism that moves the ranks so, or None if there is none.

    Switches and NICs are placed by colour refinement (two nodes may correspond only if their
    neighbourhoods do), with backtracking among those it cannot tell apart.
    """
    if not _is_permutation(rank_image, topology.ranks):
        return None
    search = _Extension(topology)
    kinds = _node_classes(topology).tolist()
    ranks = topology.ranks
    preimage = dict(zip(rank_image, range(ranks), strict=True))
    # A rank and its image start with the same colour, other nodes with that of their kind.
    before = [r if r < ranks else ranks + kinds[r] for r in range(len(kinds))]
    after = [preimage[r] if r < ranks else ranks + kinds[r] for r in range(len(kinds))]
    return search.solve(before, after)


def generate(images: Iterable[Sequence[int]], *, limit: int = 4096) -> tuple[Image, ...] | None:
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


def is_semiregular(elements: Iterable[Sequence[int]], ranks: int) -> bool:
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
    n = topology.ranks
    direct = _rank_matrix(topology)
    generators: list[Image] = []
    group: set[Image] = {tuple(range(n))}
    for candidate in _usual_moves(n):
        where = np.asarray(candidate)
        if candidate in group or not np.array_equal(direct[np.ix_(where, where)], direct):
            continue
        elements = generate([*(g[:n] for g in generators), candidate], limit=n)
        if elements is None or not is_semiregular(elements, n):
            continue
        if (image := extend(topology, candidate)) is not None:
            generators.append(image)
            group = set(elements)
    return tuple(generators)


def _usual_moves(n: int) -> list[Image]:
    """Rotations of all ranks or inside equal blocks, bit flips, mirror images."""
    sizes = [k for k in range(n, 1, -1) if n % k == 0]
    moves = [
        tuple(r - r % k + (r % k + step) % k for r in range(n))
        for k in sizes
        for step in (1, *(s for s in sizes[::-1] if s < k and k % s == 0))
    ]
    moves += [tuple(r - r % k + (k - 1 - r % k) for r in range(n)) for k in sizes]
    bits = [b for b in range(1, n) if n % (1 << b.bit_length()) == 0]
    return list(dict.fromkeys(moves + [tuple(r ^ b for r in range(n)) for b in bits]))


def _rank_matrix(topology: Topology) -> IntArray:
    """A number for the links from rank to rank, equal where they are equal, shape (n, n)."""
    n = topology.ranks
    between: dict[tuple[int, int], list[int]] = {}
    for one, kind in zip(topology.links, _link_classes(topology).tolist(), strict=True):
        if one.src < n and one.dst < n:
            between.setdefault((one.src, one.dst), []).append(kind)
    known: dict[tuple[int, ...], int] = {}
    matrix = np.zeros((n, n), np.int64)
    for ends, kinds in between.items():
        matrix[ends] = known.setdefault(tuple(sorted(kinds)), len(known) + 1)
    return matrix


def orbits(images: Iterable[Sequence[int]], size: int) -> IntArray:
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


def _is_permutation(image: Sequence[int], size: int) -> bool:
    return len(image) == size and sorted(image) == list(range(size))


def _node_classes(topology: Topology) -> IntArray:
    """Nodes of the same kind and capabilities have the same number."""
    known: dict[tuple[object, ...], int] = {}
    keys = [(n.kind, n.multicast, n.reduces) for n in topology.nodes]
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _link_classes(topology: Topology) -> IntArray:
    """Links of the same bandwidth, latency and lanes have the same number."""
    known: dict[tuple[object, ...], int] = {}
    keys = [(x.bandwidth, x.latency, x.lanes) for x in topology.links]
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _match_links(topology: Topology, image: IntArray) -> IntArray | None:
    """The image of every link, or None if some link has none."""
    table = topology.link_ends()
    classes = _link_classes(topology)
    # lexsort is stable: equal parallel links keep their order on both sides.
    order = np.lexsort((classes, table[:, 1], table[:, 0]))
    moved = image[table]
    moved_order = np.lexsort((classes, moved[:, 1], moved[:, 0]))
    same_ends = np.array_equal(table[order], moved[moved_order])
    if not (same_ends and np.array_equal(classes[order], classes[moved_order])):
        return None
    result = np.empty(len(order), np.int64)
    result[moved_order] = order
    return result


def _keeps_resources(topology: Topology, moved: IntArray) -> bool:
    here = Counter((r.bandwidth, frozenset(r.links)) for r in topology.resources)
    there = Counter(
        (r.bandwidth, frozenset(moved[list(r.links)].tolist())) for r in topology.resources
    )
    return here == there


class _Extension:
    """Colour refinement on two copies of the machine, before and after."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._near: list[list[tuple[int, int]]] = [[] for _ in topology.nodes]
        classes = _link_classes(topology).tolist()
        for one, kind in zip(topology.links, classes, strict=True):
            self._near[one.src].append((2 * kind, one.dst))
            self._near[one.dst].append((2 * kind + 1, one.src))

    def solve(self, before: list[int], after: list[int]) -> Image | None:
        """Depth first over the nodes that refinement leaves ambiguous."""
        refined = self._refine(before, after)
        if refined is None:
            return None
        before, after = refined
        target: dict[int, list[int]] = {}
        for node, colour in enumerate(after):
            target.setdefault(colour, []).append(node)
        doubtful = next((v for v, c in enumerate(before) if len(target[c]) > 1), None)
        if doubtful is None:
            found = tuple(target[c][0] for c in before)
            return found if is_automorphism(self._topology, found) else None
        fresh = max(before) + 1
        for candidate in target[before[doubtful]]:
            left, right = before.copy(), after.copy()
            left[doubtful] = right[candidate] = fresh
            if (image := self.solve(left, right)) is not None:
                return image
        return None

    def _refine(self, before: list[int], after: list[int]) -> tuple[list[int], list[int]] | None:
        """Split colours by neighbourhood until nothing changes; None if the copies differ."""
        while True:
            if Counter(before) != Counter(after):
                return None
            count = len(set(before))
            names: dict[tuple[object, ...], int] = {}
            before = self._recolour(before, names)
            after = self._recolour(after, names)
            if len(set(before)) == count:
                return (before, after) if Counter(before) == Counter(after) else None

    def _recolour(self, colours: list[int], names: dict[tuple[object, ...], int]) -> list[int]:
        keys = [
            (colours[v], *sorted((kind, colours[u]) for kind, u in near))
            for v, near in enumerate(self._near)
        ]
        return [names.setdefault(key, len(names)) for key in keys]

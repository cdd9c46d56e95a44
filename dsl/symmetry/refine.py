"""Colour refinement (Weisfeiler and Leman 1968) on arrays: classes of possibly equivalent nodes.

Colours of nodes and resources are split by the colours of their neighbours until stable. Nodes of
different colour are in different orbits; if every rank has its own colour, the machine lacks
symmetry. Signatures are hashes: a collision leaves a class too coarse, never wrong.
"""

from __future__ import annotations

import numpy as np

from ..base.arrays import Ints, Words, scrambled
from .structure import Structure

WORK = 40_000_000
"""Links examined before refinement stops early (a long line needs as many rounds as nodes)."""

INDIVIDUALS = 256
"""Most nodes that :func:`numbering` individualizes."""


NEAR = 8
"""Neighbours by which :func:`numbering` orders the parts of a class."""


def refine(made: Structure, colours: Ints, *, near: int = 0) -> Ints | None:
    """Return the stable colours, shape (copies, nodes + resources); None if the copies differ.

    Every row of ``colours`` colours one copy of the machine (say, before and after an image); equal
    colours mean equal neighbourhoods in all copies. Classes keep the order of their parents; parts
    of a class are ordered by the lowest colours of ``near`` neighbours, then by hashes.
    """
    colours, count = _renamed(colours)
    for _ in range(max(2, WORK // (len(made.link_class) + 1))):
        if not _alike(colours):
            return None
        # (copies, points): hashes, decide last
        keys = [np.stack([_signature(made, c) for c in colours])]
        if near:
            keys += list(np.stack([_nearest(made, c, near) for c in colours], axis=1))[::-1]
        finer, fresh = _renamed(colours, *keys)
        if fresh == count:  # no class was split: stable
            return colours
        colours, count = finer, fresh
    return colours if _alike(colours) else None


def kinds(made: Structure) -> Ints:
    """Return the initial colours, shape (nodes + resources,)."""
    return np.concatenate((made.node_class, made.node_class.max() + 1 + made.resource_class))


def stable(made: Structure) -> Ints:
    """Return the stable colours of the machine, shape (nodes + resources,)."""
    return _alone(made, kinds(made))


def numbering(made: Structure) -> Ints:
    """Return the ranks in an order that follows the structure: host by host, rail by rail.

    Ranks are individualized one by one, always in the smallest remaining class; ranks that thereby
    get a unique colour follow in the order of their classes, the same order in every host.
    """
    colours = stable(made)
    ranks = made.ranks
    # turn in which a rank got a colour of its own; its part of the old class
    step, part = np.full(ranks, INDIVIDUALS), np.zeros(ranks, np.int64)
    for turn in range(INDIVIDUALS):
        sizes = np.bincount(colours)[colours[:ranks]]
        if (sizes == 1).all():
            break
        chosen = int(np.argmin(np.where(sizes > 1, sizes, len(colours) + 1)))
        finer = individualized(made, colours, np.array([chosen]), near=NEAR)
        # The last two hosts are separated at once: one is the first part of all its classes.
        first = np.full(len(colours), len(colours))
        np.minimum.at(first, colours, finer)
        fresh = (np.bincount(finer)[finer[:ranks]] == 1) & (sizes > 1)
        step[fresh] = turn
        part[fresh] = (finer - first[colours])[:ranks][fresh]
        colours = finer
    return np.lexsort((colours[:ranks], part, step))


def individualized(made: Structure, colours: Ints, members: Ints, *, near: int = 0) -> Ints:
    """Return the stable colours after nodes get one each, before the rest of their class."""
    count = len(members)
    start = (count + 1) * colours + count  # room for count colours below that of each class
    start[members] += np.arange(count) - count
    return _alone(made, start, near=near)


def _alone(made: Structure, colours: Ints, *, near: int = 0) -> Ints:
    refined = refine(made, colours[None], near=near)
    assert refined is not None, "one copy cannot differ from itself"
    only: Ints = refined[0]
    return only


def _alike(colours: Ints) -> bool:
    """Return True if all copies have equally many nodes of each colour."""
    if len(colours) == 1:
        return True
    ordered = np.sort(colours, axis=1)
    return bool((ordered == ordered[0]).all())


def _renamed(colours: Ints, *keys: Words | Ints) -> tuple[Ints, int]:
    """Return dense numbers for (colour, last key, …, first key), in that order, and their count."""
    columns = [key.ravel() for key in (*keys, colours)]
    order = np.lexsort(columns)
    fresh = np.zeros(len(order), bool)
    fresh[:1] = True
    for column in columns:
        ordered = column[order]
        fresh[1:] |= ordered[1:] != ordered[:-1]
    result = np.empty(len(order), np.int64)
    result[order] = np.cumsum(fresh) - 1
    return result.reshape(colours.shape), int(fresh.sum())


def _nearest(made: Structure, colours: Ints, count: int) -> Ints:
    """Return the lowest colours of each node's neighbours, shape (count, nodes + resources).

    Unlike hashes, they have the same order in all hosts that are coloured in the same order.
    """
    here = made.ends.T.ravel()  # each link twice: seen from its source, then from its destination
    there = made.ends[:, ::-1].T.ravel()
    order = np.lexsort((colours[there], here))
    place = np.arange(len(order)) - np.searchsorted(here[order], here[order])
    first = place < count
    result = np.full((count, len(colours)), len(colours) + 1)
    result[place[first], here[order][first]] = colours[there[order][first]]
    return result


def _signature(made: Structure, colours: Ints) -> Words:
    """Return an order-independent hash of the links of every node and every resource."""
    nodes, links, _ = made.sizes
    src, dst = made.ends.T
    owner, member = made.held.T
    # the added numbers tell the roles apart
    own = scrambled(colours.astype(np.uint64) + np.uint64(1))
    around = np.zeros(links, np.uint64)
    np.add.at(around, member, scrambled(own[nodes + owner] + np.uint64(5)))
    seen = scrambled(
        scrambled(own[src] + np.uint64(2))
        + scrambled(own[dst] + np.uint64(3))
        + scrambled(made.link_class.astype(np.uint64) + np.uint64(4))
        + around
    )
    result = np.zeros(len(colours), np.uint64)
    np.add.at(result, src, scrambled(seen + np.uint64(6)))
    np.add.at(result, dst, scrambled(seen + np.uint64(7)))
    np.add.at(result, nodes + owner, scrambled(seen[member] + np.uint64(8)))
    return result

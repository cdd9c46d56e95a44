"""From box to box: which share of which chunk enters which box at which GPU, and from where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.collective import Collective, Kind

from ..trees.hosts_net import Boxes
from ..trees.templates import overlay
from .search import PASSES, Choice, Found, Grove, Wish, choose, loads_of, search
from .trees import Shares

REDUCING = frozenset({Kind.REDUCE_SCATTER, Kind.REDUCE})

TREES = 1024
"""Trees over boxes that chunks are cut into, unless there are more chunks."""

PARTS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192)
"""Equal shares that a chunk may be cut into."""

CHANGE = 28
"""Shares of the few chunks that are cut fine, so that loads come out even."""

ENOUGH = 1.0002
"""A congestion below this is not improved."""

CLOSE = 1.02
"""A congestion below this is not worth trying boxes that send on."""

CLOSE_FREE = 1.05
"""The same for pairs with free roots, each of which costs several trees."""

COARSE = 0.1
"""A tree that takes more of a busy row than this is grown in waves."""

WAVES = 64
"""Turns in which the boxes join such a tree."""

MANY = 8
"""More narrow boxes than this get no finer trees."""

FEW = 24
"""Boxes up to which a program chooses among the trees that were tried."""

SLOWLY = 28
"""Passes of pairs from given roots, which have nothing to choose but their rails."""

OTHERS = 2
"""Other roots that a tree of an allreduce tries in every pass."""


@dataclass(frozen=True, eq=False)
class _Roots:
    """Shares before they have trees: chunk, root and weight of each."""

    chunk: Ints
    root: Ints
    parts: Ints

    @property
    def weights(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(1, p) for p in self.parts.tolist())


def shares_of(boxes: Boxes, collective: Collective, time: float, seed: int) -> Shares | None:
    """Trees over boxes for all chunks; ``time`` (chunks per GB/s) is what they aim at.

    None where some box cannot reach another.
    """
    if collective.kind is Kind.ALLREDUCE:
        return _allreduce(boxes, time, seed)
    turned = collective.kind in REDUCING
    ends = collective.post if turned else collective.pre
    owner = np.zeros(collective.chunks, np.int64)
    owner[ends.chunks] = ends.ranks
    parts = max([p for p in PARTS if p * len(owner) <= TREES], default=1)
    roots = _cut(owner, np.full(len(owner), parts))
    found = _route(_wish(boxes, roots, turned, time), seed)
    if found is None:
        return None
    if found.congestion > ENOUGH and len(boxes.members) <= FEW:
        demand = tuple(map(Fraction, np.bincount(boxes.box[owner]).tolist()))
        wish = _wish(boxes, roots, turned, time)
        better = choose(found.tried, found.tried.roots, demand, wish)
        if better is not None and better.congestion < found.congestion:
            return _laid(boxes, better, owner, turned)
    if found.congestion > ENOUGH and len(boxes.members) > FEW:
        roots, found = _finer(boxes, owner, roots, found, _wish(boxes, roots, turned, time), seed)
    return _merged(Shares(roots.chunk, roots.root, roots.weights, {turned: found.grove}))


def _cut(owner: Ints, parts: Ints) -> _Roots:
    chunk = np.repeat(np.arange(len(owner)), parts)
    return _Roots(chunk, owner[chunk], parts[chunk])


def _wish(boxes: Boxes, roots: _Roots, turned: bool, time: float) -> Wish:
    room = np.array([float(b) * time for b in boxes.bandwidth])
    n = len(roots.chunk)
    return Wish(
        (boxes.fabric(turned=False), boxes.fabric(turned=True)),
        np.full(n, int(turned)),
        boxes.box[roots.root],
        np.full(n, -1),
        1 / roots.parts,
        room,
        np.zeros(len(room)),
    )


def _route(wish: Wish, seed: int) -> Found | None:
    """Direct trees first, from the given roots if many; boxes that send on if that is not
    enough."""
    tries: list[Found] = []
    close = CLOSE_FREE if wish.free else CLOSE
    stages = [(0, 1, 0.0)] if wish.free and wish.groups > FEW else []
    for free, relay, level in [*stages, (wish.free, 1, 0.0), (wish.free, wish.groups, 0.1)]:
        passes = PASSES if free == wish.free else SLOWLY
        this = replace(wish, free=free)
        found = search(this, relay=relay, level=level, seed=seed, passes=passes)
        if found is not None and found.congestion > ENOUGH and wish.groups > FEW:
            waves = _waves(wish, found)
            if waves.max() > 1:
                finer = replace(wish, waves=waves, free=free)
                again = search(finer, relay=relay, level=level, seed=seed)
                found = min(found, again or found, key=_by)
        if found is not None:
            tries.append(found)
            if found.congestion <= (close if wish.groups > FEW else 1.0 + 1e-9):
                break
    if not tries:
        return None
    return replace(min(tries, key=_by), tried=Grove.joined([f.tried for f in tries]))


def _by(found: Found) -> float:
    return found.congestion


def _narrow(wish: Wish, found: Found) -> Ints:
    """The boxes from which single trees take much of a row that is too busy."""
    loads = loads_of(found.grove, wish.fields[0], len(wish.room))
    busy = (loads.T @ wish.weights + wish.base) / wish.room > ENOUGH
    if not busy.any():
        return np.zeros(0, np.int64)
    part = loads[:, np.flatnonzero(busy)].max(axis=1).toarray().ravel() * wish.weights
    much = part > COARSE * wish.room[busy].min()
    return np.unique(found.grove.roots[much])


def _waves(wish: Wish, found: Found) -> Ints:
    """Trees from narrow boxes grow in turns: one turn loads a row less.

    Where many boxes are narrow, or roots can move away, whole trees are fine enough.
    """
    narrow = _narrow(wish, found)
    if wish.free or len(narrow) > MANY:
        narrow = narrow[:0]
    return np.where(np.isin(found.grove.roots, narrow), WAVES, 1)


def _finer(
    boxes: Boxes, owner: Ints, roots: _Roots, found: Found, wish: Wish, seed: int
) -> tuple[_Roots, Found]:
    """The same with a few chunks cut fine: one of every narrow box, two of others."""
    narrow = _narrow(wish, found)
    of = boxes.box[owner]
    first = np.unique(of, return_index=True)[1]
    fine = first[np.isin(of[first], narrow[:MANY])]
    fine = np.concatenate([fine, np.setdiff1d(first, fine)[-2:]])
    parts = np.full(len(owner), roots.parts.max())
    parts[fine] *= CHANGE
    more = _cut(owner, parts)
    again = _wish(boxes, more, bool(wish.turned[0]), float(wish.room[0] / boxes.bandwidth[0]))
    coarse = np.isin(boxes.box[more.root], narrow)
    if len(narrow) <= MANY:
        again = replace(again, waves=np.where(coarse, WAVES, 1))
    better = search(again, relay=1, level=0.0, seed=seed)
    if better is not None and better.congestion < found.congestion:
        return more, better
    return roots, found


def _laid(boxes: Boxes, choice: Choice, owner: Ints, turned: bool) -> Shares:
    """Chunks of a box side by side on the trees of the box."""
    laid: list[tuple[int, int, Fraction]] = []
    for b in range(len(boxes.members)):
        chunks = [(int(c), Fraction(1)) for c in np.flatnonzero(boxes.box[owner] == b)]
        laid += overlay(_weighted(choice, choice.grove.roots == b), chunks)
    tree, chunk, weights = zip(*laid, strict=True)
    index = np.array(chunk)
    return Shares(index, owner[index], weights, {turned: choice.grove.take(list(tree))})


def _weighted(choice: Choice, mask: Bools) -> list[tuple[int, Fraction]]:
    return [(int(t), choice.weights[t]) for t in np.flatnonzero(mask)]


def _merged(shares: Shares) -> Shares:
    """Equal trees of one root as one share."""
    first: dict[tuple[int | bytes, ...], int] = {}
    weights: dict[int, Fraction] = {}
    for s in range(len(shares)):
        trees = [(g.order[s].tobytes(), g.links[s].tobytes()) for g in shares.groves.values()]
        key = (int(shares.chunk[s]), int(shares.root[s]), *(x for tree in trees for x in tree))
        at = first.setdefault(key, s)
        weights[at] = weights.get(at, Fraction(0)) + shares.weights[s]
    kept = np.array(list(weights))
    groves = {turned: grove.take(kept) for turned, grove in shares.groves.items()}
    return Shares(shares.chunk[kept], shares.root[kept], tuple(weights.values()), groves)


# --- allreduce: up one tree, down another, the shares of the roots free -------------------------


def _allreduce(boxes: Boxes, time: float, seed: int) -> Shares | None:
    """Pairs of trees; the program over all that were tried where boxes are few."""
    few = len(boxes.members) <= FEW
    wide = _widest(boxes)
    pairs = len(wide) * max(1, (TREES // 4 if few else TREES) // len(wide))
    rank = wide[np.arange(pairs) % len(wide)]
    room = np.array([float(b) * time for b in boxes.bandwidth])
    wish = Wish(
        (boxes.fabric(turned=False), boxes.fabric(turned=True)),
        np.arange(2 * pairs) % 2,
        np.repeat(boxes.box[rank], 2),
        np.full(2 * pairs, -1),
        np.full(2 * pairs, 1 / pairs),
        room,
        np.zeros(len(room)),
        free=OTHERS,
    )
    found = _route(wish, seed)
    if found is None:
        return None
    if found.congestion > ENOUGH and few:
        family = 2 * found.tried.roots + found.tried.turned
        better = choose(found.tried, family, None, wish)
        if better is not None and better.congestion < found.congestion:
            return _paired(boxes, better)
    out, into = found.grove.take(slice(0, None, 2)), found.grove.take(slice(1, None, 2))
    place = np.zeros(len(boxes.members), np.int64)
    root = np.empty(pairs, np.int64)
    for p, b in enumerate(out.roots.tolist()):
        root[p] = boxes.members[b][place[b] % len(boxes.members[b])]
        place[b] += 1
    weights = (Fraction(1, pairs),) * pairs
    return _merged(Shares(np.zeros(pairs, np.int64), root, weights, {True: into, False: out}))


def _widest(boxes: Boxes) -> Ints:
    """The ranks of the boxes with the widest way out: as many equal pairs for each of them."""
    a, b = boxes.box[boxes.table.src], boxes.box[boxes.table.dst]
    width = np.array([float(x.bandwidth) for x in boxes.topology.links])
    out = np.bincount(a[(a >= 0) & (a != b)], width[(a >= 0) & (a != b)], len(boxes.members))
    return np.concatenate([boxes.members[k] for k in np.flatnonzero(out > 0.999 * out.max())])


def _paired(boxes: Boxes, choice: Choice) -> Shares:
    """In-trees, out-trees and GPUs of each root box, side by side on its share."""
    pairs: list[tuple[int, int, int, Fraction]] = []
    for b, members in enumerate(boxes.members):
        here = choice.grove.roots == b
        out = _weighted(choice, here & (choice.grove.turned == 0))
        into = _weighted(choice, here & (choice.grove.turned == 1))
        both = overlay(into, out)
        share = sum((w for _, _, w in both), Fraction(0))
        roots = [(int(r), share / len(members)) for r in members]
        for k, r, w in overlay([(k, one[2]) for k, one in enumerate(both)], roots):
            pairs.append((both[k][0], both[k][1], r, w))
    up, down, root, weights = zip(*pairs, strict=True)
    groves = {True: choice.grove.take(list(up)), False: choice.grove.take(list(down))}
    return Shares(np.zeros(len(root), np.int64), np.array(root), weights, groves)

"""Inside a box: what enters at a GPU goes to all others, solved once for boxes that are alike."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weft.dsl.base.arrays import Floats, Ints

from ..trees.hosts_net import Boxes
from .search import MET, Found, Grove, Wish, choose, search

COUNTS = (1, 2, 3, 4, 6, 8, 12, 24, 48)
"""Equal trees for each GPU that are tried."""

MOST = 128
"""Trees within a box, at most, unless there are few for each GPU (``COUNTS`` up to 8)."""

LIKE = 32
"""What enters a box is compared in steps of one over this of the most that enters anywhere."""


@dataclass(frozen=True, eq=False)
class Inside:
    """Trees within the boxes, in one direction.

    Attributes:
        span: the first tree of each rank and the one after its last, shape (ranks, 2).
        until: trees of a rank lie side by side on [0, 1]; where each ends, shape (trees,).
        grove: in which groups are numbered as in the box, links as in the machine; by box.
        of: box and tree in its grove, shape (trees, 2).
    """

    span: Ints
    until: tuple[Fraction, ...]
    groves: tuple[Grove, ...]
    of: Ints

    @property
    def most(self) -> int:
        """The most trees that a rank has."""
        return int(np.diff(self.span).max())


@dataclass(frozen=True, eq=False)
class Kind:
    """What one box was solved to: weighted trees, and the congestion."""

    like: int
    grove: Grove
    weights: tuple[Fraction, ...]
    congestion: float


def solve_inside(
    boxes: Boxes,
    enters: dict[bool, Floats],
    base: Floats,
    time: float,
    *,
    seed: int,
) -> tuple[dict[bool, Inside], float]:
    """Trees for what enters each rank (per direction: turned or not), and the worst congestion.

    ``base`` is what the fabric's trees load each row with, ``time`` what it takes them.
    """
    known: dict[bytes, Kind] = {}
    chosen = []
    shapes = [boxes.shape(b) for b in range(len(boxes.members))]
    for b, shape in enumerate(shapes):
        key = shape + _profile(boxes, b, enters, base)
        if key not in known:
            known[key] = _solve(boxes, b, enters, base, time, seed)
        chosen.append(known[key])
    worst = max(kind.congestion for kind in chosen)
    return {t: _placed(boxes, chosen, t) for t in enters}, worst


def _profile(boxes: Boxes, b: int, enters: dict[bool, Floats], base: Floats) -> bytes:
    """What a box is asked for, coarsely."""
    asked = [load[boxes.members[b]] for load in enters.values()]
    unit = max(float(load.max()) for load in enters.values()) / LIKE
    return np.rint(np.concatenate([*asked, base[boxes.rows_of(b)]]) / unit).astype(int).tobytes()


def _solve(
    boxes: Boxes, b: int, enters: dict[bool, Floats], base: Floats, time: float, seed: int
) -> Kind:
    """Few equal trees for each GPU if they do not slow the fabric down, else weighted ones."""
    tried: list[Grove] = []
    best: tuple[Wish, Found, int] | None = None
    for count in COUNTS:
        wish = _wish(boxes, b, enters, base, time, count)
        if count > 8 and len(wish.roots) > MOST:
            break
        found = search(wish, relay=wish.groups, level=0.1, seed=seed)
        if found is None:
            return Kind(b, tried[0] if tried else _none(wish), (), np.inf)
        tried.append(found.tried)
        if best is None or found.congestion < best[1].congestion - 1e-6:
            best = wish, found, count
        if best[1].congestion <= 1 + MET:
            break
    assert best is not None
    wish, found, count = best
    if found.congestion > 1 + MET:
        everything = Grove.joined(tried)
        family = everything.turned * wish.groups + everything.roots
        demand = _demand(boxes, b, enters)
        weighed = choose(everything, family, demand, wish)
        if weighed is not None and weighed.congestion < found.congestion * (1 - 1e-4):
            return Kind(b, weighed.grove, weighed.weights, weighed.congestion)
    return Kind(
        b, found.grove, tuple(Fraction(1, count) for _ in found.grove.roots), found.congestion
    )


def _none(wish: Wish) -> Grove:
    hops = np.zeros((0, wish.groups - 1), np.int32)
    return Grove(
        wish.turned[:0], wish.roots[:0], wish.starts[:0], hops, np.zeros((*hops.shape, 1), np.int32)
    )


def _demand(boxes: Boxes, b: int, enters: dict[bool, Floats]) -> tuple[Fraction, ...]:
    """What enters each GPU of a box, forwards then turned."""
    n = len(boxes.members[b])
    return tuple(
        Fraction(float(enters[t][r])).limit_denominator(1 << 20) if t in enters else Fraction(0)
        for t in (False, True)
        for r in boxes.members[b][:n]
    )


def _wish(
    boxes: Boxes, b: int, enters: dict[bool, Floats], base: Floats, time: float, count: int
) -> Wish:
    turned, roots, weights = [], [], []
    for t, load in enters.items():
        asked = load[boxes.members[b]]
        groups = np.flatnonzero(asked > 0)
        roots.append(np.repeat(groups, count))
        turned.append(np.full(len(groups) * count, int(t)))
        weights.append(np.repeat(asked[groups] / count, count))
    mine = boxes.rows_of(b)
    room = np.full(len(boxes.bandwidth), 1e300)
    room[mine] = [float(boxes.bandwidth[i]) * time for i in mine]
    kept = np.zeros(len(room))
    kept[mine] = base[mine]
    root = np.concatenate(roots)
    return Wish(
        (boxes.inside(b, turned=False), boxes.inside(b, turned=True)),
        np.concatenate(turned),
        root,
        np.full(len(root), -1),
        np.concatenate(weights),
        room,
        kept,
    )


def _placed(boxes: Boxes, chosen: list[Kind], turned: bool) -> Inside:
    """The trees of every box, from those of the box that it is like."""
    first, until, groves, of = [0], [], [], []
    order_of: dict[int, tuple[Grove, list[Fraction]]] = {}
    to = np.arange(len(boxes.table.src) + 1)
    to[-1] = -1
    for b, kind in enumerate(chosen):
        if id(kind) not in order_of:
            mine = np.flatnonzero(kind.grove.turned == int(turned))
            mine = mine[np.argsort(kind.grove.roots[mine], kind="stable")]
            order_of[id(kind)] = kind.grove.take(mine), [kind.weights[i] for i in mine]
        grove, weights = order_of[id(kind)]
        to[boxes.links_of[kind.like]] = boxes.links_of[b]
        groves.append(
            Grove(
                grove.turned,
                grove.roots,
                grove.starts,
                grove.order,
                to[grove.links].astype(np.int32),
            )
        )
        to[boxes.links_of[kind.like]] = boxes.links_of[kind.like]
        counts = np.bincount(grove.roots, minlength=len(boxes.members[b]))
        first += (first[-1] + np.cumsum(counts)).tolist()
        of += [(b, i) for i in range(len(grove))]
        until += _ends(grove.roots.tolist(), weights)
    return Inside(_by_rank(boxes, np.array(first)), tuple(until), tuple(groves), np.array(of))


def _by_rank(boxes: Boxes, first: Ints) -> Ints:
    """First and last tree of each rank, shape (ranks, 2); boxes list ranks in their own order."""
    found = np.zeros((boxes.topology.ranks, 2), np.int64)
    ranks = np.concatenate(boxes.members)
    found[ranks, 0], found[ranks, 1] = first[:-1], first[1:]
    return found


def _ends(roots: list[int], weights: list[Fraction]) -> list[Fraction]:
    """Where the trees of each root end on [0, 1]."""
    total: dict[int, Fraction] = {}
    for r, w in zip(roots, weights, strict=True):
        total[r] = total.get(r, Fraction(0)) + w
    at: dict[int, Fraction] = {}
    ends = []
    for r, w in zip(roots, weights, strict=True):
        at[r] = at.get(r, Fraction(0)) + w
        ends.append(at[r] / total[r])
    return ends

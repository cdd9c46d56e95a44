"""Pairs served across a cut in time: data that crosses early is of few ranks, late data for few.

Let X be a set of ranks and Y the others. For every rank s in X and every rank d in Y, the part of a
message that s has for d leaves X in some transfer, whose first link starts at a rank u of X, at a
time t. It holds data of s only if t is at least the α from s to u, and reaches d by the end T only
if T - t is at least the α from u to the rank v on which it comes down, and from v to d. So with
sums a byte at time t is made of at most A(t) ranks' data, A counting the ranks of X within t of u;
where copies are made it serves at most B(T - t) ranks, B counting those of Y within T - t by the
best v. (A byte that is not a sum is of one rank; one that is for one rank serves one.) With a cover
of the links out of X by resources r with multipliers m_r (:mod:`.cut`), and with A_r and B_r
the largest over the links of r,

    need · M  <=  sum of m_r · b_r · ∫ A_r(t) · B_r(T - t) dt  =  sum of c_k · max(0, T - w_k),

where each step of A_r at time a and each of B_r at time b make one term: w = a + b, c = m_r · b_r
times both steps. The right side grows with T: T is at least where it reaches the left. This is a
concave curve in M, steep where messages are small: a broadcast of little data cannot
wait for all ranks to help, nor can its root alone send a copy to each.

The same is counted where data comes into Y, over links that end at its ranks v: at a time t a byte
is made of ranks within t of any rank of X, and T - t is at least the least α from X to v, and that
from v to d. (A transfer that occupies its whole route at once passes the last link when it starts.)

Switches that copy or add serve several at once: machines that have them get no such bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import rounded
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from .cut import CutFinder, NodeCut
from .distance import Lengths
from .effort import BoundEffort
from .words import capacity_words, names

SIZES = tuple(1 << k for k in range(8, 34))
"""Message sizes at one of which a curve must exceed all other bounds, to be kept."""


@dataclass(frozen=True, slots=True)
class Reach:
    """T such that ``sum of GBps · max(0, T - us)`` over ``terms`` is at least ``need`` · M."""

    # (us, GBps), ascending in µs; the GB/s count each pair that a byte serves
    terms: tuple[tuple[Fraction, Fraction], ...]
    need: Fraction  # pairs that every byte of M must serve
    certificate: Certificate

    def at(self, message_bytes: int) -> Fraction:
        """The bound in µs for a message of M bytes."""
        return _Corners(self.terms).at(self.need * message_bytes / BYTES_PER_US_PER_GBPS)


class _Corners:
    """A sum of terms as a line with corners: its ``total`` at each ``us`` and ``rate`` after it."""

    def __init__(self, terms: Sequence[tuple[Fraction, Fraction]]) -> None:
        self.us = [us for us, _ in terms]
        self.rate = list(accumulate(GBps for _, GBps in terms))
        grown = (r * (b - a) for r, (a, b) in zip(self.rate, pairwise(self.us), strict=False))
        self.total = list(accumulate(grown, initial=Fraction(0)))

    def at(self, total: Fraction) -> Fraction:
        """Time in µs at which the sum reaches ``total``; the first one where it is 0."""
        k = max(0, bisect_left(self.total, total) - 1)
        return self.us[k] + (total - self.total[k]) / self.rate[k]


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """The terms of a bound, and the cut that proves it: over links ``into`` the others, or out."""

    terms: tuple[tuple[Fraction, Fraction], ...]
    need: Fraction
    cut: NodeCut
    into: bool


@dataclass(frozen=True, slots=True)
class Flows:
    """Data that crosses a cut for a collective: sums or not, copies or not; ``roots``: the only
    sources (``out``) or destinations, if any; ``chunks`` for each pair of ranks."""

    sums: bool
    copies: bool
    chunks: Fraction
    root: int | None = None
    out: bool = True

    @staticmethod
    def of(collective: Collective) -> Flows | None:
        """The flows of a collective; None where no byte can serve more than one pair, or it is
        none that is counted here."""
        whole = Fraction(collective.chunks)
        share = whole / collective.ranks
        root = collective.roots[0] if len(collective.roots) == 1 else None
        # With local sums the chunks are those of every rank; M is one rank's all the same.
        plain = {
            Kind.ALLREDUCE: Flows(True, True, Fraction(collective.message_chunks)),
            Kind.ALLGATHER: Flows(False, True, share),
            Kind.REDUCE_SCATTER: Flows(True, False, share),
        }
        if root is not None:
            plain[Kind.BROADCAST] = Flows(False, True, whole, root)
            plain[Kind.REDUCE] = Flows(True, False, whole, root, out=False)
        return plain.get(collective.kind)

    def pairs(self, inside: Bools) -> int:
        """Number of pairs of ranks that a cut parts."""
        if self.root is None:
            return int(inside.sum()) * int((~inside).sum())
        if inside[self.root] != self.out:
            return 0
        return int((~inside).sum() if self.out else inside.sum())


def reaches(
    topology: Topology,
    collective: Collective,
    starts: Sequence[int],
    effort: BoundEffort,
    others: Sequence[Fraction],
) -> tuple[Reach, ...]:
    """The bounds of the sets of ranks that are near each of ``starts``, and of their complements:
    those that exceed the ``others``, and each other, at some of :data:`SIZES`.

    ``collective`` must be plain (equal sizes). O(ranks³) for each set.
    """
    flows, n = Flows.of(collective), topology.ranks
    if flows is None or n > effort.reach_ranks:
        return ()
    if any(x.multicast or x.reduces for x in topology.nodes):
        return ()
    lengths = Lengths.of(topology)
    every = np.ones(len(lengths.alpha), bool)
    apart = lengths.from_each(every, np.arange(n))[:, :n]
    if (apart < 0).any():
        return ()
    finder, curves = CutFinder.of(topology, lambda _: 1), list[_Curve]()
    for inside in _near(apart, starts):
        pairs = flows.pairs(inside)
        for into in (False, True) if pairs else ():
            mask = np.full(len(topology.nodes), into)
            mask[:n] = inside
            cut = finder.cut(mask)
            if cut is not None:
                need = pairs * flows.chunks / collective.message_chunks
                terms = _terms(topology, cut, apart, flows, lengths.unit, into=into)
                curves.append(_Curve(terms, need, cut, into))
    return tuple(_written(topology, flows, one) for one in _above(curves, others))


def _near(apart: Ints, starts: Sequence[int]) -> Iterator[Bools]:
    """The ranks within each distance of each start, both ways; and all others."""
    seen: set[bytes] = set()
    both = np.maximum(apart, apart.T)
    for start in dict.fromkeys(starts):
        for radius in distinct_values(both[start]).tolist():
            ball = both[start] <= radius
            for inside in (ball, ~ball):
                if inside.any() and not inside.all() and inside.tobytes() not in seen:
                    seen.add(inside.tobytes())
                    yield inside


def _terms(
    topology: Topology, cut: NodeCut, apart: Ints, flows: Flows, unit: Fraction, *, into: bool
) -> tuple[tuple[Fraction, Fraction], ...]:
    """Return the terms of one cut: the µs from which on it adds a number of GB/s, on links out of
    its ranks, or those into the others."""
    n = topology.ranks
    inside = cut.inside[:n]
    first, last = _first(apart, inside, flows), _last(apart, inside, flows)
    if into:
        soonest = apart[inside].min(axis=0)
        first = soonest[:, None] + first[inside].min(axis=0)
        last = np.sort(apart[:, _dests(inside, flows)], axis=1)
        last = last if flows.copies else last[:, :1]
    members, ends = fabric_of(topology).members, topology.link_ends()
    crossing = set(cut.crossing.links)
    capacity = topology.capacities()
    alike: dict[Fraction, list[Ints]] = {}  # waits over resources of equal GB/s
    for row, times in cut.crossing.cover:
        gpus = sorted({int(ends[i, int(into)]) for i in members[row] if i in crossing})
        waits = np.add.outer(first[gpus].min(axis=0), last[gpus].min(axis=0))
        alike.setdefault(times * capacity[row], []).append(waits.ravel())
    terms: dict[int, Fraction] = {}
    for GBps, each in alike.items():
        found, counts = np.unique(np.concatenate(each), return_counts=True)
        for wait, count in zip(found.tolist(), counts.tolist(), strict=True):
            terms[wait] = terms.get(wait, Fraction(0)) + GBps * count
    return tuple((wait * unit, GBps) for wait, GBps in sorted(terms.items()))


def _first(apart: Ints, inside: Bools, flows: Flows) -> Ints:
    """Times from which a rank can send data of 1, 2, … ranks inside, shape (ranks, counts)."""
    sources = [flows.root] if flows.root is not None and flows.out else np.flatnonzero(inside)
    times = np.sort(apart[sources].T, axis=1)
    return times if flows.sums else times[:, :1]


def _last(apart: Ints, inside: Bools, flows: Flows) -> Ints:
    """Times before the end until which a send of a rank can serve 1, 2, … ranks outside."""
    outer = np.flatnonzero(~inside)
    served = np.sort(apart[outer][:, _dests(inside, flows)], axis=1)  # by where it comes down
    times = (apart[:, outer][:, :, None] + served[None, :, :]).min(axis=1)
    return np.asarray(times if flows.copies else times[:, :1])


def _dests(inside: Bools, flows: Flows) -> Ints:
    if flows.root is not None and not flows.out:
        return np.array([flows.root])
    return np.flatnonzero(~inside).astype(np.int64)


def _written(topology: Topology, flows: Flows, found: _Curve) -> Reach:
    """The cut, and sources and targets of a byte that crosses at some time, in words."""
    cut, into = found.cut, found.into
    inside = [int(i) for i in cut.inside[: topology.ranks].nonzero()[0]]
    made = "is made of data of ranks within t only" if flows.sums else "is of one rank"
    serves = "serves ranks within T - t only" if flows.copies else "is for one rank"
    (us, _), *_ = found.terms
    shown = " + ".join(f"{rounded(c)}·(T - {rounded(w)})" for w, c in found.terms[:6])
    more = " + …" if len(found.terms) > 6 else ""
    crosses = "comes in" if into else "leaves"
    text = (
        f"Each byte of M must serve {rounded(found.need)} pairs of a rank in "
        f"{names(topology, inside)} and one outside, over "
        f"{capacity_words(topology, cut.crossing)}; what {crosses} at t {made}, and {serves}: "
        f"{rounded(found.need)}·M/1000 <= {shown}{more} in GB/s and µs, each term from 0 on, so "
        f"T > {rounded(us)} µs"
    )
    data = {
        "inside": inside,
        "into": into,
        "sums": flows.sums,
        "copies": flows.copies,
        "need": str(found.need),
        "terms": [[str(w), str(c)] for w, c in found.terms],
        **cut.crossing.to_json(),
    }
    return Reach(found.terms, found.need, Certificate("reach", text, data))


def _above(curves: Iterable[_Curve], others: Sequence[Fraction]) -> list[_Curve]:
    """The curves that exceed the others' bounds, and each other, at some of :data:`SIZES`."""
    different: dict[object, _Curve] = {}  # many cuts of a machine that is symmetric are alike
    for one in curves:
        different.setdefault((one.terms, one.need), one)
    corners = [(one, _Corners(one.terms)) for one in different.values()]
    kept: list[_Curve] = []
    for size, least in zip(SIZES, others, strict=True):
        pairs = Fraction(size) / BYTES_PER_US_PER_GBPS
        times = [(line.at(one.need * pairs), one) for one, line in corners]
        us, best = max(times, key=lambda x: x[0], default=(least, None))
        if best is not None and us > least and best not in kept:
            kept.append(best)
    return kept

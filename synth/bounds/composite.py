"""Latency before a cut, the time of the cut, and latency after it: T >= a + b·M.

*Windows.* Let X be the links out of a set S of nodes, with a cover of resources r (links among
them) by multipliers m_r (:mod:`.cut`), and W the bytes that must cross. A link of X is of use
only from its head to T less its tail (:mod:`.distance`).
The windows of the links of X in r lie within one from their least head to T less their least
tail; w_r is the sum of the two. So r passes at most b_r·(T - w_r) bytes that count, and W is at
most the sum of m_r·b_r·(T - w_r). Where T < w_r nothing passes, not less: but T is at least the
latency bound L, and with min(w_r, L) for w_r the terms are never negative. So T >= W/C + (sum of
m_r·b_r·w_r)/C, C the capacity.

*Copies.* Say each byte that crosses is wanted by all ranks D outside S. Trace each destination's
copy back to the last transfer that crosses X: it comes down on a GPU g outside, and from there on
stays outside. When it ends at f, destination d is served only if T - f is at least z_g(d), the
transfer's tail to g and the α from g to d outside S. Choose any ρ. A transfer with T - f < ρ
serves less than |D| / (c-1) destinations, where c = ceil(|D| / max over g of |{d: z_g(d) < ρ}|).
So a byte has either one transfer that ends by T - ρ, or at least c. The bytes of the first kind
fit into windows that close at T - ρ; all transfers fit into the windows above:

    x <= sum of m_r·b_r·(T - v_r),   x + c·(W - x) <= sum of m_r·b_r·(T - w_r),

v_r being w_r with a tail of at least ρ. Together T >= W/C + ((c-1)·v + w)/c, with v and w the
averages of v_r and w_r weighted by m_r·b_r; and T >= W/C + v where some d lacks z_g(d) < ρ.

*Heads.* Chunks whose holders are far from the cut cross late: for each distance the same with
those chunks only. *Reductions* are the same backwards on the reversed machine, and allreduce is
both: something of S must reach every rank outside, and something of every rank in S must get out.
*Prices, several cuts and partitions* get the windows alone: resources weighted by price·bandwidth.

The least of store and forward and cut through is taken; where switches compute, legs of casts do
the former beside transfers that do the latter, so there each head and each tail is the lesser of
the two. (The idea: packing.md §6, a NIC's busy time and what lies behind the NIC.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import rounded
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..fabric.fabric import fabric_of
from .cut import CutFinder, NodeCut
from .demand import ClassDemand
from .distance import Lengths
from .effort import BoundEffort
from .words import chunk_words, line_words


@dataclass(frozen=True, slots=True)
class Composite:
    """T >= ``us + us_per_byte * M`` for every message size M, and the proof."""

    us: Fraction
    us_per_byte: Fraction
    certificate: Certificate

    def at(self, message_bytes: int) -> Fraction:
        """The bound in µs for a message of M bytes."""
        return self.us + self.us_per_byte * message_bytes


@dataclass(frozen=True, eq=False)
class Wants:
    """Chunks that must leave sets of ranks, as input of :func:`of_cut`.

    ``leaving`` is, per rank, the number of chunks that only it holds and that are wanted outside
    any set of ranks that contains it; if ``joint``, the number of chunks of which each rank inside
    holds a part. ``dests``: ranks that want something; ``alike``: they all want the same chunks.
    ``backwards``: the demand is of the reversed machine.
    """

    leaving: Callable[[Bools], Ints]
    dests: Bools
    alike: bool
    backwards: bool
    joint: int = 0

    @staticmethod
    def of(demand: ClassDemand) -> Wants:
        """Return the wants of a demand."""
        dests = np.zeros(demand.ranks, bool)
        dests[demand.dests] = True
        if demand.spread:
            dests[demand.holders] = True
        return Wants(demand.leaving, dests, demand.spread, demand.backwards)

    @staticmethod
    def of_sums(ranks: int, chunks: int, backwards: bool) -> Wants:
        """Return the wants of an allreduce: data of all ranks inside must reach all outside."""
        return Wants(
            lambda inside: inside.astype(np.int64), np.ones(ranks, bool), True, backwards, chunks
        )


@dataclass(frozen=True, eq=False)
class CompositeLine:
    """A composite bound before it is put into words; integers are α over ``unit``.

    ``early``, ``late``: w_r and v_r of every resource of the cover; ``copies`` is c, 0: no limit.
    """

    cut: NodeCut
    chunks: int
    head: int
    rho: int
    copies: int
    early: Ints
    late: Ints
    unit: Fraction
    backwards: bool = False

    @property
    def time(self) -> Fraction:
        """Chunks per GB/s: times bytes per chunk / 1000 it is µs."""
        return self.chunks / self.cut.crossing.capacity

    def turned(self) -> CompositeLine:
        """As seen on the machine itself, if it was found on the reversed one."""
        return replace(self, cut=self.cut.turned()) if self.backwards else self

    def composite(self, topology: Topology, us: Fraction, message_chunks: int) -> Composite:
        """The bound with its constant ``us``, and its certificate."""
        us_per_byte = self.time / (BYTES_PER_US_PER_GBPS * message_chunks)
        cut = self.turned().cut
        early, late, rho = (x * self.unit for x in (min(self.early), min(self.late), self.rho))
        wait = f"of T, {rounded(early)} µs or more before and after a transfer are of no use"
        if self.copies != 1:
            times = f"{self.copies} times" if self.copies else "in vain"
            wait += (
                f"; what crosses in the {'first' if self.backwards else 'last'} {rounded(rho)} µs "
                f"must cross {times}, and {rounded(late)} µs or more are of no use to anything else"
            )
        from_afar = f" from {rounded(self.head * self.unit)} µs away or more" if self.head else ""
        text = (
            f"{chunk_words(self.chunks, message_chunks)}{from_afar} {cut.words(topology)}; {wait}. "
            f"{line_words(us, us_per_byte)}"
        )
        data = {
            "inside": cut.members,
            "chunks": self.chunks,
            "message_chunks": message_chunks,
            "us": str(us),
            "us_per_byte": str(us_per_byte),
            "backwards": self.backwards,
            "early_us": [str(x * self.unit) for x in self.early.tolist()],
            "late_us": [str(x * self.unit) for x in self.late.tolist()],
            "threshold_us": str(rho),
            "copies": self.copies,
            **cut.crossing.to_json(),
        }
        return Composite(us, us_per_byte, Certificate("composite", text, data))

    def us(self, topology: Topology) -> Fraction:
        """The constant a, in µs."""

        def mean(waits: Ints) -> Fraction:
            return average(topology, self.cut.crossing.cover, waits, self.unit)

        if not self.copies:
            return mean(self.late)
        if self.copies == 1:
            return mean(self.early)
        return ((self.copies - 1) * mean(self.late) + mean(self.early)) / self.copies


Valued = tuple[Fraction, CompositeLine]
"""A composite bound after its constant in µs."""


def average(
    topology: Topology, cover: Iterable[tuple[int, Fraction | int]], waits: Ints, unit: Fraction
) -> Fraction:
    """The waits of resources, averaged with weights multiplier times bandwidth."""
    exact = [times * topology.capacity(row) for row, times in cover]
    scale = math.lcm(*(weight.denominator for weight in exact))
    weights = [weight.numerator * (scale // weight.denominator) for weight in exact]
    total = sum(weight * wait for weight, wait in zip(weights, waits.tolist(), strict=True))
    return Fraction(total, sum(weights)) * unit if any(weights) else Fraction(0)


def waiting(
    topology: Topology,
    lengths: Lengths,
    certificate: Certificate,
    latency: Fraction,
    us_per_byte: Fraction,
) -> Composite:
    """The bandwidth bound with the α of the transfers over its links."""
    rows = certificate.data.get("cover") or certificate.data["prices"]
    cover = [(int(row), Fraction(times)) for row, times in rows]
    waits = always(topology, lengths, [row for row, _ in cover], latency)
    us = average(topology, cover, waits, lengths.unit)
    shown = [int(x) * lengths.unit for x in waits]
    text = (
        f"{certificate.text}. Every transfer over these links also costs α: at least "
        f"{rounded(min(shown))} µs, and {rounded(us)} µs on average, weighted by price or "
        f"multiplier times bandwidth. {line_words(us, us_per_byte)}"
    )
    data = certificate.data | {
        "us": str(us),
        "us_per_byte": str(us_per_byte),
        "waits_us": [str(x) for x in shown],
        "of": certificate.kind,
    }
    return Composite(us, us_per_byte, Certificate("composite", text, data))


def always(topology: Topology, lengths: Lengths, rows: Iterable[int], latency: Fraction) -> Ints:
    """The least α of a transfer over any link of each resource, at most the latency bound."""
    before = lengths.from_gpus[lengths.src]
    after = lengths.to_gpus[lengths.dst]
    useful = (before >= 0) & (after >= 0)
    limit = _limit(latency, lengths.unit)
    tail = lengths.alpha + after
    links, listed = np.arange(len(tail)), list(rows)
    heads, tails = (
        [_by_resource(topology, listed, np.where(useful, x, limit), links) for x in both]
        for both in ((before, np.zeros_like(tail)), (tail, before + tail))
    )
    if computing(topology):
        least = np.minimum(*heads) + np.minimum(*tails)
    else:
        least = np.minimum(*(head + rest for head, rest in zip(heads, tails, strict=True)))
    return np.asarray(np.minimum(least, limit))


def computing(topology: Topology) -> bool:
    """Return True if there are casts, whose legs have α of their own, beside transfers that hold
    their whole route."""
    return any(node.computes for node in topology.nodes)


def of_cut(
    topology: Topology,
    lengths: Lengths,
    inside: Bools,
    wants: Wants,
    latency: Fraction,
    effort: BoundEffort,
) -> Iterator[Valued]:
    """The composite bounds of one cut; ``topology`` is the machine that ``wants`` is read on."""
    ranks = topology.ranks
    held = wants.leaving(inside[:ranks])
    targets = np.flatnonzero(wants.dests & ~inside[:ranks])
    cut = CutFinder.of(topology, lambda _: int(held.sum())).cut(inside)
    if cut is None or not len(targets):
        return
    models = [
        _CutWindows(topology, cut, targets, wants, lengths, through, effort.entries)
        for through in (False, True)
    ]
    away = models[0].away()
    heads = distinct_values(away[(held > 0) & (away >= 0)])
    if len(heads) > effort.heads:
        heads = heads[np.linspace(0, len(heads) - 1, effort.heads).astype(int)]
    for head in (heads[-1:] if wants.joint else heads).tolist():
        far = np.flatnonzero((held > 0) & (away >= head))
        chunks = wants.joint or int(held[far].sum())
        windows = [model.windows(far, latency) for model in models]
        if computing(topology):
            windows = [_Windows.lesser(*windows)]
        limit, unit, back = _limit(latency, lengths.unit), lengths.unit, wants.backwards
        make = partial(CompositeLine, cut, chunks, head, unit=unit, backwards=back)
        yield min((_line(topology, one, limit, make) for one in windows), key=lambda x: x[0])


def _limit(latency: Fraction, unit: Fraction) -> int:
    return int(latency / unit) if unit else 0


def _by_resource(topology: Topology, resources: Iterable[int], wait: Ints, links: Ints) -> Ints:
    """The least wait of the chosen links in each resource; ``wait`` has one entry per link."""
    place = dict(zip(links.tolist(), wait.tolist(), strict=True))
    members = fabric_of(topology).members
    found = [min((place[i] for i in members[r] if i in place), default=0) for r in resources]
    return np.array(found, np.int64)


class _CutWindows:
    """Heads and tails at one cut, by store and forward or (``through``) by cut through."""

    def __init__(
        self,
        topology: Topology,
        cut: NodeCut,
        targets: Ints,
        wants: Wants,
        lengths: Lengths,
        through: bool,
        most_entries: int,
    ) -> None:
        self._topology, self._cut, self._wants, self._lengths = topology, cut, wants, lengths
        self._through = through
        self._links = np.array(cut.crossing.links, np.int64)
        self._rows = [row for row, _ in cut.crossing.cover]
        self._outer = ~cut.inside[lengths.src] & ~cut.inside[lengths.dst]
        head, alpha = lengths.dst[self._links], lengths.alpha[self._links]
        before = np.maximum(lengths.from_gpus[lengths.src[self._links]], 0)
        self._after = np.maximum(lengths.to_gpus[head], 0)
        on = {(False, False): alpha, (False, True): before + alpha}  # [backwards, through]
        self._on = on.get((wants.backwards, through), np.zeros_like(alpha))
        near = lengths.turned().least(self._outer, targets)
        self._useful = near[head] >= 0
        self._tail = self._on + np.maximum(near[head], 0)
        if wants.backwards and through:
            self._tail = np.zeros_like(alpha)
        self._most_entries = most_entries
        self._spread = self._serving(targets)

    def away(self) -> Ints:
        """For each rank the least α to the cut, -1 where there is none."""
        tails = distinct_values(self._lengths.src[self._links])
        back = self._lengths.turned().least(np.ones(len(self._lengths.alpha), bool), tails)
        return back[: self._topology.ranks]

    def _heads(self, holders: Ints) -> Ints:
        """Least α before each crossing link is of use to the data of these ranks."""
        lengths, links = self._lengths, self._links
        if self._through and not self._wants.backwards:
            return np.maximum(lengths.before_transfers(holders)[lengths.src[links]], 0)
        reach = lengths.least(np.ones(len(lengths.alpha), bool), holders)[lengths.src[links]]
        more = lengths.alpha[links] if self._wants.backwards else 0
        if self._wants.backwards and self._through:
            more = more + self._after
        return np.asarray(np.maximum(reach, 0) + more)

    def _serving(self, targets: Ints) -> list[tuple[int, int]]:
        """Pairs (ρ, c) of the module docstring; c = 0: no number of copies is enough."""
        if not self._wants.alike:
            return []
        lengths = self._lengths
        passing = self._outer & ~lengths.stores[lengths.src]
        down = lengths.least(passing, lengths.dst[self._links], self._on)
        entries = np.flatnonzero((down >= 0) & lengths.stores)
        cost = np.zeros(len(entries), np.int64)
        if not (self._through and self._wants.backwards):
            cost = down[entries]
        soonest = lengths.least(self._outer, entries, cost)[targets]
        if (soonest < 0).any():
            return []
        found = [(int(soonest.max()), 0)]
        capable = any(x.multicast or x.reduces for x in self._topology.nodes)
        if capable or len(entries) > self._most_entries or len(targets) < 2:
            return found
        reach = lengths.from_each(self._outer, entries)[:, targets]
        wait = np.where(reach < 0, np.iinfo(np.int64).max, reach + cost[:, None])
        for rho in distinct_values(wait[wait < np.iinfo(np.int64).max]).tolist():
            most = int((wait < rho).sum(axis=1).max())
            if rho > found[0][0] and most < len(targets):
                found.append((rho, -(-len(targets) // most)))
        return found

    def windows(self, holders: Ints, latency: Fraction) -> _Windows:
        """Return the windows of the data of these ranks."""
        limit = _limit(latency, self._lengths.unit)
        head, tail = (
            _by_resource(self._topology, self._rows, np.where(self._useful, x, limit), self._links)
            for x in (self._heads(holders), self._tail)
        )
        return _Windows(head, tail, self._spread)


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """Heads and tails of the resources of a cover; ``spread``: pairs (ρ, c)."""

    head: Ints
    tail: Ints
    spread: list[tuple[int, int]]

    @staticmethod
    def lesser(one: _Windows, other: _Windows) -> _Windows:
        """Return the windows that hold whichever of two rules each transfer obeys.

        Of the pairs (ρ, c) only the first, of which no number of copies is enough, is kept.
        """
        enough = [
            (min(a[0], b[0]), 0) for a, b in zip(one.spread[:1], other.spread[:1], strict=False)
        ]
        return _Windows(np.minimum(one.head, other.head), np.minimum(one.tail, other.tail), enough)


def _line(
    topology: Topology, windows: _Windows, limit: int, make: Callable[..., CompositeLine]
) -> Valued:
    head, tail = windows.head, windows.tail
    found = []
    for rho, copies in [(0, 1), *windows.spread]:
        early, late = (np.minimum(head + np.maximum(tail, least), limit) for least in (0, rho))
        line = make(rho=rho, copies=copies, early=early, late=late)
        found.append((line.us(topology), line))
    return max(found, key=lambda x: x[0])


def envelope(
    found: Iterable[Composite], latency: Fraction, us_per_byte: Fraction
) -> tuple[Composite, ...]:
    """The composites that exceed latency, bandwidth and all others at some size, steepest last."""
    ends = [(latency, Fraction(0), None), (Fraction(0), us_per_byte, None)]
    lines = [*ends, *((x.us, x.us_per_byte, x) for x in found)]
    lines.sort(key=lambda x: (x[1], x[0]))
    hull: list[tuple[Fraction, Fraction, Composite | None]] = []
    for line in lines:
        while hull and line[0] >= hull[-1][0]:  # as steep or steeper, and higher at 0
            hull.pop()
        while len(hull) > 1 and _hidden(hull[-2], hull[-1], line):
            hull.pop()
        hull.append(line)
    return tuple(x for _, _, x in hull if x is not None)


_Entry = tuple[Fraction, Fraction, Composite | None]


def _hidden(left: _Entry, middle: _Entry, right: _Entry) -> bool:
    """Return True if the middle line is nowhere above both others; slopes ascend."""
    return (left[0] - right[0]) * (middle[1] - left[1]) <= (left[0] - middle[0]) * (
        right[1] - left[1]
    )


def sides(
    topology: Topology,
    ends: tuple[int, int],
    given: Sequence[int] | None,
    speakers: Ints,
    most: int,
) -> Iterator[Bools]:
    """Sets S such that something may have to leave S, as masks over the nodes.

    ``ends`` are the two farthest ranks, ``speakers`` one of each orbit, of which the first ``most``
    are used; ``given`` is the tight cut, if the bound is one.
    """
    seen: set[bytes] = set()
    for inside in _candidates(topology, ends, given, speakers[:most]):
        ranks = inside[: topology.ranks]
        if inside.tobytes() not in seen and ranks.any() and not ranks.all():
            seen.add(inside.tobytes())
            yield inside


def _candidates(
    topology: Topology, ends: tuple[int, int], given: Sequence[int] | None, speakers: Ints
) -> Iterator[Bools]:
    count = len(topology.nodes)
    if given is not None:
        yield _mask(count, given)
    host = np.array([-1 if x.host is None else x.host for x in topology.nodes])
    for rank in dict.fromkeys([*ends, *speakers.tolist()]):
        own = [_mask(count, [rank])]
        if host[rank] >= 0:
            own.append(host == host[rank])
        for inside in own:
            yield ~inside
            yield inside


def _mask(count: int, nodes: Sequence[int]) -> Bools:
    inside = np.zeros(count, bool)
    inside[list(nodes)] = True
    return inside

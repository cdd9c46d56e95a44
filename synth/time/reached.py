"""Machine as programs see it under one protocol: what they reach of its bandwidths, and their α.

α of a message is that of its route, which the runtime's model says for the route as a whole
(:class:`.ProtocolModel`). Here every link gets its share of that, and the least one of all routes
that programs may take (:mod:`.routes`): so the shares along a route add up to the α of a message
at most, and exactly where all routes over a link are alike. Links on no route keep their α.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import links_from
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import Medium, Topology

from .program_tables import reached_bandwidth
from .routes import QuickestWays, cables_to, ways_from
from .runtime_model import SLOWNESS, RuntimeModel


@dataclass(frozen=True, slots=True)
class _AlikeRoutes:
    """Routes of a pair of ranks, all of least α: that α, the slowest media that they may have, and
    the number of links on any of them where α is 0, else 0: pairs alike are counted once."""

    alpha: Fraction
    slowest: frozenset[Medium | None]
    links: int


def reached_machine(topology: Topology, model: RuntimeModel, protocol: Protocol) -> Topology:
    """Return the machine with payload bandwidths and α of a protocol; declared symmetries stay."""
    how = model.protocol(protocol)
    media = model.media.links if model.media else (None,) * len(topology.links)
    more = {one: how.alpha_us.get(one, Fraction(0)) if one else Fraction(0) for one in SLOWNESS}

    def alpha(own: Fraction, way: _AlikeRoutes) -> Fraction:
        us = max(Fraction(0), way.alpha * how.alpha + min(more[one] for one in way.slowest))
        return us * own / way.alpha if way.alpha else us / way.links

    ways = _ways_over(topology, media)
    rows = reached_bandwidth(topology, model, (protocol,))
    links = [
        replace(one, latency=min((alpha(one.latency, way) for way in over), default=one.latency))
        for one, over in zip(topology.links, ways, strict=True)
    ]
    return with_rows(replace(topology, links=tuple(links)), rows)


def with_rows(topology: Topology, rows: Sequence[Fraction]) -> Topology:
    """Return the machine with the bandwidths of links and shared resources, as of
    :meth:`.Topology.capacities`."""
    links = zip(topology.links, rows, strict=False)
    shared = zip(topology.resources, rows[len(topology.links) :], strict=True)
    return replace(
        topology,
        links=tuple(replace(one, bandwidth=b) for one, b in links),
        resources=tuple(replace(one, bandwidth=b) for one, b in shared),
    )


@kept()
def _ways_over(
    topology: Topology, media: tuple[Medium | None, ...]
) -> tuple[frozenset[_AlikeRoutes], ...]:
    """The different ways of pairs over each link."""
    found: list[set[_AlikeRoutes]] = [set() for _ in topology.links]
    out, ends = links_from(topology), [one.src for one in topology.links]
    for source in range(topology.ranks):
        ways = ways_from(topology, out, source)
        slowest = _slowest(ways, ends, media)
        # ways that go over a node or end there; the nodes farthest from the source come first
        over: dict[int, set[_AlikeRoutes]] = {node: set() for node in ways.alpha}
        for node in reversed(ways.alpha):
            last = ways.into[node]
            if node < topology.ranks and node != source:
                cables = cables_to(topology, out, source, node)
                alpha = topology.links[cables[0]].latency if cables else ways.alpha[node]
                kinds = frozenset(media[i] for i in cables) if cables else slowest[node]
                last = cables or last
                over[node] = {_AlikeRoutes(alpha, kinds, 0 if alpha else _count(ways, ends, last))}
            for i in last:
                found[i] |= over[node]
                over[ends[i]] |= over[node]
    return tuple(map(frozenset, found))


def _count(ways: QuickestWays, ends: Sequence[int], last: Sequence[int]) -> int:
    """The number of links on all quickest ways that end with one of some links."""
    links: set[int] = set()
    todo = [*last]
    while todo:
        links.update(todo)
        before = {ends[i] for i in todo}
        todo = [i for node in before for i in ways.into[node] if i not in links]
    return len(links)


def _slowest(
    ways: QuickestWays, ends: Sequence[int], media: Sequence[Medium | None]
) -> dict[int, frozenset[Medium | None]]:
    """The slowest media that ways to each node may have; ``ends``: where links begin."""
    found: dict[int, frozenset[Medium | None]] = {}
    for node in ways.alpha:
        found[node] = frozenset(
            max(one, media[i], key=SLOWNESS.index)
            for i in ways.into[node]
            for one in found[ends[i]]
        ) or frozenset({None})
    return found

"""Routes of connections: the fastest path from rank to rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush

from weft.dsl.base.errors import BadTopology
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.hops import ROUTES_PER_PAIR, links_from
from weft.dsl.nouns.topology import Topology

Route = tuple[int, ...]
Connection = tuple[int, int, int]


def routes_of(topology: Topology, connections: Sequence[Connection]) -> list[Route]:
    """The route of each connection (source, destination, channel).

    A cable that joins the two comes first, as in the runtimes (a machine's numbers may give a
    switch no α of its own). Else it is the fastest path: least α, then widest, then fewest links,
    then first. Where several are equal in all of these (parallel cables), the connections of
    a pair take them in turn, in order of their channels.

    A Dijkstra search per source, so it is exact where :func:`.find_hops` keeps only
    the first routes, and O(links log links) for each source.

    Raises:
        BadTopology: no way between two ranks but through another GPU.
    """
    targets: dict[int, set[int]] = {}
    for source, target, _ in connections:
        targets.setdefault(source, set()).add(target)
    out_links = links_from(topology)
    equal: dict[tuple[int, int], list[Route]] = {}
    for source in sorted(targets):
        for target, routes in _quickest(topology, out_links, source, targets[source]):
            equal[source, target] = routes
    lost = sorted({(a, b) for a, b, _ in connections} - equal.keys())
    if lost:
        a, b = lost[0]
        hosts = [topology.nodes[rank].host for rank in (a, b)]
        more = f" (and {len(lost) - 1} more such pairs)" if len(lost) > 1 else ""
        raise BadTopology(
            f"{topology.name}: rank {a} sends to rank {b}, and no link or switch joins them{more}",
            hint="the two are in different boxes and on no common fabric; where rails join GPUs of "
            "one number only, fabric=star joins all (dgx-h100:nodes=2,fabric=star)"
            if hosts[0] is not None and hosts[0] != hosts[1]
            else "the program is for another machine, or its ranks are in another order",
        )
    turn: dict[tuple[int, int], int] = {}
    found: dict[Connection, Route] = {}
    for a, b, channel in sorted(connections):
        k = turn.get((a, b), 0)
        turn[a, b] = k + 1
        found[a, b, channel] = equal[a, b][k % len(equal[a, b])]
    return [found[c] for c in connections]


@dataclass(frozen=True, slots=True)
class QuickestWays:
    """Quickest ways from one rank, through no other GPU.

    ``alpha``: of each node that is reached, in the order of the search. ``into``: the last links
    of all quickest ways to it.
    """

    alpha: dict[int, Fraction]
    into: dict[int, list[int]]


def ways_from(topology: Topology, out_links: tuple[Route, ...], source: int) -> QuickestWays:
    """Return the quickest ways from a rank to all nodes (Dijkstra)."""
    best: dict[int, Fraction] = {source: Fraction(0)}
    into: dict[int, list[int]] = {source: []}
    queue = [(Fraction(0), source)]
    settled: dict[int, Fraction] = {}
    while queue:
        far, node = heappop(queue)
        if node in settled:
            continue
        settled[node] = far
        if topology.nodes[node].stores and node != source:
            continue
        for i in out_links[node]:
            one = topology.links[i]
            there = far + one.latency
            if one.dst not in best or there < best[one.dst]:
                best[one.dst], into[one.dst] = there, [i]
                heappush(queue, (there, one.dst))
            elif there == best[one.dst] and one.dst not in settled:
                into[one.dst].append(i)
    return QuickestWays(settled, into)


def cables_to(
    topology: Topology, out_links: tuple[Route, ...], source: int, target: int
) -> list[int]:
    """Return the links that join two nodes, those of least α."""
    cables = [i for i in out_links[source] if topology.links[i].dst == target]
    least = min((topology.links[i].latency for i in cables), default=None)
    return [i for i in cables if topology.links[i].latency == least]


def _quickest(
    topology: Topology, out_links: tuple[Route, ...], source: int, targets: Iterable[int]
) -> list[tuple[int, list[Route]]]:
    """Return each target that is reached with its fastest routes, all equally good."""
    ways = ways_from(topology, out_links, source)
    found = []
    for target in targets:
        if cables := cables_to(topology, out_links, source, target):
            found.append((target, _alike(topology, [(i,) for i in cables])))
        elif target in ways.alpha:
            found.append((target, _alike(topology, _back(topology, ways.into, target, source))))
    return found


def _back(topology: Topology, into: dict[int, list[int]], node: int, source: int) -> list[Route]:
    if node == source:
        return [()]
    routes = []
    for i in into[node]:
        before = _back(topology, into, topology.links[i].src, source)
        routes += [(*route, i) for route in before]
        if len(routes) >= 8 * ROUTES_PER_PAIR:
            break
    return routes


def _alike(topology: Topology, routes: list[Route]) -> list[Route]:
    """Of routes with one α: the widest and shortest ones."""

    def rank(route: Route) -> tuple[Fraction, int]:
        return -min(topology.links[i].bandwidth for i in route), len(route)

    least = min(map(rank, routes))
    return sorted(route for route in routes if rank(route) == least)[:ROUTES_PER_PAIR]

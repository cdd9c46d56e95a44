"""Checks certificates of bounds from the definitions, sharing no code with what makes them.

Everything here is slow and plain on purpose: sets, Fractions, Bellman-Ford.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import combinations
from math import inf, lcm

from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import hop_distances
from weft.dsl.nouns.problem import required_pairs
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds

Arcs = dict[tuple[int, int], Fraction]
Cover = list[tuple[int, Fraction]]


def check(topology: Topology, collective: Collective, found: Bounds) -> None:
    """Every certificate proves exactly the number beside it."""
    _check_paths(topology, collective, found)
    data = found.certificate.data
    kinds: dict[str, Callable[[], Fraction]] = {
        "none": lambda: Fraction(0),
        "cut": lambda: _cut_time(topology, collective, data),
        "cuts": lambda: _cuts_time(topology, collective, data),
        "prices": lambda: _prices_time(topology, collective, data),
        "partition": lambda: _partition_time(topology, collective, data),
        "union": lambda: _union_time(topology, collective, data),
    }
    time = kinds[found.certificate.kind]()  # chunks per GB/s
    assert time / (1000 * collective.message_chunks) == found.us_per_byte
    assert found.attainable is None or found.attainable >= found.us_per_byte
    if not topology.links:
        assert found.rounds_per_chunk == 0
        return
    per_chunk = found.rounds_per_chunk / topology.round_bandwidth() * collective.factor
    assert per_chunk == time


def chunks_leaving(collective: Collective, inside: Iterable[int]) -> int:
    """Chunks of which some contribution starts only inside and is wanted outside."""
    inner = set(inside)
    holders = item_holders(collective)
    leaving = set()
    for rank, chunk, index, _ in collective.post.rows().tolist():
        if rank not in inner and any(
            holders[chunk, who] <= inner for who in collective.contributions[index]
        ):
            leaving.add(chunk)
    return len(leaving)


def item_holders(collective: Collective) -> dict[tuple[int, int], set[int]]:
    """Where each contribution to each chunk starts."""
    holders: dict[tuple[int, int], set[int]] = {}
    for rank, chunk, index, _ in collective.pre.rows().tolist():
        for who in collective.contributions[index]:
            holders.setdefault((chunk, who), set()).add(rank)
    return holders


def moves(collective: Collective) -> dict[int, set[tuple[int, int]]]:
    """For each chunk the pairs (only holder, destination) of its contributions."""
    holders = item_holders(collective)
    found: dict[int, set[tuple[int, int]]] = {}
    for rank, chunk, index, _ in collective.post.rows().tolist():
        for who in collective.contributions[index]:
            if len(holders[chunk, who]) == 1 and holders[chunk, who] != {rank}:
                found.setdefault(chunk, set()).add((min(holders[chunk, who]), rank))
    return found


def links_out(topology: Topology, inside: Iterable[int]) -> list[int]:
    """Links that leave a set of nodes."""
    inner = set(inside)
    return [i for i, x in enumerate(topology.links) if x.src in inner and x.dst not in inner]


def covered_capacity(topology: Topology, links: list[int], cover: Cover) -> Fraction:
    """GB/s that the cover allows across the links, after checking that it covers them."""
    bandwidth = topology.capacities()
    assert all(times >= 0 for _, times in cover)
    given: dict[int, Fraction] = {}
    for row, times in cover:
        given[row] = given.get(row, Fraction(0)) + times
    for i in links:
        total = sum((given.get(row, Fraction(0)) for row in rows_of(topology, i)), Fraction(0))
        assert total >= 1, f"link {i} is not covered"
    return sum((t * bandwidth[row] for row, t in cover), Fraction(0))


def rows_of(topology: Topology, link: int) -> set[int]:
    """The link's own row, and those of its resources."""
    shared = {len(topology.links) + k for k, r in enumerate(topology.resources) if link in r.links}
    return {link} | shared


def proper_subsets(count: int) -> list[set[int]]:
    """All non-empty proper subsets of 0 … count-1."""
    return [set(c) for k in range(1, count) for c in combinations(range(count), k)]


def partitions(items: list[int]) -> list[list[list[int]]]:
    """All partitions of a list."""
    if not items:
        return [[]]
    first, rest = items[0], partitions(items[1:])
    alone = [[[first], *p] for p in rest]
    joined = [[*p[:i], [first, *p[i]], *p[i + 1 :]] for p in rest for i in range(len(p))]
    return alone + joined


def _cover(data: dict) -> Cover:
    return [(row, Fraction(times)) for row, times in data["cover"]]


def _cut_time(topology: Topology, collective: Collective, data: dict) -> Fraction:
    ranks = [v for v in data["inside"] if v < topology.ranks]
    links = links_out(topology, data["inside"])
    assert links == data["links"]
    assert chunks_leaving(collective, ranks) >= data["chunks"]
    capacity = covered_capacity(topology, links, _cover(data))
    assert capacity == Fraction(data["capacity_GBps"])
    return data["chunks"] / capacity


def _cuts_time(topology: Topology, collective: Collective, data: dict) -> Fraction:
    price = dict(data["prices"])
    assert all(p >= 0 for p in price.values())
    asked = dict.fromkeys(range(len(topology.links)), 0)
    needed = 0
    for cut in data["cuts"]:
        ranks = [v for v in cut["inside"] if v < topology.ranks]
        assert cut["weight"] > 0
        assert chunks_leaving(collective, ranks) >= cut["chunks"]
        needed += cut["weight"] * cut["chunks"]
        for i in links_out(topology, cut["inside"]):
            asked[i] += cut["weight"]
    for i, weight in asked.items():
        assert weight <= sum(price.get(row, 0) for row in rows_of(topology, i))
    return needed / _worth(topology, price)


def _prices_time(topology: Topology, collective: Collective, data: dict) -> Fraction:
    price = dict(data["prices"])
    assert all(p >= 0 for p in price.values())
    of_link = [
        sum(price.get(row, 0) for row in rows_of(topology, i)) for i in range(len(topology.links))
    ]
    distance = {v: shortest(topology, v, of_link) for v in range(topology.ranks)}
    spent = Fraction(0)
    for pairs in moves(collective).values():
        ((source, dest),) = pairs
        spent += distance[source][dest]
    return spent / _worth(topology, price)


def _worth(topology: Topology, price: dict[int, int]) -> Fraction:
    bandwidth = topology.capacities()
    return sum((p * bandwidth[row] for row, p in price.items()), Fraction(0))


def _partition_time(topology: Topology, collective: Collective, data: dict) -> Fraction:
    groups, shells = data["groups"], data["shells"]
    assert sorted(v for g in groups for v in g) == list(range(topology.ranks))
    links = set()
    for group, shell in zip(groups, shells, strict=True):
        assert [v for v in sorted(shell) if v < topology.ranks] == sorted(group)
        others = set(range(len(topology.nodes))) - set(shell)
        links |= set(links_out(topology, shell if data["outward"] else others))
    capable = {i for i, x in enumerate(topology.nodes) if x.multicast or x.reduces}
    held = [v for s in shells for v in s if v in capable]
    assert sorted(held) == sorted(capable)
    assert sorted(links) == data["links"]
    capacity = covered_capacity(topology, sorted(links), _cover(data))
    return Fraction(2 * (len(groups) - 1) * collective.chunks) / capacity


def _check_paths(topology: Topology, collective: Collective, found: Bounds) -> None:
    pairs = required_pairs(collective)
    alpha = [x.latency for x in topology.links]
    from_rank = {s: shortest(topology, s, alpha) for s in {s for s, _ in pairs}}
    assert found.latency_us == max((from_rank[s][d] for s, d in pairs), default=0)
    hops = hop_distances(topology)
    assert found.steps == max((int(hops[s, d]) for s, d in pairs), default=0)
    into_gpu = [int(topology.nodes[x.dst].stores) for x in topology.links]
    for one, length in ((found.latency_certificate, alpha), (found.steps_certificate, into_gpu)):
        nodes, links = one.data["nodes"], one.data["links"]
        if not pairs:
            assert nodes == []
            continue
        assert (nodes[0], nodes[-1]) in pairs
        for a, b, i in zip(nodes, nodes[1:], links, strict=False):
            assert (topology.links[i].src, topology.links[i].dst) == (a, b)
        assert sum(length[i] for i in links) == Fraction(one.data["length"])


def shortest(topology: Topology, source: int, lengths: list) -> dict[int, Fraction]:
    """Bellman-Ford, until nothing changes."""
    unit = lcm(*(Fraction(x).denominator for x in lengths))
    arcs = [(x.src, x.dst, int(w * unit)) for x, w in zip(topology.links, lengths, strict=True)]
    distance = {source: 0}
    changed = True
    while changed:
        changed = False
        for src, dst, length in arcs:
            if src in distance and distance[src] + length < distance.get(dst, inf):
                distance[dst] = distance[src] + length
                changed = True
    return {v: Fraction(d, unit) for v, d in distance.items()}


def _union_time(topology: Topology, collective: Collective, data: dict) -> Fraction:
    """Cheapest trees of every chunk, found by growing sets of ranks, against the priced machine."""
    price = {row: Fraction(p) for row, p in data["prices"]}
    assert all(p >= 0 for p in price.values())
    out = _route_prices(topology, price)
    into = {(v, u): cost for (u, v), cost in out.items()}
    spent = Fraction(0)
    for chunk in range(collective.chunks):
        starts, ends = (
            {rank: who for rank, at, who, _ in side.rows().tolist() if at == chunk}
            for side in (collective.pre, collective.post)
        )
        names = {collective.contributions[who] for who in (*starts.values(), *ends.values())}
        if len(names) == 1:
            spent += _grown(topology.ranks, set(starts), set(ends), out)
            continue
        trees = []
        for root in ends if len(ends) == 1 else range(topology.ranks):
            up = _grown(topology.ranks, {root}, set(starts), into)
            trees.append(up + _grown(topology.ranks, {root}, set(ends), out))
        spent += min(trees)
    assert spent >= Fraction(data["spent"])  # many receivers: what is claimed may be less
    worth = sum((p * topology.capacities()[row] for row, p in price.items()), Fraction(0))
    assert worth == Fraction(data["worth_GBps"])
    return Fraction(data["spent"]) / worth


def _route_prices(topology: Topology, price: dict[int, Fraction]) -> Arcs:
    """The cheapest route between every two ranks over nodes that do not store."""
    found: Arcs = {}
    for source in range(topology.ranks):
        best = {source: Fraction(0)}
        for _ in topology.nodes:
            for i, x in enumerate(topology.links):
                if x.src in best and (x.src == source or not topology.nodes[x.src].stores):
                    cost = best[x.src] + sum(price.get(r, 0) for r in rows_of(topology, i))
                    best[x.dst] = min(cost, best.get(x.dst, cost))
        found |= {(source, v): best[v] for v in best if v < topology.ranks and v != source}
    return found


def _grown(ranks: int, roots: set[int], wanting: set[int], arcs: Arcs) -> Fraction:
    """The cheapest way to reach all that want something, one rank after the other."""
    best = {frozenset(roots): Fraction(0)}
    for size in range(len(roots), ranks):
        for have in [x for x in best if len(x) == size]:
            for v in set(range(ranks)) - have:
                some = [arcs[u, v] for u in have if (u, v) in arcs]
                if some:
                    cost, more = best[have] + min(some), have | {v}
                    best[more] = min(cost, best.get(more, cost))
    return min(cost for have, cost in best.items() if wanting <= have)

"""Certificates in words and numbers that a reader can check by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from weft.dsl.base.tables import rounded
from weft.dsl.nouns.topology import Topology

from ..base.engine import Certificate
from ..prices.arborescence import TreePrices
from ..steiner.packing import PairPrices
from .cast_partition import CastPartition
from .composite import CompositeLine
from .cut import Crossing, NodeCut
from .distance import Path
from .flow import ResourcePrices
from .mix import Mix
from .partition import Partition

if TYPE_CHECKING:
    from ..joint.union import UnionSolution

_SHOWN = 24


def names(topology: Topology, nodes: Iterable[int]) -> str:
    """Node names in braces; long lists are cut short."""
    listed = [topology.nodes[i].name for i in nodes]
    shown = ", ".join(listed[:_SHOWN])
    return "{" + shown + (f", … {len(listed)} nodes" if len(listed) > _SHOWN else "") + "}"


def capacity_words(topology: Topology, crossing: Crossing) -> str:
    """The links that must be used and what they carry: ``6 links, 4·25 + 2·50 = 200 GB/s``."""
    bandwidth = topology.capacities()
    groups: dict[tuple[Fraction, Fraction], int] = {}
    for row, times in crossing.cover:
        key = (times, bandwidth[row])
        groups[key] = groups.get(key, 0) + 1
    terms = [
        "·".join(
            [
                *([str(count)] if count > 1 else []),
                *([rounded(times)] if times != 1 else []),
                rounded(b),
            ]
        )
        for (times, b), count in sorted(groups.items())
    ]
    shared = [row - len(topology.links) for row, _ in crossing.cover if row >= len(topology.links)]
    shared_names = ", ".join(topology.resources[i].name for i in shared[:_SHOWN])
    via = f" (shared: {shared_names})" if shared else ""
    total = f" = {rounded(crossing.capacity)}" if len(terms) > 1 or sum(groups.values()) > 1 else ""
    many = len(crossing.links)
    return f"{many} link{'s' if many > 1 else ''}{via}: {' + '.join(terms)}{total} GB/s"


def time_words(share: str, capacity: Fraction, us_per_byte: Fraction) -> str:
    """The arithmetic from a fraction of M and a capacity to T/M, as text."""
    return (
        f"T >= {share} / ({rounded(capacity)} GB/s), "
        f"that is {rounded(us_per_byte * 10**6)} ps per byte of M"
    )


def _chunks(count: int) -> str:
    return f"{count} chunk{'s' if count != 1 else ''}"


def _share(chunks: int, message_chunks: int) -> str:
    share = Fraction(chunks, message_chunks)
    return "M" if share == 1 else f"{rounded(share)}·M"


def cut_certificate(
    topology: Topology, cut: NodeCut, message_chunks: int, us_per_byte: Fraction
) -> Certificate:
    """The certificate of a cut: the smaller side is named."""
    inside = [int(i) for i in cut.inside.nonzero()[0]]
    outside = [int(i) for i in (~cut.inside).nonzero()[0]]
    way, side = ("out of", inside) if len(inside) <= len(outside) else ("into", outside)
    text = (
        f"{_chunks(cut.chunks)} (M is {message_chunks}) must go {way} {names(topology, side)} over "
        f"{capacity_words(topology, cut.crossing)}. "
        + time_words(_share(cut.chunks, message_chunks), cut.crossing.capacity, us_per_byte)
    )
    data = {
        "inside": inside,
        "chunks": cut.chunks,
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
        **cut.crossing.to_json(),
    }
    return Certificate("cut", text, data)


def partition_certificate(
    topology: Topology,
    partition: Partition,
    message_chunks: int,
    chunks: int,
    us_per_byte: Fraction,
) -> Certificate:
    """The certificate of a partition bound (one-way gossip)."""
    groups = partition.groups
    p = len(groups)
    if all(len(g) == 1 for g in groups):
        listed = f"the {p} single ranks"
    else:
        listed = ", ".join(names(topology, g) for g in groups[:_SHOWN])
        listed = f"{p} groups {listed}" + (", …" if p > _SHOWN else "")
    way = "leaves its group" if partition.outward else "enters a group"
    text = (
        f"Between {listed} every byte needs at least 2·({p} - 1) = {partition.messages} messages: "
        f"{p - 1} before any group has the sum, {p - 1} to bring it to the others. "
        f"Each message {way} over "
        f"{capacity_words(topology, partition.crossing)}. "
        + time_words(
            _share(partition.messages * chunks, message_chunks),
            partition.crossing.capacity,
            us_per_byte,
        )
    )
    data = {
        "groups": [list(g) for g in groups],
        "shells": [list(s) for s in partition.shells],
        "outward": partition.outward,
        "messages": partition.messages,
        "chunks": chunks,
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
        **partition.crossing.to_json(),
    }
    return Certificate("partition", text, data)


def cast_certificate(
    topology: Topology,
    found: CastPartition,
    message_chunks: int,
    chunks: int,
    us_per_byte: Fraction,
) -> Certificate:
    """The certificate of prices against messages between groups and the casts that replace them."""
    p = len(found.groups)
    single = all(len(g) == 1 for g in found.groups)
    listed = [(row, price) for row, price in enumerate(found.prices) if price]
    text = (
        f"Between {f'the {p} single ranks' if single else f'{p} groups of ranks'} every byte needs "
        f"at least 2·({p} - 1) = {found.messages} messages. Price {_priced(topology, listed)}: a "
        f"route between groups costs {rounded(found.per_message)} or more, and so does a cast for "
        "each message that it replaces (a sum of k groups or a copy to k others k, one of both "
        "those to one group and from it); price times bandwidth adds up to "
        f"{rounded(found.worth)} GB/s. "
        + time_words(
            _share_of(found.messages * found.per_message * chunks, message_chunks),
            found.worth,
            us_per_byte,
        )
    )
    data = {
        "groups": [list(g) for g in found.groups],
        "prices": [list(x) for x in listed],
        "messages": found.messages,
        "per_message": str(found.per_message),
        "worth_GBps": str(found.worth),
        "chunks": chunks,
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("casts", text, data)


def _share_of(chunks: Fraction, message_chunks: int) -> str:
    share = chunks / message_chunks
    return "M" if share == 1 else f"{rounded(share)}·M"


def price_certificate(
    topology: Topology, prices: ResourcePrices, message_chunks: int, us_per_byte: Fraction
) -> Certificate:
    """The certificate of link prices."""
    listed = [(r, int(p)) for r, p in enumerate(prices.values.tolist()) if p]
    text = (
        f"Price {_priced(topology, listed)}. The chunks of all pairs travel priced distances that "
        f"add up to {prices.spent} (M is {message_chunks} chunks); price times bandwidth adds up "
        f"to {rounded(prices.worth)} GB/s. "
        + time_words(_share(prices.spent, message_chunks), prices.worth, us_per_byte)
    )
    data = {
        "prices": [list(x) for x in listed],
        "spent": prices.spent,
        "worth_GBps": str(prices.worth),
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("prices", text, data)


def tree_certificate(
    topology: Topology, found: TreePrices, message_chunks: int, us_per_byte: Fraction
) -> Certificate:
    """The certificate of prices against the cheapest trees."""
    listed = [(r, p) for r, p in enumerate(found.prices) if p]
    cheapest = min(cost for _, cost in found.costs)
    text = (
        f"Price {_priced(topology, listed)}. The cheapest tree from each of {len(found.costs)} "
        f"ranks to all others costs {cheapest} or more, those of all chunks {found.spent} "
        f"(M is {message_chunks} chunks); price times bandwidth adds up to "
        f"{rounded(found.worth)} GB/s. "
        + time_words(_share(found.spent, message_chunks), found.worth, us_per_byte)
    )
    data = {
        "prices": [list(x) for x in listed],
        "trees": [list(x) for x in found.costs],
        "spent": found.spent,
        "worth_GBps": str(found.worth),
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("trees", text, data)


def union_certificate(
    topology: Topology, found: UnionSolution, message_chunks: int, us_per_byte: Fraction
) -> Certificate:
    """The certificate of prices against the cheapest trees and paths of several collectives."""
    proof = found.joint.proof
    listed = [(row, price) for row, price in enumerate(found.joint.prices) if price]
    costs = [
        (one.name, cost) for one, cost in zip(found.joint.demands, proof.costs, strict=True) if cost
    ]
    spent = sum((cost for _, cost in costs), Fraction(0))
    terms = [f"{name} {rounded(cost)}" for name, cost in costs[:_SHOWN]]
    text = (
        f"Price {_priced(topology, listed)}. The cheapest trees and paths of all chunks cost "
        f"{rounded(spent)} or more ({', '.join(terms)}{', …' if len(costs) > _SHOWN else ''}; M is "
        f"{_chunks(message_chunks)}); price times bandwidth adds up to {rounded(proof.worth)} "
        "GB/s. " + time_words(_share_of(spent, message_chunks), proof.worth, us_per_byte)
    )
    data = {
        "prices": [list(x) for x in listed],
        "costs": [[name, str(cost)] for name, cost in costs],
        "spent": str(spent),
        "worth_GBps": str(proof.worth),
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("union", text, data)


def rooted_certificate(
    topology: Topology, found: PairPrices, share: Fraction, us_per_byte: Fraction
) -> Certificate:
    """The certificate of prices against the cheapest trees to a root and from it; ``share`` of M
    is a byte's chunk."""
    listed = [(row, price) for row, price in enumerate(found.prices) if price]
    text = (
        f"Price {_priced(topology, listed)}. A tree to a root and one from it, with any switches "
        f"on them that sum and copy, cost {found.least} or more; price times bandwidth adds up to "
        f"{rounded(found.worth)} GB/s. "
        + time_words(_share_of(found.least * share, 1), found.worth, us_per_byte)
    )
    data = {
        "prices": [list(x) for x in listed],
        "least": found.least,
        "worth_GBps": str(found.worth),
        "share": str(share),
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("rooted", text, data)


def mix_certificate(
    topology: Topology, mix: Mix, message_chunks: int, us_per_byte: Fraction
) -> Certificate:
    """The certificate of weighted cuts against priced links and resources."""
    terms = []
    for weight, cut in zip(mix.weights, mix.cuts, strict=True):
        inside = [int(i) for i in cut.inside.nonzero()[0]]
        terms.append(f"{weight} times {_chunks(cut.chunks)} out of {names(topology, inside)}")
    text = (
        f"Weigh cuts: {'; '.join(terms[:_SHOWN])}{'; …' if len(terms) > _SHOWN else ''}: "
        f"{mix.needed} (M is {message_chunks} chunks). Price {_priced(topology, mix.prices)}: no "
        "link leaves more weight of cuts than it costs, with the resources it uses; price times "
        f"bandwidth adds up to {rounded(mix.worth)} GB/s. "
        + time_words(_share(mix.needed, message_chunks), mix.worth, us_per_byte)
    )
    data = {
        "cuts": [
            {"weight": w, "inside": [int(i) for i in c.inside.nonzero()[0]], "chunks": c.chunks}
            for w, c in zip(mix.weights, mix.cuts, strict=True)
        ],
        "prices": [list(x) for x in mix.prices],
        "worth_GBps": str(mix.worth),
        "message_chunks": message_chunks,
        "us_per_byte": str(us_per_byte),
    }
    return Certificate("cuts", text, data)


def _priced(topology: Topology, listed: Sequence[tuple[int, int]]) -> str:
    """Resources by price: ``every link at 1`` or ``gpu0->gpu1, nic0 at 2; gpu1->gpu2 at 1``."""
    by_price: dict[int, list[int]] = {}
    for row, price in listed:
        by_price.setdefault(price, []).append(row)
    if list(map(sorted, by_price.values())) == [list(range(len(topology.links)))]:
        return f"every link at {listed[0][1]}"
    parts = []
    for price, rows in sorted(by_price.items(), reverse=True):
        shown = ", ".join(_resource_name(topology, row) for row in rows[:_SHOWN])
        parts.append(f"{shown}{', …' if len(rows) > _SHOWN else ''} at {price}")
    return "; ".join(parts)


def line_certificate(
    topology: Topology,
    line: CompositeLine,
    message_chunks: int,
    us: Fraction,
    us_per_byte: Fraction,
) -> Certificate:
    """The certificate of a cut with latency before and after it; the smaller side is named."""
    cut = line.cut
    inside = [int(i) for i in cut.inside.nonzero()[0]]
    outside = [int(i) for i in (~cut.inside).nonzero()[0]]
    way, side = ("out of", inside) if len(inside) <= len(outside) else ("into", outside)
    early, late, rho = (x * line.unit for x in (min(line.early), min(line.late), line.rho))
    wait = f"of T, {rounded(early)} µs or more before and after a transfer are of no use"
    if line.copies != 1:
        times = f"{line.copies} times" if line.copies else "in vain"
        wait += (
            f"; what crosses in the {'first' if line.backwards else 'last'} {rounded(rho)} µs must "
            f"cross {times}, and {rounded(late)} µs or more are of no use to anything else"
        )
    from_afar = f" from {rounded(line.head * line.unit)} µs away or more" if line.head else ""
    text = (
        f"{_chunks(line.chunks)} (M is {message_chunks}){from_afar} must go {way} "
        f"{names(topology, side)} over {capacity_words(topology, cut.crossing)}; {wait}. "
        + line_words(us, us_per_byte)
    )
    data = {
        "inside": inside,
        "chunks": line.chunks,
        "message_chunks": message_chunks,
        "us": str(us),
        "us_per_byte": str(us_per_byte),
        "backwards": line.backwards,
        "early_us": [str(x * line.unit) for x in line.early.tolist()],
        "late_us": [str(x * line.unit) for x in line.late.tolist()],
        "threshold_us": str(rho),
        "copies": line.copies,
        **cut.crossing.to_json(),
    }
    return Certificate("composite", text, data)


def waiting_certificate(
    of: Certificate, waits: Sequence[Fraction], us: Fraction, us_per_byte: Fraction
) -> Certificate:
    """The certificate of a bandwidth bound plus the time in which its resources are of no use."""
    text = (
        f"{of.text}. Every transfer over these links also costs α: at least "
        f"{rounded(min(waits))} µs, and {rounded(us)} µs on average, weighted by price or "
        "multiplier times bandwidth. " + line_words(us, us_per_byte)
    )
    data = of.data | {
        "us": str(us),
        "us_per_byte": str(us_per_byte),
        "waits_us": [str(x) for x in waits],
        "of": of.kind,
    }
    return Certificate("composite", text, data)


def line_words(us: Fraction, us_per_byte: Fraction) -> str:
    """The affine bound in words."""
    return f"T >= {rounded(us)} µs + {rounded(us_per_byte * 10**6)} ps per byte of M"


def path_certificate(topology: Topology, path: Path | None, unit: str) -> Certificate:
    """The certificate of a farthest pair."""
    if path is None:
        nothing = {"nodes": [], "links": [], "length": "0"}
        return Certificate("path", "no rank needs anything that one other rank alone has", nothing)
    ends = [topology.nodes[path.nodes[0]].name, topology.nodes[path.nodes[-1]].name]
    steps = _path_words(topology, path.nodes, path.links, with_latency=unit == "µs")
    text = (
        f"{ends[1]} needs something of {ends[0]}, and no path between them is shorter than "
        f"{steps} = {rounded(path.length)} {unit if path.length != 1 else unit.removesuffix('s')}"
    )
    data = {"nodes": list(path.nodes), "links": list(path.links), "length": str(path.length)}
    return Certificate("path", text, data)


def _path_words(
    topology: Topology, nodes: Sequence[int], links: Sequence[int], *, with_latency: bool
) -> str:
    words = topology.nodes[nodes[0]].name
    for node, i in zip(nodes[1:], links, strict=True):
        arrow = f" -{rounded(topology.links[i].latency)}-> " if with_latency else " -> "
        words += arrow + topology.nodes[node].name
    return words


def _resource_name(topology: Topology, resource: int) -> str:
    if resource >= len(topology.links):
        return topology.resources[resource - len(topology.links)].name
    one = topology.links[resource]
    return f"{topology.nodes[one.src].name}->{topology.nodes[one.dst].name}"

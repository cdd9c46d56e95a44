"""Structure of a machine: parts that split it, and the machines of the catalogue that it is like.

networkx answers, and is loaded only here: bridges, articulation points, and isomorphism with
bandwidths. Work is counted: where a comparison would take too long it is left open.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.catalogue import topology as topology_named
from weft.dsl.machines.confined import plain_machine
from weft.dsl.machines.families import FAMILIES
from weft.dsl.machines.host_file import host_names
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import NodeKind, Topology
from weft.synth.base.effort import Effort, setting
from weft.synth.bounds import bounds

from .sizes import TEXT

Label = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StructureEffort(Effort):
    """Limits of the analysis of a machine."""

    nodes: int = setting(512, "nodes up to which a machine is compared with others")
    pairs: int = setting(60_000, "pairs of nodes that one comparison may try")
    spare: int = setting(64, "GPUs of a larger machine that the given one may be a part of")
    steps: int = setting(16, "steps of circulants that are compared")


STRUCTURE_EFFORT = StructureEffort()
"""Default limits."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """A machine of the catalogue that a machine is, up to names and α, or is a part of.

    ``scale``: bandwidths of the machine ÷ those of the catalogue's. ``lacks``: nodes of the latter
    that are not there, by its names; ``cut``: links between two nodes that are there, ``a -> b``.
    """

    name: str
    scale: Fraction
    lacks: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SplitNode:
    """A node whose loss splits GPUs, and the GPUs on each side of it, by their names."""

    node: str
    sides: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class TopologyStructure:
    """Parts that split a machine, and the machines that it is like.

    ``bridges``: pairs of nodes joined by one link (each way) whose loss splits the machine;
    ``cut``: in words, the cut that limits an allgather. ``compared``: False where the machine is
    too large to be compared. ``connected``: False where links do not join all nodes.
    """

    bridges: tuple[tuple[str, str], ...]
    splits: tuple[SplitNode, ...]
    cut: str
    like: tuple[Likeness, ...]
    compared: bool
    connected: bool


def structure(topology: Topology, effort: StructureEffort = STRUCTURE_EFFORT) -> TopologyStructure:
    """Return the structure of a machine."""
    import networkx as nx  # 150 ms

    plain = plain_machine(topology).machine
    names = [node.name for node in plain.nodes]
    joined = Counter(frozenset((x.src, x.dst)) for x in plain.links)
    graph = nx.Graph(tuple(pair) for pair in joined)
    graph.add_nodes_from(range(len(names)))
    whole = nx.is_connected(graph)
    one = {pair for pair in joined if _links(plain, pair) <= 1}
    bridges = sorted(tuple(sorted(pair)) for pair in nx.bridges(graph) if frozenset(pair) in one)
    cut = ""
    if topology.ranks > 1 and whole:
        cut = bounds(topology, make("allgather", topology.ranks)).certificate.text
    compared = len(names) <= effort.nodes
    return TopologyStructure(
        tuple((names[a], names[b]) for a, b in bridges),
        tuple(_splits(plain, graph, sorted(nx.articulation_points(graph)))),
        cut,
        tuple(_like(plain, effort)) if compared else (),
        compared,
        whole,
    )


def _links(topology: Topology, pair: frozenset[int]) -> int:
    """Return the links between two nodes in the direction that has more."""
    ways = Counter((x.src, x.dst) for x in topology.links if {x.src, x.dst} == pair)
    return max(ways.values())


def _splits(topology: Topology, graph: Any, nodes: Sequence[int]) -> Iterator[SplitNode]:
    import networkx as nx  # loaded by the caller

    for node in nodes:
        rest = graph.copy()
        rest.remove_node(node)
        sides = [
            tuple(topology.nodes[v].name for v in sorted(part) if v < topology.ranks)
            for part in nx.connected_components(rest)
        ]
        sides = sorted((side for side in sides if side), key=lambda side: (len(side), side))
        if len(sides) > 1:
            yield SplitNode(topology.nodes[node].name, tuple(sides))


# --- machines that are alike ----------------------------------------------------------------------


def matched(
    part: Topology,
    whole: Topology,
    label: Callable[[Topology], list[Label]],
    *,
    exact: bool = True,
    duties: bool = False,
    pairs: int = STRUCTURE_EFFORT.pairs,
) -> dict[int, int] | None:
    """Return the node of ``whole`` for each node of ``part`` such that kinds of nodes and labels
    of links agree; None where there are none such, or not within ``pairs`` tried.

    ``exact``: all nodes and links of ``whole``; else it may have more of both. ``duties``: also
    the hosts that nodes are grouped in, and what switches do beside forwarding.
    """
    import networkx as nx  # 150 ms

    first, second = _labelled(whole, label, duties), _labelled(part, label, duties)
    if exact and _profile(first) != _profile(second):
        return None

    class Counted(nx.isomorphism.DiGraphMatcher):  # type: ignore[misc]  # it has no types
        tried = 0

        def syntactic_feasibility(self, a: int, b: int) -> bool:
            self.tried += 1
            if self.tried > pairs:
                raise TooLong
            return bool(super().syntactic_feasibility(a, b))

    def links_agree(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return bool(a["label"] == b["label"])

    found = Counted(first, second, lambda a, b: a["kind"] == b["kind"], links_agree)
    try:
        if not (found.is_isomorphic() if exact else found.subgraph_is_monomorphic()):
            return None
    except TooLong:
        return None
    n = len(part.nodes)  # hosts have the numbers behind
    return {mine: theirs for theirs, mine in found.mapping.items() if mine < n}


class TooLong(Exception):
    """A comparison has tried all the pairs that it may."""


def _labelled(topology: Topology, label: Callable[[Topology], list[Label]], duties: bool) -> Any:
    import networkx as nx  # loaded by the caller

    labels: defaultdict[tuple[int, int], list[Label]] = defaultdict(list)
    for link, text in zip(topology.links, label(topology), strict=True):
        labels[link.src, link.dst].append(text)
    graph = nx.DiGraph()
    for i, node in enumerate(topology.nodes):
        kind = (node.kind, node.capabilities, node.limits) if duties else node.kind
        graph.add_node(i, kind=kind)
    groups = {node.host for node in topology.nodes} - {None} if duties else set()
    for place, host in enumerate(groups if len(groups) > 1 else ()):
        graph.add_node(len(topology.nodes) + place, kind="group")
        inside = (i for i, node in enumerate(topology.nodes) if node.host == host)
        graph.add_edges_from(((len(topology.nodes) + place, i) for i in inside), label=[])
    for (a, b), found in labels.items():
        graph.add_edge(a, b, label=sorted(found))
    return graph


def _profile(graph: Any) -> Counter[Label]:
    """Return how often nodes occur by kind, labels of their links, and nodes at each distance."""
    import networkx as nx  # loaded by the caller

    found: Counter[Label] = Counter()
    for v, data in graph.nodes(data=True):
        labels = [sorted(map(str, (x["label"] for *_, x in ends))) for ends in _ends(graph, v)]
        far = Counter(nx.single_source_shortest_path_length(graph, v).values())
        found[data["kind"], *map(tuple, labels), tuple(sorted(far.items()))] += 1
    return found


def _ends(graph: Any, node: int) -> tuple[Any, Any]:
    return graph.out_edges(node, data=True), graph.in_edges(node, data=True)


def _ratios(topology: Topology) -> list[Label]:
    """Return the share of each link of the widest bandwidth."""
    widest = _widest(topology)
    share = {width: width / widest for width in {x.bandwidth for x in topology.links}}
    return [(share[x.bandwidth] * x.lanes,) for x in topology.links]


def _widest(topology: Topology) -> Fraction:
    return max((x.bandwidth for x in topology.links), default=Fraction(1))


def _like(topology: Topology, effort: StructureEffort) -> Iterator[Likeness]:
    """Yield the machines of the catalogue that are the same; without any, those that it is a part
    of."""
    found = False
    for name in _same_size(topology, effort):
        other = _named(name)
        if other is None or _size(other) != _size(topology):
            continue
        if matched(topology, other, _ratios, pairs=effort.pairs) is not None:
            found = True
            yield Likeness(name, _widest(topology) / _widest(other))
    if not found and topology.links:
        yield from _part_of(topology, effort)


def _size(topology: Topology) -> tuple[int, int, int]:
    return topology.ranks, len(topology.nodes), len(topology.links)


def _part_of(topology: Topology, effort: StructureEffort) -> Iterator[Likeness]:
    """Yield the smallest machines that have all its nodes and links, and more."""
    names = _same_size(topology, effort)  # boxes of all sizes among them
    larger = [(one, name) for name in names if (one := _named(name)) is not None]
    larger = [x for x in larger if _fits(topology, x[0], effort)]
    least = math.inf
    for whole, name in sorted(larger, key=lambda x: (x[0].ranks, len(x[0].links))):
        if len(whole.links) > least:
            return
        place = _by_name(topology, whole)
        place = place or matched(topology, whole, _ratios, exact=False, pairs=effort.pairs)
        if place is None:
            continue
        least = len(whole.links)
        there = {(place[x.src], place[x.dst]) for x in topology.links}
        kept = set(place.values())
        cut = [
            f"{whole.nodes[x.src].name} -> {whole.nodes[x.dst].name}"
            for x in whole.links
            if {x.src, x.dst} <= kept and (x.src, x.dst) not in there
        ]
        lacks = [node.name for i, node in enumerate(whole.nodes) if i not in kept]
        scale = _widest(topology) / _widest(whole)
        yield Likeness(name, scale, tuple(lacks), tuple(dict.fromkeys(cut)))


def _by_name(part: Topology, whole: Topology) -> dict[int, int] | None:
    """Return the nodes of the same names, where all links agree."""
    at = {node.name: i for i, node in enumerate(whole.nodes)}
    place = {i: at[node.name] for i, node in enumerate(part.nodes) if node.name in at}
    if len(place) < len(part.nodes):
        return None
    here, there = (
        Counter(
            (one.nodes[x.src].name, one.nodes[x.dst].name, label)
            for x, label in zip(one.links, _ratios(one), strict=True)
        )
        for one in (part, whole)
    )
    return None if here - there else place


def _fits(part: Topology, whole: Topology, effort: StructureEffort) -> bool:
    """Return whether another machine may have all of this one, and not many times as much."""
    here, there = (Counter(x.kind for x in one.nodes) for one in (part, whole))
    links = len(part.links) <= len(whole.links) < 5 * len(part.links)
    return links and not here - there and whole.ranks <= part.ranks + effort.spare


def _named(name: str) -> Topology | None:
    try:
        return plain_machine(topology_named(name)).machine
    except UserError:  # a shape that lacks this size
        return None


def _same_size(topology: Topology, effort: StructureEffort) -> Iterator[str]:
    """Yield names of the catalogue that may have as many GPUs."""
    n = topology.ranks
    switches = any(node.kind is NodeKind.SWITCH for node in topology.nodes)
    nodes = "" if topology.hosts == 1 else f":nodes={topology.hosts}"
    yield from (f"{name}{nodes}" for name in host_names())
    if switches:
        yield f"hub:{n}"
        yield from (f"fat-tree:k={k}" for k in range(2, 33, 2) if k**3 == 4 * n)
        for a in range(1, n):
            yield from (
                f"dragonfly:p={n // (a * (a * h + 1))},a={a},h={h}"
                for h in range(1, n)
                if a * (a * h + 1) <= n and n % (a * (a * h + 1)) == 0
            )
        return
    yield from (one.name for one in FAMILIES if one.name == one.synopsis)  # amd4, amd8
    yield from (f"{family}:{n}" for family in ("ring", "line", "star", "full"))
    if n & (n - 1) == 0:
        yield f"hypercube:{n.bit_length() - 1}"
    for family in ("mesh", "torus", "twisted"):
        yield from (f"{family}:{'x'.join(map(str, sides))}" for sides in _grids(n))
    yield from (f"circulant:{n},steps=1,{k}" for k in range(2, min(n // 2, effort.steps) + 1))


def _grids(n: int, least: int = 2, sides: int = 3) -> Iterator[tuple[int, ...]]:
    """Yield the sides of grids of two or three dimensions, the shortest first."""
    for side in range(least, math.isqrt(n) + 1):
        if n % side == 0:
            yield side, n // side
            if sides > 2:
                yield from ((side, *rest) for rest in _grids(n // side, side, sides - 1))


# --- in words -------------------------------------------------------------------------------------


def structure_text(found: TopologyStructure) -> str:
    """Return the structure in words."""
    parts = [likeness_words(found)]
    for split in found.splits[: TEXT.listed]:
        sides = " | ".join(_listed(side) for side in split.sides[: TEXT.named_rules])
        more = len(split.sides) - TEXT.named_rules
        parts.append(f"splits at  {split.node}: {sides}" + (f" | … {more} more" * (more > 0)))
    if not found.connected:
        parts.append("in parts   links do not join all of it")
    elif not found.splits:
        parts.append("splits at  no single node: GPUs stay joined without any one")
    if found.bridges:
        shown = ", ".join(f"{a} - {b}" for a, b in found.bridges[: TEXT.listed])
        more = len(found.bridges) - TEXT.listed
        parts.append(f"bridges    {shown}" + (f", … {more} more" * (more > 0)))
    elif found.connected:
        parts.append("bridges    none: no single link splits the machine")
    if found.cut:
        parts.append(f"least cut  {found.cut}")
    return "\n".join(parts)


def likeness_words(found: TopologyStructure) -> str:
    """Return in words which machines of the catalogue it is."""
    if not found.compared:
        return "this is    too large to be compared with the catalogue"
    if not found.like:
        return "this is    like none of the catalogue, and a part of none"
    same = "" if any(one.lacks or one.cut for one in found.like) else " (up to names and α)"
    return "this is    " + "; or ".join(map(_words, found.like[: TEXT.named_rules])) + same


def _words(one: Likeness) -> str:
    text = one.name
    if one.scale != 1:
        text += f" at {float(one.scale):.4g} times its bandwidths"
    if one.lacks:
        text += f" without {_listed(one.lacks)}"
    if one.cut:
        text += f"{',' * bool(one.lacks)} without the links {_listed(one.cut)}"
    return text


def _listed(names: Sequence[str]) -> str:
    """Return names, those that count on as the first and the last of them."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _next(runs[-1][-1]) == name:
            runs[-1].append(name)
        else:
            runs.append([name])
    shown = [one for run in runs for one in (run if len(run) < 3 else [f"{run[0]}…{run[-1]}"])]
    more = len(shown) - TEXT.listed
    return ", ".join(shown[: TEXT.listed]) + (f", … {more} more" if more > 0 else "")


def _next(name: str) -> str | None:
    found = re.fullmatch(r"(.*?)(0|[1-9][0-9]*)", name)
    return f"{found[1]}{int(found[2]) + 1}" if found else None


# --- two machines ---------------------------------------------------------------------------------


def renaming(before: Topology, after: Topology) -> tuple[tuple[str, str], ...] | None:
    """Return the pairs of names by which two machines are the same, with all numbers of their
    links and shared resources, hosts, and what switches do beside forwarding; None where
    none are found, or the machines are too large.
    """

    def numbers(topology: Topology) -> list[Label]:
        return [(x.bandwidth, x.latency, x.lanes) for x in topology.links]

    if max(len(before.nodes), len(after.nodes)) > STRUCTURE_EFFORT.nodes:
        return None
    place = matched(before, after, numbers, duties=True)
    if place is None or _shared(before, place) != _shared(after, None):
        return None
    return tuple((before.nodes[a].name, after.nodes[b].name) for a, b in sorted(place.items()))


def _shared(topology: Topology, place: dict[int, int] | None) -> Counter[Label]:
    """Return the shared resources by bandwidth and the ends of their links."""

    def end(node: int) -> int:
        return node if place is None else place[node]

    return Counter(
        (
            x.bandwidth,
            tuple(
                sorted((end(topology.links[i].src), end(topology.links[i].dst)) for i in x.links)
            ),
        )
        for x in topology.resources
    )


def changes_words(before: Topology, after: Topology) -> str:
    """Return in words how the links of two machines differ, by the names of their nodes."""
    widths = []
    for one in (before, after):
        found: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
        for x in one.links:
            found[one.nodes[x.src].name, one.nodes[x.dst].name] += x.bandwidth
        widths.append(found)
    old, new = widths
    both = old.keys() & new.keys()
    told = {
        "gone": len(old.keys() - new.keys()),
        "new": len(new.keys() - old.keys()),
        "slower": sum(new[pair] < old[pair] for pair in both),
        "faster": sum(new[pair] > old[pair] for pair in both),
    }
    return (
        "links: "
        + ", ".join(f"{n} {word}" for word, n in told.items())
        + (f", {count(len(both) - told['slower'] - told['faster'], 'pair')} as before")
    )

"""Topology of a machine: GPUs, forwarding nodes, directed links, shared resources.

The GPUs come first among the nodes, in rank order, so *rank r is node r* everywhere. Links are
named by their index in one tuple, so parallel links, switches and shared resources need no special
case, and all of them map to arrays.

>>> two = Topology("pair", (gpu(0), gpu(1)), (link(0, 1, "25", "0.7"), link(1, 0, "25", "0.7")))
>>> two.ranks, two.digest()[:8] == two.digest()[:8]
(2, True)
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..base.arrays import Ints
from ..base.errors import BadFile, BadTopology, placed
from ..base.files import SCHEMA, Fields, require_kind
from ..base.integers import integer
from ..base.lazy_dataclass import dataclass
from ..base.record import Key, Record, integers, plain, without_empty
from ..base.spans import one_line
from ..base.tables import count
from ..base.units import exact
from ..base.views import Viewed
from .capabilities import CAPABILITIES, NO_LIMITS, as_fields, read_limits
from .graph import graph_of, held_json, parts_of
from .parts import Link as Link
from .parts import Medium as Medium
from .parts import Node as Node
from .parts import NodeKind as NodeKind
from .parts import Resource as Resource
from .timing import NO_TIMING
from .timing import MachineTiming as MachineTiming


@dataclass(frozen=True, slots=True)
class Hop:
    """A GPU-to-GPU route through nodes that do not store; ``route`` lists link indices."""

    src: int
    dst: int
    route: tuple[int, ...]


BANDWIDTHS = (Fraction(1, 10**6), Fraction(10**9))
"""Smallest and largest bandwidth in GB/s. Engines, bounds and the simulator scale bandwidths of
this range to 64-bit integers."""

LARGEST_LATENCY = Fraction(10**9)
"""Largest latency of a link in µs (about 17 minutes)."""

FINEST_ROUND = 16
"""Largest ratio of the smallest bandwidth to the bandwidth of one round (``round_bandwidth``)."""


# weakref_slot: results derived from a topology are cached with it (base/kept).
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Topology(Viewed):
    """A machine: nodes, links and shared resources.

    ``symmetries`` are node permutations (image of each node) declared by the builder of the
    topology; they are verified before use (``dsl.symmetry``). ``notes`` list assumptions made when
    it was built or imported (a default α, an ignored management NIC). ``timing`` is for
    the times of programs only. ``host_names``: the names of hosts 0, 1, …, where they are known.

    Raises:
        BadTopology: a link to an unknown node, a self-loop, a bandwidth outside ``BANDWIDTHS``, a
            latency
            that is negative or above ``LARGEST_LATENCY``, a duplicate name, a GPU after a switch.
    """

    _view: ClassVar = "topology"

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    resources: tuple[Resource, ...] = ()
    symmetries: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    timing: MachineTiming = NO_TIMING
    host_names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        hosts = f" in {count(self.hosts, 'host')}" if self.hosts > 1 else ""
        parts = [f"{count(self.ranks, 'GPU')}{hosts}"]
        if others := len(self.nodes) - self.ranks:
            parts.append(count(others, "other node"))
        parts.append(count(len(self.links), "link"))
        if self.resources:
            parts.append(count(len(self.resources), "shared resource"))
        return f"<Topology {self.name}: {', '.join(parts)}>"

    def __post_init__(self) -> None:
        _check_nodes(self)
        # Comparing fractions is slow and links share them: each object is checked once.
        seen: set[tuple[int, int, int]] = set()
        for index, one in enumerate(self.links):
            _check_ends(self, index, one)
            numbers = (id(one.bandwidth), id(one.latency), one.lanes)
            if numbers not in seen:
                if not type(one.bandwidth) is type(one.latency) is Fraction:  # of NumPy, or a float
                    object.__setattr__(self, "links", tuple(map(_exact_link, self.links)))
                    return self.__post_init__()
                seen.add(numbers)
                _check_numbers(self, one)
        if any(node.copy_of for node in self.nodes):
            _check_copies(self)
        for resource in self.resources:
            _check_resource(self, resource)
        for image in self.symmetries:
            if sorted(image) != list(range(len(self.nodes))):
                raise BadTopology(f"{self.name}: a declared symmetry is not a permutation")

    @property
    def ranks(self) -> int:
        """Return the number of GPUs; ranks are nodes ``0 … ranks-1``."""
        # GPUs come first, so bisection finds their end; engines call this often.
        return bisect_left(self.nodes, True, key=lambda node: not node.stores)

    @property
    def host_of(self) -> tuple[int | None, ...]:
        """Return the host of each rank; None where unknown."""
        return tuple(node.host for node in self.nodes[: self.ranks])

    @property
    def hosts(self) -> int:
        """Return the number of hosts (at least one)."""
        return max(1, len({h for h in self.host_of if h is not None}))

    def link_ends(self) -> Ints:
        """Return source and destination node of every link, shape (links, 2)."""
        return np.array([(x.src, x.dst) for x in self.links], np.int64).reshape(-1, 2)

    def capacities(self) -> tuple[Fraction, ...]:
        """Return the bandwidth in GB/s of each row of :meth:`usage`: links, then resources."""
        return (*(x.bandwidth for x in self.links), *(r.bandwidth for r in self.resources))

    def capacity(self, row: int) -> Fraction:
        """Return entry ``row`` of :meth:`capacities` without building the others."""
        links = len(self.links)
        return (self.links[row] if row < links else self.resources[row - links]).bandwidth

    def shared_rows(self) -> Iterator[tuple[int, Resource]]:
        """Yield each shared resource with its row of :meth:`usage`."""
        return enumerate(self.resources, len(self.links))

    def usage(self) -> npt.NDArray[np.int8]:
        """Return the 0/1 matrix of resources loaded by each link, shape (links + resources, links).

        Row ``i < len(links)`` is link i itself, the other rows are the shared resources, so one
        matrix product gives the load of everything that has a bandwidth.
        """
        rows = np.zeros((len(self.links) + len(self.resources), len(self.links)), np.int8)
        np.fill_diagonal(rows, 1)
        for row, resource in self.shared_rows():
            rows[row, list(resource.links)] = 1
        return rows

    def round_bandwidth(self) -> Fraction:
        """Return the bandwidth in GB/s at which a link carries one chunk per *round*.

        The greatest common divisor of all bandwidths (SCCL's rounds: DGX-1 with 25 and 50 GB/s
        links has 25; the faster links carry two chunks a round). Where that is smaller than the
        smallest bandwidth by more than ``FINEST_ROUND``, as between 22.7 and 45.7 GB/s, it is the
        smallest bandwidth, and links carry fractions of chunks.
        """
        grain, chunk = self.round_units()
        return grain * chunk

    def round_units(self) -> tuple[Fraction, int]:
        """Return the common divisor of all bandwidths in GB/s, and its multiple that is one round.

        With (grain, units): in a step of r rounds a link of bandwidth b carries c chunks if
        c · units <= r · b / grain.
        """
        grain = Fraction(0)
        kinds = set(self.capacities())  # thousands of links, few distinct bandwidths
        for bandwidth in kinds:
            grain = _gcd(grain, bandwidth)
        least = min(kinds, default=grain)
        return grain, 1 if least <= FINEST_ROUND * grain else int(least / grain)

    def reversed(self) -> Topology:
        """Return the topology with every link reversed (indices kept), for reversed reductions.

        A switch that copies sums backwards, and one that sums copies.
        """
        turned = tuple(replace(x, src=x.dst, dst=x.src) for x in self.links)
        nodes = tuple(
            replace(n, multicast=n.reduces, reduces=n.multicast, turns=n.turns and n.multicast)
            if n.computes
            else n
            for n in self.nodes
        )
        return replace(self, name=f"{self.name} reversed", nodes=nodes, links=turned)

    def with_capabilities(self, of: Mapping[int, Iterable[str]]) -> Topology:
        """Return the machine with the capabilities of some nodes replaced; limits stay.

        Declared symmetries are kept as they are: they are verified before use.
        """
        nodes = list(self.nodes)
        for node, words in of.items():
            nodes[node] = replace(nodes[node], **as_fields(words))
        return replace(self, nodes=tuple(nodes))

    def without_capabilities(self) -> Topology:
        """Return the machine whose switches only forward; itself if they do so anyway."""
        able = [i for i, node in enumerate(self.nodes) if node.capabilities]
        return self.with_capabilities(dict.fromkeys(able, ())) if able else self

    def restricted_to(self, group: Iterable[int]) -> Topology:
        """Return the machine of a process group: other GPUs removed, ranks renumbered by position.

        Raises:
            BadTopology: an empty group, a rank twice, or a rank that is not there.
        """
        ranks = tuple(integer(rank, "rank") for rank in group)
        _check_group(self, ranks)
        if ranks == tuple(range(self.ranks)):
            return self
        kept = (*ranks, *range(self.ranks, len(self.nodes)))
        return self.on_nodes(kept, f"{self.name}[{','.join(map(str, ranks))}]")

    def on_nodes(self, kept: tuple[int, ...], name: str) -> Topology:
        """Return the machine on some nodes in the given order, GPUs first; declares no symmetry."""
        place = {node: i for i, node in enumerate(kept)}
        links = [i for i, x in enumerate(self.links) if x.src in place and x.dst in place]
        new_index = {old: new for new, old in enumerate(links)}
        resources = []
        for resource in self.resources:
            members = tuple(new_index[i] for i in resource.links if i in new_index)
            if members:
                resources.append(replace(resource, links=members))
        return Topology(
            name,
            tuple(self.nodes[i] for i in kept),
            tuple(
                replace(self.links[i], src=place[self.links[i].src], dst=place[self.links[i].dst])
                for i in links
            ),
            tuple(resources),
            notes=self.notes,
            timing=self.timing,
            host_names=self.host_names,
        )

    def without_links(self, dead: Iterable[int]) -> Topology:
        """Return the machine without some links; declared symmetries are dropped."""
        gone = set(dead)
        kept = [i for i in range(len(self.links)) if i not in gone]
        new_index = {old: new for new, old in enumerate(kept)}
        resources = tuple(
            replace(r, links=members)
            for r in self.resources
            if (members := tuple(new_index[i] for i in r.links if i in new_index))
        )
        return replace(
            self, links=tuple(self.links[i] for i in kept), resources=resources, symmetries=()
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object (``docs/formats.md``); fractions are texts such as ``"7/6"``."""
        timing = None if self.timing == NO_TIMING else self.timing.to_json()
        return {
            "weft": "topology",
            "schema": SCHEMA,
            "name": self.name,
            "nodes": [_node(n) for n in self.nodes],
            "links": list(map(_link, self.links)),
            "resources": list(map(_RESOURCE.write, self.resources)),
            "symmetries": [list(s) for s in self.symmetries],
            "notes": list(self.notes),
            **without_empty({"timing": timing, "host_names": self.host_names}),
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "topology") -> Topology:
        """Parse the object that :meth:`to_json` writes.

        Raises:
            BadFile: not such an object. BadTopology: an invalid machine.
        """
        require_kind(data, "topology", where)
        fields = Fields(data, where)
        nodes, links = fields.get("nodes", list), fields.get("links", list)
        resources = fields.get("resources", list, [])
        topology = cls(
            fields.get("name", str),
            tuple(_read_node(x, f"{where}: node {i}") for i, x in enumerate(nodes)),
            tuple(_read_link(x, f"{where}: link {i}") for i, x in enumerate(links)),
            tuple(_RESOURCE.read(x, f"{where}: resource {i}") for i, x in enumerate(resources)),
            tuple(_permutation(x, where) for x in fields.get("symmetries", list, [])),
            tuple(one_line(str(x)) for x in fields.get("notes", list, [])),
            MachineTiming.from_json(fields.get("timing", dict, {}), f"{where}: timing"),
            _read_names(fields.get("host_names", list, []), where),
        )
        fields.get("imported", dict, {})  # the text of an import, for importers only
        fields.finish()
        return topology

    def to_networkx(self) -> Any:
        """Return a ``networkx.MultiDiGraph``; :mod:`.graph` lists the attributes."""
        graph = graph_of(self.name, self.nodes, self.links, self.resources)
        data = self.to_json()
        for key in ("symmetries", "notes", "timing", "host_names"):
            if data.get(key):
                graph.graph[key] = json.dumps(data[key])
        return graph

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        name: str | None = None,
        *,
        bandwidth: Fraction | float | None = None,
        latency: Fraction | float = 0,
    ) -> Topology:
        """Return the topology of a networkx graph of any kind; attributes as in :mod:`.graph`.

        An undirected edge is a full-duplex cable. Ranks follow the GPUs' ``rank`` attribute, or
        the order of the graph's nodes. Missing attributes are assumed and listed in
        ``notes``: nodes without ``kind`` are GPUs, edges without ``bandwidth`` (GB/s) or
        ``latency`` (µs) take the arguments' values.

        Raises:
            BadTopology: an attribute that cannot be read, an edge without bandwidth where
                ``bandwidth`` is None, ranks that are not 0 … n-1, or an invalid machine.
        """
        nodes, links, resources, notes = parts_of(graph, bandwidth, latency)
        return cls(
            one_line(name or str(graph.graph.get("name") or "graph")),
            nodes,
            links,
            resources,
            tuple(tuple(map(int, image)) for image in held_json(graph, "symmetries", list)),
            tuple(one_line(str(x)) for x in (*held_json(graph, "notes", list), *notes)),
            MachineTiming.from_json(held_json(graph, "timing", dict), "timing of the graph"),
            tuple(map(str, held_json(graph, "host_names", list))),
        )

    def digest(self) -> str:
        """Return a hash of all that a schedule depends on: neither the name nor the notes nor what
        is for the times of programs, nor what the machine's tools call its parts.
        """
        body = {k: v for k, v in self.to_json().items() if k not in _NOT_IN_DIGEST}
        body["links"] = [row[:5] for row in body["links"]]
        body["nodes"] = [
            {k: v for k, v in n.items() if k not in ("names", "copy_of")} for n in body["nodes"]
        ]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


_NOT_IN_DIGEST = ("name", "notes", "timing", "host_names")


def gpu(index: int, host: int | None = None) -> Node:
    """Return a GPU node named ``gpu{index}``."""
    return Node(f"gpu{index}", NodeKind.GPU, host)


def switch(name: str, host: int | None = None, *, multicast: bool = False) -> Node:
    """Return a switch node, which forwards and does not store."""
    return Node(name, NodeKind.SWITCH, host, multicast=multicast)


def link(src: int, dst: int, bandwidth: object, latency: object = 0, *, lanes: int = 1) -> Link:
    """Return a link; bandwidth (GB/s) and latency (µs) are numbers or decimal strings."""
    return Link(src, dst, exact(bandwidth, "bandwidth"), exact(latency, "latency"), lanes)


def both_ways(
    a: int,
    b: int,
    bandwidth: object,
    latency: object = 0,
    *,
    lanes: int = 1,
    medium: Medium | None = None,
    names: tuple[str, ...] = (),
) -> tuple[Link, Link]:
    """Return the two links of a full-duplex cable, one in each direction."""
    forth = replace(link(a, b, bandwidth, latency, lanes=lanes), medium=medium, names=names)
    return forth, replace(forth, src=b, dst=a)


def _gcd(a: Fraction, b: Fraction) -> Fraction:
    while b:
        a, b = b, a % b
    return a


def _check_nodes(topology: Topology) -> None:
    gpus = sum(node.stores for node in topology.nodes)
    if not gpus:
        raise BadTopology(
            f"{topology.name}: expected GPUs, got none", hint="a topology starts with its GPUs"
        )
    if not all(node.stores for node in topology.nodes[:gpus]):
        raise BadTopology(f"{topology.name}: GPUs must come first, in rank order")
    for name, times in Counter(n.name for n in topology.nodes).items():
        if times > 1:
            raise BadTopology(f"{topology.name}: two nodes are named {name!r}")
    for node in topology.nodes:
        if node.capabilities or node.limits != NO_LIMITS:
            _check_capabilities(topology, node)


def _check_copies(topology: Topology) -> None:
    """Require that the nodes of a part (``copy_of``) are alike, forward only, and are not linked:
    people are shown one instead of them.
    """
    of = [node.copy_of or node.name for node in topology.nodes]
    first = {node.name: node for node in topology.nodes if not node.copy_of}
    for name, node in zip(of, topology.nodes, strict=True):
        one = first.setdefault(name, node)
        if node.copy_of and (node.stores or (one.kind, one.host) != (node.kind, node.host)):
            raise BadTopology(
                f"{topology.name}: {node.name} cannot be a copy of {name}",
                hint="copies are nodes that forward, of one kind and host",
            )
    for link in topology.links:
        if of[link.src] == of[link.dst]:
            raise BadTopology(f"{topology.name}: {_named(topology, link)} joins copies of one part")


def _check_capabilities(topology: Topology, node: Node) -> None:
    where = f"{topology.name}: {node.name}"
    if node.stores:
        words = ", ".join(node.capabilities) or "limits of casts"
        raise BadTopology(f"{where} is a GPU and has {words}", hint="switches multicast and reduce")
    if node.turns and not node.reduces:
        raise BadTopology(
            f"{where} turns sums round and does not reduce", hint="turns needs reduces"
        )


def _check_ends(topology: Topology, index: int, one: Link) -> None:
    n = len(topology.nodes)
    if not (0 <= one.src < n and 0 <= one.dst < n):
        raise BadTopology(
            f"{topology.name}: link {index} goes from {one.src} to {one.dst}, "
            f"but nodes are 0 … {n - 1}"
        )
    if one.src == one.dst:
        raise BadTopology(f"{topology.name}: link {_named(topology, one)} leads to itself")


def _exact_link(one: Link) -> Link:
    return replace(
        one,
        bandwidth=exact(one.bandwidth, "bandwidth"),
        latency=exact(one.latency, "latency"),
        lanes=integer(one.lanes, "lanes"),
    )


def _check_numbers(topology: Topology, one: Link) -> None:
    ends = _named(topology, one)
    _check_bandwidth(one.bandwidth, f"{topology.name}: link {ends}")
    if not 0 <= one.latency <= LARGEST_LATENCY:
        raise BadTopology(
            f"{topology.name}: link {ends} has latency {_shown(one.latency)} µs",
            hint="latencies are within 0 … 1e9 µs",
        )
    if one.lanes < 1:
        raise BadTopology(f"{topology.name}: link {ends} has {one.lanes} lanes")


def _named(topology: Topology, one: Link) -> str:
    return f"{topology.nodes[one.src].name} -> {topology.nodes[one.dst].name}"


def _check_bandwidth(bandwidth: Fraction, what: str) -> None:
    least, most = BANDWIDTHS
    if least <= bandwidth <= most:
        return
    limits = "bandwidths are within 1e-6 … 1e9 GB/s"
    dead = "; leave a dead link out" if bandwidth <= 0 else ""
    raise BadTopology(f"{what} has bandwidth {_shown(bandwidth)} GB/s", hint=limits + dead)


def _shown(value: Fraction) -> str:
    """Return a short text of a number that may be outside the range of floats."""
    text = str(value)
    if len(text) <= 16:
        return text
    return f"{(Decimal(value.numerator) / Decimal(value.denominator)).normalize():.4g}"


def _check_resource(topology: Topology, resource: Resource) -> None:
    where = f"{topology.name}: resource {resource.name!r}"
    _check_bandwidth(resource.bandwidth, where)
    if not resource.links or len(set(resource.links)) != len(resource.links):
        raise BadTopology(f"{where} names no link, or one twice")
    if not all(0 <= i < len(topology.links) for i in resource.links):
        raise BadTopology(f"{where} names a link that does not exist")


def _check_group(topology: Topology, ranks: tuple[int, ...]) -> None:
    if not ranks:
        raise BadTopology("the process group is empty", hint="name at least one rank")
    for rank, times in Counter(ranks).items():
        if not 0 <= rank < topology.ranks:
            raise BadTopology(
                f"rank {rank} is not on {topology.name}",
                hint=f"its ranks are 0 … {topology.ranks - 1}",
            )
        if times > 1:
            raise BadTopology(f"rank {rank} is listed twice in the process group")


# --- the file form --------------------------------------------------------------------------------


def _link(one: Link) -> list[Any]:
    row = [one.src, one.dst, plain(one.bandwidth), plain(one.latency), one.lanes]
    medium = None if one.medium is None else str(one.medium)
    if one.names:
        return [*row, medium, list(one.names)]
    return row if medium is None else [*row, medium]


def _node(node: Node) -> dict[str, Any]:
    able = dict.fromkeys(node.capabilities, True)
    names = {"names": node.names, "copy_of": node.copy_of, **node.limits.to_json()}
    rest = without_empty({"kind": node.kind, "host": node.host, **able, **names})
    return {"name": node.name, **rest}


def _read_node(data: Any, where: str) -> Node:
    fields = Fields(data, where)
    kind = fields.get("kind", str)
    if kind not in set(NodeKind):
        raise BadFile(f"unknown kind of node {kind!r}", where=where, hint=", ".join(NodeKind))
    node = Node(
        fields.get("name", str),
        NodeKind(kind),
        fields.get("host", (int, type(None)), None),
        names=_read_names(fields.get("names", list, []), where),
        limits=read_limits(fields, where),
        copy_of=fields.get("copy_of", str, ""),
        **{word: fields.get(word, bool, False) for word in CAPABILITIES},
    )
    fields.finish()
    return node


def _read_names(data: Any, where: str) -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(x, str) and x for x in data):
        raise BadFile("names are a list of texts", where=where)
    return tuple(data)


def _read_link(data: Any, where: str) -> Link:
    if not isinstance(data, list) or len(data) not in (5, 6, 7):
        raise BadFile(
            "a link is [src, dst, GB/s, µs, lanes], and at most its class and names", where=where
        )
    src, dst, bandwidth, latency, lanes = data[:5]
    medium = None
    if data[5:] and not (data[6:] and data[5] is None):
        if data[5] not in set(Medium):
            raise BadFile(f"unknown class of link {data[5]!r}", where=where, hint=", ".join(Medium))
        medium = Medium(data[5])
    names = _read_names(data[6], where) if data[6:] else ()
    if not all(type(x) is int for x in (src, dst, lanes)):
        raise BadFile("src, dst and lanes of a link are integers", where=where)
    return placed(
        lambda: Link(
            src, dst, exact(bandwidth, "bandwidth"), exact(latency, "latency"), lanes, medium, names
        ),
        where,
    )


_RESOURCE = Record(
    Resource,
    name=Key(str),
    links=Key(list, read=integers),
    bandwidth_GBps=Key(
        (int, float, str),
        read=lambda value, key, where: exact(value, f"{where}: {key}"),
        field="bandwidth",
    ),
)


def _permutation(data: Any, where: str) -> tuple[int, ...]:
    if not isinstance(data, list) or not all(type(x) is int for x in data):
        raise BadFile("a symmetry is a list of node indices", where=where)
    return tuple(data)

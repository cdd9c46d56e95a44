"""Host descriptions (GPUs, switches, cables, NICs), and machines built from several of them.

A description includes the default fabric between hosts. :mod:`.host_file` reads one from a file;
importers of other formats build them too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from ..base.arrays import Ints
from ..base.errors import BadTopology, UserError
from ..base.lazy_dataclass import Frozen
from ..nouns.capabilities import NO_LIMITS, CastLimits, as_fields
from ..nouns.parts import Medium
from ..nouns.timing import NO_TIMING, MachineTiming
from ..nouns.topology import (
    Link,
    Node,
    NodeKind,
    Resource,
    Topology,
    both_ways,
    gpu,
)
from ..symmetry.structure import Structure, structure_of
from ..symmetry.symmetry import GUESSED, Image, extend, extended, guess
from .confined import in_hosts
from .fabric_links import FABRICS, FabricSpec, Port, asked_fabric, join
from .nics import own_number
from .spec import MachineSpec, check_size

Pairs = tuple[tuple[int, int], ...]
"""Pairs (sender, receiver) of local ranks."""


class HostSwitch(Frozen):
    """A switch inside a host; ``bandwidth`` and ``alpha`` are those of one port, each way.

    ``able``: its capabilities (:mod:`weft.dsl.nouns.capabilities`), used on request,
    within ``limits``. ``ports``: GB/s by GPU, of those with fewer links than the others. ``hosts``:
    number of hosts next to each other that share it.
    """

    name: str
    gpus: tuple[int, ...]
    bandwidth: Fraction
    alpha: Fraction
    able: frozenset[str] = frozenset()
    limits: CastLimits = NO_LIMITS
    ports: tuple[tuple[int, Fraction], ...] = ()
    hosts: int = 1

    def port(self, gpu: int) -> Fraction:
        """Return the GB/s of a GPU's port."""
        return dict(self.ports).get(gpu, self.bandwidth)


class Cables(Frozen):
    """Direct cables [GPU, GPU, lanes]; ``bandwidth`` is that of one lane, each way."""

    pairs: tuple[tuple[int, int, int], ...]
    bandwidth: Fraction
    alpha: Fraction


class Nics(Frozen):
    """NIC slots; slot i serves the GPUs ``attach[i]``, over PCIe where several share it.

    ``names[i]``: its name in the machine's tools. ``port``: GB/s of a GPU's own PCIe port, each
    way, which bounds what its NICs carry together, where these have more than ``fits``; None: not
    known. ``loopback``: whether ways between GPUs of one host through the network count by default.
    """

    attach: tuple[tuple[int, ...], ...]
    bandwidth: Fraction
    alpha: Fraction
    pcie: Fraction
    fabric: str
    names: tuple[tuple[str, ...], ...] = ()
    port: Fraction | None = None
    fits: Fraction | None = None
    loopback: bool = False

    def names_of(self, slot: int) -> tuple[str, ...]:
        """Return the names of the NIC in a slot."""
        return self.names[slot] if self.names else ()

    def exceeds(self, width: Fraction) -> bool:
        """Return True if NICs of that many GB/s are more than a GPU's own PCIe port carries."""
        most = self.fits or self.port
        return most is not None and width > most

    def number(self, slot: int) -> int:
        """Return the number of the NIC in a slot: its tools' (``NIC3``), or the slot's."""
        own = own_number(self.names_of(slot))
        return slot if own is None else own


class Host(Frozen):
    """Description of one host; ``moves`` are symmetries of its GPUs, ``timing`` is for the times of
    programs, ``gpu_names`` those of the GPUs in the machine's tools.
    """

    name: str
    title: str
    gpus: int
    switches: tuple[HostSwitch, ...]
    cables: tuple[Cables, ...]
    nics: Nics | None
    moves: tuple[Image, ...]
    timing: MachineTiming = NO_TIMING
    gpu_names: tuple[tuple[str, ...], ...] = ()


def synopsis(host: Host) -> str:
    """Return the catalogue syntax of the host with its options."""
    return host.name + (f"[:nodes=N,nics=…,fabric={'|'.join(FABRICS)}]" if host.nics else "")


def build(host: Host, spec: MachineSpec) -> Topology:
    """Build the hosts and their fabric from the options.

    Options: ``nodes=``, ``bw=`` and ``alpha=`` (of a switch port or a lane), ``nics=`` (per host,
    one number or one for each), ``nic_bw=``, ``nic_alpha=``, ``fabric=``, ``oversub=``,
    ``nvls=on`` (the switches of the hosts multicast and reduce, where the hardware can), and
    ``sharp=fabric`` (those of the network that hosts are attached to do), ``nvls``, or ``all``.

    Raises:
        UserError: an invalid option. BadTopology: several hosts without a fabric.
    """
    nodes = spec.integer("nodes", 1)
    check_size(spec, nodes * host.gpus)
    inner = side_by_side(host, spec, nodes)
    if nodes == 1:
        for key in ("nics", "nic_bw", "nic_alpha", "fabric", "oversub"):
            if spec.has(key):
                raise UserError(
                    f"{key}= needs several hosts", where=spec.keys[key], hint="add nodes=2"
                )
        if asked_capable(spec).fabric and spec.word("sharp")[0] == "fabric":
            raise UserError(
                "sharp=fabric needs several hosts", where=spec.keys["sharp"], hint="add nodes=2"
            )
        return with_symmetries(inner, host, 1)
    joined = _joined(inner, host, spec, nodes)
    if asked_capable(spec).fabric:
        joined = with_sharp(joined, len(inner.nodes))
    return with_symmetries(joined, host, nodes)


def of_host(host: Host, spec: MachineSpec) -> Topology:
    """Return the machine of hosts of a description, according to its options.

    Raises:
        As :func:`build`; UnknownName: a value of ``loopback=``.
    """
    made = build(host, spec)
    return in_hosts(made, spec, loopback=host.nics is not None and host.nics.loopback, slots=True)


class AskedCapable(Frozen):
    """Which switches of a machine multicast and reduce: those of hosts, those of the network."""

    hosts: bool
    fabric: bool


def asked_capable(spec: MachineSpec) -> AskedCapable:
    """Return the request of the options ``nvls=`` and ``sharp=``; ``sharp=on`` is ``nvls``.

    Raises:
        UnknownName: another value. UserError: one says on, the other off.
    """
    nvls = spec.choice("nvls", "off", ("on", "off"))
    sharp = spec.choice("sharp", "off", ("off", "on", "nvls", "fabric", "all"))
    in_hosts = sharp in ("on", "nvls", "all")
    if in_hosts and spec.has("nvls") and nvls == "off":
        raise UserError(
            f"sharp={sharp} and nvls=off exclude each other",
            where=spec.keys["nvls"],
            hint="sharp=fabric is the network alone",
        )
    return AskedCapable(in_hosts or nvls == "on", sharp in ("fabric", "all"))


SHARP = ("multicast", "reduces", "turns")
"""Capabilities of InfiniBand's switches (SHARP): they are roots of allreduces, and push."""


def with_sharp(joined: Topology, first: int) -> Topology:
    """Return hosts on a network whose leaves (or rails) compute: those that hosts are attached to.

    Nodes from ``first`` on are the network's, beside NICs.
    """
    network = range(first, len(joined.nodes))
    leaves = {
        x.dst
        for x in joined.links
        if x.dst in network
        and joined.nodes[x.dst].kind is NodeKind.SWITCH
        and (x.src < first or joined.nodes[x.src].kind is NodeKind.NIC)
    }
    return joined.with_capabilities(dict.fromkeys(leaves, SHARP))


def side_by_side(host: Host, spec: MachineSpec, nodes: int) -> Topology:
    """Build hosts without a fabric; options ``bw=``, ``alpha=``, ``nvls=`` and ``sharp=``.

    Raises:
        UserError: an invalid option.
    """
    alpha = spec.microseconds("alpha", Fraction(-1))
    width = spec.bandwidth("bw", Fraction(0))
    nvls = asked_capable(spec).hosts
    if nvls and not any(s.able for s in host.switches):
        raise UserError(
            f"no switch of {host.name} can multicast or reduce",
            where=spec.keys["sharp" if spec.has("sharp") else "nvls"],
            hint="sharp=fabric: switches of the network do",
        )
    own = host.gpu_names or ((),) * host.gpus
    gpus = [
        replace(gpu(b * host.gpus + g, b), names=own[g])
        for b in range(nodes)
        for g in range(host.gpus)
    ]
    switches: list[Node] = []
    links: list[Link] = []
    shared: dict[tuple[str, int], int] = {}
    for b in range(nodes):
        first = b * host.gpus
        for cables in host.cables:
            lane = width or cables.bandwidth
            delay = cables.alpha if alpha < 0 else alpha
            for u, v, lanes in cables.pairs:
                links += both_ways(first + u, first + v, lane * lanes, delay, lanes=lanes)
        for one in host.switches:
            place = shared.setdefault((one.name, b // one.hosts), len(gpus) + len(switches))
            if place == len(gpus) + len(switches):
                switches.append(_switch_node(one, b, nvls, alone=min(nodes, one.hosts) == 1))
            delay = one.alpha if alpha < 0 else alpha
            for g in one.gpus:
                medium = Medium.NVLINK if one.hosts > 1 else None
                links += both_ways(first + g, place, width or one.port(g), delay, medium=medium)
    return Topology(spec.source.text, (*gpus, *switches), tuple(links), timing=host.timing)


def _switch_node(one: HostSwitch, host: int, nvls: bool, *, alone: bool) -> Node:
    """Return a switch of a host, or of several, which is then numbered by itself."""
    name = f"{one.name}{host // one.hosts}"
    place = host if alone else None
    node = Node(name, NodeKind.SWITCH, place)
    return replace(node, limits=one.limits, **as_fields(one.able)) if nvls else node


def _joined(inner: Topology, host: Host, spec: MachineSpec, nodes: int) -> Topology:
    nics = host.nics
    if nics is None:
        raise BadTopology(
            f"how hosts of {host.name} are connected is not known", hint="use nodes=1, or a file"
        )
    fabric = asked_fabric(spec, nics.fabric)
    if spec.has("oversub") and not fabric.has_spine:
        raise UserError(
            "oversub= needs a spine",
            where=spec.keys["oversub"],
            hint="fabric=rails+spine, fabric=pods:B or a file",
        )
    bandwidth = spec.bandwidth("nic_bw", nics.bandwidth)
    alpha = spec.microseconds("nic_alpha", nics.alpha)
    counts = _nic_counts(spec, nodes, len(nics.attach))
    added: list[Node] = []
    links = list(inner.links)
    ports = []
    slots = list(_slots(counts, len(nics.attach)))
    own = Counter((b, g) for b, slot in slots for g in nics.attach[slot])
    shown: dict[int, int] = {}
    # PCIe latency is part of the NIC's α, so shared NICs cost no more than single ones.
    for (b, g), count in own.items():
        rank = shown[b * host.gpus + g] = b * host.gpus + g
        if nics.port and count > 1 and nics.exceeds(count * min(bandwidth, nics.pcie)):
            shown[rank] = len(inner.nodes) + len(added)
            added.append(Node(f"pci{b}.{g}", NodeKind.SWITCH, b))
            links += both_ways(rank, shown[rank], nics.port, 0, medium=Medium.PCIE)
    for b, slot in slots:
        served = [shown[b * host.gpus + g] for g in nics.attach[slot]]
        node, names, width = served[0], nics.names_of(slot), bandwidth
        if len(served) > 1:
            node = len(inner.nodes) + len(added)
            added.append(Node(f"nic{b}.{nics.number(slot)}", NodeKind.NIC, b, names=names))
            names = ()
            links += [x for v in served for x in both_ways(v, node, nics.pcie, 0)]
        elif node < inner.ranks and nics.port and nics.exceeds(bandwidth):
            width = nics.port
        ports.append(Port(node, b, slot, width, alpha, names))
    wired = replace(inner, nodes=(*inner.nodes, *added), links=tuple(links))
    return join(wired, tuple(ports), fabric)


def _nic_counts(spec: MachineSpec, nodes: int, slots: int) -> tuple[int, ...]:
    counts = spec.integers("nics", (slots,), least=1)
    if len(counts) not in (1, nodes):
        raise UserError(
            f"nics= has {len(counts)} numbers for {nodes} hosts",
            where=spec.keys["nics"],
            hint="one number, or one for each host",
        )
    for count in counts:
        if slots % count:
            raise UserError(
                f"{count} NICs do not spread evenly over {slots} slots",
                where=spec.keys["nics"],
                hint=f"write a divisor of {slots}",
            )
    return counts * nodes if len(counts) == 1 else counts


def _slots(counts: tuple[int, ...], slots: int) -> Iterator[tuple[int, int]]:
    """Yield (host, slot) of every NIC; fewer NICs than slots are spaced: 4 of 8 are 0 2 4 6."""
    for b, count in enumerate(counts):
        for i in range(count):
            yield b, i * slots // count


def connect(
    inner: Topology,
    host: Host,
    spec: MachineSpec,
    pairs: Pairs,
    link: tuple[Fraction, Fraction],
    share: Callable[[int], str] | None = None,
) -> Topology:
    """Return hosts connected GPU to GPU: a link (GB/s, µs) for each pair, between all hosts.

    ``share`` names the port of a rank: the links of one name share the bandwidth of one link,
    separately for outgoing and incoming links.

    Raises:
        UserError: too many links.
    """
    nodes = inner.ranks // host.gpus
    check_size(spec, inner.ranks, nodes * (nodes - 1) * len(pairs))
    ends = [
        (i * host.gpus + s, j * host.gpus + r)
        for (i, j), (s, r) in product(permutations(range(nodes), 2), pairs)
    ]
    groups: dict[str, list[int]] = {}
    for index, (src, dst) in enumerate(ends, len(inner.links)):
        if share is not None:
            groups.setdefault(f"{share(src)} out", []).append(index)
            groups.setdefault(f"{share(dst)} in", []).append(index)
    links = tuple(Link(src, dst, *link) for src, dst in ends)
    shared = tuple(Resource(n, tuple(held), link[0]) for n, held in groups.items() if held[1:])
    joined = replace(inner, links=inner.links + links, resources=shared, symmetries=())
    return with_symmetries(joined, host, nodes)


def with_symmetries(topology: Topology, host: Host, nodes: int) -> Topology:
    """Declare symmetries: moves of the hosts, and each host's moves applied to all hosts."""
    n = host.gpus
    every = np.arange(n * nodes)
    made = structure_of(topology)
    inside = [every - every % n + np.asarray(move)[every % n] for move in host.moves]
    images = [*_host_moves(made, n, nodes), *(extended(made, image) for image in inside)]
    found = tuple(tuple(image.tolist()) for image in images if image is not None)
    return replace(topology, symmetries=found)


def _host_moves(made: Structure, n: int, nodes: int) -> list[Ints]:
    """Return the rotation of the hosts; if invalid, of blocks of hosts (pods) and inside them."""
    every = np.arange(n * nodes)
    host, place = every // n, every % n
    blocks = [k for k in range(nodes, 1, -1) if nodes % k == 0]
    for k in blocks:
        inner = extended(made, (host - host % k + (host % k + 1) % k) * n + place)
        if inner is None:
            continue
        outer = extended(made, (host + k) % nodes * n + place) if k < nodes else None
        return [image for image in (inner, outer) if image is not None]
    return []


# --- clusters of different hosts ------------------------------------------------------------------
# A host is taken out of a machine of two of them on one switch: its nodes, the links between these,
# and what leaves it as ports.


class HostTemplate(Frozen):
    """A host: ``nodes`` (GPUs first) with links between them, and ports of a host 0."""

    name: str
    nodes: tuple[Node, ...]
    gpus: int
    links: tuple[Link, ...]
    ports: tuple[Port, ...]
    notes: tuple[str, ...] = ()
    timing: MachineTiming = NO_TIMING


def host_of(two: Topology, name: str) -> HostTemplate:
    """Return the first host of a machine of several.

    Raises:
        BadTopology: nothing leaves the host, or links share bandwidth.
    """
    if two.hosts < 2:
        raise BadTopology(
            f"{name} is one host, and what leaves it is not known",
            hint="give the text of its tools, or a machine of two such hosts",
        )
    if two.resources:
        raise BadTopology(f"{name}: hosts with shared resources cannot be joined with others")
    if any(
        one.medium is Medium.NVLINK and two.nodes[one.src].host != two.nodes[one.dst].host
        for one in two.links
    ):
        raise BadTopology(
            f"{name}: its hosts share an NVSwitch, and cannot be joined with others",
            hint="nodes= makes more of one kind; trays=1 gives each host a switch of its own",
        )
    inside = [v for v, node in enumerate(two.nodes) if node.host == two.host_of[0]]
    place = {v: i for i, v in enumerate(inside)}
    links: list[Link] = []
    ports: list[Port] = []
    for one in two.links:
        if one.src in place and one.dst in place:
            links.append(replace(one, src=place[one.src], dst=place[one.dst]))
        elif one.src in place:
            slot, names = len(ports), one.names
            ports.append(Port(place[one.src], 0, slot, one.bandwidth, one.latency, names))
    if not ports:
        raise BadTopology(f"{name}: nothing leaves its hosts")
    nodes = tuple(two.nodes[v] for v in inside)
    gpus = sum(node.stores for node in nodes)
    return HostTemplate(name, nodes, gpus, tuple(links), tuple(ports), two.notes, two.timing)


def cluster(
    parts: Sequence[tuple[HostTemplate, int]], spec: MachineSpec, fabric: FabricSpec
) -> Topology:
    """Return the machine of all hosts on a fabric, in the order of the parts.

    Raises:
        UserError: too many GPUs, ``sharp=nvls``. BadTopology: ``direct`` with other than two hosts.
    """
    hosts = [template for template, count in parts for _ in range(count)]
    gpus = sum(host.gpus for host in hosts)
    check_size(spec, gpus, sum(len(host.links) for host in hosts))
    places = node_places([(host.gpus, len(host.nodes) - host.gpus) for host in hosts])
    nodes: list[Node] = [Node("")] * sum(len(host.nodes) for host in hosts)
    links: list[Link] = []
    ports: list[Port] = []
    for h, (host, place) in enumerate(zip(hosts, places, strict=True)):
        for i, node in enumerate(host.nodes):
            name = f"gpu{place[i]}" if node.stores else _renamed(node.name, h)
            nodes[place[i]] = replace(node, name=name, host=h)
        links += (replace(x, src=place[x.src], dst=place[x.dst]) for x in host.links)
        ports += (replace(p, node=place[p.node], host=h) for p in host.ports)
    made = join(Topology(spec.title(), tuple(nodes), tuple(links)), tuple(ports), fabric)
    able = asked_capable(spec)
    if able.hosts:
        raise UserError(
            "sharp= of several kinds of hosts is of their network",
            where=spec.keys["sharp"],
            hint="sharp=fabric; nvls=on in the term of each host that has it",
        )
    if able.fabric:
        made = with_sharp(made, len(nodes))
    families = {host.timing.family for host, _ in parts}
    timing = hosts[0].timing if len({host.timing for host in hosts}) == 1 else NO_TIMING
    notes = [f"{host.name}: {note}" for host, _ in parts for note in host.notes]
    notes += made.notes
    if len(families) > 1:
        listed = ", ".join(sorted(family or "unknown" for family in families))
        notes.append(
            f"GPUs of several families ({listed}): times of programs are of none (family=)"
        )
    return replace(
        made,
        symmetries=rotations_of_hosts(made, [(host.gpus, count) for host, count in parts]),
        notes=tuple(dict.fromkeys(notes)),
        timing=timing,
    )


def node_places(hosts: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the node numbers of hosts from their numbers of GPUs, which come first, and others."""
    places, rank, other = [], 0, sum(gpus for gpus, _ in hosts)
    for gpus, rest in hosts:
        places.append([*range(rank, rank + gpus), *range(other, other + rest)])
        rank, other = rank + gpus, other + rest
    return places


def _renamed(name: str, host: int) -> str:
    """Return the name of a part of host 0 in another: ``cpu0.1`` is ``cpu2.1`` in host 2."""
    found = re.fullmatch(r"(.*?[^\d.])0((?:\.\d+)?)", name)
    return f"{found[1]}{host}{found[2]}" if found else f"{name}.{host}"


def rotations_of_hosts(made: Topology, parts: Iterable[tuple[int, int]]) -> tuple[Image, ...]:
    """Return the symmetries that :func:`guess` finds; in large machines rotations of like hosts.

    ``parts``: GPUs of a host, and how many like hosts follow each other.
    """
    if made.ranks <= GUESSED:
        return guess(made)
    images = []
    first = 0
    for gpus, count in parts:
        size = gpus * count
        block = [first + (r + gpus) % size for r in range(size)]
        image = extend(made, [*range(first), *block, *range(first + size, made.ranks)])
        images += [image] if image and count > 1 else []
        first += size
    return tuple(images)

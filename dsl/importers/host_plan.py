"""Plan of one host as a tree of PCIe, cables and NICs, and machines of several such hosts.

Built by the XML and the matrix importers: GPUs ``0 … gpus-1``, then switches, CPUs and NICs, all
cables full duplex. :func:`simplified` removes unused parts; :func:`build_hosts` copies the host and
connects the copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from ..base.errors import BadTopology, UserError
from ..base.lazy_dataclass import Frozen, dataclass
from ..machines.fabric_links import Port, asked_fabric, join
from ..machines.hosts import Cables, Host, HostSwitch, Nics, build, node_places, rotations_of_hosts
from ..machines.names import named_places
from ..machines.spec import MachineSpec, check_size
from ..nouns.parts import Medium
from ..nouns.timing import MachineTiming
from ..nouns.topology import Link, Node, NodeKind, Topology, both_ways, gpu
from ..symmetry.symmetry import GUESSED, Image, guess
from .generations import CABLE_ALPHA, NET_ALPHA, PCIE_ALPHA, PCIE_REACH, Generation


class HostPart(Frozen):
    """A node other than a GPU; ``names``: those of the machine's tools.

    ``host``: of those of a plan of several hosts; None for nodes between them.
    """

    name: str
    kind: NodeKind
    names: tuple[str, ...] = ()
    host: int | None = 0


@dataclass(frozen=True, slots=True)
class Cable:
    """A full-duplex cable between two nodes of the host."""

    a: int
    b: int
    bandwidth: Fraction
    alpha: Fraction
    lanes: int = 1
    medium: Medium = Medium.PCIE


class Plug(Frozen):
    """A network port of a NIC node, in GB/s."""

    nic: int
    bandwidth: Fraction


class HostPlan(Frozen):
    """One host, or several that are described together: ``gpu_hosts`` of their GPUs, in order."""

    gpus: int
    parts: tuple[HostPart, ...]
    cables: tuple[Cable, ...]
    plugs: tuple[Plug, ...] = ()
    gpu_names: tuple[tuple[str, ...], ...] = ()
    gpu_hosts: tuple[int, ...] = ()

    @property
    def several(self) -> bool:
        """Return True for more hosts than one."""
        return len(set(self.gpu_hosts)) > 1

    def kind(self, node: int) -> NodeKind:
        """Return the kind of a node."""
        return NodeKind.GPU if node < self.gpus else self.parts[node - self.gpus].kind


FABRIC_NOTE = "the network between hosts is not in the file; assumed fabric={}"


def simplified(plan: HostPlan, *, nics: bool) -> HostPlan:
    """Return the plan without dead ends, with chains of PCIe bridges merged to the narrowest hop.

    Without ``nics`` the NICs are dead ends too.
    """
    keep = {plug.nic for plug in plan.plugs} if nics else set()
    near: dict[int, list[Cable]] = {v: [] for v in range(plan.gpus + len(plan.parts))}
    for cable in plan.cables:
        near[cable.a].append(cable)
        near[cable.b].append(cable)
    doubtful = [v for v in near if v >= plan.gpus and v not in keep]
    while doubtful:
        node = doubtful.pop()
        at = near.get(node)
        if at is None or not _removable(plan, node, at):
            continue
        del near[node]
        ends = [c.a if c.b == node else c.b for c in at]
        for end, cable in zip(ends, at, strict=True):
            near[end].remove(cable)
        if len(at) == 2:
            new = _spliced(node, *at)
            near[new.a].append(new)
            near[new.b].append(new)
        doubtful += [v for v in ends if v >= plan.gpus and v not in keep]
    left = [c for v, at in near.items() for c in at if c.a == v]
    return _renumbered(plan, left, keep)


def _removable(plan: HostPlan, node: int, at: list[Cable]) -> bool:
    if len(at) < 2:
        return True
    ends = {c.a for c in at} | {c.b for c in at}
    return plan.kind(node) is NodeKind.SWITCH and len(at) == 2 and len(ends) == 3


def _spliced(node: int, one: Cable, two: Cable) -> Cable:
    a = one.a if one.b == node else one.b
    b = two.a if two.b == node else two.b
    return Cable(
        a, b, min(one.bandwidth, two.bandwidth), max(one.alpha, two.alpha), medium=one.medium
    )


def _renumbered(plan: HostPlan, cables: list[Cable], keep: set[int]) -> HostPlan:
    used = {v for c in cables for v in (c.a, c.b)} | keep
    others = [v for v in range(plan.gpus, plan.gpus + len(plan.parts)) if v in used]
    place = {v: v for v in range(plan.gpus)} | {v: plan.gpus + i for i, v in enumerate(others)}
    return HostPlan(
        plan.gpus,
        tuple(plan.parts[v - plan.gpus] for v in others),
        tuple(replace(c, a=place[c.a], b=place[c.b]) for c in cables),
        tuple(replace(p, nic=place[p.nic]) for p in plan.plugs if p.nic in keep),
        plan.gpu_names,
        plan.gpu_hosts,
    )


def build_hosts(
    plan: HostPlan, name: str, options: MachineSpec, notes: Iterable[str], family: str = ""
) -> Topology:
    """Build the plan's host, or ``nodes=`` of it, connected by ``fabric=`` (default star).

    Further options: ``oversub=``, ``nic_bw=`` (of every port) and ``nic_alpha=``. ``family``: of
    the machine, where it is known.

    Raises:
        BadTopology: several hosts without NICs. UserError: ``nodes=`` for a plan of several hosts.
    """
    nodes = options.integer("nodes", 1)
    if plan.several and nodes > 1:
        raise UserError(
            f"{name} has {len(set(plan.gpu_hosts))} hosts",
            where=options.keys["nodes"],
            hint="nodes= makes more of a file of one host",
        )
    check_size(options, nodes * plan.gpus, nodes * len(plan.cables))
    text, _ = options.word("fabric", "star")
    fabric = asked_fabric(options)
    plan = simplified(plan, nics=nodes > 1 or plan.several)
    if nodes > 1 and not plan.plugs:
        raise BadTopology(
            f"{name} has no NIC that is fast enough to connect hosts",
            hint="min_nic=0.1GB/s includes slower ones, if there are any",
        )
    copies = copied(plan, name, nodes)
    if plan.plugs and (nodes > 1 or plan.several):
        copies = join(copies, _ports(plan, nodes, options), fabric)
        if not options.has("fabric"):
            notes = (*notes, FABRIC_NOTE.format(text))
        notes = (*notes, *copies.notes)
    return replace(
        with_media(copies, Medium.PCIE),
        symmetries=rotations_of_hosts(copies, [(plan.gpus, nodes)]),
        notes=tuple(notes),
        timing=MachineTiming(family),
    )


def _ports(plan: HostPlan, nodes: int, options: MachineSpec) -> tuple[Port, ...]:
    alpha = options.microseconds("nic_alpha", NET_ALPHA)
    slots: Counter[int] = Counter()
    ports: list[Port] = []
    for copy, place in enumerate(node_places([(plan.gpus, len(plan.parts))] * nodes)):
        for p in plan.plugs:
            host = (plan.parts[p.nic - plan.gpus].host or 0) if plan.several else copy
            width = options.bandwidth("nic_bw", p.bandwidth)
            ports.append(Port(place[p.nic], host, slots[host], width, alpha))
            slots[host] += 1
    return tuple(ports)


def assumed_nics(gpus: int, kind: Generation, options: MachineSpec, notes: list[str]) -> Nics:
    """Return NICs for hosts whose text has none: ``nics=``, or as many as such hosts usually have.

    One for each GPU, or for all together where GPUs are cards. A note states it.

    Raises:
        UserError: a number that does not divide the GPUs.
    """
    count = _nic_count(gpus, kind, options)
    each = gpus // count
    attach = tuple(tuple(range(i * each, i * each + each)) for i in range(count))
    notes.append(_assumed_note(count, kind, options))
    return nics_of_gpus(attach, kind, options, notes)


def nics_of_gpus(
    attach: tuple[tuple[int, ...], ...],
    kind: Generation,
    options: MachineSpec,
    notes: list[str],
    names: tuple[tuple[str, ...], ...] = (),
) -> Nics:
    """Return NICs that serve GPUs over their own PCIe ports (``pcie_bw=``); a note on the ports."""
    port = options.bandwidth("pcie_bw", kind.pcie)
    fits = port if options.has("pcie_bw") else port / PCIE_REACH
    made = Nics(attach, kind.nic, NET_ALPHA, port, "star", names, port, fits)
    most = max(Counter(g for served in attach for g in served).values())
    if made.exceeds(most * options.bandwidth("nic_bw", kind.nic)):
        notes.append(
            f"a GPU's own PCIe port, x16 at {float(port):g}GB/s each way, bounds what its NICs "
            "carry together (pcie_bw=)"
        )
    if not options.has("fabric"):
        notes.append(FABRIC_NOTE.format("star"))
    return made


def with_assumed_nics(
    plan: HostPlan, kind: Generation, options: MachineSpec, notes: list[str]
) -> HostPlan:
    """Return the plan with NICs as above, in turn on its CPUs (or switches, where it has none).

    Raises:
        As :func:`assumed_nics`.
    """
    first = plan.gpus + len(plan.parts)
    above = [v for v in range(plan.gpus, first) if plan.kind(v) is NodeKind.HOST]
    above = above or list(range(plan.gpus, first)) or [0]
    count = _nic_count(plan.gpus, kind, options)
    notes.append(_assumed_note(count, kind, options))
    nics = range(first, first + count)
    return replace(
        plan,
        parts=(*plan.parts, *(HostPart(f"nic.{i}", NodeKind.NIC) for i in range(count))),
        cables=(
            *plan.cables,
            *(Cable(above[i % len(above)], v, kind.pcie, PCIE_ALPHA) for i, v in enumerate(nics)),
        ),
        plugs=tuple(Plug(v, kind.nic) for v in nics),
    )


def _nic_count(gpus: int, kind: Generation, options: MachineSpec) -> int:
    count = options.integer("nics", 1 if kind.card else gpus)
    if gpus % count:
        raise UserError(
            f"{count} NICs do not spread evenly over {gpus} GPUs",
            where=options.keys["nics"],
            hint=f"write a divisor of {gpus}",
        )
    return count


def _assumed_note(count: int, kind: Generation, options: MachineSpec) -> str:
    speed = float(options.bandwidth("nic_bw", kind.nic))
    plural = "s" * (count > 1)
    return f"the text has no NICs: {count} NIC{plural} of {speed:g}GB/s assumed (nics=, nic_bw=)"


def joined_hosts(
    options: MachineSpec,
    notes: Iterable[str],
    cables: Cables,
    switches: tuple[HostSwitch, ...],
    nics: Nics | None,
    gpu_names: tuple[tuple[str, ...], ...],
    medium: Medium,
) -> Topology:
    """Return hosts whose GPUs cables or switches of a medium join; notes of the machine are added.

    The lane of ``cables`` and the ports of ``switches`` have the bandwidth of ``bw=``.
    """
    n, moves = len(gpu_names), tuple[Image, ...]()
    if n <= GUESSED:
        parts = tuple(HostPart(one.name, NodeKind.SWITCH) for one in switches)
        wires = [Cable(a, b, cables.bandwidth * k, CABLE_ALPHA, k) for a, b, k in cables.pairs]
        wires += [
            Cable(g, n + i, s.port(g), s.alpha) for i, s in enumerate(switches) for g in s.gpus
        ]
        one_host = copied(HostPlan(n, parts, tuple(wires)), "host", 1)
        moves = tuple(image[:n] for image in guess(one_host))
    title, lanes = options.title(), (cables,) if cables.pairs else ()
    host = Host(title, "", n, switches, lanes, nics, moves, gpu_names=gpu_names)
    spec = replace(options, options={k: v for k, v in options.options.items() if k != "bw"})
    made = with_media(build(host, spec), medium)
    return replace(made, name=title, notes=(*notes, *made.notes))


def grouped(pairs: Iterable[tuple[int, int]], nodes: int) -> list[list[int]]:
    """Return the nodes in groups that pairs join."""
    label = list(range(nodes))
    for a, b in pairs:
        if (old := label[a]) != (new := label[b]):
            label = [new if x == old else x for x in label]
    return [[v for v in range(nodes) if label[v] == one] for one in dict.fromkeys(label)]


def listed_pairs(words: Sequence[str]) -> str:
    """Return words for some pairs as a note lists them: eight, and how many more there are."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


_SHOWN = 8


def require_symmetric(
    names: Sequence[str], cells: Sequence[Sequence[str]], where: str, tool: str
) -> None:
    """Raise BadTopology for a pair of devices whose two cells differ."""
    for i, row in enumerate(cells):
        for j in range(i):
            if row[j] != cells[j][i]:
                raise BadTopology(
                    f"{names[i]} to {names[j]} is {row[j]}, and back {cells[j][i]}",
                    where=where,
                    hint=f"run {tool} again, or put the cell right in a copy",
                )


def without_named(
    options: MachineSpec, named: Sequence[Sequence[str]], shown: Sequence[str], notes: list[str]
) -> tuple[int, ...]:
    """Return the places of the NICs that ``without=`` names, of NICs with their names; a note."""
    gone = named_places(options.words("without"), named, "NIC")
    if gone:
        notes.append(f"left out as without= asks: {', '.join(shown[i] for i in gone)}")
    return gone


def with_media(made: Topology, inner: Medium) -> Topology:
    """Return the machine with a medium for every link: where none is named the network outside
    hosts, PCIe to NICs, and ``inner`` between the other nodes of a host."""

    def medium(one: Link) -> Medium:
        ends = made.nodes[one.src], made.nodes[one.dst]
        hosts = {node.host for node in ends}
        if len(hosts) > 1 or None in hosts:
            return Medium.NETWORK
        return Medium.PCIE if any(node.kind is NodeKind.NIC for node in ends) else inner

    links = tuple(replace(one, medium=one.medium or medium(one)) for one in made.links)
    return replace(made, links=links)


def copied(plan: HostPlan, name: str, nodes: int) -> Topology:
    """Return unconnected copies of the host."""
    own = plan.gpu_names or ((),) * plan.gpus
    hosts = plan.gpu_hosts if plan.several else [r // plan.gpus for r in range(nodes * plan.gpus)]
    all_nodes = [replace(gpu(r, host), names=own[r % plan.gpus]) for r, host in enumerate(hosts)]
    links: list[Link] = []
    for b, place in enumerate(node_places([(plan.gpus, len(plan.parts))] * nodes)):
        for part in plan.parts:
            host = part.host if plan.several else b
            all_nodes.append(Node(_numbered(part.name, host), part.kind, host, names=part.names))
        for c in plan.cables:
            ends = place[c.a], place[c.b]
            links += both_ways(*ends, c.bandwidth, c.alpha, lanes=c.lanes, medium=c.medium)
    return Topology(name, tuple(all_nodes), tuple(links))


def _numbered(name: str, host: int | None) -> str:
    """Return the name of a part in a host: ``cpu.1`` in host 2 is ``cpu2.1``."""
    kind, _, rest = name.partition(".")
    if host is None:
        return kind
    return f"{kind}{host}.{rest}" if rest else f"{kind}{host}"

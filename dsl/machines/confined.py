"""Ways that stay in their hosts, as runtimes choose them, on a machine that is a plain graph.

As a graph a machine of several hosts has ways that no runtime takes: from a GPU through a NIC into
the network and back into the same host, or through the NICs of a third host. :func:`confined`
returns the machine without them; no engine, bound or checker needs to know. It is the product of
the machine with what a message has behind it: a forwarding node of a host has one copy for messages
of the host's own GPUs and one for messages from outside, a switch of the network one for each host
that sends. Copies of a link share its bandwidth. :func:`plain_machine` has each part once again,
for people, and for names.

Runtimes: NCCL and RCCL connect GPUs of one host by peer access, else over the CPU's memory
(``src/graph/paths.cc``); only NCCL takes NICs, where both GPUs have one at PXB or nearer that is
faster than their own way. That is ``loopback=on``.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from ..base.arrays import Floats
from ..base.components import components
from ..base.kept import kept
from ..base.lazy_dataclass import Frozen
from ..nouns.parts import Medium
from ..nouns.topology import Link, NodeKind, Resource, Topology
from .spec import MachineSpec

CONFINED_NOTE = (
    "traffic between GPUs of one host stays in the host, and none crosses a third one "
    "(loopback=on: ways through NICs and the network count, too)"
)
LOOPBACK_NOTE = (
    "ways between GPUs of one host through NICs and the network count, as in the model that the "
    "machine is from (loopback=off: as runtimes choose them)"
)
TOO_LARGE_NOTE = (
    "ways between GPUs of one host through the network are not excluded: the machine is too large"
)
MOST_LINKS = 20_000
"""Links of a confined machine; a larger one stays as it is."""

_OWN, _CAME = -2, -1
"""History of a message in a host: only GPU and nodes of this host, or another host; in the
network it is the number of the host that it comes from."""

_State = tuple[int, int]
"""A node, and the history of a message there."""


def in_hosts(
    made: Topology, spec: MachineSpec, *, loopback: bool = False, slots: bool = False
) -> Topology:
    """Return the machine confined, unless the option ``loopback=on`` allows all ways.

    ``loopback``: the machine's own default of the option. ``slots``: as of :func:`confined`.

    Raises:
        UnknownName: another value of the option.
    """
    default = "on" if loopback else "off"
    inside = confined(made, slots=slots)
    if spec.choice("loopback", default, ("on", "off")) == "off":
        return inside
    told = loopback and inside is not made and not spec.has("loopback")
    return replace(made, notes=(*made.notes, LOOPBACK_NOTE)) if told else made


def confined(made: Topology, *, slots: bool = False) -> Topology:
    """Return the machine in which ways between GPUs of a host stay in it, and ways between hosts
    cross the network once and no third host; itself where all ways do so.

    ``slots``: a NIC that several GPUs share stands for the PCIe switch of their slots, too, over
    which they reach each other. Declared symmetries are carried over. Networks whose switches
    compute stay as they are.
    """
    if made.hosts < 2 or None in made.host_of or any(node.copy_of for node in made.nodes):
        return made
    network = _Between.of(made, slots=slots)
    if network.computes or not network.leaks:
        return made
    arcs = _arcs(network)
    if len(arcs) > MOST_LINKS:
        return replace(made, notes=(*made.notes, TOO_LARGE_NOTE))
    return _built(made, arcs)


class _Between(Frozen):
    """The part of a machine between its hosts.

    ``outside``: the nodes; links to an NVSwitch that hosts share lead nowhere else and do not
    count. ``whole``: those that no host is attached to twice, which need no copies.
    """

    made: Topology
    outside: frozenset[int]
    whole: frozenset[int]
    leaks: bool
    slots: bool

    @staticmethod
    def of(made: Topology, *, slots: bool) -> _Between:
        nodes, links = made.nodes, made.links
        inner = (Medium.NVLINK, Medium.XGMI)
        shared = {v for x in links if x.medium in inner for v in _ends(x) if nodes[v].host is None}
        outside = frozenset(v for v, n in enumerate(nodes) if n.host is None and v not in shared)
        net = _labels(made, lambda v: v in outside)
        island = _labels(made, lambda v: nodes[v].host is not None and not nodes[v].stores)
        attached: dict[tuple[int, int], set[int]] = defaultdict(set)
        exits: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for x in links:
            for v, other in (_ends(x), _ends(x)[::-1]):
                host = nodes[v].host
                if host is None or nodes[other].host == host or other in shared:
                    continue
                attached[net[other], host].add(v)
                if not nodes[v].stores:
                    exits[island[v]].add((v, net[other]))
        turned = {one for (one, _), ends in attached.items() if len(ends) > 1}
        crossed = any(len(ways) > 1 for ways in exits.values())
        served = Counter(x.src for x in links if nodes[x.src].host == nodes[x.dst].host)
        shared_nics = (nodes[v].kind is NodeKind.NIC and many > 1 for v, many in served.items())
        crossed = crossed or (not slots and any(shared_nics))
        split = turned | {one for ways in exits.values() for _, one in ways}
        whole = frozenset(v for v in outside if net[v] not in split)
        return _Between(made, outside, whole, bool(turned) or crossed, slots)

    @property
    def computes(self) -> bool:
        """Return True if a switch of the network sums or copies: it must stay one."""
        return any(self.made.nodes[v].computes for v in self.outside)

    def after(self, state: _State, link: Link) -> int | None:
        """Return the history of a message after a link; None: no runtime takes it."""
        (u, behind), v, nodes = state, link.dst, self.made.nodes
        one, other = nodes[u], nodes[v]
        arrived = _OWN if other.stores else _CAME
        if u in self.outside:
            return None if other.host == behind else behind if v in self.outside else arrived
        if v in self.outside:
            return None if behind == _CAME else _OWN if v in self.whole else one.host
        if one.host is None or other.host is None or (one.stores and one.host == other.host):
            return _OWN  # an NVSwitch that hosts share, or inside a host
        if one.host != other.host:
            return None if behind == _CAME else arrived
        if (one.kind if behind == _OWN else other.kind) is NodeKind.NIC:
            return _OWN if self.slots and other.stores else None  # else a NIC is a host's end
        return arrived if behind == _CAME else _OWN


def _ends(link: Link) -> tuple[int, int]:
    return link.src, link.dst


def _labels(made: Topology, counts: Callable[[int], bool]) -> list[int]:
    """Return the group of each node, joined by the links between nodes that count, in one host."""
    nodes = made.nodes
    ends = [_ends(x) for x in made.links if nodes[x.src].host == nodes[x.dst].host]
    joined = np.array([e for e in ends if all(map(counts, e))], np.int64).reshape(-1, 2)
    labels: list[int] = components(len(nodes), *joined.T).tolist()
    return labels


def _arcs(network: _Between) -> list[tuple[int, _State, _State]]:
    """Return (link, state before, state after) of all ways from GPU to GPU, by link."""
    made = network.made
    leaving: list[list[int]] = [[] for _ in made.nodes]
    for i, link in enumerate(made.links):
        leaving[link.src].append(i)
    states = [(rank, _OWN) for rank in range(made.ranks)]
    seen, queue = set(states), deque(states)
    arcs: list[tuple[int, _State, _State]] = []
    while queue:
        state = queue.popleft()
        for i in leaving[state[0]]:
            behind = network.after(state, made.links[i])
            if behind is None:
                continue
            reached = (made.links[i].dst, behind)
            arcs.append((i, state, reached))
            if reached not in seen:
                seen.add(reached)
                queue.append(reached)
    before: dict[_State, list[_State]] = defaultdict(list)
    for _, one, other in arcs:
        before[other].append(one)
    alive, queue = set(states), deque(states)
    while queue:
        for one in before[queue.popleft()]:
            if one not in alive:
                alive.add(one)
                queue.append(one)
    return sorted(arc for arc in arcs if arc[1] in alive and arc[2] in alive)


def _built(made: Topology, arcs: list[tuple[int, _State, _State]]) -> Topology:
    """Return the machine of these arcs: parts in their old order first, then further copies."""
    states = sorted({state for _, *ends in arcs for state in ends}, key=lambda s: (s[1], s[0]))
    place: dict[_State, int] = {}
    nodes, taken = list(made.nodes), {node.name for node in made.nodes}
    first: set[int] = set()
    for node, behind in states:
        if node not in first:
            first.add(node)
            place[node, behind] = node
            continue
        place[node, behind] = len(nodes)
        name = f"{made.nodes[node].name}.{'in' if behind == _CAME else behind}"
        while name in taken:
            name += "+"
        taken.add(name)
        nodes.append(replace(made.nodes[node], name=name, copy_of=made.nodes[node].name))
    copies: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for i, one, other in arcs:
        copies[i].append((place[one], place[other]))
    used = sorted(copies)
    later = [(i, ends) for i in used for ends in copies[i][1:]]
    rows = [*((i, copies[i][0]) for i in used), *later]
    of = defaultdict(list)
    for row, (i, _) in enumerate(rows):
        of[i].append(row)
    links = tuple(replace(made.links[i], src=a, dst=b) for i, (a, b) in rows)
    shared = [
        replace(r, links=members)
        for r in made.resources
        if (members := tuple(row for i in r.links for row in of[i]))
    ]
    seen = Counter[str]()
    for i in (i for i in used if len(of[i]) > 1):
        name = " -> ".join(made.nodes[v].name for v in _ends(made.links[i]))
        seen[name] += 1
        name += f"#{seen[name]}" if seen[name] > 1 else ""
        shared.append(Resource(name, tuple(of[i]), made.links[i].bandwidth))
    return replace(
        made,
        nodes=tuple(nodes),
        links=links,
        resources=tuple(shared),
        symmetries=tuple(_carried(made, place)),
        notes=(*made.notes, CONFINED_NOTE),
    )


def _carried(made: Topology, place: dict[_State, int]) -> Iterable[tuple[int, ...]]:
    """Yield the declared symmetries: a copy goes where its part and the host behind it go."""
    old = {new: state for state, new in place.items()}
    for image in made.symmetries:
        hosts = {made.nodes[v].host: made.nodes[image[v]].host for v in range(made.ranks)}
        moved: list[int | None] = []
        for v in range(max([len(made.nodes) - 1, *old]) + 1):
            node, behind = old.get(v, (v, _OWN))
            goes = hosts.get(behind) if behind >= 0 else behind
            default = image[v] if v not in old else None
            moved.append(default if goes is None else place.get((image[node], goes), default))
        if None not in moved and len(set(moved)) == len(moved):
            yield tuple(v for v in moved if v is not None)


# --- each part once -------------------------------------------------------------------------------


Copies = tuple[tuple[int, ...], ...]
"""Of each row of a machine (links, then shared resources) those that stand for it in another."""


class PlainMachine(Frozen, eq=False):
    """A machine with each part once, and where its nodes and rows are in the confined one."""

    machine: Topology
    nodes: tuple[int, ...]
    rows: Copies

    def spread(self, links: Iterable[int]) -> tuple[int, ...]:
        """Return all copies of some links of ``machine``, ascending."""
        return tuple(sorted(copy for i in links for copy in self.rows[i]))

    def shares(self, use: Floats) -> Floats:
        """Return the use of each row of ``machine``, from that of the confined machine's rows:
        copies of a link add up.
        """
        return np.array([use[list(copies)].sum() for copies in self.rows])


@kept()
def plain_machine(made: Topology) -> PlainMachine:
    """Return a confined machine with each part once; any other one as it is."""
    if not any(node.copy_of for node in made.nodes):
        each = tuple((row,) for row in range(len(made.links) + len(made.resources)))
        return PlainMachine(made, tuple(range(len(made.nodes))), each)
    first: dict[str, int] = {}
    for v, node in enumerate(made.nodes):
        first.setdefault(node.copy_of or node.name, v)
    place = {v: i for i, v in enumerate(first.values())}
    part = tuple(place[first[node.copy_of or node.name]] for node in made.nodes)
    ends = [(part[x.src], part[x.dst]) for x in made.links]
    tied: dict[int, tuple[int, ...]] = {}
    shared: list[tuple[int, Resource]] = []
    for row, resource in made.shared_rows():
        held = resource.links
        apart = {_ends(made.links[i]) for i in held}
        if len({ends[i] for i in held}) == 1 < len(apart) == len(held):
            tied[held[0]] = held
        else:
            shared.append((row, resource))
    further = {i for held in tied.values() for i in held[1:]}
    links = [i for i in range(len(made.links)) if i not in further]
    at = {i: k for k, i in enumerate(links)}
    images = (tuple(part[image[v]] for v in first.values()) for image in made.symmetries)
    machine = replace(
        made,
        nodes=tuple(replace(made.nodes[v], name=name, copy_of="") for name, v in first.items()),
        links=tuple(replace(made.links[i], src=ends[i][0], dst=ends[i][1]) for i in links),
        resources=tuple(
            replace(r, links=tuple(at[i] for i in r.links if i in at)) for _, r in shared
        ),
        symmetries=tuple(image for image in images if len(set(image)) == len(image)),
        notes=tuple(note for note in made.notes if note != CONFINED_NOTE),
    )
    rows = (*(tied.get(i, (i,)) for i in links), *((row,) for row, _ in shared))
    return PlainMachine(machine, tuple(first.values()), rows)

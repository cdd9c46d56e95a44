"""Failed links, NICs, nodes and hosts by name, and the machine without them.

A cable is written ``gpu0-gpu3`` (both directions, all parallel links), one direction
``gpu0->gpu3``, the second of parallel ones ``gpu0-gpu3#2``; a NIC ``nic0.3``, ``host2.nic1`` or the
name of the GPU whose only one it is; switches, GPUs and other nodes by their names, hosts as
``host2``. Ranks may be written as numbers.

>>> from weft.dsl.catalogue import topology
>>> dgx = topology("dgx1")
>>> left = degraded(dgx, [find(dgx, "gpu0-gpu1"), rank_down(dgx, 5)])
>>> left.topology.ranks, left.survivors, len(left.gone)
(7, (0, 1, 2, 3, 4, 6, 7), 10)
>>> print(left.summary())
without gpu0-gpu1 and gpu5; ranks 6 … 7 are now 5 … 6
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from ..base.arrays import Ints
from ..base.errors import BadTopology, UserError
from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from ..nouns.capabilities import NO_CAPABILITY, read_capabilities
from ..nouns.collective import Collective
from ..nouns.hops import hop_distances
from ..nouns.problem import required_pairs
from ..nouns.topology import Topology
from ..symmetry.detect import surviving
from ..symmetry.symmetry import extend, guess, is_automorphism
from .confined import confined, plain_machine
from .names import Where, hosts_of, names_of


class Down(Frozen):
    """A failure: its name, the links and ranks that it removes."""

    name: str
    links: tuple[int, ...]
    ranks: tuple[int, ...] = ()


class Degraded(Frozen, eq=False):
    """A machine after failures."""

    # whole, topology: the machine before and after
    whole: Topology
    topology: Topology
    downs: tuple[Down, ...]  # the failures
    gone: tuple[int, ...]  # the removed links, ascending
    survivors: tuple[int, ...]  # the former number of each rank
    link_image: Ints  # the new index of each former link, shape (links,); -1 if removed

    @property
    def dead_ranks(self) -> tuple[int, ...]:
        """Return the former numbers of the removed ranks."""
        return tuple(sorted(set(range(self.whole.ranks)) - set(self.survivors)))

    def summary(self) -> str:
        """Return one line with the failures and the renumbered ranks."""
        names = [down.name for down in self.downs]
        listed = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
        moved = [
            f"{_span(old)} {'is' if len(old) == 1 else 'are'} now {_span(new)}"
            for old, new in _moved(self.survivors)
        ]
        plural = "rank" if len(moved) == 1 and "…" not in moved[0] else "ranks"
        return f"without {listed}" + (f"; {plural} {', '.join(moved)}" if moved else "")


def degraded(topology: Topology, downs: Iterable[Down]) -> Degraded:
    """Return the machine after failures.

    Removed ranks leave the collective; the others are renumbered in order. Switches and NICs
    without any link are removed. Symmetries are kept where they still hold.

    Raises:
        BadTopology: no rank is left.
    """
    listed = tuple({down.name: down for down in downs}.values())
    dead = {rank for down in listed for rank in down.ranks}
    gone = {link for down in listed for link in down.links}
    gone |= {i for i, x in enumerate(topology.links) if x.src in dead or x.dst in dead}
    survivors = tuple(r for r in range(topology.ranks) if r not in dead)
    if not survivors:
        raise BadTopology(f"{topology.name}: no rank is left")
    left = without(topology, gone) if gone else topology
    used = {end for x in left.links for end in (x.src, x.dst)}
    kept = (*survivors, *(v for v in range(topology.ranks, len(topology.nodes)) if v in used))
    had = {end for x in topology.links for end in (x.src, x.dst)}
    if len(kept) < len(survivors) + len([v for v in had if v >= topology.ranks]) or dead:
        left = _restricted(left, kept)
    image = np.full(len(topology.links), -1, np.int64)
    alive = np.array([i for i in range(len(topology.links)) if i not in gone], np.int64)
    image[alive] = np.arange(len(alive))
    made = Degraded(topology, left, listed, tuple(sorted(gone)), survivors, image)
    if not listed:
        return made
    name = f"{topology.name} without {', '.join(down.name for down in listed)}"
    notes = (*topology.notes, made.summary())
    return replace(made, topology=replace(left, name=name, notes=notes))


def without(machine: Topology, gone: set[int]) -> Topology:
    """Return the machine without some links, with the declared symmetries that still hold."""
    left = machine.without_links(gone)
    # Images of switches may change when a parallel switch fails: keep only the ranks' images.
    images = (
        image if is_automorphism(left, image) else extend(left, image[: left.ranks])
        for image in machine.symmetries
    )
    kept = dict.fromkeys([*(image for image in images if image), *surviving(machine, left, gone)])
    return replace(left, symmetries=tuple(kept) or guess(left))


def _restricted(left: Topology, kept: tuple[int, ...]) -> Topology:
    """Return the machine on some of its nodes, with the symmetries that preserve them."""
    made = left.on_nodes(kept, left.name)
    place = {node: i for i, node in enumerate(kept)}
    images = [
        tuple(place[image[v]] for v in kept)
        for image in left.symmetries
        if all(image[v] in place for v in kept)
    ]
    held = tuple(image for image in images if is_automorphism(made, image))
    return replace(made, symmetries=held or guess(made))


# --- names ----------------------------------------------------------------------------------------


def find(topology: Topology, text: str, where: Where = None) -> Down:
    """Return the failure of a named cable, one of its directions, NIC, node or host.

    Raises:
        UnknownName: an unknown name. BadTopology: no cable between two nodes.
        UserError: a parallel link that does not exist.
    """
    text = text.strip()
    names = names_of(topology)
    part = names.find(text, where)
    if part is not None and part.nic is not None:
        return Down(part.name, part.nic.links)
    if part is not None and part.node is not None:
        return node_down(topology, part.node)
    if part is not None and part.host is not None:
        return host_down(topology, part.host, where)
    if (host := re.fullmatch(r"host(\d{1,9})", text)) is not None:
        return host_down(topology, int(host[1]), where)
    if "-" in text:
        return cable_down(topology, text, where)
    if text.isdecimal() and text.isascii() and int(text[:9]) < topology.ranks:
        return rank_down(topology, int(text))
    raise names.unknown("part of the machine", text, where)


def nic_down(topology: Topology, text: str, where: Where = None) -> Down:
    """Return the failure of a NIC by one of its names; a GPU's name stands for its only NIC.

    Raises:
        UnknownName: an unknown NIC. UserError: a machine without NICs.
    """
    found = names_of(topology).nic(text, where)
    return Down(found.name, found.links)


def cable_down(topology: Topology, text: str, where: Where = None) -> Down:
    """Return the failure of links between two nodes: ``a-b``, ``a->b``, ``a-b#2`` of parallel ones.

    Raises:
        UnknownName: an unknown node. BadTopology: no link between them. UserError: not a cable.
    """
    plain, hash_, number = text.strip().partition("#")
    a, b, arrow = _ends(topology, plain, where)
    whole = plain_machine(topology)
    ends = [(whole.nodes[x.src], whole.nodes[x.dst]) for x in whole.machine.links]
    forth = [i for i, link in enumerate(ends) if link == (a, b)]
    back = [i for i, link in enumerate(ends) if link == (b, a)]
    ways = [forth] if arrow else [forth, back]
    if not any(ways):
        raise BadTopology(
            f"expected a cable of {topology.name}, got {text}",
            where=where,
            hint="weft topo show lists the cables",
        )
    if hash_:
        most = max(map(len, ways))
        if not re.fullmatch(r"\d{1,6}", number) or not 1 <= int(number) <= most:
            raise UserError(
                f"{text!r}: there are {most} such links", where=where, hint=f"#1 … #{most}"
            )
        ways = [way[int(number) - 1 : int(number)] for way in ways]
    name = f"{topology.nodes[a].name}{'->' if arrow else '-'}{topology.nodes[b].name}"
    return Down(name + hash_ + number, whole.spread(i for way in ways for i in way))


def node_down(topology: Topology, node: int) -> Down:
    """Return the failure of a node with all its links; a GPU also leaves the collective."""
    name = topology.nodes[node].copy_of or topology.nodes[node].name
    its = {v for v, one in enumerate(topology.nodes) if name in (one.name, one.copy_of)}
    links = tuple(i for i, x in enumerate(topology.links) if x.src in its or x.dst in its)
    return Down(topology.nodes[node].name, links, (node,) if node < topology.ranks else ())


def rank_down(topology: Topology, rank: int, where: Where = None) -> Down:
    """Return the failure of a GPU by its rank.

    Raises:
        UserError: an unknown rank.
    """
    if not 0 <= rank < topology.ranks:
        raise UserError(
            f"rank {rank} is not on {topology.name}",
            where=where,
            hint=f"its ranks are 0 … {topology.ranks - 1}",
        )
    return node_down(topology, rank)


def host_down(topology: Topology, host: int, where: Where = None) -> Down:
    """Return the failure of a host: its GPUs, and all links of its nodes.

    Raises:
        UserError: an unknown host.
    """
    hosts = hosts_of(topology)
    if host not in hosts:
        known = f"host{min(hosts)} … host{max(hosts)}" if hosts else "it has no hosts"
        raise UserError(f"host{host} is not in {topology.name}", where=where, hint=known)
    inside = {v for v, node in enumerate(topology.nodes) if node.host == host}
    links = tuple(i for i, x in enumerate(topology.links) if x.src in inside or x.dst in inside)
    return Down(f"host{host}", links, tuple(sorted(v for v in inside if v < topology.ranks)))


def _ends(topology: Topology, text: str, where: Where) -> tuple[int, int, bool]:
    """Parse the nodes of ``0-1``, ``gpu3-nvswitch0`` or ``gpu0->gpu1``, and the one-way flag."""
    names = names_of(topology)
    for i, letter in enumerate(text):
        if letter != "-":
            continue
        arrow = text[i + 1 : i + 2] == ">"
        a, b = text[:i].strip(), text[i + 1 + arrow :].strip()
        if names.has_node(a) and names.has_node(b):
            return names.node(a, where), names.node(b, where), arrow
    first, dash, second = (part.strip() for part in text.partition("-"))
    second = second.removeprefix(">").strip()
    if not dash or not second:
        raise UserError(f"{text!r} is not a cable", where=where, hint="write 0-1, or gpu0->gpu1")
    names.node(first, where)
    names.node(second, where)
    raise names.unknown("node", first, where)


# --- connectivity ---------------------------------------------------------------------------------


def cut_off(topology: Topology, collective: Collective | None = None) -> tuple[int, ...]:
    """Return the ranks outside the largest strongly connected group (the first of equals).

    Empty where the collective does not need the missing paths: a broadcast has one direction. For
    collectives with roots, the ranks that cannot reach the roots or that the roots cannot reach.
    """
    reached = hop_distances(topology) >= 0
    if reached.all():
        return ()
    if collective is not None:
        missing = [pair for pair in required_pairs(collective) if not reached[pair]]
        # Ranks that the sending root cannot reach, or that cannot reach the receiving root.
        for here, there in ((0, 1), (1, 0)):
            if {pair[here] for pair in missing} <= set(collective.roots):
                return tuple(sorted({pair[there] for pair in missing}))
    mutual = reached & reached.T
    sizes = mutual.sum(axis=1)
    return tuple(np.flatnonzero(~mutual[int(np.argmax(sizes))]).tolist())


def require_whole(left: Degraded, collective: Collective | None = None) -> None:
    """Refuse a disconnected machine, for a collective of the remaining ranks or for any.

    Raises:
        BadTopology: some ranks are cut off; the message has their former numbers.
    """
    lost = [left.survivors[r] for r in cut_off(left.topology, collective)]
    if not lost:
        return
    names = [left.whole.nodes[r].name for r in lost]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    are = "is" if len(lost) == 1 else "are"
    raise BadTopology(
        f"{left.topology.name}: {shown} {are} cut off from the others",
        hint=f"to go on without: --down-rank {ranges(lost)}",
    )


_SHOWN = 12


def ranges(ranks: Sequence[int]) -> str:
    """Return ranks in the syntax of flags: ``0,4..7``.

    >>> ranges((0, 4, 5, 6, 7))
    '0,4..7'
    """
    return ",".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in _runs(ranks)
    )


def _runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        yield [number for _, number in run]


def _moved(survivors: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield runs of renumbered ranks, before and after."""
    new = {old: i for i, old in enumerate(survivors)}
    for run in _runs(old for old in survivors if new[old] != old):
        yield run, [new[old] for old in run]


def _span(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]} … {run[-1]}"


# --- capabilities of switches ---------------------------------------------------------------------

_RANGE = re.compile(r"(.*?)(\d{1,6})\.\.(\d{1,6})")
_EXAMPLE = "rail0:multicast+reduces+turns"
FLAG = "--capable"
"""Name of the flag that overrides capabilities; its texts have ``=`` where options have a colon."""


def capable(machine: Topology, asked: Iterable[tuple[str, Span | str]]) -> Topology:
    """Return the machine with the capabilities of some switches replaced, by name.

    In the text of a machine they are the option ``capable=rail0:multicast+reduces+turns``, on the
    command line ``--capable 'rail0=multicast+reduces+turns'``. ``rail0..3`` names four switches,
    ``none`` takes the capabilities of a switch away.

    >>> from weft.dsl.catalogue import topology
    >>> hub = topology("hub:4,capable=hub:multicast+reduces")
    >>> hub.nodes[4].capabilities
    ('multicast', 'reduces')

    Args:
        machine: any.
        asked: texts ``NAME:WORD+WORD`` (or with ``=``), each with its place for messages.

    Raises:
        UnknownName: no such node or capability. UserError: not such a text, or a GPU.
    """
    plain = plain_machine(machine).machine
    names, found = names_of(plain), dict[int, frozenset[str]]()
    for text, where in asked:
        name, words = split_capable(text, where)
        known = [word.strip() for word in words.split("+")]
        able = read_capabilities([] if known == [NO_CAPABILITY] else known, where)
        for one in _each(name):
            node = names.node(one, where)
            if plain.nodes[node].stores:
                raise UserError(
                    f"{plain.nodes[node].name} is a GPU",
                    where=where,
                    hint="switches multicast and reduce",
                )
            found[node] = able
    made = plain.with_capabilities(found)
    made = made if plain is machine else confined(made)
    held = tuple(image for image in made.symmetries if is_automorphism(made, image))
    return replace(made, symmetries=held or guess(made))


def split_capable(text: str, where: Span | str) -> tuple[str, str]:
    """Return the name and the words of ``rail0:multicast+reduces``; ``=`` stands for the colon.

    Raises:
        UserError: it is not of this form.
    """
    parts = re.split(r"[:=]", text)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise UserError(
            f"{text[:60]!r} names no switch with its capabilities",
            where=where,
            hint=_EXAMPLE.replace(":", "=") if where == FLAG else _EXAMPLE,
        )
    return parts[0].strip(), parts[1].strip()


def _each(name: str) -> Iterator[str]:
    """Yield the names of ``rail0..3``, or the one of any other text."""
    match = _RANGE.fullmatch(name)
    if match is None:
        yield name
        return
    yield from (f"{match[1]}{i}" for i in range(int(match[2]), int(match[3]) + 1))

"""Names of the parts of a machine: weft's own, and those of the machine's tools.

Weft's names are exact (``gpu11``, ``rail3``, ``nic0.3``, ``host1``, ``host0.nic3``). The tools'
(``mlx5_3``, ``NIC3``, ``GPU3``, PCI bus ids, kept by importers) are read without regard to case and
to leading zeros of the PCI domain; ``host1.``, or the host's own name, before one says of which
host it is. A name that several hosts have needs it. GPUs without other numbers are ``GPU0`` … in
each host.

>>> from weft.dsl.catalogue import topology
>>> two = names_of(topology("dgx-a100:nodes=2"))
>>> two.node("host1.GPU3"), two.node("gpu11"), two.nic("NIC3")
Traceback (most recent call last):
    ...
weft.dsl.base.errors.UserError: 'NIC3' is on 2 hosts
<BLANKLINE>
hint: say which: host0.NIC3 or host1.NIC3
>>> two.node("host1.GPU3"), two.node("gpu11"), two.nic("host1.NIC3").name
(11, 11, 'host1.nic3')
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..base.errors import UnknownName, UserError, suggest
from ..base.lazy_dataclass import Frozen
from ..base.spans import Span
from ..nouns.topology import Node, Topology
from .confined import plain_machine
from .nics import Nic, nics_of
from .spec import OptionValue

Where = Span | str | None

_BUS_ID = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE
)
_OF_HOST = re.compile(r"host(\d{1,9})\.(.+)", re.IGNORECASE)
_GPU = re.compile(r"GPU\d+", re.IGNORECASE)

_SHOWN = 8
"""Candidates of an ambiguous name that a message lists."""


class MachinePart(Frozen):
    """A part by its displayed name: a node, a NIC (node or not), or a host."""

    name: str
    node: int | None = None
    nic: Nic | None = None
    host: int | None = None


class Names(Frozen):
    """The names of a machine's parts; ``weft``: exact ones, ``own``: the tools' by host, folded."""

    topology: Topology
    weft: Mapping[str, MachinePart]
    own: Mapping[str, Sequence[tuple[int, MachinePart]]]

    def part(self, text: str, where: Where = None) -> MachinePart:
        """Return the part of a name.

        Raises:
            UnknownName: no such part; the hint says so if it was left out. UserError: several.
        """
        found = self.find(text, where)
        if found is None:
            raise self.unknown("part of the machine", text, where)
        return found

    def node(self, text: str, where: Where = None) -> int:
        """Return the node of a name; the numbers of ranks are names, too.

        Raises:
            As :meth:`part`; UserError: a part that is not a node.
        """
        text = text.strip()
        if text.isdecimal() and text.isascii() and int(text[:9]) < self.topology.ranks:
            return int(text)
        found = self.find(text, where)
        if found is None:
            raise self.unknown("node", text, where)
        if found.node is None:
            raise UserError(
                f"{found.name} is {'a cable' if found.nic else 'a host'}, and no node of "
                f"{self.topology.name}",
                where=where,
            )
        return found.node

    def has_node(self, text: str) -> bool:
        """Return True if a text is a number of a rank, or the name of some part but a host."""
        number = text.isdecimal() and text.isascii()
        if number and int(text[:9]) < self.topology.ranks:
            return True
        if text in self.weft:
            return self.weft[text].host is None
        if number:
            return False
        return _folded(self._split(text)[1]) in self.own

    def rank(self, text: str, where: Where = None) -> int:
        """Return the rank of a GPU's name.

        Raises:
            As :meth:`part`; UserError: a part that is not a GPU.
        """
        found = self.find(text, where)
        ranks = range(self.topology.ranks)
        if found is None:
            gpus = [self.topology.nodes[r].name for r in ranks]
            raise self.unknown("GPU", text, where, gpus)
        if found.node is None or found.node not in ranks:
            raise UserError(f"{found.name} is not a GPU of {self.topology.name}", where=where)
        return found.node

    def nic(self, text: str, where: Where = None) -> Nic:
        """Return the NIC of a name; a GPU's name stands for its only NIC.

        Raises:
            As :meth:`part`; UserError: a machine without NICs.
        """
        nics = [part.nic for part in self.weft.values() if part.nic is not None]
        if not nics:
            raise UserError(
                f"{self.topology.name} has no NICs",
                where=where,
                hint=_left_out(self.topology, text) or "weft topo show lists what it has",
            )
        found = self.find(text, where)
        if found is not None and found.nic is None and found.node is not None:
            its = {nic.links: nic for nic in nics if found.node in nic.gpus}
            if len(its) == 1:
                return next(iter(its.values()))
        if found is None or found.nic is None:
            raise self.unknown("NIC", text, where, [n for nic in nics for n in nic.names])
        return found.nic

    def find(self, text: str, where: Where = None) -> MachinePart | None:
        """Return the part of a name, or None.

        Raises:
            UserError: several parts have the name.
        """
        text = text.strip()
        if text in self.weft:
            return self.weft[text]
        host, plain = self._split(text)
        found = [p for h, p in self.own.get(_folded(plain), ()) if host is None or h == host]
        if len(found) > 1:
            raise self._ambiguous(text, sorted(found, key=lambda p: self._host(p) or 0), where)
        return found[0] if found else None

    def _split(self, text: str) -> tuple[int | None, str]:
        """Return the host of ``host1.mlx5_3`` or ``node07.mlx5_3``, and the rest."""
        if (match := _OF_HOST.fullmatch(text)) is not None:
            return int(match[1]), match[2]
        numbers = {name.casefold(): h for h, name in enumerate(self.topology.host_names)}
        for i, letter in enumerate(text):
            if letter == "." and text[:i].casefold() in numbers:
                return numbers[text[:i].casefold()], text[i + 1 :]
        return None, text

    def unknown(
        self, kind: str, text: str, where: Where, known: Iterable[str] | None = None
    ) -> UserError:
        """Return the error of an unknown name; of a part that an importer left out, it says so."""
        text = text.strip()
        if note := _left_out(self.topology, text):
            return UserError(
                f"{text!r} is not a part of {self.topology.name}", where=where, hint=note
            )
        listed = list(self.weft if known is None else known)
        hint = suggest(text, listed)
        if not hint.startswith("did"):
            # Names of the tools are tried apart: with the hosts they are too far from a slip.
            near = suggest(_folded(text), self.own)
            hint = near if near.startswith("did") else hint
        error = UnknownName(kind, text, (), where=where)
        error.hint = hint
        return error

    def _ambiguous(self, text: str, found: Sequence[MachinePart], where: Where) -> UserError:
        names = [self._with_host(text, part) for part in found]
        shown = " or ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        hosts = {self._host(part) for part in found}
        many = f"{len(hosts)} hosts" if len(hosts) == len(found) else f"{len(found)} parts"
        return UserError(
            f"{text!r} is {'on' if len(hosts) == len(found) else 'the name of'} {many}",
            where=where,
            hint=f"say which: {shown}",
        )

    def _host(self, part: MachinePart) -> int | None:
        if part.nic is not None:
            return part.nic.host
        return None if part.node is None else self.topology.nodes[part.node].host

    def _with_host(self, text: str, part: MachinePart) -> str:
        host = self._host(part)
        plain = self._split(text)[1]
        prefixed = f"host{host}.{plain}"
        is_one = [p for h, p in self.own.get(_folded(plain), ()) if h == host] == [part]
        return prefixed if host is not None and is_one else part.name


def names_of(topology: Topology) -> Names:
    """Return the names of a machine's parts."""
    weft: dict[str, MachinePart] = {}
    own: dict[str, dict[MachinePart, int]] = defaultdict(dict)
    nics = nics_of(topology)
    is_nic = {nic.node for nic in nics if nic.node is not None}
    local: Counter[int | None] = Counter()
    whole = plain_machine(topology)
    for v, node in zip(whole.nodes, whole.machine.nodes, strict=True):
        if v in is_nic:
            continue
        part = MachinePart(node.name, v)
        weft[node.name] = part
        names = node.names
        if v < topology.ranks:
            names = _gpu_names(node, local[node.host])
            local[node.host] += 1
        for name in names:
            own[_folded(name)][part] = node.host or 0
    for nic in reversed(nics):
        part = MachinePart(nic.name, nic.node, nic)
        weft |= {name: part for name in nic.names if weft.get(name, part).nic is not None}
        for name in (*nic.own, f"nic{nic.number}"):
            own[_folded(name)][part] = nic.host
    for host in hosts_of(topology):
        part = weft.setdefault(f"host{host}", MachinePart(f"host{host}", host=host))
        if host < len(topology.host_names):
            own[_folded(topology.host_names[host])][part] = host
    for name, part in weft.items():  # in any case of letters, unless that is another part
        own.setdefault(_folded(name), {part: 0})
    folded = {name: tuple((host, p) for p, host in parts.items()) for name, parts in own.items()}
    return Names(topology, weft, folded)


def named_places(
    values: Sequence[OptionValue], named: Sequence[Sequence[str]], what: str
) -> tuple[int, ...]:
    """Return the positions of devices that an option names, of devices with their names.

    Raises:
        UnknownName: no device has the name. UserError: several have it.
    """
    places: dict[str, set[int]] = defaultdict(set)
    for place, names in enumerate(named):
        for name in names:
            places[_folded(name)].add(place)
    found: list[int] = []
    for value in values:
        these = sorted(places.get(_folded(value.text), ()))
        if not these:
            every = [name for names in named for name in names]
            raise UnknownName(what, value.text, every, where=value.span)
        if len(these) > 1:
            others = [name for place in these for name in named[place]]
            unique = [name for name in others if len(places[_folded(name)]) == 1]
            raise UserError(
                f"{value.text!r} is the name of {len(these)} NICs",
                where=value.span,
                hint=f"say which: {' or '.join(unique)}" if unique else "",
            )
        found += these
    return tuple(dict.fromkeys(found))


def hosts_of(topology: Topology) -> list[int]:
    """Return the numbers of the hosts."""
    return sorted({node.host for node in topology.nodes if node.host is not None})


def _gpu_names(node: Node, place: int) -> tuple[str, ...]:
    """Return the tools' names of a GPU: without one of its own, by its place in the host."""
    if any(map(_GPU.fullmatch, node.names)):
        return node.names
    return (f"GPU{place}", *node.names)


def _folded(text: str) -> str:
    """Return a name as it is compared: without case, bus ids in full."""
    if (match := _BUS_ID.fullmatch(text)) is None:
        return text.casefold()
    domain, bus, device = (int(part or "0", 16) for part in match.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4]}"


def _left_out(topology: Topology, text: str) -> str:
    """Return the note about a named device that was left out; empty without any."""
    plain = re.escape(text.partition(".")[2] if _OF_HOST.fullmatch(text) else text)
    named = re.compile(rf"(?<![\w.:]){plain}(?![\w.:])", re.IGNORECASE)
    return next((n for n in topology.notes if "left out" in n and named.search(n)), "")

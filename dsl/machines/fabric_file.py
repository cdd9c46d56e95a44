"""Fabrics in files: leaf-spine descriptions in TOML, Slurm's topology.conf, ibnetdiscover's text.

Each becomes a layout: switches, links between them, and the leaf switch of every NIC of the hosts
in the file's order. ``fabric=FILE`` places the hosts of a machine in it, ``hosts=`` the named ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter

from ..base.errors import BadFile, UnknownName, UserError, placed
from ..base.files import Fields, parse_toml
from ..base.lazy_dataclass import Frozen
from ..base.units import exact, parse_microseconds

MOST_HOSTS = 1 << 16


class FabricSwitch(Frozen):
    """A switch; ``names``: those of the file, where it has another here."""

    name: str
    names: tuple[str, ...] = ()


class FabricLink(Frozen):
    """A cable between two switches, by position; None: GB/s of the links below, µs of a NIC."""

    low: int
    high: int
    bandwidth: Fraction | None = None
    alpha: Fraction | None = None


class FabricPort(Frozen):
    """A NIC of a host on a leaf switch; without a ``device``, any of the host's NICs."""

    leaf: int
    device: str = ""
    bandwidth: Fraction | None = None


class FabricHost(Frozen):
    """A host by its name in the file (empty: it has none), and where its NICs are."""

    name: str
    ports: tuple[FabricPort, ...]

    def port(self, slot: int, names: Sequence[str], fabric: str) -> FabricPort:
        """Return the place of a NIC by its names, or by its slot in a file without devices.

        Raises:
            UserError: the fabric lacks the NIC.
        """
        named = {port.device: port for port in self.ports if port.device}
        found = next((named[name] for name in names if name in named), None)
        if found is not None:
            return found
        if named and any(re.match(r"mlx|hfi|bnxt|ib", device) for device in named) and names:
            raise UserError(
                f"{names[0]} of {self.name} is not in {fabric}",
                hint=f"there are {', '.join(sorted(named))}; without={names[0]} leaves it out",
            )
        if len(self.ports) == 1 and not self.ports[0].device:
            return self.ports[0]
        if slot < len(self.ports):
            return self.ports[slot]
        raise UserError(
            f"{self.name or 'a host'} has more than {slot} NICs, and {len(self.ports)} in {fabric}",
            hint="without= leaves NICs out",
        )


class FabricLayout(Frozen):
    """Switches, the links between them, and the hosts that the fabric has places for."""

    switches: tuple[FabricSwitch, ...]
    links: tuple[FabricLink, ...]
    hosts: tuple[FabricHost, ...]
    oversub: Fraction = Fraction(1)
    notes: tuple[str, ...] = ()


class FabricFile(Frozen):
    """A fabric that was read: a layout, or a pattern for any number of hosts."""

    name: str
    layout: FabricLayout | None = None
    pattern: LeafSpine | None = None
    chosen: tuple[str, ...] = field(default=())

    def laid_out(self, hosts: int, slots: int) -> FabricLayout:
        """Return the layout of a number of hosts with a number of NICs.

        Raises:
            UserError: more hosts than the fabric has, or unknown ones.
        """
        if self.pattern is not None:
            made = self.pattern.laid_out(hosts, slots)
        else:
            assert self.layout is not None
            made = self.layout
        if self.chosen:
            places = {host.name: host for host in made.hosts if host.name}
            for name in self.chosen:
                if name not in places:
                    raise UnknownName(f"host of {self.name}", name, places)
            listed = tuple(places[name] for name in self.chosen)
            made = FabricLayout(made.switches, made.links, listed, made.oversub, made.notes)
        if len(made.hosts) < hosts:
            raise UserError(
                f"{self.name} has places for {len(made.hosts)} hosts, the machine has {hosts}",
                hint="hosts= names them" if self.chosen else "nodes= says how many there are",
            )
        return made


class LeafSpine(Frozen):
    """Racks of hosts, each with a leaf switch or one for every rail, joined by spines."""

    racks: tuple[int, ...]
    rails: bool
    spines: int
    oversub: Fraction
    hop: Fraction | None

    def laid_out(self, hosts: int, slots: int) -> FabricLayout:
        """Return the layout; hosts fill the racks in order, the last kind of rack is repeated."""
        sizes = list(self.racks)
        while sum(sizes) < hosts:
            sizes.append(sizes[-1])
        rails = slots if self.rails else 1
        switches = [
            FabricSwitch(f"leaf{rack}.{rail}" if self.rails else f"leaf{rack}")
            for rack in range(len(sizes))
            for rail in range(rails)
        ]
        leaves = len(switches)
        switches += [
            FabricSwitch(f"spine{i}" if self.spines > 1 else "spine") for i in range(self.spines)
        ]
        links = tuple(
            FabricLink(leaf, leaves + spine, None, self.hop)
            for leaf in range(leaves)
            for spine in range(self.spines)
        )
        placed = [
            FabricHost("", tuple(FabricPort(rack * rails + rail) for rail in range(rails)))
            for rack, size in enumerate(sizes)
            for _ in range(size)
        ]
        return FabricLayout(tuple(switches), links, tuple(placed), self.oversub)


def read_fabric(text: str, name: str) -> FabricFile:
    """Return the fabric of a file; ``name`` is for messages.

    Raises:
        BadFile: an unknown format, or an invalid text.
    """
    if re.search(r"^[ \t]*SwitchName\s*=", text, re.MULTILINE | re.IGNORECASE):
        return FabricFile(name, _slurm(text, name))
    if re.search(r'^[ \t]*Switch\s+\d+\s+"S-', text, re.MULTILINE):
        return FabricFile(name, _infiniband(text, name))
    if re.search(r"^[ \t]*(racks|hosts_per_rack)\s*=", text, re.MULTILINE):
        return FabricFile(name, pattern=_leaf_spine(text, name))
    raise BadFile(
        "not a fabric",
        where=name,
        hint="weft reads TOML with hosts_per_rack =, Slurm's topology.conf, ibnetdiscover's text",
    )


# --- TOML -----------------------------------------------------------------------------------------


def _leaf_spine(text: str, where: str) -> LeafSpine:
    fields = Fields(parse_toml(text, where, exact=True), where)
    fields.get("schema", int, 1)
    each = fields.get("hosts_per_rack", int, 0)
    racks = fields.get("racks", (int, list), [])
    sizes = list(racks) if isinstance(racks, list) else [each] * racks
    sizes = sizes or [each]
    rails = fields.get("rails", bool, False)
    spines = fields.get("spines", int, 1)
    over, hop_text = fields.get("oversubscription", (int, str), 1), fields.get("hop", str, "")
    fields.finish()
    if not all(type(x) is int and 0 < x <= MOST_HOSTS for x in sizes) or sum(sizes) > MOST_HOSTS:
        raise BadFile(
            "racks of no hosts",
            where=where,
            hint="hosts_per_rack = 4, or racks = [4, 4, 2] with the hosts of each",
        )
    if not 1 <= spines <= 1024:
        raise BadFile(f"{spines} spines", where=where, hint="spines = 1 to 1024")
    key = "oversubscription"
    ratio = placed(lambda: exact(over, key), f"{where}: {key}")
    hop = placed(lambda: parse_microseconds(hop_text), f"{where}: hop") if hop_text else None
    if ratio <= 0:
        raise BadFile(
            "oversubscription must be a positive number",
            where=where,
            hint="oversubscription = 2: twice as much bandwidth down as up",
        )
    return LeafSpine(tuple(sizes), rails, spines, ratio, hop)


# --- Slurm ----------------------------------------------------------------------------------------


def _slurm(text: str, where: str) -> FabricLayout:
    """Return the tree of topology.conf (plugin topology/tree)."""
    entries: dict[str, tuple[int, dict[str, str]]] = {}
    for line, fields in _slurm_lines(text):
        for name in _expanded(fields.get("switchname", ""), f"{where}:{line}"):
            if name in entries:
                raise BadFile(f"switch {name!r} is listed twice", where=f"{where}:{line}")
            entries[name] = line, fields
    place = {name: i for i, name in enumerate(entries)}
    links: list[FabricLink] = []
    hosts: list[FabricHost] = []
    on: dict[str, str] = {}
    for name, (line, fields) in entries.items():
        at = f"{where}:{line}"
        for child in _expanded(fields.get("switches", ""), at):
            if child not in place:
                raise UnknownName("switch", child, place, where=at)
            links.append(FabricLink(place[child], place[name]))
        port = (FabricPort(place[name]),)
        for host in _expanded(fields.get("nodes", ""), at):
            if host in on:
                raise BadFile(f"node {host!r} is on {on[host]!r} too", where=at, hint=_ONE_LEAF)
            on[host] = name
            hosts.append(FabricHost(host, port))
    _require_tree(entries, links, where)
    if not hosts:
        raise BadFile("no switch has Nodes=", where=where)
    switches = tuple(FabricSwitch(name) for name in entries)
    notes = (
        f"{where}: Slurm's tree lacks bandwidths: a switch has as much upwards as its hosts "
        "have together (oversub= divides it)",
    )
    return FabricLayout(switches, tuple(links), tuple(hosts), notes=notes)


_ONE_LEAF = "keep each node on one leaf switch; rails = true of a TOML file has several"


def _require_tree(entries: Collection[str], links: Sequence[FabricLink], where: str) -> None:
    names = tuple(entries)
    above = TopologicalSorter[str]()
    for link in links:
        above.add(names[link.low], names[link.high])
    try:
        above.prepare()
    except CycleError as error:
        circle = " below ".join(error.args[1])
        raise BadFile(
            f"a switch is below itself: {circle}",
            where=where,
            hint="Switches= names the switches below",
        ) from None


def _slurm_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the entries with their lines, continued ones joined."""
    joined, first = "", 0
    for number, raw in enumerate(text.replace("\r", "").splitlines(), 1):
        line = raw.partition("#")[0].rstrip()
        first = first or number
        joined += line.removesuffix("\\") + " "
        if line.endswith("\\"):
            continue
        words = "=".join(part.strip() for part in joined.split("=")).split()
        cuts = [(word, word.find("=")) for word in words]
        fields = {word[:at].lower(): word[at + 1 :] for word, at in cuts if at > 0}
        if "switchname" in fields:
            yield first, fields
        joined, first = "", 0


def _expanded(text: str, where: str) -> list[str]:
    """Return the names of ``node[01-03,7],login``."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", text):
        found = [""]
        for plain, listed in re.findall(r"([^\[]*)(?:\[([^\]]*)\])?", part):
            numbers = [""] if not listed else _numbers(listed, where)
            found = [f"{name}{plain}{number}" for name in found for number in numbers]
        names += found
        if len(names) > MOST_HOSTS:
            raise BadFile(f"more than {MOST_HOSTS} names", where=where)
    return names


def _numbers(text: str, where: str) -> list[str]:
    """Return the numbers of ``01-03,7``, with their zeros."""
    found: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise BadFile(f"{part!r} is not a range of numbers", where=where)
        low, high = int(match[1]), int(match[2] or match[1])
        if high - low >= MOST_HOSTS:
            raise BadFile(f"more than {MOST_HOSTS} names", where=where)
        found += [str(i).zfill(len(match[1])) for i in range(low, high + 1)]
    return found


# --- InfiniBand -----------------------------------------------------------------------------------

_SWITCH = re.compile(r'\s*Switch\s+\d+\s+"(S-[0-9a-fA-F]+)"\s*#\s*"([^"]*)"')
_OTHER = re.compile(r'\s*(?:Ca|Rt)\s+\d+\s+"')
_CABLE = re.compile(
    r'\s*\[(\d+)\][^"]*"([SHR]-[0-9a-fA-F]+)"\[(\d+)\][^#]*#\s*"([^"]*)"'
    r"\s*lid\s+\d+\s+(\d{1,2})x([A-Z]+\d*)"
)
_GBPS = dict(
    rate.split(":")
    for rate in "SDR:2 DDR:4 QDR:8 FDR10:10 FDR:13.64 EDR:25 HDR:50 NDR:100 XDR:200".split()
)
"""Data rate of a lane in Gbit/s, as InfiniBand's trade association lists them."""


def _infiniband(text: str, where: str) -> FabricLayout:
    """Return the layout of the switches' blocks: NICs of hosts, and cables between switches."""
    seen: dict[str, str] = {}
    cables: Counter[tuple[str, str, Fraction]] = Counter()
    ports: dict[str, list[tuple[str, str, Fraction]]] = defaultdict(list)
    at = ""
    for number, line in enumerate(text.replace("\r", "").splitlines(), 1):
        if (switch := _SWITCH.match(line)) is not None:
            at = switch[1]
            if at in seen:
                raise BadFile(
                    f"switch {at!r} is listed twice",
                    where=f"{where}:{number}",
                    hint="one run of ibnetdiscover in a file",
                )
            seen[at] = switch[2]
        elif _OTHER.match(line):
            at = ""
        elif at and (cable := _CABLE.match(line)) is not None:
            if cable[6] not in _GBPS:
                raise UnknownName("speed", cable[6], _GBPS, where=f"{where}:{number}")
            width = Fraction(_GBPS[cable[6]]) * int(cable[5]) / 8
            if cable[2].startswith("S-"):
                cables[at, cable[2], width] += 1
            elif cable[2].startswith("H-") and "Aggregation Node" not in cable[4]:
                host, _, device = cable[4].partition(" ")
                ports[host].append((device, at, width))
    if not ports:
        raise BadFile(
            "no host is on a switch",
            where=where,
            hint='ibnetdiscover lists below each switch the NICs on its ports, "H-…"',
        )
    return _of_cables(seen, cables, ports)


def _of_cables(
    seen: dict[str, str],
    cables: Counter[tuple[str, str, Fraction]],
    ports: dict[str, list[tuple[str, str, Fraction]]],
) -> FabricLayout:
    leaves = {leaf for listed in ports.values() for _, leaf, _ in listed}
    order = sorted(seen, key=lambda guid: guid not in leaves)
    place = {guid: i for i, guid in enumerate(order)}
    first_spine = len(leaves)
    switches = tuple(
        FabricSwitch(
            f"leaf{i}" if i < first_spine else f"spine{i - first_spine}",
            (guid.removeprefix("S-"), *filter(None, [seen[guid]])),
        )
        for i, guid in enumerate(order)
    )
    # Both ends list a cable between switches.
    links = tuple(
        FabricLink(place[a], place[b], width * count)
        for (a, b, width), count in cables.items()
        if b in place and place[a] < place[b]
    )
    hosts = tuple(
        FabricHost(
            name,
            tuple(
                FabricPort(place[leaf], device, width)
                for device, leaf, width in sorted(listed, key=lambda one: _natural(one[0]))
            ),
        )
        for name, listed in sorted(ports.items(), key=lambda item: _natural(item[0]))
    )
    return FabricLayout(switches, links, hosts)


def _natural(name: str) -> list[tuple[str, int]]:
    return [(word, int(n or 0)) for word, n in re.findall(r"(\D*)(\d*)", name)]

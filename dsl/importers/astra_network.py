"""Importers of ASTRA-sim's networks: ``network.yml`` of its analytical back end, and ns-3's file.

``network.yml`` has lists with an entry per dimension: ``topology`` (Ring, FullyConnected, Switch),
``npus_count``, ``bandwidth`` in GB/s of a link with GB = 2^30 (``bw_GBps_to_Bpns``), ``latency`` in
ns of a hop. Ranks differ first in the first dimension. ns-3's file (``SetupNetwork``) is words:
numbers of nodes, switches and links, the switches' ids, then for each full-duplex link ``src dst
rate delay error``. SimAI has six words in the first line, and NVSwitches among the ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ..base.errors import BadFile
from ..base.lazy_dataclass import Frozen
from ..machines.spec import MAX_GPUS, MAX_LINKS, MachineSpec
from ..nouns.topology import Link, Node, Topology, both_ways, gpu, switch
from ..symmetry.symmetry import guess

KINDS = ("Ring", "FullyConnected", "Switch")
KEYS = ("topology", "npus_count", "bandwidth", "latency")

_KEY = re.compile(r"([\"']?)(\w[\w.-]{0,99})\1\s*:(?=\s|$)")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_DOCUMENT = re.compile(r"(?:---|\.\.\.|%YAML|%TAG)(?=\s|$)")
"""Line between two documents, or a directive."""

_GIB = Fraction(1 << 30, 10**9)
"""GB/s in which a GB/s of ``network.yml`` is given."""


class NetworkDimension(Frozen):
    """A dimension: GB/s of a link, µs of a hop, both in weft's units."""

    kind: str
    size: int
    bandwidth: Fraction
    latency: Fraction


def looks_like_astra_yml(text: str) -> bool:
    """Return True for the text of a ``network.yml``: some line has the key ``npus_count``."""
    return re.search(r"^([\"']?)npus_count\1\s*:", text[:100_000], re.MULTILINE) is not None


def read_astra_yml(text: str, where: str, options: MachineSpec) -> Topology:
    """Return GPUs in a product of rings, complete graphs and switches.

    Raises:
        BadFile: a key missing, lists of different lengths, an unknown kind, or a wrong number.
    """
    dims = _dimensions(text, where)
    shape = [one.size for one in dims]
    ranks = math.prod(shape)
    links_each = sum(one.size - 1 if one.kind == KINDS[1] else 2 for one in dims)
    if ranks > MAX_GPUS or ranks * links_each > MAX_LINKS:
        raise BadFile(
            f"{ranks} NPUs and {ranks * links_each} links are more than {MAX_GPUS} and {MAX_LINKS}",
            where=where,
        )
    nodes: list[Node] = list(map(gpu, range(ranks)))
    links: list[Link] = []
    hub: dict[tuple[int, int], int] = {}
    stride = 1
    for axis, one in enumerate(dims):
        for first in (r for r in range(ranks) if r // stride % one.size == 0):
            line = [first + stride * c for c in range(one.size)]
            if one.kind == "Switch":
                hub[axis, first] = len(nodes)
                nodes.append(switch(f"switch{axis}.{first}"))
            links += _block(line, one, len(nodes) - 1)
        stride *= one.size
    moves = tuple(_rotation(shape, axis, ranks, hub) for axis in range(len(dims)))
    notes = ("ASTRA-sim's analytical network: its bandwidths are GB/s of 2^30 bytes, of each link",)
    return Topology(options.title(), tuple(nodes), tuple(links), symmetries=moves, notes=notes)


def _block(line: Sequence[int], one: NetworkDimension, hub: int) -> Iterator[Link]:
    """Yield the links of the GPUs of one dimension's ring, graph or switch."""
    if one.kind == "Switch":
        cables = [(node, hub) for node in line]
    elif one.kind == "Ring":
        cables = list(zip(line, [*line[1:], *line[:1]], strict=True))[: None if line[2:] else 1]
    else:
        cables = [(a, b) for i, b in enumerate(line) for a in line[:i]]
    for a, b in cables:
        yield from both_ways(a, b, one.bandwidth, one.latency)


def _rotation(
    shape: Sequence[int], axis: int, ranks: int, hub: dict[tuple[int, int], int]
) -> tuple[int, ...]:
    """Return the nodes' images where one coordinate of every GPU grows by 1."""
    stride, size = math.prod(shape[:axis]), shape[axis]

    def moved(rank: int) -> int:
        place = rank // stride % size
        return rank + ((place + 1) % size - place) * stride

    switches = ((of, first if of == axis else moved(first)) for of, first in hub)
    return (*map(moved, range(ranks)), *(hub[one] for one in switches))


def _dimensions(text: str, where: str) -> list[NetworkDimension]:
    found = _lists(text, where)
    for key in KEYS:
        if key not in found:
            raise BadFile(f"{key}: is missing", where=where, hint=f"keys are {', '.join(KEYS)}")
    many = len(found["topology"][1])
    for key in KEYS:
        line, values = found[key]
        if len(values) != many:
            raise BadFile(
                f"{key} has {len(values)} values for {many} dimensions", where=f"{where}:{line}"
            )
    made = []
    for at in range(many):
        kind = found["topology"][1][at]
        if kind not in KINDS:
            place = f"{where}:{found['topology'][0]}"
            raise BadFile(f"{kind[:40]!r} is none of {', '.join(KINDS)}", where=place)
        size, bandwidth, latency = (
            _number(found[key], at, f"{where}:{found[key][0]}") for key in KEYS[1:]
        )
        if size < 2 or size.denominator != 1 or bandwidth <= 0 or latency < 0:
            raise BadFile(
                f"dimension {at} has {float(size):g} NPUs, {float(bandwidth):g} GB/s and "
                f"{float(latency):g} ns",
                where=f"{where}:{found['npus_count'][0]}",
                hint="at least 2 NPUs, a positive bandwidth, no negative latency",
            )
        made.append(NetworkDimension(kind, int(size), bandwidth * _GIB, latency / 1000))
    return made


def _number(told: tuple[int, list[str]], at: int, where: str) -> Fraction:
    word = told[1][at]
    if not re.fullmatch(r"-?\d{1,12}\.?\d{0,12}(e[+-]?\d{1,2})?", word, re.IGNORECASE):
        raise BadFile(f"{word[:40]!r} is not a number", where=where)
    return Fraction(word.rstrip("."))


def _lists(text: str, where: str) -> dict[str, tuple[int, list[str]]]:
    """Return the line and the values of each key: ``[a, b]``, one value, or lines ``- a``."""
    found: dict[str, tuple[int, list[str]]] = {}
    current = ""
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        plain = _COMMENT.sub("", line)
        if _DOCUMENT.match(plain):
            current = ""
        elif (key := _KEY.match(plain)) is not None:
            current = key[2]
            if current in found:
                raise BadFile(f"{current} occurs twice", where=f"{where}:{number}")
            plain = plain[key.end() :]
            if current in KEYS:
                found[current] = (number, [])
        if current not in found:
            continue  # a key of another reader
        for word in re.sub(r"[\[\],]", " ", plain).split():
            if word[0] in "&*!{}|>" or word.endswith(":"):
                raise BadFile(
                    f"expected values of {current}, got {word[:40]!r}",
                    where=f"{where}:{number}",
                    hint="values are written out, as in [ 8, 4 ]; anchors and tags are not read",
                )
            if word != "-":
                found[current][1].append(word.strip("\"'"))
    return found


# --- ns-3 -----------------------------------------------------------------------------------------

_SCALES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SCALES |= {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

_RATES = {
    f"{prefix}{unit}": Fraction(scale, bits * 10**9)
    for prefix, scale in _SCALES.items()
    for unit, bits in (("bps", 8), ("b/s", 8), ("Bps", 1), ("B/s", 1))
}
"""GB/s of ns-3's units of rates."""

_DELAYS: Mapping[str, Fraction | int] = {
    "s": 10**6,
    "ms": 10**3,
    "us": 1,
    "ns": Fraction(1, 10**3),
    "ps": Fraction(1, 10**6),
}
"""µs of ns-3's units of times."""

_AMOUNT = r"(\d{1,12}(?:\.\d{1,12})?)"
_RATE = re.compile(rf"{_AMOUNT}([kKMGT]?i?[bB](?:ps|/s))")
_DELAY = re.compile(rf"{_AMOUNT}(s|ms|us|ns|ps)")
_HEAD = re.compile(
    r"\s*(?:\d{1,9}[ \t]+){2}\d{1,9}(?:[ \t]+\d{1,9}[ \t]+\d{1,9}[ \t]+\w{1,40})?\s*\n"
)
_LINK = re.compile(
    rf"^[ \t]*\d{{1,9}}[ \t]+\d{{1,9}}[ \t]+{_RATE.pattern}[ \t]+{_DELAY.pattern}\s", re.MULTILINE
)


def looks_like_ns3(text: str) -> bool:
    """Return True for a header of three or six words and a link with a rate and a delay."""
    return _HEAD.match(text) is not None and _LINK.search(text, 0, 200_000) is not None


def read_ns3(text: str, where: str, options: MachineSpec) -> Topology:
    """Return all links, and as GPUs, in the order of their ids, the nodes that are not switches.

    Raises:
        BadFile: a word missing, an id that is none, or a rate or delay without its unit.
    """
    lines = text.lstrip("\ufeff").splitlines()
    words = iter(
        [(word, f"{where}:{n}") for n, line in enumerate(lines, 1) for word in line.split()]
    )
    six = len(next(line for line in lines if line.strip()).split()) == 6
    nodes, each, nvswitches, switches, links = (
        _count(words, where) if six or i in (0, 3, 4) else 0 for i in range(5)
    )
    if six:
        next(words)  # the type of the GPUs
    if nodes > MAX_GPUS or links > MAX_LINKS:
        raise BadFile(f"more than {MAX_GPUS} nodes or {MAX_LINKS} links", where=where)
    ids = [_count(words, where, nodes) for _ in range(nvswitches + switches)]
    switch_ids = set(ids)
    gpus = [node for node in range(nodes) if node not in switch_ids]
    place = {node: i for i, node in enumerate((*gpus, *dict.fromkeys(ids)))}
    made: list[Link] = []
    lossy = 0
    for _ in range(links):
        src, dst = (place[_count(words, where, nodes)] for _ in range(2))
        rate = _quantity(words, _RATE, _RATES, where)
        delay = _quantity(words, _DELAY, _DELAYS, where)
        lossy += not re.fullmatch(r"0*\.?0*", _word(words, where)[0])
        made += both_ways(src, dst, rate, delay)
    hosts = [rank // each if each else None for rank in range(len(gpus))]
    notes = ["ns-3's network: GPUs are the nodes that are not switches, in the order of their ids"]
    notes += [f"{lossy} links lose packets there; here none do"] * bool(lossy)
    parts = (
        *map(gpu, range(len(gpus)), hosts),
        *(switch(f"switch{i}") for i in dict.fromkeys(ids)),
    )
    found = Topology(options.title(), parts, tuple(made), notes=tuple(notes))
    return replace(found, symmetries=guess(found))


Words = Iterator[tuple[str, str]]


def _word(words: Words, where: str) -> tuple[str, str]:
    found = next(words, None)
    if found is None:
        raise BadFile("the text ends within its links", where=where, hint="is it complete?")
    return found


def _count(words: Words, where: str, below: int = 10**9) -> int:
    word, place = _word(words, where)
    if not re.fullmatch(r"\d{1,9}", word) or int(word) >= below:
        raise BadFile(f"{word[:40]!r} is not a number below {below}", where=place)
    return int(word)


def _quantity(
    words: Words, pattern: re.Pattern[str], units: Mapping[str, Fraction | int], where: str
) -> Fraction:
    word, place = _word(words, where)
    found = pattern.fullmatch(word)
    if found is None or found[2] not in units:
        raise BadFile(
            f"{word[:40]!r} is not a number with a unit", where=place, hint="400Gbps and 0.0005ms"
        )
    return Fraction(found[1]) * units[found[2]]

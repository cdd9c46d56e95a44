"""Importer of the texts of ``rocm-smi --showtopo`` and ``amd-smi topology``.

Both print matrices of pairs: link type (XGMI, PCIE), weight, hops, and some versions bandwidths.
Hops are 1 for all pairs joined by xGMI, directly or not; of these the pairs of the least weight are
the cabled ones (AMD SMI documentation, "Interpreting hops and weight"). How many links a pair has
is only in bandwidths; generation and NICs are in neither text. Notes state the assumptions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from ..base.errors import BadFile
from ..base.lazy_dataclass import Frozen
from ..base.tables import count
from ..base.terminal import plain_lines
from ..machines.hosts import Cables
from ..machines.spec import MachineSpec
from ..nouns.parts import Medium
from ..nouns.timing import MachineTiming
from ..nouns.topology import NodeKind, Topology
from .generations import (
    ALPHA_NOTE,
    CABLE_ALPHA,
    CPU_LINK,
    GENERATIONS,
    PCIE_ALPHA,
    Generation,
    generation_of,
    generation_of_chip,
)
from .host_plan import (
    Cable,
    HostPart,
    HostPlan,
    assumed_nics,
    build_hosts,
    grouped,
    joined_hosts,
    listed_pairs,
    require_symmetric,
    with_assumed_nics,
)
from .smi_matrix import ONE_HOST, OWN_ROW

_TITLE = re.compile(
    r"\s*=+ *(Weight|Hops|Link Type) between two GPUs *=+\s*$"
    r"|\s*=+ *(Bandwidth)[ A-Za-z]*=+\s*$"
    r"|\s*((?:[A-Z-]+ )+)TABLE:\s*$"
)
_SECTION = re.compile(r"\s*=+.*=+\s*$|\s*Legend:|.*TABLE:\s*$")
"""A line that ends a matrix."""

_BAR = re.compile(r"=+\s*")

_DEVICE = re.compile(r"GPU\d{1,4}|[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_NUMA = re.compile(r"\s*GPU ?\[? ?(\d{1,4})\]?\s*: \(Topology\) Numa Node: (\d{1,4})\s*$")
_BUS = re.compile(
    r"\s*GPU ?\[? ?(\d{1,4})\]?\s*: PCI Bus: ([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)"
)
_NAME = re.compile(r"\bMI\d{2,3}[AX]?\b.*|\b(?:Radeon|AMD Instinct)\b.*")
_CHIP = re.compile(r"\bgfx9[0-9a-f]{2}\b")
_SPAN = re.compile(r"(\d{1,9})-(\d{1,9})")

ONE_HOST_NOTE = "one host, without a network (nodes=2 makes two, with NICs that are assumed)"

_KINDS = {"link type": "type", "numa bw": "bandwidth"}
"""Short names of tables."""

Cells = tuple[tuple[str, ...], ...]


class _PairMatrix(Frozen):
    """A matrix; ``line`` of its title."""

    names: tuple[str, ...]
    cells: Cells
    line: int


class _Amd(Frozen):
    gpus: int
    links: dict[tuple[int, int], int]
    cpus: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    generation: Generation
    lane: Fraction
    options: MachineSpec
    notes: list[str]


def looks_like_amd_smi(text: str) -> bool:
    """Return True if some line is the title of a matrix of link types."""
    found = map(_TITLE.match, plain_lines(text[:200_000]))
    return any(match is not None and _kind(match) in ("type", "weight", "hops") for match in found)


def read_amd_smi(text: str, where: str, options: MachineSpec) -> Topology:
    """Return the topology of the matrices.

    Options: ``gpu=mi300x|mi250x|…``; ``bw=`` of an xGMI link (with PCIe: ``pcie_bw=``,
    ``cpu_bw=``); ``nodes=`` with assumed NICs (``nics=``, ``nic_bw=``), ``fabric=`` and the like.

    Raises:
        BadFile: no link types, or an incomplete matrix; with the line. BadTopology: a matrix that
            is not symmetric.
    """
    lines = plain_lines(text)
    _require_one_vendor(lines, where)
    tables = dict(_tables(lines, where))
    if "type" not in tables:
        raise BadFile(
            "expected a matrix of link types, got none",
            where=where,
            hint="rocm-smi --showtopo and amd-smi topology print it",
        )
    read = _read(lines, tables, where, options)
    joined = read.gpus > 1 and len(grouped(read.links, read.gpus)) == 1
    made = _over_xgmi(read) if joined else _over_pcie(read)
    return replace(made, timing=MachineTiming(read.generation.timed_as))


# --- the text -------------------------------------------------------------------------------------


def _require_one_vendor(lines: list[str], where: str) -> None:
    """Raise BadFile if a matrix of nvidia-smi is in the text too: it is of another host."""
    other = next((at for at, line in enumerate(lines, 1) if OWN_ROW.match(line)), None)
    if other is not None:
        ours = next(at for at, line in enumerate(lines, 1) if _TITLE.match(line))
        raise BadFile(
            f"the text has a matrix of nvidia-smi beside that of AMD's tool in line {ours}",
            where=f"{where}:{other}",
            hint=ONE_HOST,
        )


def _kind(match: re.Match[str]) -> str:
    plain: str = next(filter(None, match.groups())).strip().lower()
    return _KINDS.get(plain, plain)


def _tables(lines: list[str], where: str) -> Iterator[tuple[str, _PairMatrix]]:
    seen: dict[str, _PairMatrix] = {}
    for at, line in enumerate(lines):
        match = _TITLE.match(line)
        if match is None:
            continue
        # A terminal may have broken the line of the title within its equal signs.
        start = at + 2 if any(map(_BAR.fullmatch, lines[at + 1 : at + 2])) else at + 1
        end = next((i for i in range(start, len(lines)) if _SECTION.match(lines[i])), len(lines))
        kind = _kind(match)
        if (table := _table(lines[start:end], start, where)) is None:
            continue
        first = seen.setdefault(kind, table)
        if first is table:
            yield kind, table
        elif (first.names, first.cells) != (table.names, table.cells):
            raise BadFile(
                f"another matrix of {kind} than in line {first.line}: the texts of two hosts",
                where=f"{where}:{table.line}",
                hint=ONE_HOST,
            )


def _table(lines: list[str], title: int, where: str) -> _PairMatrix | None:
    """Parse the words of a matrix, however a terminal broke its lines; None without a header."""
    words = [(word, title + i) for i, line in enumerate(lines, 1) for word in line.split()]
    names: list[str] = []
    for word, _ in words:
        if word in names or not _DEVICE.fullmatch(word):
            break
        names.append(word)
    if not names:
        return None
    rows: list[tuple[str, ...]] = []
    at = len(names)
    for name in names:
        found = [word for word, _ in words[at : at + 1 + len(names)]]
        line = words[min(at, len(words) - 1)][1]
        if not found or found[0] != name:
            raise BadFile(
                f"the row of {name} is missing",
                where=f"{where}:{line}",
                hint=f"the header has {len(names)} GPUs, the text {len(rows)} whole rows",
            )
        cells = found[1:]
        short = next((i for i, word in enumerate(cells) if _DEVICE.fullmatch(word)), len(cells))
        if short < len(names):
            raise BadFile(
                f"the row of {name} has {count(short, 'cell')} for {count(len(names), 'column')}",
                where=f"{where}:{line}",
                hint="is the text complete, and each GPU in it once?",
            )
        rows.append(tuple(cells))
        at += 1 + len(names)
    return _PairMatrix(tuple(names), tuple(rows), title)


def _read(
    lines: list[str], tables: dict[str, _PairMatrix], where: str, options: MachineSpec
) -> _Amd:
    types = tables["type"]
    n = len(types.names)
    for title, table in tables.items():
        if table.names != types.names:
            raise BadFile(
                f"the matrix of {title} is of other GPUs than that of link types",
                where=f"{where}:{table.line}",
            )
    notes = [ALPHA_NOTE]
    pairs = _cabled(tables, where, notes)
    spans = _spans(tables, pairs)
    names = _names(lines, types.names)
    kind = _generation(lines, _Hive(pairs, spans, names), options, notes)
    lane = options.bandwidth("bw", kind.lane or Fraction(64))
    links = _link_counts(pairs, spans, kind, n, notes)
    return _Amd(n, links, _cpus(lines, tables), names, kind, lane, options, notes)


def _cabled(tables: dict[str, _PairMatrix], where: str, notes: list[str]) -> list[tuple[int, int]]:
    types = tables["type"]
    n = len(types.names)
    require_symmetric(types.names, types.cells, f"{where}:{types.line}", "the tool")
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    kinds = {(a, b): types.cells[a][b].upper() for a, b in pairs}
    near = [pair for pair in pairs if kinds[pair] == "XGMI"]
    if odd := [pair for pair in pairs if kinds[pair] not in ("XGMI", "PCIE")]:
        listed = listed_pairs([f"GPU{a}-GPU{b} {types.cells[a][b]}" for a, b in odd])
        notes.append(f"pairs of another type than XGMI and PCIE have no cable: {listed}")
    access = tables.get("access")
    if access is not None:
        off = [(a, b) for a, b in near if "DISABLED" in (access.cells[a][b], access.cells[b][a])]
        if off:
            listed = ", ".join(f"GPU{a}-GPU{b}" for a, b in off)
            notes.append(f"xGMI links that are disabled are left out: {listed}")
        near = [pair for pair in near if pair not in off]
    weight = tables.get("weight")
    if not near:
        return near
    if weight is None:
        notes.append("the text has no weights: every pair of type XGMI is taken to have a cable")
        return near
    least = min(_number(weight.cells[a][b]) for a, b in near)
    cabled = [(a, b) for a, b in near if _number(weight.cells[a][b]) == least]
    if len(cabled) < len(near):
        notes.append(
            f"{len(cabled)} of {len(near)} pairs of type XGMI have the least weight, {least}, and "
            "a cable; the others go through GPUs"
        )
    return cabled


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 10**9


def _spans(
    tables: dict[str, _PairMatrix], pairs: list[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Return the links of the pairs whose bandwidths the text has.

    A cell is ``50000-100000``, MB/s of one link and of all links of the pair (Linux, amdgpu's
    driver).
    """
    table = tables.get("bandwidth")
    if table is None:
        return {}
    found = {(a, b): _SPAN.fullmatch(table.cells[a][b]) for a, b in pairs}
    spans = {pair: (int(m[1]), int(m[2])) for pair, m in found.items() if m and int(m[2])}
    least = min((low or high for low, high in spans.values()), default=1)
    return {pair: max(1, round(high / least)) for pair, (_, high) in spans.items()}


def _link_counts(
    pairs: list[tuple[int, int]],
    spans: dict[tuple[int, int], int],
    kind: Generation,
    n: int,
    notes: list[str],
) -> dict[tuple[int, int], int]:
    """Return the links of each pair: by bandwidths, else one, or as many as such hosts have."""
    if pairs and len(spans) == len(pairs):
        return spans
    if kind.dies and not n % 2 and all((g, g + 1) in pairs for g in range(0, n, 2)):
        notes.append(
            "how many links a pair has is not in the text: of the two dies of a package "
            f"{kind.dies} assumed, of others 1 (amd-smi topology in the same file tells)"
        )
        return {(a, b): kind.dies if a // 2 == b // 2 else 1 for a, b in pairs}
    each = kind.each if len(pairs) == n * (n - 1) // 2 else 1
    degree = max(Counter(g for pair in pairs for g in pair).values(), default=0)
    if pairs and kind.links > degree * each:
        notes.append(
            f"how many links a pair has is not in the text: {each} assumed (rocm-smi "
            "--shownodesbw or amd-smi topology in the same file tells)"
        )
    return dict.fromkeys(pairs, each)


class _Hive(Frozen):
    """Facts that show the generation of GPUs without a product name.

    The pairs joined by xGMI, the links of those whose bandwidths are known, the names of the GPUs.
    """

    pairs: list[tuple[int, int]]
    links: dict[tuple[int, int], int]
    names: tuple[tuple[str, ...], ...]

    def degree(self) -> int:
        """Return the most GPUs that one is joined to."""
        return max(Counter(g for pair in self.pairs for g in pair).values(), default=0)

    def lanes(self) -> int:
        """Return the links of every pair; 0 where they differ or are not known."""
        counts = set(self.links.values())
        return counts.pop() if len(counts) == 1 and len(self.links) == len(self.pairs) else 0

    def apart(self) -> bool:
        """Return True if every GPU is the same device of a PCI domain of its own."""
        buses = [own[-1].partition(":") for own in self.names if ":" in own[-1]]
        domains = {domain for domain, _, _ in buses}
        alike = {device for _, _, device in buses}
        return 1 < len(self.names) == len(domains) and len(alike) == 1


def _generation(
    lines: list[str], hive: _Hive, options: MachineSpec, notes: list[str]
) -> Generation:
    """Return the generation: by ``gpu=``, names or gfx numbers of the text, or the links."""
    amd = {name: one for name, one in GENERATIONS.items() if one.medium is Medium.XGMI}
    asked = options.choice("gpu", "", amd)
    if asked:
        return amd[asked]
    named = {m[0] for m in map(_NAME.search, lines) if m is not None}
    chips = {m[0] for m in map(_CHIP.search, lines) if m is not None}
    found = generation_of(named) or (generation_of_chip(chips.pop()) if len(chips) == 1 else None)
    if found is not None and found.medium is Medium.XGMI:
        notes.append(
            f"the GPUs are {found.name} by their names: {float(found.lane):g}GB/s per xGMI link "
            f"({found.source})"
        )
        return found
    name, told = _guessed(hive)
    guessed = amd[name]
    others = dict.fromkeys(one.name for one in amd.values() if one != guessed and _fits(one, hive))
    lane = f", {float(guessed.lane):g}GB/s per xGMI link" if hive.pairs else ""
    more = f"; {', '.join(f'gpu={one}' for one in others)} would fit too" * (
        not told and bool(others)
    )
    notes.append(
        f"the GPU's generation is not in the text; {told}{name} is assumed{lane} "
        f"({guessed.source}; gpu= or bw= says otherwise{more})"
    )
    return guessed


def _fits(one: Generation, hive: _Hive) -> bool:
    """Return True if the links of a GPU are those of such a hive, all of them in use."""
    lanes = hive.lanes() or one.each
    return bool(hive.pairs) and one.links == hive.degree() * lanes and one.each == lanes


def _guessed(hive: _Hive) -> tuple[str, str]:
    """Return the likeliest generation, and the words for its evidence, if any.

    Hives of eight, of up to four, or GPUs of two dies; APUs by two links for each pair of four, or
    since every socket is a PCI domain whose first device is its GPU.
    """
    apu = GENERATIONS["mi300a"]
    if len(hive.pairs) == 6 and len(hive.names) == 4 and _fits(apu, hive):
        if hive.lanes():
            return apu.name, "from two links for each pair of four "
        if hive.apart():
            return apu.name, "from PCI domains, one for each of four GPUs, "
    near: dict[int, set[int]] = {}
    for a, b in hive.pairs:
        near.setdefault(a, {a}).add(b)
        near.setdefault(b, {b}).add(a)
    if any(near[a] != near[b] for a, b in hive.pairs):
        return "mi250x", ""
    return ("mi300x" if any(len(one) > 4 for one in near.values()) else "mi210"), ""


def _names(lines: list[str], devices: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the names of each GPU: its number, and its bus id where the text has it."""
    buses = {int(m[1]): m[2].lower() for m in map(_BUS.match, lines) if m is not None}
    found = []
    for i, device in enumerate(devices):
        if device.startswith("GPU"):
            number = int(device[3:])
            found.append((device, buses[number]) if number in buses else (device,))
        else:
            found.append((f"GPU{i}", device.lower()))
    return tuple(found)


def _cpus(lines: list[str], tables: dict[str, _PairMatrix]) -> tuple[int, ...]:
    """Return the CPU of each GPU: by NUMA nodes, else by hops (2 within a socket, 3 across).

    Nothing where the text has neither.
    """
    names = tables["type"].names
    numa = {int(m[1]): int(m[2]) for m in map(_NUMA.match, lines) if m is not None}
    numbers = [int(d[3:]) if d.startswith("GPU") else i for i, d in enumerate(names)]
    if all(number in numa for number in numbers):
        places = {node: i for i, node in enumerate(sorted({numa[k] for k in numbers}))}
        return tuple(places[numa[k]] for k in numbers)
    hops = tables.get("hops")
    if hops is None:
        return ()
    cpus: list[int] = []
    for b in range(len(names)):
        near = [a for a in range(b) if hops.cells[a][b] in ("1", "2")]
        cpus.append(cpus[near[0]] if near else max(cpus, default=-1) + 1)
    return tuple(cpus)


# --- the machine ----------------------------------------------------------------------------------


def _over_xgmi(read: _Amd) -> Topology:
    options, nics = read.options, None
    if options.integer("nodes", 1) > 1:
        nics = assumed_nics(read.gpus, read.generation, options, read.notes)
    else:
        read.notes.append(ONE_HOST_NOTE)
    pairs = tuple((a, b, count) for (a, b), count in sorted(read.links.items()))
    cables = Cables(pairs, read.lane, CABLE_ALPHA)
    return joined_hosts(options, read.notes, cables, (), nics, read.names, Medium.XGMI)


def _over_pcie(read: _Amd) -> Topology:
    options, n = read.options, read.gpus
    width = options.bandwidth("pcie_bw", read.generation.pcie)
    between = options.bandwidth("cpu_bw", CPU_LINK)
    if not read.cpus:
        read.notes.append("the text has neither NUMA nodes nor hops: one CPU is assumed")
    above = read.cpus or (0,) * n
    cpus = sorted(set(above))
    parts = tuple(HostPart(f"cpu.{i}", NodeKind.HOST) for i in range(len(cpus)))
    direct = [
        Cable(a, b, read.lane * k, CABLE_ALPHA, k, Medium.XGMI)
        for (a, b), k in sorted(read.links.items())
    ]
    slots = [Cable(g, n + cpus.index(cpu), width, PCIE_ALPHA) for g, cpu in enumerate(above)]
    sockets = [Cable(n + a, n + b, between, PCIE_ALPHA) for b in range(len(cpus)) for a in range(b)]
    read.notes.append(
        f"xGMI does not join all GPUs: each is on its CPU by PCIe, x16 at {float(width):g}GB/s "
        f"(pcie_bw=), CPU to CPU at {float(between):g}GB/s (cpu_bw=)"
    )
    plan = HostPlan(n, parts, (*direct, *slots, *sockets), gpu_names=read.names)
    if options.integer("nodes", 1) == 1:
        read.notes.append(ONE_HOST_NOTE)
    else:
        plan = with_assumed_nics(plan, read.generation, options, read.notes)
    return build_hosts(plan, options.title(), options, read.notes)

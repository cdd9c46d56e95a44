"""Importer of the output of CUDA's sample p2pBandwidthLatencyTest: measurements of GPU pairs.

Each matrix has a title, a line of column numbers and a row for each GPU. Read are those with P2P
enabled if present: unidirectional and bidirectional bandwidth, and the GPU's latency. Rows are
readers in matrices titled *P2P Reads*, and writers in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import permutations
from statistics import median
from typing import Any

from ..base.errors import BadFile
from ..base.files import looks_like_json, parse_json
from ..base.lazy_dataclass import Frozen
from ..base.tables import count
from ..base.terminal import plain_lines, without_bars
from ..machines.spec import MachineSpec
from ..nouns.timing import MachineTiming
from ..nouns.topology import Link, Resource, Topology, gpu
from ..symmetry.symmetry import guess
from .generations import NO_PEER_ACCESS, family_of

NOISE = 0.06
"""Typical relative noise of one run of a bandwidth test."""

BOTH_WAYS = 0.9
"""Two directions share a bandwidth if together they have less than this fraction of the sum."""

_TITLE = re.compile(
    r"\s*(?:(Unidirectional|Bidirectional) )?P2P=(Enabled|Disabled) (Bandwidth|Latency)"
    r"(?: \(P2P (Writes|Reads)\))? Matrix \((GB/s|us)\)\s*$"
)
_DEVICE = re.compile(r"\s*Device: \d+, (.+?), pciBusID")
_COLUMNS = re.compile(r"\s*(?:D\\D|GPU|CPU)?((?:\s+\d+|\b\d+)+)\s*$")

Matrix = dict[tuple[int, int], float]
"""Numbers by row and column; none for a pair that was not measured, 0.00 or N/A."""


class PairRates(Frozen):
    """Measurements of pairs, indexed by sender and receiver, of ``gpus`` GPUs.

    ``one``: GB/s of each direction alone; ``both``: of the two directions at once, together;
    ``delays``: µs. ``names``: of the GPUs. ``hosts``: of each GPU, where there are several.
    ``out``, ``into``: GB/s of each GPU to and from all others at once, where that was measured.
    """

    gpus: int
    one: Matrix
    both: Matrix | None
    delays: Matrix | None
    names: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    out: dict[int, float] = field(default_factory=dict)
    into: dict[int, float] = field(default_factory=dict)


class _Titled(Frozen):
    """Quantity of a matrix by its title; ``line`` of the title, from 1."""

    ways: str
    enabled: bool
    what: str
    reads: bool
    line: int


def looks_like_p2p_test(text: str) -> bool:
    """Return True if some line is the title of a matrix."""
    return any(map(_TITLE.match, without_bars(plain_lines(text[:200_000]))))


def read_p2p_test(text: str, where: str, options: MachineSpec) -> Topology:
    """Return links for all pairs, with shared resources where both directions together are slower.

    Option ``p2p=off``: the matrices of P2P disabled, where both are there; a note states where that
    is quicker.

    Raises:
        BadFile: no unidirectional bandwidths, a row that is short, missing or not numeric, matrices
            of different sizes; with the line.
    """
    lines = without_bars(plain_lines(text))
    matrices = dict(_matrices(lines, where))
    first = options.choice("p2p", "on", ("on", "off")) == "on"
    gpus, one, enabled = _chosen(matrices, "Unidirectional", "Bandwidth", where, first)
    _, other, measured = _chosen(matrices, "Unidirectional", "Bandwidth", where, not enabled)
    both = _like(matrices, "Bidirectional", "Bandwidth", enabled, gpus, where)
    delays = _like(matrices, "", "Latency", enabled, gpus, where)
    names = tuple(m[1] for m in map(_DEVICE.match, lines) if m)
    notes = [f"measured by p2pBandwidthLatencyTest, P2P {'enabled' if enabled else 'disabled'}"]
    more = [] if measured is enabled else list(_other_way(one, other, enabled=enabled))
    if filled := [f for f in other if f not in one and f[0] != f[1]]:
        one |= {f: other[f] for f in filled}
        notes.append(
            f"{count(len(filled), 'direction')} of 0.00: as measured with P2P "
            f"{'disabled' if enabled else 'enabled'}"
        )
    made = measured_machine(PairRates(gpus, one, both, delays, names), where, options, *notes)
    if lost := sum("CANNOT Access Peer" in line for line in lines):
        told = f"{lost} directions have no peer access: they go through the host"
        more += [f"{told}; {NO_PEER_ACCESS} on them"]
    return replace(made, notes=(*made.notes, *more))


def _other_way(one: Matrix, other: Matrix, *, enabled: bool) -> Iterator[str]:
    """Say how the pairs do the other way, over the host or by peer access, where it is quicker."""
    pairs = [f for f in one if f[0] != f[1] and one[f] > 0 < other.get(f, 0)]
    quicker = [f for f in pairs if other[f] > one[f] * (1 + NOISE)]
    if enabled and quicker:
        gain = median(other[f] / one[f] for f in quicker)
        some = f" for {len(quicker)} of {len(pairs)} directions" * (len(quicker) < len(pairs))
        yield (
            f"the way through the host is {gain:.2g} times as quick as peer access{some} "
            f"({median(other[f] for f in quicker):g}GB/s with P2P disabled): p2p=off takes it, as "
            "the runtime does with NCCL_P2P_DISABLE=1; back ends of peer access (mscclpp-json, "
            "torch-symm) do not have it"
        )
    elif not enabled and pairs:
        yield (
            "P2P disabled is taken, as p2p=off asks (enabled "
            f"{median(other[f] for f in pairs):g}GB/s): the runtime needs "
            f"NCCL_P2P_DISABLE=1, and {NO_PEER_ACCESS} this way"
        )


def measured_machine(rates: PairRates, where: str, options: MachineSpec, *notes: str) -> Topology:
    """Return links for the pairs that were measured.

    Option ``alpha=``: µs of every link, where the text lacks latencies.

    Raises:
        BadFile: one GPU, or one of which no pair was measured.
    """
    flows = [flow for flow in permutations(range(rates.gpus), 2) if flow in rates.one]
    if rates.gpus < 2:
        raise BadFile("there is one GPU only: no pairs were measured", where=where)
    joined = {a for a, _ in flows} & {b for _, b in flows}
    if alone := [g for g in range(rates.gpus) if g not in joined]:
        raise BadFile(
            f"the row or column of GPU {alone[0]} is 0.00 or N/A: its pairs were not measured",
            where=where,
            hint="measure again, or without that GPU (CUDA_VISIBLE_DEVICES)",
        )
    notes = (*notes, *_absent(rates, len(flows)))
    one, delays, alpha = rates.one, rates.delays or {}, Fraction(0)
    if rates.delays is None:
        alpha = options.microseconds("alpha", alpha)
        notes += (f"the text lacks latencies: alpha is {float(alpha):g}us (alpha=)",)
    width, delay = alike(one[f] for f in flows), alike(delays[f] for f in flows if f in delays)
    links = tuple(
        Link(*f, width[one[f]], delay[delays[f]] if f in delays else alpha) for f in flows
    )
    places = {host: i for i, host in enumerate(dict.fromkeys(rates.hosts))}
    hosts = [places[host] for host in rates.hosts] if len(places) > 1 else [None] * rates.gpus
    made = Topology(
        options.title(),
        tuple(map(gpu, range(rates.gpus), hosts)),
        links,
        tuple(_shared(rates, flows)),
        notes=notes,
        timing=MachineTiming(family_of(rates.names)),
    )
    return replace(made, symmetries=guess(made))


def _absent(rates: PairRates, flows: int) -> Iterator[str]:
    if rates.both is None:
        yield "both directions at once are not in the text: taken to be independent"
    if not rates.out or not rates.into:
        yield "every pair was measured alone, so what several pairs share is not known"
    if lacking := rates.gpus * (rates.gpus - 1) - flows:
        yield f"{count(lacking, 'direction')} not measured (0.00 or N/A): no link"


def _shared(rates: PairRates, flows: Sequence[tuple[int, int]]) -> Iterator[Resource]:
    """Yield the resources that both directions of a pair share, and the ports of GPUs."""
    one, both = rates.one, rates.both
    place = {flow: i for i, flow in enumerate(flows)}
    sums = {
        (a, b): (both[a, b] + both[b, a]) / 2
        for a, b in flows
        if both and a < b and (b, a) in place and (a, b) in both and (b, a) in both
    }
    least = {f: s for f, s in sums.items() if s < BOTH_WAYS * (one[f] + one[f[::-1]])}
    rate = alike(least.values())
    for (a, b), s in least.items():
        yield Resource(f"pair {a}-{b}", (place[a, b], place[b, a]), rate[s])
    for side, (way, ports) in enumerate((("out of", rates.out), ("into", rates.into))):
        own = {g: [f for f in flows if f[side] == g] for g in ports}
        narrow = {g: x for g, x in ports.items() if x < BOTH_WAYS * sum(one[f] for f in own[g])}
        rate = alike(narrow.values())
        for g, x in narrow.items():
            yield Resource(f"{way} {g}", tuple(place[f] for f in own[g]), rate[x])


def _chosen(
    matrices: dict[_Titled, tuple[int, Matrix]], ways: str, what: str, where: str, first: bool
) -> tuple[int, Matrix, bool]:
    """Return the size, the matrix, and its kind of access: ``first`` if that was measured."""
    for enabled in (first, not first):
        for title, (gpus, matrix) in matrices.items():
            if (title.ways, title.what, title.enabled) == (ways, what, enabled):
                return gpus, turned(matrix, title.reads), enabled
    raise BadFile(
        f"the {ways.lower()} bandwidths are missing", where=where, hint="is the text complete?"
    )


def _like(
    matrices: dict[_Titled, tuple[int, Matrix]],
    ways: str,
    what: str,
    enabled: bool,
    gpus: int,
    where: str,
) -> Matrix | None:
    for title, (size, matrix) in matrices.items():
        if (title.ways, title.what, title.enabled) == (ways, what, enabled):
            if size != gpus:
                raise BadFile(
                    f"the matrix is not of {gpus} GPUs, as the first one is",
                    where=f"{where}:{title.line}",
                )
            return turned(matrix, title.reads)
    return None


def turned(matrix: Matrix, reads: bool) -> Matrix:
    """Return the matrix indexed by sender and receiver; of reads the row is the receiver."""
    return {f[::-1]: x for f, x in matrix.items()} if reads else matrix


def _matrices(lines: list[str], where: str) -> Iterator[tuple[_Titled, tuple[int, Matrix]]]:
    for number, line in enumerate(lines, 1):
        found = _TITLE.match(line)
        if found:
            ways, access, what, method, _ = found.groups()
            title = _Titled(ways or "", access == "Enabled", what, method == "Reads", number)
            yield title, matrix_below(lines, number, where)


def matrix_below(
    lines: Sequence[str], at: int, where: str, *, square: bool = True
) -> tuple[int, Matrix]:
    """Parse the rows below the title in line ``at`` (from 1); the first table if there are two.

    ``square``: there is a row for each GPU, not one row alone. Returns the number of GPUs, and the
    numbers.

    Raises:
        BadFile: a row that is short, missing or not numeric, with its line.
    """
    written = (i for i in range(at, len(lines)) if lines[i].strip())
    top = next(written, at)
    head = _COLUMNS.match(lines[top]) if top < len(lines) else None
    if head is None:
        raise BadFile("a line of column numbers is expected", where=f"{where}:{at + 1}")
    gpus = len(head[1].split())
    if head[1].split() != [str(i) for i in range(gpus)]:
        raise BadFile("columns are numbered 0, 1, 2 …", where=f"{where}:{top + 1}")
    found: Matrix = {}
    for row in range(gpus if square else 1):
        place = next(written, len(lines))
        words = lines[place].split() if place < len(lines) else []
        if not words or words[0] != str(row):
            raise BadFile(
                f"the row of GPU {row} is missing",
                where=f"{where}:{place + 1}",
                hint="is the text complete?",
            )
        if len(words) != gpus + 1:
            raise BadFile(
                f"the row of GPU {row} has {len(words) - 1} numbers for {gpus} columns",
                where=f"{where}:{place + 1}",
            )
        for column, word in enumerate(words[1:]):
            if (number := measured(word, f"{where}:{place + 1}")) is not None:
                found[row, column] = number
    return gpus, found


def measured(word: str, where: str) -> float | None:
    """Parse a cell; None for 0.00 and N/A, where nothing was measured.

    Raises:
        BadFile: not a number, or a negative one.
    """
    if word == "N/A":
        return None
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", word):
        raise BadFile(f"{word[:40]!r} is not a positive number", where=where)
    return float(word) or None


def alike(values: Iterable[float], noise: float = NOISE) -> dict[float, Fraction]:
    """Return for each value the median of its cluster, in three significant digits.

    A cluster ends where the next larger value is ``noise`` above the smallest of the cluster.
    Measurements have as many bandwidths as links, real machines a few; equal links give symmetry,
    and symmetry makes synthesis fast.
    """
    found: dict[float, Fraction] = {}
    kind: list[float] = []
    for value in [*sorted(values), float("inf")]:
        if kind and value > kind[0] * (1 + noise):
            found |= dict.fromkeys(kind, Fraction(f"{median(kind):.2e}"))
            kind = []
        kind.append(value)
    return found


# --- nvbandwidth ----------------------------------------------------------------------------------
# Importer of the output of NVIDIA's nvbandwidth, as text and as JSON: measurements of GPU pairs.
#
# Read are the tests between two GPUs (``device_to_device…``, ``multinode_device_to_device…``). In
# their read tests the row is the GPU that receives, in their write tests the one that sends: the
# arrows of the titles point the other way (testcases_ce.cpp). ``one_to_all`` and ``all_to_one``
# give the rate of a GPU that sends to all others, or receives from them, at once. Before 0.6 a
# bidirectional test has one matrix, of the measured direction; since then three, and in JSON these
# are one list of rows. Latencies before version 0.8 are those of the host.

_BANDWIDTH_TITLE = re.compile(
    r"\s*memcpy (CE|SM) GPU\(row\) (->|<-|<->) GPU\(column\)"
    r"(?: (Read|Write)?(1|2|Total))? bandwidth \(GB/s\)\s*$"
)
_LATENCY = re.compile(r"\s*Device to Device Latency SM GPU\(row\) <-> GPU\(column\) \(ns\)\s*$")
_RUNNING = re.compile(r"\s*Running (\w{1,100})\.\s*$")
_STARTS = re.compile(r"nvbandwidth Version\b|Running \w+_(?:ce|sm)\.", re.IGNORECASE)
_VERSION = re.compile(r"\bversion\W{1,4}v?(\d{1,4})\.(\d{1,4})\b", re.IGNORECASE)
_PROCESS_DEVICE = re.compile(
    r"\s*(?:Process\s+\d+ \((\S+)\): )?device \d+: (.+?) \(", re.IGNORECASE
)
_LISTED = re.compile(r"\d+: (.+?) \([0-9a-f:]+\)", re.IGNORECASE)

ORDER = ("write_ce", "read_ce", "write_sm", "read_sm")
"""Ends of the tests' names, of which the first that is there is taken: copies by the copy engine
are what p2pBandwidthLatencyTest measures."""

PORTS = {
    "one_to_all_write": "out",
    "all_to_one_read": "out",
    "all_to_one_write": "into",
    "one_to_all_read": "into",
}
"""Side of a GPU that a test with all others measures."""

LATENCIES_SINCE = (0, 8)
"""Version from which on ``device_to_device_latency_sm`` is of two GPUs."""


class _PairTest(Frozen):
    """A matrix by sender and receiver. ``key``: a member of ``ORDER``, ``both_ce`` (the sum of
    both directions), ``latency``, or a port: ``out_ce``, whose rows are 0; ``name`` of the test."""

    key: str
    name: str
    gpus: int
    cells: Matrix


def looks_like_nvbandwidth(text: str) -> bool:
    """Return True for the output of nvbandwidth, as text or JSON."""
    if looks_like_json(text):
        return re.match(r'\s*\{\s*"nvbandwidth"\s*:', text) is not None
    lines = without_bars(plain_lines(text[:200_000]))
    return any(_STARTS.match(line.strip()) or _BANDWIDTH_TITLE.match(line) for line in lines)


def read_nvbandwidth(text: str, where: str, options: MachineSpec) -> Topology:
    """Return links for all pairs that were measured, as :mod:`.p2p_test` does.

    Option ``test=`` selects one of ``ORDER``.

    Raises:
        BadFile: no test between two GPUs, or a broken matrix, with its line.
    """
    if looks_like_json(text):
        cases, names, hosts, version = _of_json(parse_json(text, where), where)
    else:
        lines = without_bars(plain_lines(text))
        cases = list(_of_text(lines, where))
        devices = [m for m in map(_PROCESS_DEVICE.match, lines) if m]
        names, hosts = tuple(m[2] for m in devices), tuple(m[1] or "" for m in devices)
        version = _version("\n".join(lines))
    found: dict[str, _PairTest] = {}
    for case in cases:
        found.setdefault(case.key, case)
    there = [key for key in ORDER if key in found]
    if not there:
        raise BadFile(
            "expected a test between two GPUs in the output of nvbandwidth, got none",
            where=where,
            hint="nvbandwidth -t device_to_device_memcpy_write_ce; on one GPU there is none",
        )
    asked = options.choice("test", there[0], there)
    one, unit = found[asked], asked[-2:]
    both = found.get(f"both_{unit}")
    delays = found.get("latency") if version >= LATENCIES_SINCE else None
    rates = PairRates(
        one.gpus,
        one.cells,
        both.cells if both and both.gpus == one.gpus else None,
        {f: ns / 1000 for f, ns in delays.cells.items()}
        if delays and delays.gpus == one.gpus
        else None,
        names,
        hosts if len(hosts) == one.gpus else (),
        *(_port(found, side, unit) for side in ("out", "into")),
    )
    others = ", ".join(f"test={key}" for key in there if key != asked)
    note = f"measured by nvbandwidth, {one.name}{f'; {others} is in it too' if others else ''}"
    load = ("α is a load's round trip, from device_to_device_latency_sm",) if rates.delays else ()
    return measured_machine(rates, where, options, note, *load)


def _port(found: Mapping[str, _PairTest], side: str, unit: str) -> dict[int, float]:
    """Return GB/s of a side of each GPU: by tests of the same unit, else by any."""
    case = next((found[k] for u in (unit, "ce", "sm") if (k := f"{side}_{u}") in found), None)
    return {} if case is None else {gpu: x for (_, gpu), x in case.cells.items()}


def _version(text: str) -> tuple[int, int]:
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _of_text(lines: Sequence[str], where: str) -> Iterator[_PairTest]:
    name = ""
    for number, line in enumerate(lines, 1):
        if (running := _RUNNING.match(line)) is not None:
            name = running[1]
        elif _LATENCY.match(line) or _BANDWIDTH_TITLE.match(line):
            square = _side(name) is None
            yield from _cases(line, name, *matrix_below(lines, number, where, square=square))


def _side(name: str) -> str | None:
    """Return the side of a GPU that a test with all others measures; None for other tests."""
    return next((side for test, side in PORTS.items() if name.startswith(f"{test}_")), None)


def _cases(title: str, name: str, gpus: int, cells: Matrix) -> Iterator[_PairTest]:
    if _LATENCY.match(title):
        yield _PairTest("latency", name, gpus, cells)
    elif (found := _BANDWIDTH_TITLE.match(title)) is not None:
        unit, arrow, _, part = found.groups()
        key = f"{'read' if arrow == '->' else 'write'}_{unit.lower()}"
        if (side := _side(name)) is not None:
            yield _PairTest(f"{side}_{unit.lower()}", name, gpus, cells)
        elif arrow != "<->":
            yield _PairTest(key, name or f"memcpy_{key}", gpus, turned(cells, arrow == "->"))
        elif part == "Total":
            yield _PairTest(f"both_{unit.lower()}", name, gpus, cells)
        elif part is None and unit == "CE":
            back = {f[::-1]: x for f, x in cells.items()}
            sums = {f: x + back[f] for f, x in cells.items() if f in back}
            yield _PairTest("both_ce", name, gpus, sums)


def _of_json(
    data: Any, where: str
) -> tuple[list[_PairTest], tuple[str, ...], tuple[str, ...], tuple[int, int]]:
    """Return the matrices of the JSON, the names and hosts of GPUs, and the version."""
    body = data.get("nvbandwidth")
    tests = body.get("testcases") if isinstance(body, dict) else None
    if not isinstance(tests, list):
        raise BadFile("expected testcases in the JSON of nvbandwidth, got none", where=where)
    cases: list[_PairTest] = []
    for number, test in enumerate(tests):
        if not isinstance(test, dict) or "bandwidth_matrix" not in test:
            continue  # waived, or failed
        place = f"{where}: testcases[{number}]"
        title, rows = str(test.get("bandwidth_description")), test["bandwidth_matrix"]
        if _LATENCY.match(title) or _BANDWIDTH_TITLE.match(title):
            name = str(test.get("name"))[:100]
            cases += _cases(title, name, *_json_matrix(rows, place, square=_side(name) is None))
    listed = body.get("GPU Device list")
    words = listed if isinstance(listed, list) else []
    named = [_LISTED.match(x) for x in words if isinstance(x, str)]
    return cases, tuple(m[1] for m in named if m), (), _version(f"version {body.get('version')}")


def _json_matrix(rows: Any, where: str, *, square: bool) -> tuple[int, Matrix]:
    """Return the last matrix of rows, of which three follow each other in a bidirectional test."""
    gpus = len(rows[0]) if isinstance(rows, list) and rows and isinstance(rows[0], list) else 0
    height = gpus if square else 1
    last = rows[-height:] if gpus and len(rows) in (height, 3 * height) else []
    if not last or any(not isinstance(row, list) or len(row) != gpus for row in last):
        raise BadFile("bandwidth_matrix is not of a row for each GPU", where=where)
    cells = (
        (i, j, measured(str(x), where)) for i, row in enumerate(last) for j, x in enumerate(row)
    )
    return gpus, {(i, j): x for i, j, x in cells if x is not None}

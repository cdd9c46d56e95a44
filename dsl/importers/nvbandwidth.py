"""Importer of the output of NVIDIA's nvbandwidth, as text and as JSON: measurements of GPU pairs.

Read are the tests between two GPUs (``device_to_device…``, ``multinode_device_to_device…``). In
their read tests the row is the GPU that receives, in their write tests the one that sends: the
arrows of the titles point the other way (testcases_ce.cpp). ``one_to_all`` and ``all_to_one`` give
what a GPU sends to all others, or receives from them, at once. Before version 0.6 a bidirectional
test has one matrix, of the measured direction; since then three, and in JSON these are one list of
rows. Latencies before version 0.8 are those of the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.errors import BadFile
from ..base.files import looks_like_json, parse_json
from ..base.lazy_dataclass import dataclass
from ..base.terminal import plain_lines, without_bars
from ..machines.spec import MachineSpec
from ..nouns.topology import Topology
from .p2p_test import Matrix, PairRates, matrix_below, measured, measured_machine, turned

_TITLE = re.compile(
    r"\s*memcpy (CE|SM) GPU\(row\) (->|<-|<->) GPU\(column\)"
    r"(?: (Read|Write)?(1|2|Total))? bandwidth \(GB/s\)\s*$"
)
_LATENCY = re.compile(r"\s*Device to Device Latency SM GPU\(row\) <-> GPU\(column\) \(ns\)\s*$")
_RUNNING = re.compile(r"\s*Running (\w{1,100})\.\s*$")
_STARTS = re.compile(r"nvbandwidth Version\b|Running \w+_(?:ce|sm)\.", re.IGNORECASE)
_VERSION = re.compile(r"\bversion\W{1,4}v?(\d{1,4})\.(\d{1,4})\b", re.IGNORECASE)
_DEVICE = re.compile(r"\s*(?:Process\s+\d+ \((\S+)\): )?device \d+: (.+?) \(", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True)
class _PairTest:
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
    return any(_STARTS.match(line.strip()) or _TITLE.match(line) for line in lines)


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
        devices = [m for m in map(_DEVICE.match, lines) if m]
        names, hosts = tuple(m[2] for m in devices), tuple(m[1] or "" for m in devices)
        version = _version("\n".join(lines))
    found: dict[str, _PairTest] = {}
    for case in cases:
        found.setdefault(case.key, case)
    there = [key for key in ORDER if key in found]
    if not there:
        raise BadFile(
            "the output of nvbandwidth has no test between two GPUs",
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
        elif _LATENCY.match(line) or _TITLE.match(line):
            square = _side(name) is None
            yield from _cases(line, name, *matrix_below(lines, number, where, square=square))


def _side(name: str) -> str | None:
    """Return the side of a GPU that a test with all others measures; None for other tests."""
    return next((side for test, side in PORTS.items() if name.startswith(f"{test}_")), None)


def _cases(title: str, name: str, gpus: int, cells: Matrix) -> Iterator[_PairTest]:
    """Yield the matrix below a title, if it is one of those that are read."""
    if _LATENCY.match(title):
        yield _PairTest("latency", name, gpus, cells)
    elif (found := _TITLE.match(title)) is not None:
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
        raise BadFile("the JSON of nvbandwidth has no testcases", where=where)
    cases: list[_PairTest] = []
    for number, test in enumerate(tests):
        if not isinstance(test, dict) or "bandwidth_matrix" not in test:
            continue  # waived, or failed
        place = f"{where}: testcases[{number}]"
        title, rows = str(test.get("bandwidth_description")), test["bandwidth_matrix"]
        if _LATENCY.match(title) or _TITLE.match(title):
            name = str(test.get("name"))[:100]
            cases += _cases(title, name, *_matrix(rows, place, square=_side(name) is None))
    listed = body.get("GPU Device list")
    words = listed if isinstance(listed, list) else []
    named = [_LISTED.match(x) for x in words if isinstance(x, str)]
    return cases, tuple(m[1] for m in named if m), (), _version(f"version {body.get('version')}")


def _matrix(rows: Any, where: str, *, square: bool) -> tuple[int, Matrix]:
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

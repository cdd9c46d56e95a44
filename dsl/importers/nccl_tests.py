"""Reader of nccl-tests and rccl-tests output (sendrecv_perf, all_reduce_perf, …): sizes, times.

Read are the table, the JSON of nccl-tests (``-J``: one object), and the JSON and CSV of rccl-tests
(``-Z``: a record for each size and placement; since 2025 the records of JSON are one list).

:func:`read_run` gives the measurements; :func:`read_nccl_tests` a machine that explains them.

The machine is a star: every GPU has a port whose bandwidth is the bus bandwidth, fitted together
with a fixed time per call. That time is α of one message only for sendrecv_perf; for others it is
the latency of the whole collective.
"""

from __future__ import annotations

import csv
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any

from ..base import terminal
from ..base.errors import BadFile, UserError
from ..base.files import looks_like_json, parse_json
from ..base.lazy_dataclass import Frozen
from ..base.tables import count
from ..base.units import BYTES_PER_US_PER_GBPS, LARGEST_MESSAGE, format_bytes
from ..machines.spec import MAX_GPUS, MachineSpec
from ..nouns.collective import Kind
from ..nouns.timing import MachineTiming
from ..nouns.topology import Link, Topology, gpu, switch
from ..symmetry.symmetry import guess
from .generations import family_of

_HEAD = re.compile(r"#\s+size\s+count\s+type\b.*\btime\s+algbw\s+busbw\b")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s+.*?\bon\s+(\S+)\s+device\b")
_DEVICE = re.compile(r"\bdevice\s+\S+\s+\[[^\]]*\]\s+(\S.*)")
_PID = re.compile(r"\b[Pp]id\s+(\d+)")
_TEST = re.compile(r"\b(\w+)_perf\b")
_FAILED = re.compile(
    r"Test (?:NCCL|CUDA|HIP)? ?failure|: unhandled |Out of bounds values : .*FAILED"
)
_CELL = re.compile(r"N/A|[\d.]+(?:e[+-]?\d+)?")
_LOOPS = re.compile(r"\bwarmup iters: (\d{1,9}) iters: (\d+)")
_END = re.compile(r"#\s+(?:Out of bounds values|Avg bus bandwidth)\b")

LONGEST_SHOWN = 200
"""Characters of a line that a message shows."""

MOST_SHOWN = 8
"""Sizes that a message shows."""

LOG = logging.getLogger("weft.importers")

_START = re.compile(r"#\s+(?:nThread\b|Collective test starting)")
"""First lines of the output of a test."""

_DEBUG = re.compile(
    r"(?:\[\d+\] )?\S*\w:\d+:\d+ \[\d+\] (?:NCCL|RCCL|MSCCLPP) |\bNCCL (?:INFO|WARN) "
)
"""Begin of a line of a debug log."""

_LEAD = re.compile(r"\s*\d+\s+\d+\s+\w+(?:\s+[a-z]\w*)?(?:\s+(?:-1|\d+))?")
"""First columns of a row, which are printed before the test of that size runs."""

_HALF_ROW = re.compile(r"\s*(?:[\d.]+\s+){3}(?:N/A|\d[\d.]*(?:e[+-]\d+)?)")
"""Columns of one half: time, algbw, busbw, errors."""

MOST_OLD_ERROR = 1e-2
"""Largest value of the column ``error`` of versions before 2.13 that is rounding."""

SHORTEST_CALL_US, LONGEST_CALL_US = 1e-3, 1e10
"""Least and largest µs of a call that are believed: a nanosecond, and three hours."""

TESTS = {
    "all_reduce": Kind.ALLREDUCE,
    "all_gather": Kind.ALLGATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALLTOALL,
    "broadcast": Kind.BROADCAST,
    "reduce": Kind.REDUCE,
    "gather": Kind.GATHER,
    "scatter": Kind.SCATTER,
}
"""Collectives by the names of their programs, without ``_perf``."""


_SUMS = (("all_reduce", 2.0), ("reduce_scatter", 1.0))
"""Tests that sum without a root, with busbw ÷ algbw in units of (n - 1)/n."""

FACTOR_ERROR = 0.02
"""Most by which the ratio of two printed bandwidths is off."""


class _Measured(Frozen):
    """Out-of-place columns of one row: bytes, µs, GB/s.

    ``line``: its number, or `` results[3]`` in JSON. ``wrong``: of each half of the row, elements
    that were wrong, or the error. ``in_place_us``: of the other half; None where there is none.
    ``redop``, ``root``: as printed, if they are columns.
    """

    line: int | str
    bytes: int
    us: float
    algbw: float
    busbw: float
    wrong: tuple[str, ...] = ()
    in_place_us: float | None = None
    redop: str = ""
    root: str = ""


class _TestOutput(Frozen):
    """Facts and rows of one output. ``hosts``: of each GPU; empty names where it names none."""

    test: str
    hosts: list[str]
    together: int
    rows: list[_Measured]
    devices: list[str]
    warm: bool = True


class NcclTestsRow(Frozen):
    """Time of a message, out of place, and in place where it was measured; ``where``: file and
    line."""

    bytes: int
    us: float
    where: str
    in_place_us: float | None = None


class NcclTestsRun(Frozen):
    """Measurements of one program of nccl-tests.

    ``test``: its name, such as ``all_reduce`` (empty: not stated); ``hosts``: of each rank (empty
    names: not stated);
    ``gpus_per_process``: at most; ``family``: of its GPUs (empty: not known);
    ``warm``: False where no call came before those that were timed; ``named``: False where the
    text does not name the test, and the columns show it.
    """

    test: str
    hosts: tuple[str, ...]
    gpus_per_process: int
    rows: tuple[NcclTestsRow, ...]
    family: str = ""
    warm: bool = True
    named: bool = True

    @property
    def kind(self) -> Kind | None:
        """The collective; None where the text names none that weft has."""
        return TESTS.get(self.test)


def looks_like_nccl_tests(text: str) -> bool:
    """Return True if some line is the head of the table, or for the JSON and CSV of the tests."""
    if looks_like_json(text):
        return _BUS.search(text, 0, 200_000) is not None
    return _is_csv(text) or any(map(_HEAD.match, plain_lines(text[:200_000])))


def plain_lines(text: str) -> list[str]:
    """Return the lines of an output without colours and launchers' labels.

    A label is taken off where most lines have one: of a known form, or the same text on most lines
    as before the head of the table.
    """
    lines = terminal.plain_lines(text)
    heads = (m for line in lines if (m := _HEAD.search(line)) is not None)
    if (head := next(heads, None)) is None or not head.start():
        return lines
    label = head.string[: head.start()]
    if 2 * sum(line.startswith(label) for line in lines) < len(lines):
        return lines
    return terminal.plain_lines("\n".join(line.removeprefix(label) for line in lines))


def runs_in(text: str) -> list[str]:
    """Return the outputs of single tests in a text, each behind as many empty lines as stand before
    it; the text itself if it has one.

    Text before the first test belongs to it, and text after a test to that test.
    """
    if looks_like_json(text) or _is_csv(text):
        return [text]
    lines = plain_lines(text)
    starts = [at for at, line in enumerate(lines) if _START.match(line)]
    begins = [0, *(at for at in starts[1:] if at - 1 not in starts)]  # newer ones begin twice
    parts = [
        "\n" * low + "\n".join(lines[low:high]) for low, high in pairwise([*begins, len(lines)])
    ]
    tables = [part for part in parts if any(map(_HEAD.match, part.splitlines()))]
    return tables if len(tables) > 1 else [text]


def read_nccl_tests(text: str, where: str, options: MachineSpec) -> Topology:
    """Return GPUs around one switch, with bandwidth and α fitted to the table.

    Raises:
        BadFile: no ranks, no row with data, or an invalid row, with its line.
    """
    told = _table(text, where)
    hosts, name = told.hosts, told.test
    rows = [row for row in told.rows if row.bytes and row.us > 0]
    if len({row.bytes for row in rows}) < 2:
        raise BadFile(
            "at least two sizes are needed to tell α from bandwidth",
            where=where,
            hint="run the test with -b 8 -e 1G -f 2",
        )
    largest = max(rows, key=lambda row: row.bytes)
    factor = largest.busbw / largest.algbw if min(largest.algbw, largest.busbw) > 0 else 1.0
    alpha, rate, off = _line(rows, factor)
    several = len(set(hosts)) > 1
    n = len(hosts)
    numbers = {host: i for i, host in enumerate(dict.fromkeys(hosts))}
    nodes = (
        *(gpu(i, numbers[host] if several else None) for i, host in enumerate(hosts)),
        switch("fabric"),
    )
    half = Fraction(f"{alpha:.2e}") / 2
    width = Fraction(f"{rate:.2e}")
    links = tuple(x for i in range(n) for x in (Link(i, n, width, half), Link(n, i, width, half)))
    notes = _notes(name, several, off)
    timing = MachineTiming(family_of(told.devices))
    made = Topology(options.title(), nodes, links, notes=tuple(notes), timing=timing)
    return replace(made, symmetries=guess(made))


def read_run(text: str, where: str) -> NcclTestsRun:
    """Return the measurements of a text.

    Raises:
        BadFile: the test failed or had wrong results, its end is missing, sizes fall, or as
            :func:`read_nccl_tests`; with the line.
    """
    require_passed(text, where)
    table = _table(text, where, once=True)
    rows: list[_Measured] = []
    for row in table.rows:
        _check_row(row, rows, where)
        rows.append(row)
    untimed = [row for row in rows if row.bytes and not row.us]
    if untimed:
        sizes = ", ".join(format_bytes(row.bytes) for row in untimed[:MOST_SHOWN])
        more = ", …" if len(untimed) > MOST_SHOWN else ""
        LOG.warning(
            "%s:%s: a time of 0.00 µs, which no call takes: %s left out (%s%s)",
            where,
            untimed[0].line,
            count(len(untimed), "row"),
            sizes,
            more,
        )
    told = "" if table.test else _told_by_columns(rows, len(table.hosts))
    return NcclTestsRun(
        table.test or told,
        tuple(table.hosts),
        table.together,
        tuple(
            NcclTestsRow(r.bytes, r.us, f"{where}:{r.line}", r.in_place_us)
            for r in rows
            if r.bytes and r.us
        ),
        family_of(table.devices),
        table.warm,
        not told,
    )


def _table(text: str, where: str, *, once: bool = False) -> _TestOutput:
    """Return the contents of an output; ``once``: it is of one run, whole to its end.

    Raises:
        BadFile: as :func:`read_run`, but for the order and the correctness of rows.
    """
    if looks_like_json(text) or _is_csv(text):
        return _of_records(text, where)
    lines = plain_lines(text)
    hosts = _hosts(lines, where, once=once)
    if once and not any(map(_END.match, lines)):
        raise BadFile(
            "the text ends before its summary (# Avg bus bandwidth): it is not whole",
            where=f"{where}:{len(lines)}",
            hint="keep the output of the test to its end",
        )
    test, loops = _TEST.search(text), _LOOPS.search(text)
    pids = [_PID.search(line) for line in lines if _RANK.match(line)]
    together = Counter(
        (host, pid[1]) for host, pid in zip(hosts, pids, strict=False) if pid is not None
    )
    return _TestOutput(
        test[1] if test else "",
        hosts,
        max(together.values(), default=1),
        list(_rows(lines, where)),
        [m[1] for line in lines if _RANK.match(line) and (m := _DEVICE.search(line))],
        loops is None or int(loops[1]) > 0,
    )


def require_passed(text: str, where: str) -> None:
    """Raise BadFile if a line says that the test failed."""
    for number, line in enumerate(plain_lines(text), 1):
        if (failed := _FAILED.search(line)) is not None:
            low = max(0, failed.start() - LONGEST_SHOWN // 2)
            raise BadFile(
                f"the test failed: {line[low : low + LONGEST_SHOWN].strip(' #')}",
                where=f"{where}:{number}",
                hint="its times are not those of a working collective",
            )


def require_warm(run: NcclTestsRun, where: str) -> None:
    """Raise UserError if the first call, which also sets up, is among those that were timed."""
    if not run.warm:
        raise UserError(
            "no call came before those that were timed", where=where, hint="leave out -w 0"
        )


def _told_by_columns(rows: Sequence[_Measured], ranks: int) -> str:
    """Return the test whose sums lack a root, by busbw ÷ algbw; empty where it is another.

    The factor is 2(n - 1)/n of an allreduce and (n - 1)/n of a reduce_scatter. Without sums,
    allgather and alltoall print the same columns.
    """
    large = max(rows, key=lambda row: row.algbw, default=None)
    if large is None or not large.algbw or (large.redop, large.root) != ("sum", "-1"):
        return ""
    share = large.busbw / large.algbw / ((ranks - 1) / ranks)
    return next((name for name, x in _SUMS if abs(share / x - 1) < FACTOR_ERROR), "")


def _check_row(row: _Measured, before: list[_Measured], where: str) -> None:
    for told, half in zip(row.wrong, ("", " in place"), strict=False):
        if not _is_right(told):
            raise BadFile(
                f"results were wrong at {row.bytes} bytes{half} ({told})",
                where=f"{where}:{row.line}",
                hint="measure again once the collective is right",
            )
    if row.us < 0:
        raise BadFile("a time is negative", where=f"{where}:{row.line}")
    if row.us and not SHORTEST_CALL_US <= row.us <= LONGEST_CALL_US:
        raise BadFile(
            f"no call takes {row.us:g} µs",
            where=f"{where}:{row.line}",
            hint=f"times are in µs, from {SHORTEST_CALL_US:g} to {LONGEST_CALL_US:g}",
        )
    if before and row.bytes < before[-1].bytes:
        raise BadFile(
            f"{row.bytes} bytes follow {before[-1].bytes}: sizes of several runs are mixed",
            where=f"{where}:{row.line}",
            hint="one file for each run",
        )


def _is_right(told: str) -> bool:
    """Return True if a column of errors is N/A, a count of 0, or a difference that is rounding."""
    if told == "N/A":
        return True
    try:
        return 0 <= float(told) <= (0 if told.isdigit() else MOST_OLD_ERROR)
    except ValueError:
        return False


def _notes(name: str, several: bool, off: float) -> Iterator[str]:
    yield (
        f"measured by nccl-tests{f' ({name}_perf)' if name else ''}: a port for each GPU; "
        "what lies between them is not known"
    )
    yield f"α + bytes ÷ bandwidth is off by {off:.0%} in the median"
    if name != "sendrecv":
        yield (
            "α is that of the whole collective, the bandwidth what its algorithm reached: the "
            "machine may be better; sendrecv_perf measures messages"
        )
    if several:
        yield "of several hosts: GPUs of one host may reach each other faster than that"


def _line(rows: Iterable[_Measured], factor: float) -> tuple[float, float, float]:
    """Fit a line: return α in µs, bandwidth of a port in GB/s, and the median relative error.

    Slope: median of the slopes between the largest half and the rest (Theil and Sen), since small
    sizes do not depend on bandwidth. α: median of the residuals of the small sizes.
    """
    points = sorted((row.bytes * factor, row.us) for row in rows)
    large = points[len(points) // 2 :]
    slopes = [(u - t) / (b - a) for a, t in points for b, u in large if b > a and u > t]
    if not slopes:
        slopes = [large[-1][1] / large[-1][0]]
    top = [s for s in slopes if s > 0]
    slope = median(sorted(top)[len(top) // 4 :])
    rest = [t - slope * a for a, t in points[: max(1, len(points) // 2)]]
    alpha = max(0.0, median(rest))
    off = median(abs(alpha + slope * a - t) / t for a, t in points)
    return alpha, 1 / slope / BYTES_PER_US_PER_GBPS, off


def _hosts(lines: list[str], where: str, *, once: bool = False) -> list[str]:
    """Return the host of each rank; ``once``: the text is of one run."""
    listed = [(int(m[1]), m[2], at) for at, m in enumerate(map(_RANK.match, lines), 1) if m]
    times = Counter(rank for rank, _, _ in listed)
    most = 1 if once else min(times.values(), default=1)  # several runs list all ranks again
    seen = set()
    for rank, _, at in listed:
        if rank in seen and times[rank] > most:
            raise BadFile(
                f"rank {rank} is listed twice",
                where=f"{where}:{at}",
                hint="keep the output of one run as it is",
            )
        seen.add(rank)
    found = {rank: host for rank, host, _ in listed}
    if len(found) < 2 or sorted(found) != list(range(len(found))):
        raise BadFile(
            "the list of ranks and devices is missing, or has gaps",
            where=where,
            hint="keep the lines that begin with '#  Rank  0 …'",
        )
    return [found[rank] for rank in range(len(found))]


def _rows(lines: list[str], where: str) -> Iterator[_Measured]:
    """Yield the rows of the table.

    Of a run with a debug log one row comes in up to three parts, between lines of the log: sizes
    are printed before the test, each half after it.
    """
    head: list[str] = []
    begun: list[str] = []
    at, dated = 0, False
    for number, line in enumerate(lines, 1):
        if _HEAD.match(line):
            head, begun = line.lstrip("# ").split(), []
            dated = head[-1] == "timestamp"  # -T 1: a day and a time
            head = head[: len(head) - dated]
        if not head or line.startswith("#"):
            continue
        words, cut = _told(line)
        if dated and len(words) == len(head) + 2:
            words = words[:-2]
        if begun and words and all(map(_CELL.fullmatch, words)) and len(words) in _HALVES:
            words = begun + words
        elif not words or not re.fullmatch(r"-?\d+", words[0]):
            continue  # output of a launcher or library between the lines
        elif begun:
            raise _torn(at, head, where)
        else:
            at = number
        first = head.index("time")
        if (
            len(words) in (first, first + _HALF)
            and len(words) < len(head)
            and (cut or begun or len(words) == first)
        ):
            begun = words
            continue
        begun = []
        yield _row(words, head, at, where)
    if begun:
        raise _torn(at, head, where)


_MOST_DIGITS = 30
"""Digits of a number of bytes that are read and shown."""

_HALF = 4
_HALVES = (_HALF, 2 * _HALF)
"""Columns of a half of a row: time, algbw, busbw and errors."""


def _told(line: str) -> tuple[list[str], bool]:
    """Return the words of a line before a debug log begins in it; True if one does."""
    if (log := _DEBUG.search(line)) is None:
        return line.split(), False
    for part in (_LEAD, _HALF_ROW):
        told = part.match(line)  # the host's name may stand right behind the last number
        if told and log.start() <= told.end() + 1:
            return told[0].split(), True
    return [], True


def _torn(number: int, head: Sequence[str], where: str) -> BadFile:
    return BadFile(
        f"the row is not of the {len(head)} columns in the head",
        where=f"{where}:{number}",
        hint=" ".join(head),
    )


def _row(words: Sequence[str], head: Sequence[str], number: int, where: str) -> _Measured:
    starts = [i for i, name in enumerate(head) if name == "time"]  # -I 1 has more beside them
    at = starts[0]
    try:
        if len(words) != len(head) or len(words) < at + _HALF:
            raise ValueError
        us, algbw, busbw = (float(word) for word in words[at : at + 3])
        other = float(words[starts[1]]) if starts[1:] else None
    except ValueError:
        raise _torn(number, head, where) from None
    if len(words[0]) > _MOST_DIGITS or int(words[0]) > LARGEST_MESSAGE:
        raise BadFile(
            f"a message of {words[0][:_MOST_DIGITS]}{'…' * (len(words[0]) > _MOST_DIGITS)} bytes "
            "is more than 1024 TiB",
            where=f"{where}:{number}",
        )
    if int(words[0]) < 0 or not all(map(isfinite, (us, algbw, busbw))):
        raise BadFile(
            f"a row of {words[0]} bytes, {words[at]} µs and {words[at + 2]} GB/s",
            where=f"{where}:{number}",
            hint="sizes are at least 0, times and bandwidths finite numbers",
        )
    wrong = tuple(words[start + 3] for start in starts[:2] if start + 3 < len(words))
    believed = other if other and SHORTEST_CALL_US <= other <= LONGEST_CALL_US else None
    named = dict(zip(head[:at], words, strict=False))
    redop, root = named.get("redop", ""), named.get("root", "")
    return _Measured(number, int(words[0]), us, algbw, busbw, wrong, believed, redop, root)


# --- JSON and CSV ---------------------------------------------------------------------------------

_BUS = re.compile(r'"(?:busBw|bus_bw)"\s*:')

_BETWEEN = re.compile(r"\}([ \t]*\n\s*)\{")
"""Ends of objects that stand one in a line, without commas."""

_NAMES = {name.replace("_", ""): name for name in (*TESTS, "sendrecv", "hypercube", "alltoallv")}
"""Tests by their names in rccl-tests, in small letters: ``AllReduce``."""

Record = dict[str, Any]


def _is_csv(text: str) -> bool:
    """Return True if the first line has the columns of the CSV of rccl-tests."""
    first = text.lstrip("\ufeff \t\r\n")[:400].partition("\n")[0].lower().replace(" ", "")
    return {"collective", "size", "inplace", "time", "busbw"} <= set(first.split(","))


def _of_records(text: str, where: str) -> _TestOutput:
    if _is_csv(text):
        return _of_rccl(list(_csv_records(text)), where)
    joined, several = _BETWEEN.subn(r"},\1{", text.strip())
    data = parse_json(f"[{joined}]" if several else joined, where)
    if isinstance(data, dict) and isinstance(data.get("results"), list):
        return _of_nccl(data, where)
    records = [data] if isinstance(data, dict) else data
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise BadFile("expected results of nccl-tests or rccl-tests, got other JSON", where=where)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("{")]
    numbers = lines if len(lines) == len(records) else range(1, len(records) + 1)
    return _of_rccl(list(zip(numbers, records, strict=True)), where)


def _csv_records(text: str) -> Iterator[tuple[int, Record]]:
    rows = csv.reader(text.lstrip("\ufeff").splitlines(), skipinitialspace=True)
    head = next((row for row in rows if row), [])
    yield from ((rows.line_num, dict(zip(head, row, strict=False))) for row in rows if row)


def _of_rccl(records: Sequence[tuple[int, Record]], where: str) -> _TestOutput:
    """Return the table of records, of which each is of a size and a placement.

    A process is a rank there. Without MPI all GPUs are of one process; with it, ``nodes`` is 1 in
    newer versions for any hosts. Times of several cycles are their median.
    """
    halves: dict[int, tuple[list[_Half], list[_Half]]] = {}
    lines: dict[int, int] = {}
    kinds: dict[tuple[str, int, int, int, int], Record] = {}
    for line, given in records:
        place = f"{where}:{line}"
        record = {key.strip().lstrip("#").lower(): value for key, value in given.items()}
        numbers = [
            int(_real(record, key, place, 1)) for key in ("gpus", "ranks", "gpusperrank", "nodes")
        ]
        gpus, processes, each, nodes = numbers
        kinds[str(record.get("name", record.get("collective"))), gpus, processes, each, nodes] = {}
        size = int(_real(record, "size", place))
        lines.setdefault(size, line)
        halves.setdefault(size, ([], []))[_real(record, "inplace", place) != 0].append(
            _half(record, place, "time", "algbw", "busbw", "wrong")
        )
    if len(kinds) != 1:
        what = "no records" if not kinds else "records of several tests or numbers of GPUs"
        raise BadFile(what, where=where, hint="one file for each run")
    ((name, gpus, processes, each, nodes),) = kinds
    if not 2 <= gpus * processes * each <= MAX_GPUS:
        raise BadFile(f"{gpus * processes * each} GPUs", where=where)
    per_host = processes * each // nodes if nodes > 1 else 0
    named = "" if processes > 1 else "host"
    hosts = [f"host{i // per_host}" if per_host else named for i in range(gpus * processes * each)]
    rows = [
        _measured(lines[size], size, _typical(out), _typical(inside), where)
        for size, (out, inside) in halves.items()
    ]
    test = _NAMES.get(name.lower().replace("_", ""), name[:100])
    return _TestOutput(test, hosts, gpus * each, rows, [])


def _of_nccl(data: Record, where: str) -> _TestOutput:
    """Return the table of one object. Its devices are the first of each process."""
    config = data.get("config", data)
    devices = config.get("devices", data.get("devices")) if isinstance(config, dict) else None
    if not isinstance(devices, list) or not all(isinstance(one, dict) for one in devices):
        raise BadFile("expected a list of devices, got none", where=where)
    each = int(_real(config, "nthreads", where, 1)) * int(_real(config, "ngpus", where, 1))
    ranks = [_real(one, "rank", where) for one in devices]
    several = 1 if ranks[1:2] == [1] else each
    if not 2 <= len(devices) * several <= MAX_GPUS:
        raise BadFile(f"{len(devices) * several} GPUs in the list of devices", where=where)
    hosts = [str(one.get("hostname", ""))[:100] for one in devices for _ in range(several)]
    bounds = data.get("out_of_bounds")
    if not isinstance(bounds, dict) or bounds.get("okay") not in ("true", True):
        raise BadFile(
            "the test failed, or has not come to its end", where=where, hint="out_of_bounds, okay"
        )
    rows = []
    for number, one in enumerate(data["results"]):
        line = f" results[{number}]"
        place = f"{where}:{line}"
        if not isinstance(one, dict):
            raise BadFile("a result is an object", where=place)
        out, inside = (
            _half(half, place, "time", "alg_bw", "bus_bw", "nwrong") if half else None
            for half in (one.get("out_of_place"), one.get("in_place"))
        )
        made = _measured(line, int(_real(one, "size", place)), out, inside, where)
        rows.append(replace(made, redop=str(one.get("redop")), root=str(one.get("root")).strip()))
    program = data.get("args")
    test = _TEST.search(" ".join(map(str, program))) if isinstance(program, list) else None
    names = [str(one.get("device_info", "")) for one in devices]
    warm = _real(config, "warmup_iters", where, 1) > 0
    return _TestOutput(test[1] if test else "", hosts, each, rows, names, warm)


_Half = tuple[float, float, float, str]
"""Time, algbw, busbw, and errors."""


def _half(record: Any, where: str, time: str, algbw: str, busbw: str, wrong: str) -> _Half:
    if not isinstance(record, dict) or "cpu_time" in record:
        hint = "run it without -C 1: cpu_time is that of the host" * isinstance(record, dict)
        raise BadFile("no time of the GPUs", where=where, hint=hint)
    us, own, bus = (_real(record, key, where) for key in (time, algbw, busbw))
    errors = record.get(wrong)
    return us, own, bus, "N/A" if errors is None else str(errors)[:_MOST_DIGITS]


def _typical(halves: Sequence[_Half]) -> _Half | None:
    if not halves:
        return None
    errors = next((x[3] for x in halves if not _is_right(x[3])), halves[0][3])
    return median(x[0] for x in halves), median(x[1] for x in halves), halves[0][2], errors


def _measured(
    line: int | str, size: int, out: _Half | None, inside: _Half | None, where: str
) -> _Measured:
    if out is None:
        raise BadFile(f"{size} bytes were not timed out of place", where=f"{where}:{line}")
    if not 0 <= size <= LARGEST_MESSAGE:
        raise BadFile(f"a message of {size} bytes", where=f"{where}:{line}")
    other = inside[0] if inside and SHORTEST_CALL_US <= inside[0] <= LONGEST_CALL_US else None
    wrong = tuple(half[3] for half in (out, inside) if half)
    return _Measured(line, size, *out[:3], wrong, other)


def _real(record: Record, key: str, where: str, default: float | None = None) -> float:
    value = record.get(key, default)
    try:
        number = float("nan" if isinstance(value, bool) or value is None else value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number) or abs(number) > LARGEST_MESSAGE:
        raise BadFile(f"{key}: expected a number, got {str(value)[:40]!r}", where=where)
    return number

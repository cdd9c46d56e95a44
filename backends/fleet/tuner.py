"""Measured times of NCCL's algorithms, from output of nccl-tests or of ``weft bench --json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import looks_like_json, parse_json
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_binary
from weft.dsl.importers.nccl_log import ALGORITHMS, NcclLog, read_log
from weft.dsl.importers.nccl_tests import (
    NcclTestsRun,
    looks_like_nccl_tests,
    read_run,
    require_warm,
)
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.runtime import RCCL

from .evidence import EFFORT

OPTIONS = ("algorithm", "protocol", "channels")
"""Words behind a path."""

OWN = "NCCL"
"""Name of the runtime's own collective in ``weft bench --on nccl``."""

_PREDICTED = (
    "times of a model, not measured: a tuner file of them would tell NCCL what we take NCCL for"
)
_HINT = "run nccl-tests with NCCL_ALGO and NCCL_PROTO set, once for each, and name the outputs"


def tuner_times(text: str, path: str, words: Mapping[str, str]) -> list[TunerTime]:
    """Return the measured times in a text.

    ``words``: algorithm, protocol and channels, where the text lacks them.

    Raises:
        UserError: times that were not measured, or that do not name the program.
        BadFile: neither an output of nccl-tests nor of ``weft bench``.
    """
    if looks_like_nccl_tests(text):
        run = read_run(text, path)
        if run.kind is None:
            got = f"got {run.test}_perf" if run.test else "got a text that names no test"
            raise UserError(f"expected a test of a collective of weft, {got}", where=path)
        return list(_of_run(run, run.kind, read_log(text), path, words))
    if looks_like_json(text):
        return list(_of_bench(parse_json(text, path), path, words))
    raise BadFile("neither output of nccl-tests nor of weft bench --json", where=path, hint=_HINT)


def _of_run(
    run: NcclTestsRun, kind: Kind, log: NcclLog, path: str, words: Mapping[str, str]
) -> Iterator[TunerTime]:
    require_warm(run, path)
    hosts, ranks = len(set(run.hosts)), len(run.hosts)
    for row in run.rows:
        setting = _setting(log, kind, row.bytes, ranks, words, path)
        us = row.us if row.in_place_us is None else (row.us + row.in_place_us) / 2
        yield TunerTime(kind, ranks, hosts, row.bytes, us, setting, row.where)


def _setting(
    log: NcclLog, kind: Kind, size: int, ranks: int, words: Mapping[str, str], path: str
) -> TunerSetting:
    """Return the program of a size: by the words, by its line of the log, or by the environment."""
    told = {
        (x.algorithm, x.protocol): x.channels
        for x in log.choices
        if x.kind in (None, kind) and x.message_bytes(ranks) == size
    }
    (algorithm, protocol), channels = (
        next(iter(told.items())) if len(told) == 1 else (("", ""), None)
    )
    algorithm = words.get("algorithm") or algorithm or _single(log, "NCCL_ALGO")
    protocol = words.get("protocol") or protocol or _single(log, "NCCL_PROTO")
    if not algorithm or not protocol:
        lacking = "algorithm" if not algorithm else "protocol"
        raise UserError(
            f"nothing tells which {lacking} ran at {size} bytes",
            where=path,
            hint=f"{path}:algorithm=ring,protocol=ll, or run it with NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING",
        )
    many = _channels(words["channels"], path) if "channels" in words else channels
    return TunerSetting(algorithm.lower(), protocol.lower(), many)


def _channels(text: str, path: str) -> int:
    many = int(text) if re.fullmatch(r"[0-9]{1,4}", text) else 0
    if not 1 <= many <= RCCL.max_channels:
        raise UserError(
            f"channels: expected 1 to {RCCL.max_channels}, got {text[:20]!r}",
            where=path,
            hint="as NCCL_DEBUG_SUBSYS=TUNING names them: channel{Lo..Hi}={0..15} are 16",
        )
    return many


def _single(log: NcclLog, name: str) -> str:
    """Return a variable's value if it names one thing."""
    value = log.settings.get(name, "")
    return "" if "," in value or "^" in value else value


def _of_bench(data: Any, path: str, words: Mapping[str, str]) -> Iterator[TunerTime]:
    if not isinstance(data, dict) or "on" not in data or "sizes" not in data:
        raise UserError(_PREDICTED, where=path, hint=_HINT)
    if data["on"] != "nccl":
        raise UserError(
            f"measured on {json.dumps(data['on'])}: a tuner file is for NCCL's own algorithms",
            where=path,
            hint="weft bench PLAN --on nccl --json",
        )
    kind, ranks = str(data.get("collective", "")), data.get("ranks")
    if kind not in {*Kind} or not isinstance(ranks, int):
        raise BadFile("no collective and ranks", where=path)
    setting = _setting(NcclLog(), Kind(kind), 0, ranks, words, path)
    for row in data["sizes"]:
        if isinstance(row, dict) and row.get("name") == OWN:
            size, us = row.get("bytes"), row.get("us")
            if not isinstance(size, int) or not isinstance(us, int | float) or us <= 0 < size:
                raise BadFile("a time without its bytes and µs", where=path)
            yield TunerTime(Kind(kind), ranks, None, size, float(us), setting, path)


# The quickest of NCCL's algorithms for each size of message, and its text as a tuner file.
#
# The text is that of NCCL's example tuner (``plugins/tuner/example``, NCCL 2.28 and later; before
# that ``ext-tuner/example``), which RCCL has built in since 2026. The first line that fits a call
# counts. That plug-in begins with one channel, and keeps it where a line has -1 or none fits: so
# lines name channels where these are known, and cover all sizes.

PROTOCOLS = ("ll", "ll128", "simple")

NAMES: Mapping[Kind, str] = {
    Kind.ALLREDUCE: "allreduce",
    Kind.ALLGATHER: "allgather",
    Kind.REDUCE_SCATTER: "reducescatter",
    Kind.BROADCAST: "broadcast",
    Kind.REDUCE: "reduce",
}
"""Collectives that tuners choose for, as their files spell them."""

LARGEST = (1 << 62) - 1
"""Bytes up to which the last line holds."""


@dataclass(frozen=True, slots=True)
class TunerSetting:
    """An algorithm of NCCL's, its protocol and its channels (None: not known)."""

    algorithm: str
    protocol: str
    channels: int | None = None

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.algorithm, ALGORITHMS, "algorithm"),
            (self.protocol, PROTOCOLS, "protocol"),
        ):
            if value not in known:
                raise UserError(
                    f"no {what} of tuner files is called {value!r}", hint=", ".join(known)
                )

    @property
    def words(self) -> str:
        """The setting in words."""
        many = "" if self.channels is None else f", {self.channels} channels"
        return f"{self.algorithm} {self.protocol}{many}"


@dataclass(frozen=True, slots=True)
class TunerTime:
    """A measured time in µs of a message in bytes; ``hosts``: None where it is unknown."""

    kind: Kind
    ranks: int
    hosts: int | None
    bytes: int
    us: float
    setting: TunerSetting
    where: str


@dataclass(frozen=True, slots=True)
class TunerLine:
    """A line of the file: for messages of ``low`` to ``high`` bytes, both included.

    ``us``: of its measured sizes; ``next_us``: of the quickest other setting at each of these, None
    where there is none; ``sizes``: the measured ones.
    """

    kind: Kind
    ranks: int
    hosts: int | None
    low: int
    high: int
    setting: TunerSetting
    sizes: tuple[int, ...]
    us: tuple[float, ...]
    next_us: tuple[float | None, ...]

    @property
    def text(self) -> str:
        """The line as the file has it."""
        hosts = -1 if self.hosts is None else self.hosts
        channels = -1 if self.setting.channels is None else self.setting.channels
        return (
            f"{NAMES[self.kind]},{self.low},{self.high},{self.setting.algorithm},"
            f"{self.setting.protocol},{channels},{hosts},{self.ranks},-1,-1"
        )


def tuner_lines(times: Sequence[TunerTime]) -> list[TunerLine]:
    """Return the lines for all collectives and machines of which times were measured.

    Raises:
        UserError: a collective that tuners do not choose for, or nothing to choose between.
    """
    groups: dict[tuple[Kind, int, int | None], list[TunerTime]] = {}
    for one in times:
        if one.kind not in NAMES:
            raise UserError(
                f"a tuner is not asked about {one.kind}",
                where=one.where,
                hint=f"it chooses for {', '.join(NAMES.values())}",
            )
        groups.setdefault((one.kind, one.ranks, one.hosts), []).append(one)
    found: list[TunerLine] = []
    for (kind, ranks, hosts), mine in groups.items():
        if len({(x.setting.algorithm, x.setting.protocol) for x in mine}) < 2:
            raise UserError(
                f"one algorithm of {kind} was measured on {ranks} GPUs: nothing to choose between",
                where=mine[0].where,
                hint="measure others: NCCL_ALGO=Tree, NCCL_PROTO=LL128 …",
            )
        found += _lines(kind, ranks, hosts, mine)
    return found


def _lines(
    kind: Kind, ranks: int, hosts: int | None, times: Sequence[TunerTime]
) -> list[TunerLine]:
    best: dict[int, dict[TunerSetting, float]] = {}
    for one in times:
        known = best.setdefault(one.bytes, {})
        known[one.setting] = min(one.us, known.get(one.setting, one.us))
    chosen: list[tuple[int, TunerSetting]] = []
    for size in sorted(best):
        setting = min(best[size], key=best[size].__getitem__)
        before = chosen[-1][1] if chosen else setting
        if best[size].get(before, float("inf")) <= EFFORT.stay_ratio * best[size][setting]:
            setting = before
        chosen.append((size, setting))
    starts = [i for i, (_, x) in enumerate(chosen) if i == 0 or chosen[i - 1][1] != x]
    found = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(chosen)
        sizes = tuple(size for size, _ in chosen[start:end])
        setting = chosen[start][1]
        others = [
            min((us for x, us in best[size].items() if x != setting), default=None)
            for size in sizes
        ]
        low = chosen[start][0] if number else 0
        high = chosen[end][0] - 1 if end < len(chosen) else LARGEST
        us = tuple(best[size][setting] for size in sizes)
        found.append(TunerLine(kind, ranks, hosts, low, high, setting, sizes, us, tuple(others)))
    return found


def tuner_text(lines: Sequence[TunerLine], sources: Sequence[str]) -> str:
    """Return the file: lines and comments, each shorter than the 256 characters that are read."""
    measured = {
        f"{NAMES[one.kind]} of {one.ranks} ranks": [
            size for x in lines if (x.kind, x.ranks) == (one.kind, one.ranks) for size in x.sizes
        ]
        for one in lines
    }
    head = [
        "# collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks,pipeOps,regBuff",
        *(f"# measured in {source}"[:200] for source in sources),
        *(
            f"# {name}: measured from {format_binary(min(sizes))} to {format_binary(max(sizes))}; "
            "below and above, the nearest size's choice"
            for name, sizes in measured.items()
        ),
    ]
    return "\n".join([*head, *(one.text for one in lines), ""])

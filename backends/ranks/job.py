"""Jobs: files, and calls of their functions; and the report of each rank.

Calls may be measured round by round, and there is a file of these: ``"weft": "recording"``. A copy
of the program's module is loaded, and its ``call`` gets a transport that takes the time around
every exchange (:class:`Watched`). Nothing of this is there in the calls that are timed.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import SCHEMA, Fields, require_kind
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Collective

from ..formats.p2p.data import Exam, type_named, units_of
from ..formats.p2p.emit import function_of
from ..formats.p2p.execute import loaded
from ..formats.p2p.read import read_script


@dataclass(frozen=True, slots=True)
class RankLimits:
    """Time limits of ranks, in seconds, and of the reports of their states."""

    report_seconds: float = 1.5  # for the other ranks to report once one has given up or is lost
    terminate_seconds: float = 2.0  # for ranks, and for what started them, to end at SIGTERM
    # For processes that were killed to be gone, and for ranks that left their result to close.
    kill_seconds: float = 5.0
    failed_seconds: float = 30.0  # that a rank that failed waits to be ended with the others
    nap_seconds: float = 2e-3  # of a rank at most between two looks
    named_ranks: int = 8  # in a message
    state_bytes: int = 240  # of a line of state; one write replaces the line before
    warm_up_turns: int = 1  # that are not timed; the first result is compared, and the last
    shared_gpu_nccl: int = 23000  # first version of NCCL that puts several ranks on one GPU


LIMITS = RankLimits()


KIND = "recording"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its message's bytes, the type of its elements, and the actions of each rank."""

    bytes: int
    dtype: str
    ranks: tuple[CallRecord, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """Calls of one program on a runtime."""

    on: str
    collective: str
    calls: tuple[Call, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.calls[0].ranks)

    def call_of(self, size: int | None, where: str) -> Call:
        """Return the first call of a size, or the one of the largest message.

        Raises:
            UserError: no call is of that size.
        """
        if size is None:
            return max(self.calls, key=lambda call: call.bytes)
        found = next((call for call in self.calls if call.bytes == size), None)
        if found is None:
            known = ", ".join(format_bytes(n) for n in sorted({c.bytes for c in self.calls}))
            raise UserError(
                f"no call of {format_bytes(size)} was recorded",
                where=where,
                hint=f"--size is one of {known}",
            )
        return found


def dumps(recording: Recording) -> str:
    """Return the text of the file."""
    return json.dumps({"weft": KIND, "schema": SCHEMA, **asdict(recording)}) + "\n"


def load(data: Any, where: str) -> Recording:
    """Read the text of :func:`dumps`.

    Raises:
        BadFile: not such a file.
    """
    require_kind(data, KIND, where)
    fields = Fields(data, where)
    on, collective = fields.get("on", str), fields.get("collective", str)
    calls = tuple(
        _call(one, f"{where}: call {i}") for i, one in enumerate(fields.get("calls", list))
    )
    fields.finish()
    if not calls or len({len(call.ranks) for call in calls}) != 1 or not calls[0].ranks:
        raise BadFile("calls of one number of ranks are needed", where=where)
    return Recording(on, collective, calls)


def _call(data: Any, where: str) -> Call:
    fields = Fields(data, where)
    size, dtype = fields.get("bytes", int), fields.get("dtype", str)
    all_ranks: list[Any] = fields.get("ranks", list)
    ranks = tuple(record_of(one, f"{where}, rank {r}") for r, one in enumerate(all_ranks))
    fields.finish()
    for watch in ranks:
        if any(not 0 <= peer < len(ranks) for x in watch.rounds for peer in (*x.to, *x.source)):
            raise BadFile("a message to or from a rank that is not there", where=where)
    return Call(size, dtype, ranks)


def record_of(data: Any, where: str) -> CallRecord:
    """Build the record of a rank from its dictionary.

    Raises:
        BadFile: not such a dictionary.
    """
    fields = Fields(data, where)
    us, found, now = _time(fields, "us", where), [], 0.0
    for one in fields.get("rounds", list):
        part = Fields(one, where)
        passed = Passed(
            part.get("round", int),
            _time(part, "start_us", where),
            _time(part, "end_us", where),
            tuple(part.integers("to")),
            tuple(part.integers("source")),
        )
        part.finish()
        if not now <= passed.start_us <= passed.end_us:
            raise BadFile("rounds must follow each other", where=where)
        now = passed.end_us
        found.append(passed)
    fields.finish()
    return CallRecord(us, tuple(found))


def _time(fields: Fields, key: str, where: str) -> float:
    value = float(fields.get(key, (int, float)))
    if not (math.isfinite(value) and value >= 0):
        raise BadFile(f"{key!r} is not a time", where=where)
    return value


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Passed:
    """One round of one rank: µs from the call's beginning, and the other ends of its messages."""

    round: int
    start_us: float
    end_us: float
    to: tuple[int, ...]
    source: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of one rank in a call: its rounds, and the µs of the whole call."""

    us: float
    rounds: tuple[Passed, ...]


class _Watched:
    """Transport that logs its exchanges: (round, start, end, targets, sources)."""

    def __init__(self, wire: Any, clock: Clock, log: list[tuple[Any, ...]]) -> None:
        self._wire, self._clock, self._log = wire, clock, log

    def exchange(self, number: int, sends: Sequence[Any], recvs: Sequence[Any]) -> None:
        begin = self._clock()
        self._wire.exchange(number, sends, recvs)
        ends = (tuple(peer for _, peer in some) for some in (sends, recvs))
        self._log.append((number, begin, self._clock(), *ends))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


class Watched:
    """Second copy of a file's module, whose calls are recorded."""

    def __init__(self, text: str, clock: Clock) -> None:
        self.program: types.ModuleType = loaded(text)
        self._log: list[tuple[Any, ...]] = []
        plain = self.program.call

        def call(wire: Any, *rest: Any) -> None:
            plain(_Watched(wire, clock, self._log), *rest)

        self.program.__dict__["call"] = call

    def forget(self) -> None:
        """Delete the log of exchanges."""
        self._log.clear()

    def seen(self, begin: float, end: float) -> CallRecord:
        """Return the record of a call, in times from its beginning."""
        rounds = tuple(
            Passed(number, 1e6 * (a - begin), 1e6 * (b - begin), to, source)
            for number, a, b, to, source in self._log
        )
        return CallRecord(1e6 * (end - begin), rounds)


@dataclass(frozen=True, slots=True)
class EmittedFile:
    """An emitted file, its function, and the collective as its caller sees it."""

    text: str
    function: str
    units: Collective

    @staticmethod
    def of(text: str, where: str = "the file") -> EmittedFile:
        """Parse an emitted file.

        Raises:
            BadFile: not an emitted one.
        """
        collective = read_script(text, where).collective
        return EmittedFile(text, function_of(collective), units_of(collective))


@dataclass(frozen=True, slots=True)
class Case:
    """One call, repeated: of which file, on units of how many elements of which type.

    Attributes:
        rough: as :class:`~weft.backends.formats.p2p.data.Exam` has it.
        repeat: timed calls after the one that is compared; the last is compared as well.
        watch: then one more call, whose rounds are recorded.
    """

    piece: int
    length: int
    dtype: str
    in_place: bool = False
    rough: bool = False
    repeat: int = 0
    seed: int = 0
    watch: bool = False

    def exam(self, units: Collective) -> Exam:
        """Its data."""
        return Exam(units, self.length, type_named(self.dtype), self.seed, self.rough)

    def __str__(self) -> str:
        place = "in place" if self.in_place else "out of place"
        return f"{self.length} elements a unit of {self.dtype}, {place}"


@dataclass(frozen=True, slots=True)
class RankJob:
    """Work of one start of the ranks.

    A file for fewer ranks than there are runs on a group of the last ones, whose numbers in the
    group are not those in the job. ``timeout``: seconds that a rank waits for another.
    """

    pieces: tuple[EmittedFile, ...]
    cases: tuple[Case, ...]
    ranks: int
    timeout: float

    def write(self, folder: Path) -> None:
        """Put it where the ranks read it."""
        pieces = [(one.text, one.function, one.units.to_json()) for one in self.pieces]
        cases = [asdict(case) for case in self.cases]
        data = (pieces, cases, self.ranks, self.timeout)
        (folder / "job.json").write_text(json.dumps(data), "utf-8")

    @staticmethod
    def read(folder: Path) -> RankJob:
        """Return the job in a folder."""
        pieces, cases, *rest = json.loads((folder / "job.json").read_text("utf-8"))
        return RankJob(
            tuple(EmittedFile(x, name, Collective.from_json(units)) for x, name, units in pieces),
            tuple(Case(**case) for case in cases),
            *rest,
        )


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a case on one rank: the error, if any, the seconds of each timed call, and the
    rounds of the recorded call."""

    wrong: str | None
    seconds: tuple[float, ...] = ()
    watch: CallRecord | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a rank: the exception's type and text, and its hint if it has one."""

    kind: str
    text: str
    hint: str = ""

    @property
    def waiting(self) -> bool:
        """True if the rank only timed out on other ranks, or lost its connection to them."""
        return self.kind in ("TimeoutError", "ConnectionError")


@dataclass(frozen=True, slots=True)
class RankReport:
    """Report of one rank: a :class:`Done` for each case, None where it did not take part."""

    rank: int
    done: tuple[Done | None, ...] = ()
    failure: Failure | None = None

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RankReport:
        """Parse the text of :meth:`to_json`."""
        data: dict[str, Any] = json.loads(text)
        done = tuple(
            d
            and Done(
                d["wrong"], tuple(d["seconds"]), d["watch"] and record_of(d["watch"], "a report")
            )
            for d in data["done"]
        )
        failure = data["failure"] and Failure(**data["failure"])
        return RankReport(data["rank"], done, failure)


def whole_job(pieces: Sequence[EmittedFile], cases: Sequence[Case], timeout: float) -> RankJob:
    """Return a job on as many ranks as its largest piece needs."""
    needed = max(piece.units.ranks for piece in pieces)
    return RankJob(tuple(pieces), tuple(cases), needed, timeout)

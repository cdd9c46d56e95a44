"""Libraries: for one machine and each collective, the plan to run at each message size.

A **plan** is a schedule with its compile options and emitted files; it covers all sizes from
``low`` to ``high`` bytes, both included. The plans of a collective leave no gap and do not overlap.
A library also keeps the race they were chosen from: every candidate's time on a grid of sizes, the
lower bound, and the baselines among the candidates.

A library is a folder: ``library.json`` (this noun) and the files that it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from ..base.errors import BadFile, UnknownName, UserError, require_type
from ..base.files import (
    SCHEMA,
    parse_json,
    read_text,
    require_kind,
    write_folder,
)
from ..base.integers import integer
from ..base.json_text import compact
from ..base.lazy_dataclass import Frozen
from ..base.record import Key, Record, integers, line, texts
from ..base.tables import count
from ..base.units import format_binary, parse_bytes
from ..base.views import Tabled, Viewed
from .collective import Collective
from .library_fields import Times, read_bound, read_provenance, read_times, read_timing
from .program import protocol_of
from .schedule import Schedule
from .schedule import load as load_schedule
from .topology import Topology

MANIFEST = "library.json"
"""Name of the manifest file in the folder of a library."""

MOST_COPIES = 1024
"""Most instances or segments of a plan; larger numbers are refused as errors."""

IN_SWITCHES = "switches sum or copy (NVLS)"
"""Words of the remark on plans in which switches compute; deploy looks for them."""

FOUND_IN_SWITCHES = "in switches, "
"""Prefix of the names of schedules that an engine found for switches that compute."""


class Artefact(Frozen):
    """One file of a plan.

    Attributes:
        format: a backend (``msccl-xml``). ``target``: the runtime it was checked for, or empty.
        in_place: True if input and output are one buffer.
        file: its path in the folder of the library.
    """

    format: str
    file: str
    target: str = ""
    in_place: bool = False


class Candidate(Frozen):
    """A timed candidate: a schedule with one set of compile options.

    Attributes:
        name: schedule and compile options, unique in its race.
        baseline: True if a runtime without a synthesizer would choose it.
        us: time in µs at each size of the grid.
        source: the schedule's own name, shared by all that were compiled from it.
        counted_us: µs that counted where plans were chosen: more than ``us`` at a size near which
            it takes longer than a baseline. Empty: ``us`` everywhere.
    """

    name: str
    us: Times
    baseline: bool = False
    source: str = ""
    counted_us: Times = ()


class TunedPlan(Frozen):
    """One plan, for messages of ``low`` to ``high`` bytes, both included.

    Attributes:
        candidate: name of the chosen candidate.
        engine: engine that found the schedule. ``protocol``, ``instances``, ``segments``,
            ``options``: compile options, spelled as the flags of ``weft compile``.
        schedule: file of the schedule in the library's folder.
    """

    name: str
    low: int
    high: int
    candidate: str
    engine: str
    protocol: str = "Simple"
    instances: int = 1
    segments: int = 1
    options: Mapping[str, str | int] = field(default_factory=dict)
    schedule: str = ""
    artefacts: tuple[Artefact, ...] = ()


class RuntimeTimes(Frozen):
    """Times of a runtime's own programs, without a file, at the sizes of a grid.

    Attributes:
        name: the runtime and its version. ``how``: its algorithm at each size; empty if not timed.
        us: µs of its quickest program. ``start_us``: of them before the first operation.
        apart: methods of the runtime beside programs, such as sums in switches (NVLS), or empty;
            ``apart_us``: µs of that.
    """

    name: str
    how: tuple[str, ...]
    us: Times
    start_us: Times
    apart: str = ""
    apart_us: Times = ()


class PlanChange(Frozen):
    """Message size from which another algorithm or protocol is used.

    ``what``: ``algorithm`` or ``protocol``; ``before``, ``after``: its name below the size, and
    from it on.
    """

    bytes: int
    what: str
    before: str
    after: str


class Gain(Frozen):
    """Gain of a plan over the runtime's own program at a size.

    Attributes:
        us: µs that it takes less; negative where it takes longer.
        ratio: the runtime's time over the plan's. ``run_ratio``: the same without what both calls
            take before their first operation.
    """

    us: float
    ratio: float
    run_ratio: float


class Tuned(Frozen):
    """Result of tuning one collective.

    Attributes:
        bound: the lower bounds, as in ``weft bound --json``.
        grid: message sizes in bytes, ascending. ``bound_us``, ``chosen_us``, ``idea_us``: at each
            size the lower bound, the time of the library's plan, and the time of its schedule
            without runtime overheads, in µs.
        candidates: timed candidates worth showing, baselines included.
        remarks: notes for the reader; one with :data:`IN_SWITCHES` states what plans need in which
            switches sum or copy.
        start_us: µs of a call of the plan at each size before its first operation; empty where the
            model of time has none. ``runtime``: the runtime's own times; None where
            the model does not know.
        runtime_bound_us: least µs of any program of the runtime at each size; empty where that is
            not known.
    """

    collective: Collective
    bound: Mapping[str, Any]
    grid: tuple[int, ...]
    bound_us: tuple[float, ...]
    chosen_us: tuple[float, ...]
    idea_us: Times
    candidates: tuple[Candidate, ...]
    plans: tuple[TunedPlan, ...]
    remarks: tuple[str, ...] = ()
    start_us: Times = ()
    runtime: RuntimeTimes | None = None
    runtime_bound_us: tuple[float, ...] = ()

    def __repr__(self) -> str:
        low, high = format_binary(self.plans[0].low), format_binary(self.plans[-1].high)
        return f"<Tuned {self.name}: {count(len(self.plans), 'plan')} for {low} to {high}>"

    @property
    def name(self) -> str:
        """Return the name of the collective."""
        return self.collective.name or str(self.collective.kind)

    def pick(self, message_bytes: int) -> TunedPlan:
        """Return the plan for a message size in bytes.

        Raises:
            UserError: no plan covers the size.
        """
        for plan in self.plans:
            if plan.low <= message_bytes <= plan.high:
                return plan
        raise UserError(
            f"{format_binary(message_bytes)} is outside {format_binary(self.plans[0].low)} … "
            f"{format_binary(self.plans[-1].high)}, which the library was tuned for",
            hint="tune it for more sizes",
        )

    def baseline_us(self) -> Times:
        """Return the time of the fastest baseline at each size; None where none was timed."""
        found: list[float | None] = []
        for at in range(len(self.grid)):
            times = [c.us[at] for c in self.candidates if c.baseline]
            found.append(min((t for t in times if t is not None), default=None))
        return tuple(found)

    def start_at(self, at: int) -> float:
        """Return the µs of the plan's call before its first operation, at an index of the grid."""
        return (self.start_us[at] if self.start_us else None) or 0.0

    def gain(self, at: int) -> Gain | None:
        """Return the gain over the runtime's own program at an index of the grid; None: unknown."""
        own = self.runtime
        us = self.chosen_us[at]
        if own is None or (theirs := own.us[at]) is None or us <= 0:
            return None
        run, theirs_run = us - self.start_at(at), theirs - (own.start_us[at] or 0.0)
        return Gain(theirs - us, theirs / us, theirs_run / run if run > 0 else math.inf)

    def over_runtime(self, at: int) -> float | None:
        """Return the plan's time over the least of any program, at an index of the grid; None:
        unknown."""
        least = self.runtime_bound_us[at] if self.runtime_bound_us else 0.0
        return self.chosen_us[at] / least if least else None

    def changes(self) -> tuple[PlanChange, ...]:
        """Return the sizes from which another algorithm or protocol is used, ascending."""
        source = {c.name: c.source or c.name for c in self.candidates}
        found = []
        for a, b in pairwise(self.plans):
            for what, before, after in (
                ("algorithm", source[a.candidate], source[b.candidate]),
                ("protocol", a.protocol, b.protocol),
            ):
                if before != after:
                    found.append(PlanChange(b.low, what, before, after))
        return tuple(found)


class Library(Viewed, Tabled, Frozen):
    """Plans of several collectives on one machine.

    Attributes:
        timing: how candidates were timed: ``{"by": "simulation", "runtime": "msccl", …}`` or
            ``{"by": "measurement", "on": "mpi", …}``.
        provenance: the inputs needed to build it again.
        files: its files by path in its folder, where they are known; what :meth:`load` reads them
            from, or ``weft.tune`` has made.
    """

    _view: ClassVar = "library"
    _frame: ClassVar = "library"

    name: str
    topology: Topology
    low: int
    high: int
    timing: Mapping[str, Any]
    tuned: tuple[Tuned, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high:
            raise UserError(
                f"the size range of the library, {self.low} to {self.high} bytes, is empty"
            )
        if not self.tuned:
            raise BadFile("a library without a collective", where=self.name)
        names = [one.name for one in self.tuned]
        if len(set(names)) < len(names):
            raise BadFile("one collective is listed twice", where=self.name)
        for one in self.tuned:
            _check(self, one)

    def __repr__(self) -> str:
        told = ", ".join(f"{one.name} ({count(len(one.plans), 'plan')})" for one in self.tuned)
        sizes = f"{format_binary(self.low)} to {format_binary(self.high)}"
        return f"<Library on {self.topology.name}: {told} for {sizes}>"

    @staticmethod
    def load(path: str | Path) -> Library:
        """Return the library of a folder, or of its ``library.json``; files are read on use.

        Raises:
            BadFile, UserError: there is none, or it is damaged.
        """
        if not isinstance(path, Path):
            require_type(path, str, "library", "the folder that weft tune wrote")
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        return replace(read(path), files=_LazyTexts(folder))

    def write(self, path: str | Path) -> None:
        """Write the folder, which must not exist, with all files.

        Raises:
            UserError: it exists, cannot be written, or this library came without files.
        """
        if not self.files:
            raise UserError("a library without files", hint="weft.Library.load(folder) has them")
        write_folder(str(path), dict(self.files))

    def schedule(self, name: str, size: int | str) -> Schedule:
        """Return the schedule of a collective's plan at a size, such as ``1MiB``.

        Raises:
            UserError: no such collective, size, or file.
        """
        at = parse_bytes(size) if isinstance(size, str) else integer(size, "message size")
        file = self.of(name).pick(at).schedule
        return load_schedule(parse_json(self.text(file), file), file)

    def text(self, file: str) -> str:
        """Return a file by its path in the folder.

        Raises:
            UnknownName: unknown file.
        """
        if file not in self.files:
            raise UnknownName("file of the library", file, self.files)
        return self.files[file]

    def of(self, name: str) -> Tuned:
        """Return the tuning result of a collective.

        Raises:
            UserError: the library has none.
        """
        for one in self.tuned:
            if one.name == name:
                return one
        raise UserError(
            f"expected a collective of the library, got {name}",
            hint="it has " + ", ".join(t.name for t in self.tuned),
        )


class _LazyTexts(Mapping[str, str]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, file: str) -> str:
        if file not in set(self):
            raise KeyError(file)
        return read_text(self._folder / file)

    def __iter__(self) -> Iterator[str]:
        paths = sorted(p for p in self._folder.rglob("*") if p.is_file())
        return (p.relative_to(self._folder).as_posix() for p in paths)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _check(library: Library, one: Tuned) -> None:
    """Raise UserError for ranges with gaps or overlaps, and columns that do not fit the grid."""
    where = one.name
    if not one.plans:
        raise BadFile("a collective without plans", where=where)
    if (one.plans[0].low, one.plans[-1].high) != (library.low, library.high):
        raise BadFile(f"its plans are not for {library.low} to {library.high} bytes", where=where)
    for a, b in pairwise(one.plans):
        if b.low != a.high + 1:
            what = "a gap" if b.low > a.high else "an overlap"
            raise BadFile(
                f"{what} between {a.name} (to {a.high}) and {b.name} (from {b.low})", where=where
            )
    if any(p.low > p.high for p in one.plans):
        raise BadFile("a plan whose size range is empty", where=where)
    if list(one.grid) != sorted(set(one.grid)) or not one.grid:
        raise BadFile("the sizes of the grid must increase", where=where)
    columns = [one.bound_us, one.chosen_us, one.idea_us, *(c.us for c in one.candidates)]
    columns += [x for x in (one.start_us, one.runtime_bound_us) if x]
    if own := one.runtime:
        columns += [own.us, own.start_us, *([own.apart_us] if own.apart else [])]
    named = len(one.grid) if one.runtime is None else len(one.runtime.how)
    if any(len(column) != len(one.grid) for column in columns) or named != len(one.grid):
        raise BadFile("a column of times and the grid differ in length", where=where)
    for candidate in one.candidates:
        _require_counted(candidate, where)
    names = [c.name for c in one.candidates]
    if len(set(names)) != len(names):
        raise BadFile("two candidates have one name", where=where)
    for plan in one.plans:
        for what, value in (("instances", plan.instances), ("segments", plan.segments)):
            if not 1 <= value <= MOST_COPIES:
                raise BadFile(f"{plan.name} has {value} {what}", where=where)
    if lost := [p.candidate for p in one.plans if p.candidate not in names]:
        raise BadFile(f"no candidate is called {lost[0]!r}", where=where)


def _require_counted(one: Candidate, where: str) -> None:
    """Refuse times that counted for less than the candidate takes, or not at every size."""
    if not one.counted_us:
        return
    if len(one.counted_us) != len(one.us):
        raise BadFile("a column of times and the grid differ in length", where=where)
    for us, counted in zip(one.us, one.counted_us, strict=True):
        if counted is not None and (us is None or counted < us):
            raise BadFile(f"{one.name!r} counts as quicker than it is: {counted} µs", where=where)


# --- files ----------------------------------------------------------------------------------------


def _inside(path: str, _: str, where: str) -> str:
    if Path(path).is_absolute() or ".." in Path(path).parts or "\\" in path:
        raise BadFile(f"the file {path!r} is outside the library's folder", where=where)
    return path


def _known(times: list[Any], key: str, where: str) -> tuple[float, ...]:
    column = read_times(times, key, where)
    found = tuple(t for t in column if t is not None)
    if len(found) != len(column):
        raise BadFile("a time is missing", where=where)
    return found


_LINE, _TIMES = Key(str, read=line), Key(list, read=read_times)
_SOME_TIMES = Key(list, [], read_times, unless=())

_ARTEFACT = Record(
    Artefact,
    format=Key(str),
    target=Key(str, ""),
    in_place=Key(bool, False),
    file=Key(str, read=_inside),
)
_CANDIDATE = Record(
    Candidate,
    name=_LINE,
    source=Key(str, "", line),
    baseline=Key(bool),
    us=_TIMES,
    counted_us=_SOME_TIMES,
)
_PLAN = Record(
    TunedPlan,
    name=_LINE,
    low=Key(int),
    high=Key(int),
    candidate=Key(str),
    engine=_LINE,
    protocol=Key(str, read=lambda name, *_: str(protocol_of(name))),
    instances=Key(int),
    segments=Key(int),
    options=Key(dict),
    schedule=Key(str, read=_inside),
    artefacts=_ARTEFACT.several(),
)
_RUNTIME = Record(
    RuntimeTimes,
    name=_LINE,
    how=Key(list, read=texts),
    us=_TIMES,
    start_us=_TIMES,
    apart=Key(str, "", line, unless=""),
    apart_us=_SOME_TIMES,
)
_TUNED = Record(
    Tuned,
    collective=Key(
        dict,
        read=lambda data, _, where: Collective.from_json(data, f"{where}: collective"),
        write=Collective.to_json,
    ),
    bound=Key(dict, read=read_bound),
    grid=Key(list, read=integers),
    bound_us=Key(list, read=_known),
    chosen_us=Key(list, read=_known),
    idea_us=_TIMES,
    candidates=_CANDIDATE.several(),
    plans=_PLAN.several(),
    remarks=Key(list, [], texts),
    start_us=_SOME_TIMES,  # only a model that knows them has these
    runtime=_RUNTIME.one(None),
    runtime_bound_us=Key(list, [], _known, unless=()),  # older libraries have none
)
_LIBRARY = Record(
    Library,
    name=_LINE,
    topology=Key(
        dict,
        read=lambda data, _, where: Topology.from_json(data, f"{where}: topology"),
        write=Topology.to_json,
    ),
    low=Key(int),
    high=Key(int),
    timing=Key(dict, read=read_timing),
    tuned=_TUNED.several(),
    provenance=Key(dict, {}, read_provenance),
)


def dumps(library: Library) -> str:
    """Return the text of ``library.json``."""
    return compact(dump(library)) + "\n"


def dump(library: Library) -> dict[str, Any]:
    """Return the JSON object of a library (``docs/formats.md``)."""
    return {"weft": "library", "schema": SCHEMA, **_LIBRARY.write(library)}


def read(path: str | Path) -> Library:
    """Read a library from its folder or from the path of its ``library.json``."""
    file = Path(path) / MANIFEST if Path(path).is_dir() else Path(path)
    return load(parse_json(read_text(file), str(file)), str(file))


def load(data: Any, where: str = "library") -> Library:
    """Parse the object that :func:`dump` writes. The files that it names are not read.

    Raises:
        BadFile, UserError: not such an object, or ranges with gaps.
    """
    require_kind(data, "library", where)
    return _LIBRARY.read(data, where, ("weft", "schema"))

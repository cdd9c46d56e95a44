"""Jobs: files, and calls of their functions; and the report of each rank."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective

from ..formats.p2p.data import Exam, type_named, units_of
from ..formats.p2p.emit import function_of
from ..formats.p2p.read import read_script
from .recording import CallRecord, record_of


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
            tuple(EmittedFile(*one, Collective.from_json(units)) for *one, units in pieces),
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
    """Report of one rank: a :class:`Done` for each case, None where it had no part."""

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

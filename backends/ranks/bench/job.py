"""Job of a bench: files and the runtime's own collective, and the sizes to time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective

from ...formats.p2p.data import Exam, type_named


@dataclass(frozen=True, slots=True)
class Contestant:
    """An emitted file, and its function."""

    name: str
    text: str
    function: str


@dataclass(frozen=True, slots=True)
class Bench:
    """Contents of one job.

    Attributes:
        units: the collective of all files, in the pieces that callers see.
        lengths: elements of a unit.
        repeat: timed turns of each size.
        seconds: no more turns of a size after so long.
        timeout: seconds that a rank waits for another.
    """

    contestants: tuple[Contestant, ...]
    units: Collective
    lengths: tuple[int, ...]
    dtype: str
    repeat: int
    seconds: float
    timeout: float
    seed: int = 0

    def exam(self, length: int) -> Exam:
        """Return the data of a size: whole numbers, whose sums are exact in any order."""
        return Exam(self.units, length, type_named(self.dtype), self.seed)

    def bytes(self, length: int) -> int:
        """Return the message's size, as nccl-tests count it."""
        return length * self.units.message_chunks * type_named(self.dtype).itemsize

    def to_json(self) -> dict[str, Any]:
        """For the ranks."""
        data = {name: getattr(self, name) for name in self.__slots__}
        return data | {
            "contestants": [asdict(one) for one in self.contestants],
            "units": self.units.to_json(),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Bench:
        """Build from the value of :meth:`to_json`."""
        return Bench(
            **data
            | {
                "contestants": tuple(Contestant(**one) for one in data["contestants"]),
                "units": Collective.from_json(data["units"]),
                "lengths": tuple(data["lengths"]),
            }
        )

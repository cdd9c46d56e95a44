"""Job of a bench: files and the runtime's own collective, and the sizes to time; and its results:
medians, bandwidths as nccl-tests define them, and predictions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.synth.time.schedule_time import bus_factor

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


Predict = Callable[[int], float]
"""µs of a message of that many bytes."""


@dataclass(frozen=True, slots=True)
class BenchTime:
    """One contestant at one size: the median and the least µs of its turns.

    ``predicted``: µs, where a topology was given.
    """

    name: str
    bytes: int
    us: float
    least_us: float
    turns: int
    algbw_GBps: float
    busbw_GBps: float
    wrong: str | None
    predicted_us: float | None = None

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured - 1."""
        return None if self.predicted_us is None else self.predicted_us / self.us - 1

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        data = {name: getattr(self, name) for name in self.__slots__ if name != "predicted_us"}
        if self.predicted_us is not None:
            data |= {"predicted_us": self.predicted_us, "error": self.error}
        return data


def entries(
    rows: Iterable[Mapping[str, Any]], units: Collective, predictions: Mapping[str, Predict]
) -> list[BenchTime]:
    """Return the results of the ranks, by size and contestant."""
    found = []
    for row in rows:
        us, size = statistics.median(row["us"]), row["bytes"]
        algbw = size / us / BYTES_PER_US_PER_GBPS
        predict = predictions.get(row["name"])
        found.append(
            BenchTime(
                row["name"],
                size,
                us,
                min(row["us"]),
                len(row["us"]),
                algbw,
                algbw * bus_factor(units),
                row["wrong"],
                predict(size) if predict else None,
            )
        )
    return found

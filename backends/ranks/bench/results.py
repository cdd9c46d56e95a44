"""Results of a bench: medians, bandwidths as nccl-tests define them, and predictions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Collective
from weft.synth.time.schedule_time import bus_factor

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

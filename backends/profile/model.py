"""What was measured, and what is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass

Flow = tuple[int, int]
"""Who sends to whom."""


@dataclass(frozen=True, slots=True)
class Echo:
    """Messages of one size sent at once, each answered by its receiver with one element."""

    flows: tuple[Flow, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Timing:
    """What an echo took: µs for each flow, the quickest of its batches, at its sender.

    ``spread``: how much more a quarter of them took at most.
    """

    echo: Echo
    us: tuple[float, ...]
    spread: float

    def rate(self) -> float:
        """Bytes per µs of all flows together, answers not counted."""
        return sum(self.echo.bytes / us for us in self.us)


@dataclass(frozen=True, slots=True)
class Line:
    """α in µs and β in µs per byte of one direction; ``residual``: relative, the largest."""

    alpha: float
    beta: float
    residual: float

    def us(self, size: float) -> float:
        """What a message takes."""
        return self.alpha + self.beta * size


@dataclass(frozen=True, slots=True)
class Shared:
    """Flows that together get no more than ``rate`` bytes per µs."""

    name: str
    flows: frozenset[Flow]
    rate: float

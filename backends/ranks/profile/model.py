"""Data of a measurement: echoes, efforts, lines, link classes, and the findings."""

from __future__ import annotations

from enum import StrEnum

from weft.dsl.base.lazy_dataclass import dataclass

Flow = tuple[int, int]
"""Sender and receiver of a message."""


@dataclass(frozen=True, slots=True)
class Echo:
    """Messages of one size sent at once, each answered by its receiver with one element."""

    flows: tuple[Flow, ...]
    bytes: int


Session = tuple[Echo, ...]
"""Echoes that are timed one after the other, once their ranks have met."""


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Limits of a measurement.

    Attributes:
        seconds: when to stop, whatever is known by then; :attr:`least` sweeps are always done.
        batches: of an echo in a sweep; the quickest counts, as noise only ever adds (McVoy and
            Staelin, lmbench).
        batch_seconds: what a batch should take, so that the clock's grain is small beside it.
        most_in_batch: echoes of a batch at most.
        least, most: sweeps over all that is to be measured.
        error: sweeps end when the times have this relative standard error in the median.
        largest: bytes of the largest message.
    """

    seconds: float = 60.0
    batches: int = 3
    batch_seconds: float = 3e-4
    most_in_batch: int = 50
    least: int = 4
    most: int = 40
    error: float = 0.01
    largest: int = 1 << 22


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """Line of message times: α in µs, β in µs per byte, each with its relative standard error.

    ``residual``: how far times are from the line, relative, in the median; ``worst``: at most.
    """

    alpha: float
    beta: float
    alpha_error: float = 0.0
    beta_error: float = 0.0
    residual: float = 0.0
    worst: float = 0.0

    def us(self, size: float) -> float:
        """Return the time of a message in µs; ``size`` in bytes."""
        return self.alpha + self.beta * size


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Directions that could not be distinguished, and the one line of them all."""

    flows: tuple[Flow, ...]
    line: AlphaBeta


@dataclass(frozen=True, slots=True)
class Shared:
    """Flows that together get no more than ``rate`` bytes per µs; ``error``: relative."""

    name: str
    flows: frozenset[Flow]
    rate: float
    error: float


class CallStep(StrEnum):
    """Step of a profile that times whole calls."""

    RING = "ring"  #: an allreduce over a ring
    LARGE = "large"  #: an allreduce of a large message over a ring of two
    FAN = "fan"  #: one rank sends to several, which answer
    EMPTY = "empty"  #: a call that sends nothing


class CallPath(StrEnum):
    """Ways that the messages of a call take."""

    INSIDE = "inside a host"
    BETWEEN = "between hosts"
    NONE = "nowhere"


@dataclass(frozen=True, slots=True)
class CallTime:
    """Time in µs of a call; ``count``: ranks of the ring, or that one rank sends to.

    ``channels``: largest number of them; 0: as many as the runtime takes.
    """

    step: CallStep
    way: CallPath
    protocol: str
    count: int
    bytes: int
    us: float
    channels: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings about a machine.

    Attributes:
        classes: every direction is in one of them.
        groups: near ranks, each in order; one if none are distinguished.
        shared: bandwidths of several flows.
        noise: the relative spread of a time from sweep to sweep.
        sweeps: over pairs, and over what they share.
        overhead: µs that the whole machine spends on a message when all ranks send at once, and
            that :attr:`shared` bandwidths do not explain; 0 where they hardly disturb each other.
        sum_rate: bytes per µs that a rank sums by itself, None if not measured.
        remarks: what could not be distinguished, and what the model leaves out, in words.
        calls: times of whole calls.
    """

    ranks: int
    classes: tuple[LinkClass, ...]
    groups: tuple[tuple[int, ...], ...]
    shared: tuple[Shared, ...]
    noise: float
    sweeps: tuple[int, int]
    sum_rate: float | None
    overhead: float
    remarks: tuple[str, ...]
    calls: tuple[CallTime, ...] = ()

    def line_of(self) -> dict[Flow, AlphaBeta]:
        """Return the line of every direction."""
        return {flow: one.line for one in self.classes for flow in one.flows}

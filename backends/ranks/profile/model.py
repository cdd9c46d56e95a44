"""Data of a measurement: echoes, efforts, lines, link classes, and the findings."""

from __future__ import annotations

from enum import StrEnum

from weft.dsl.base.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ProfileEffort:
    """Work of a measurement, and thresholds from which measured differences count."""

    pairs_share: float = 0.6  # of the time, for pairs; the rest is for what they share
    small_bytes: int = 8  # of a message that takes almost nothing but α
    first_large_bytes: int = 1 << 18  # least size of the largest message
    alpha_share: float = 0.05  # of the time of the largest message, that both α take at most
    witnesses: int = 12  # pairs of a class, or ranks, that stand for all where there are more
    flows: int = 4  # messages that a rank or a pair is tried with at once
    crowds: int = 15  # times that all ranks send small messages at once
    # Of small messages of all ranks to one alone, above which they delay each other.
    crowded_ratio: float = 3.0
    summed_bytes: int = 1 << 20  # of the arrays whose sum is timed
    wait_seconds: float = 120.0  # of a rank for another
    ring_ranks: int = 8  # of the longest ring
    calls: int = 20  # that follow each other in one measurement
    call_rounds: int = 5  # whose median counts: what disturbs one call disturbs its neighbours
    call_bytes: int = 64 << 20  # of the message whose bandwidth is reported
    large_call_rounds: int = 2  # over its calls
    alike_share: float = 0.15  # relative difference that does not matter
    class_chance: float = 1e-4  # probability with which noise alone may split a class
    loss_share: float = 0.1  # relative error above which a time counts by its size, not its square
    beta_errors: float = 2.0  # standard errors, below which a β cannot be told from 0
    shared_ratio: float = 1.25  # least slow-down of flows that share a resource
    shared_chance: float = 0.005  # probability of that many slower samples if nothing is shared
    line_counts: int = 2  # different ones that a line through times needs
    # Of the bandwidth of all channels, from which the link bounds one channel.
    channel_share: float = 0.9
    line_share: float = 0.25  # relative distance of a time, above which a line determines no number
    start_share: float = 0.02  # of a step, below which a negative start counts as 0


EFFORT = ProfileEffort()


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

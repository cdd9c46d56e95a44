"""Model of a classic algorithm: the function that writes it, its cost formula, its source."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import BYTES_PER_US_PER_GBPS
from weft.dsl.nouns.collective import Kind


@dataclass(frozen=True, slots=True)
class HockneyCost:
    """Hockney's cost of an algorithm: ``steps`` · α + ``volume`` · M / B."""

    steps: int  # messages that follow one another
    volume: Fraction  # load of the busiest port or link, as a share of the message M
    # True if every step needs the chunks of the one before it. Where not (pairwise alltoall, the
    # pieces of a pipeline, some steps on a number other than a power of two), a blocking library
    # still pays α for each step; where α delays messages without holding their ports, rounds
    # overlap, and the formula is exact only where α is small beside the time of one message.
    chained: bool = True

    def times(self, phases: int) -> HockneyCost:
        """The cost of several such phases, one after another."""
        return HockneyCost(self.steps * phases, self.volume * phases, self.chained)

    def us(self, message_bytes: float, alpha_us: float, bandwidth_GBps: float) -> float:
        """Time in µs for a message of M bytes on links of α µs and B GB/s."""
        return self.steps * alpha_us + float(self.volume) * message_bytes / (
            bandwidth_GBps * BYTES_PER_US_PER_GBPS
        )


Cost = Callable[..., HockneyCost]
"""The cost of a number of ranks and of chunks that are pipelined (and of options)."""


def twice(half: Cost) -> Cost:
    """The cost of two phases that cost the same."""

    def both(ranks: int, chunks: int = 1) -> HockneyCost:
        return half(ranks, chunks).times(2)

    return both


def any_number(ranks: int) -> str:
    """Defined on any number of ranks from two on."""
    return "" if ranks >= 2 else "it needs at least two ranks"


def is_power(ranks: int) -> bool:
    """Return True if the number of ranks is a power of two, as exchanges by doubling need."""
    return ranks & (ranks - 1) == 0


def uncut(ranks: int) -> int:
    """Units of the collective need not be cut."""
    return 1


def per_rank(ranks: int) -> int:
    """One piece for each rank."""
    return ranks


@dataclass(frozen=True, slots=True)
class Flat:
    """One algorithm for one collective."""

    # name, kind: such as ring for allreduce
    name: str
    kind: Kind
    # write(p, order) writes it on a Builder; order are the ranks along the ring, or by their number
    # in the tree. Rooted: the root first. Further parameters are its options.
    write: Callable[..., None]
    cost: Cost  # of a number of ranks and of chunks that are pipelined (and of the options)
    # The catalogue's name of the machine it is made for, at a number of ranks
    topology: Callable[[int], str]
    source: str  # its publication
    # Of a number of ranks, '' where it works on it, else why not
    defined: Callable[[int], str] = any_number
    # Into how many pieces the unit of the collective is cut, at least
    parts: Callable[[int], int] = uncut
    pipelined: bool = False  # more pieces make a pipeline

"""Numbers of slices: of those that are nearly as quick, the fewest, as each message has a cost.

By the rule of :mod:`.schedule_time` a message costs nothing beside its bytes, so ever finer slices
are ever a little quicker: 256 of 32 bytes each. A NIC takes about 10 ns for a message. That cost
decides between numbers of slices, and between orders; times that are reported, and bounds, are
without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from weft.dsl.base.integers import FLOAT_EXACT
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem

from ..base.effort import Effort, setting
from .schedule_tables import CostModel


@dataclass(frozen=True, slots=True)
class SliceEffort(Effort):
    """Price of slices."""

    message_us: Fraction = setting(
        Fraction(1, 100),
        "µs for which each message holds what it passes beside its bytes, where slices and orders "
        "are chosen; 0: it costs nothing",
        least=0,
    )
    most_us: float = setting(
        5, "µs more than the least time at that cost that the fewest slices may take, at most"
    )
    same: float = setting(1.01, "times the least time at that cost that the fewest slices may take")
    lost_us: float = setting(
        0.5, "µs beside those two by which the time without the cost may be longer than the least"
    )

    def of(self, problem: Problem) -> SliceEffort:
        """Return these limits with the cost of a message that the problem states, if any.

        A stated cost decides alone: the time without it is not limited.
        """
        stated = problem.message_us
        if stated is None:
            return self
        return replace(self, message_us=stated, lost_us=float(FLOAT_EXACT))

    @property
    def model(self) -> CostModel:
        """The rule of simulated times, with the cost of messages."""
        return CostModel(overhead_us=self.message_us)

    def near(self, least_us: float) -> float:
        """Return the longest time, with the cost of messages, that is as good as the least.

        Where messages cost nothing that is the least."""
        if not self.message_us:
            return least_us
        return min(self.same * least_us, least_us + self.most_us)

    def kept(self, least_us: float) -> float:
        """Return the longest time without the cost of messages that may be given up for it."""
        return self.near(least_us) + (self.lost_us if self.message_us else 0)


SLICE_EFFORT = SliceEffort()


def fewest_slices(
    tried: Iterable[tuple[float, int]],
    plain: Callable[[int], float],
    effort: SliceEffort = SLICE_EFFORT,
) -> int:
    """Return the fewest slices of those that take little more than the least µs.

    ``tried``: the µs with the cost of messages, and the number of slices. ``plain``: the µs of a
    number of slices without that cost; a loss there is limited as well. ``effort``: that cost, and
    how much more is little.

    >>> with_cost = [(8.30, 1), (6.61, 4), (6.35, 8), (6.30, 16), (8.19, 64)]
    >>> fewest_slices(with_cost, {1: 8.22, 4: 6.50, 8: 6.21, 16: 6.07, 64: 5.96}.__getitem__)
    8
    """
    known = list(tried)
    most = effort.near(min(us for us, _ in known))
    first = min(slices for us, slices in known if us <= most)
    later = sorted({slices for _, slices in known if slices >= first})
    times = {slices: plain(slices) for slices in (first, later[-1])}  # the last is mostly the least
    lost = effort.kept(min(times.values()))
    return next(n for n in later if (times[n] if n in times else plain(n)) <= lost)

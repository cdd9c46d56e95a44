"""Work of a search, counted in steps: no result depends on how busy or fast the machine is.

A step is about as much as one core of an AMD EPYC of 2021 does in a microsecond. Every loop that
searches counts its operations and spends steps in proportion; its rate is measured once and stands
beside the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.dsl.base.lazy_dataclass import dataclass

STEPS = 1_000_000
"""Steps of one unit of effort: about a CPU second."""


def never() -> bool:
    """Default test for cancellation: never cancelled."""
    return False


@dataclass(slots=True, eq=False)
class Meter:
    """Count of the work that one search has done, and its limit, both in steps.

    What it spends is spent of the search around it, ``outer``, as well. ``stopped`` returns
    whether the search is to end in any case (Ctrl-C, ``--time``); ``cut`` is True once work was
    left undone because of the limit. A ``trial`` may be repeated with more. ``told``, of the whole
    search, receives remarks (:meth:`tell`).

    >>> whole = Meter(100)
    >>> part = whole.part(0.5)
    >>> part.spend(60)
    >>> part.over(), whole.over(), whole.left
    (True, False, 40)
    """

    limit: int
    stopped: Callable[[], bool] = never
    outer: Meter | None = None
    done: int = 0
    cut: bool = False
    trial: bool = False
    told: Callable[[str], None] | None = None

    def spend(self, steps: int) -> None:
        """Count work that was done."""
        meter: Meter | None = self
        while meter is not None:
            meter.done += steps
            meter = meter.outer

    def came_on_top(self, before: int) -> None:
        """Give back the work spent since ``done`` was ``before``: that search takes no work from
        those beside it. It stays counted, here and in the searches around."""
        self.limit += self.done - before

    @property
    def left(self) -> int:
        """Steps left, 0 or more."""
        return max(0, self.limit - self.done)

    def over(self) -> bool:
        """Return True if nothing is left, or the search is to end; the caller has more to do."""
        if self.done >= self.limit:
            self.cut_short()
            return True
        return self.stopped()

    def stop_asked(self) -> bool:
        """Return True if this search, or one around it, is to end in any case."""
        return any(meter.stopped() for meter in self._around())

    def _around(self) -> Iterator[Meter]:
        """Yield this search and those around it."""
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter.outer

    def tell(self, remark: str) -> None:
        """Report to the observers of the search."""
        told = next((meter.told for meter in self._around() if meter.told is not None), None)
        if told is not None:
            told(remark)

    def cut_short(self) -> None:
        """Record that work was left undone for want of budget, here and in the searches around.

        The search around a trial decides about the rest of the trial's work.
        """
        for meter in self._around():
            meter.cut = True
            if meter.trial:
                return

    def part(self, share: float) -> Meter:
        """Return a meter for a part of the work that is left."""
        return self.of(int(share * self.left))

    def of(self, steps: int) -> Meter:
        """Return a meter for a part of the search, with a limit of its own."""
        return Meter(steps, self.stopped, self)

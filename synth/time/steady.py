"""Skipping turns: a state that comes back is passed as often as there are turns for it, at once.

A *state* is everything that decides what happens next, with times relative to now and without the
turns that blocks are in: where each block is, what lies in the FIFOs, what occupies the rows and
until when, who queues since when. If a state returns after ΔT, in which block b made p(b) turns,
the run repeats itself: m further periods add m·ΔT to the clock and m·p(b) to the turns. Two things
end that: a block that reaches the last turn (its pieces may be smaller), and a block that
catches up with one that it waits for and that makes fewer turns.

Arithmetic is exact, so the result is that of the whole run, to the last tick. States are compared
as in Brent's cycle detection: with one that is kept, renewed whenever its age doubles.
"""

from __future__ import annotations

from weft.dsl.base.lazy_dataclass import dataclass

from .program_machine import Machine

State = tuple[object, ...]

FEWEST_TURNS = 4
"""With fewer there is nothing to gain."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A state, when it was, and what had been counted up to then."""

    state: State
    now: int
    turn: list[int]
    busy: list[int]
    spent: list[list[int]]

    @staticmethod
    def of(machine: Machine, state: State) -> _Moment:
        return _Moment(state, machine.now, machine.turn, machine.busy, machine.spent_so_far())


class Steady:
    """Compares states of a run, and skips the repetitions when one returns."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.pairs = machine.operations.awaited
        self.skipped = 0  # operations
        self._begin()

    def _begin(self) -> None:
        """Watch the block that is farthest behind, from now on."""
        m = self.machine
        self.kept: _Moment | None = None
        self.age, self.limit = 0, 1
        turn = m.turn
        working = (b for b in range(len(turn)) if turn[b] < m.turns)
        self.watched = min(working, key=turn.__getitem__, default=-1)
        self.seen = turn[self.watched] if self.watched >= 0 else m.turns

    @property
    def simulated(self) -> int:
        """Operations that were simulated one by one, in turns that are over."""
        return self.machine.operations_done - self.skipped

    def look(self) -> bool:
        """To be called after every advance: does something once the watched block has turned.

        Returns whether it has.
        """
        m = self.machine
        turn = m.turn[self.watched]
        if self.watched < 0 or turn == self.seen:
            return False
        self.seen = turn
        if self.seen >= m.turns - 1:
            self._begin()
            return True
        state = m.state()
        self.age += 1
        if self.kept is not None and state == self.kept.state:
            self._jump(self.kept, _Moment.of(m, state))
            self._begin()
        elif self.kept is None or self.age == self.limit:
            self.kept = _Moment.of(m, state)
            self.age, self.limit = 0, 2 * self.limit
        return True

    def _jump(self, before: _Moment, after: _Moment) -> None:
        m = self.machine
        periods = self._periods(before.turn, after.turn)
        if periods < 1:
            return
        turns = [b + periods * (b - a) for a, b in zip(before.turn, after.turn, strict=True)]
        for block, (a, b) in enumerate(zip(after.turn, turns, strict=True)):
            self.skipped += (b - a) * (m.first[block + 1] - m.first[block])
        busy = [periods * (b - a) for a, b in zip(before.busy, after.busy, strict=True)]
        spent = [
            [periods * (b - a) for a, b in zip(old, new, strict=True)]
            for old, new in zip(before.spent, after.spent, strict=True)
        ]
        m.repeat(periods * (after.now - before.now), turns, busy, spent)

    def _periods(self, before: list[int], after: list[int]) -> int:
        """Return how often the state can come back."""
        turns = self.machine.turns
        most = turns
        for a, b in zip(before, after, strict=True):
            if b > a:
                most = min(most, (turns - 2 - b) // (b - a))
        for waiting, other in self.pairs:
            if after[waiting] >= turns or before[other] >= turns:
                continue
            mine = after[waiting] - before[waiting]
            lead, gain = after[other] - after[waiting], after[other] - before[other] - mine
            if not gain:
                continue
            # It never had to wait, and must not have to: a lead of all turns it makes meanwhile.
            if min(lead, lead - gain) <= mine:
                return 0
            if gain < 0:
                most = min(most, 1 + (lead - mine - 1) // -gain)
        return most

"""An observer that stops a search once its answer is good enough for a test."""

from weft.dsl.nouns.problem import Problem
from weft.synth.base.engine import Point, Silent
from weft.synth.time.schedule_time import simulate


class Enough(Silent):
    """Stops once a schedule of the problem takes at most so many µs at its size.

    More work only makes better answers: who asks for an answer within a limit needs no more of it.
    """

    def __init__(self, problem: Problem, most_us: float) -> None:
        self._problem, self._most_us = problem, most_us
        self._found = False

    def incumbent(self, point: Point) -> None:
        """Judge a new schedule; that of a half, as an allreduce has two, does not count."""
        made, asked = point.schedule.collective, self._problem.collective
        own = (made.kind, made.ranks) == (asked.kind, asked.ranks)
        if own and not self._found:
            self._found = simulate(point.schedule, self._problem.bytes).time_us <= self._most_us

    def cancelled(self) -> bool:
        """Return whether one was found."""
        return self._found

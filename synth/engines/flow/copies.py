"""Copies of whole chunks: a quick answer, the program in epochs below it, the better of the two."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction

from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Budget, Observer
from ...bounds.whole_chunks import WholeChunks, whole_chunk_bound
from ...lp.solver import Answer, solve
from ...time.schedule_time import simulate
from ..sketched.field import Field
from ..sketched.search import Search
from .epochs import MOST_STARTS, Epochs
from .unrounded import unrounded

EASE = 1e-5
"""The part by which an answer of the program must be quicker than what is known: more than the
tolerances of the solvers."""

_FIRST_TURNS = 100  # of the search, without a gain, that end the first answer
_FIRST_SHARE = 0.2  # of the seconds


@dataclass(frozen=True, eq=False)
class Copied:
    """A schedule in so many chunks per unit, its time in µs, and what was proved, in words."""

    schedule: Schedule
    us: float
    words: str


def copied(
    problem: Problem,
    pieces: int,
    message_bytes: int,
    solver: str,
    most_epochs: int,
    budget: Budget,
    observer: Observer,
) -> Copied:
    """The best schedule of chunks cut in ``pieces`` that the time suffices for.

    Raises:
        UserError: a chunk cannot reach everybody who wants it.
        Missing: the solver does not run here.
    """
    until = time.monotonic() + budget.seconds
    collective = problem.collective.split(pieces) if pieces > 1 else problem.collective
    grain = Fraction(message_bytes, collective.message_chunks)
    field = Field.of(problem, collective, grain)
    known = whole_chunk_bound(problem.topology, collective, grain, field.usable)
    search = Search.of(field, budget.seed)
    search.run(_FIRST_SHARE * budget.seconds, _FIRST_TURNS, float(known.us), observer.cancelled)
    schedule = search.schedule()
    us = simulate(schedule, message_bytes).time_us
    made = f"{pieces} chunk{'s' * (pieces > 1)} per unit: "
    if us <= float(known.us) * (1 + 1e-9):
        return Copied(schedule, us, made + _words(us, float(known.us), known.certificate.text))
    limit = int(us * field.machine.unit)
    epochs = Epochs.of(field, limit, most_epochs)
    if epochs is None or len(epochs.starts) > MOST_STARTS:
        what = (
            f"{most_epochs} epochs do not suffice"
            if epochs is None
            else (f"{len(epochs.starts)} starts are too many")
        )
        why = f"{what} for the program; {known.certificate.text}"
        return Copied(schedule, us, made + _words(us, float(known.us), why))
    left = until - time.monotonic()
    answer = solve(epochs.model(EASE), solver, max(left, 0.5), budget.threads, observer.cancelled)
    if answer.values is not None:
        better = field.schedule(unrounded(field, epochs.chosen(answer.values)))
        took = simulate(better, message_bytes).time_us
        schedule, us = min(((schedule, us), (better, took)), key=lambda x: x[1])
    return Copied(schedule, us, made + _judged(field, epochs, answer, us, solver, known))


def _judged(
    field: Field, epochs: Epochs, answer: Answer, us: float, solver: str, known: WholeChunks
) -> str:
    """What the program says of any schedule of these chunks."""
    size = f"{epochs.count} epochs of {field.machine.us(epochs.tau):,.3f} µs, rounded down"
    proved = 0.0
    if answer.infeasible:
        proved = field.machine.us(epochs.limit) * (1 - EASE)
    elif answer.bound is not None:
        proved = field.machine.us(Fraction(answer.bound * epochs.tau)) * (1 - EASE)
    if proved <= float(known.us):
        return _words(us, float(known.us), known.certificate.text)
    return _words(us, min(proved, us), f"{size}, by {solver} in floats")


def _words(us: float, least: float, why: str) -> str:
    gap = us / least - 1 if least else 0.0
    above = f"at most {gap:.3%} above" if gap > 1e-9 else "which is"
    return f"{us:,.3f} µs, {above} the least of any schedule of whole chunks of this size: {why}"

"""Copies of whole chunks: the better of a heuristic and the time-expanded program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.schedule import Schedule

from ...base.engine import Budget, Observer
from ...base.meets import meets
from ...bounds.whole_chunks import WholeChunks, whole_chunk_bound
from ...lp.highs import SolverAnswer, solve
from ...solvers.pool import Listener
from ...time.schedule_time import simulate
from ..sketched.effort import SKETCHED_EFFORT
from ..sketched.field import SearchInstance
from ..sketched.search import PlacementSearch
from ..sketched.search_kernel import Placements, nothing_placed
from .effort import FLOW_EFFORT, FlowEffort
from .epochs import Epochs, Key

EASE = 1e-5
"""The part by which an answer of the program must be quicker than what is known: more than the
tolerances of the solvers."""


@dataclass(frozen=True, eq=False)
class Copied:
    """A schedule in so many chunks per unit, its time in µs, and what was proved, in words."""

    schedule: Schedule
    us: float
    words: str


def solve_copies(
    problem: Problem,
    pieces: int,
    message_bytes: int,
    solver: str,
    most_epochs: int,
    budget: Budget,
    observer: Observer,
    effort: FlowEffort = FLOW_EFFORT,
) -> Copied:
    """The best schedule of chunks cut in ``pieces`` that the time suffices for.

    Raises:
        UserError: a chunk cannot reach all ranks that want it.
        Missing: the solver does not run here.
    """
    meter = budget.meter(observer.cancelled)
    collective = problem.collective.split(pieces) if pieces > 1 else problem.collective
    grain = Fraction(message_bytes, collective.message_chunks)
    peers = replace(SKETCHED_EFFORT, most_peer_sets=effort.most_peer_sets)
    field = SearchInstance.of(problem, collective, grain, peers)
    known = whole_chunk_bound(problem.topology, collective, grain, field.usable)
    search = PlacementSearch.of(field, budget.seed)
    search.run(meter.part(effort.first_share), effort.first_turns, float(known.us))
    schedule = search.schedule()
    us = simulate(schedule, message_bytes).time_us
    made = f"{pieces} chunk{'s' * (pieces > 1)} per unit: "
    if meets(us, known.us):
        return Copied(schedule, us, made + _words(us, float(known.us), known.certificate.text))
    limit = int(us * field.machine.unit)
    epochs = Epochs.of(field, limit, most_epochs, effort.epoch_parts)
    if epochs is None or len(epochs.starts) > effort.most_starts:
        what = (
            f"{most_epochs} epochs do not suffice"
            if epochs is None
            else (f"{len(epochs.starts)} starts are too many")
        )
        why = f"{what} for the program; {known.certificate.text}"
        return Copied(schedule, us, made + _words(us, float(known.us), why))
    listener = Listener(observer.cancelled, observer.stage)
    answer = solve(epochs.model(EASE), solver, steps=meter.left, listener=listener)
    meter.spend(answer.steps)
    if answer.values is not None:
        better = field.schedule(placements_of(field, epochs.chosen(answer.values)))
        took = simulate(better, message_bytes).time_us
        schedule, us = min(((schedule, us), (better, took)), key=lambda x: x[1])
    return Copied(schedule, us, made + _bound_statement(field, epochs, answer, us, solver, known))


def _bound_statement(
    field: SearchInstance,
    epochs: Epochs,
    answer: SolverAnswer,
    us: float,
    solver: str,
    known: WholeChunks,
) -> str:
    """Return the statement of what the program proves about all schedules of these chunks."""
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


# --- epochs made real time ------------------------------------------------------------------------


def placements_of(field: SearchInstance, chosen: Sequence[Key]) -> Placements:
    """The transfers of an answer in ticks, in the order of their epochs, without those that lead
    nowhere. Inside an epoch what has most behind it goes first."""
    kept = _useful(field, chosen)
    hops, jobs = field.hops, field.jobs
    behind = _behind(field, kept)
    here = dict.fromkeys(map(tuple, np.argwhere(jobs.holds).tolist()), 0)
    free: dict[int, int] = defaultdict(int)
    placed = nothing_placed(len(jobs.root), jobs.holds.shape[1])
    waiting = sorted(kept, key=lambda key: (key[2], -behind[key], key))
    for j, h, _ in waiting:
        held = range(int(hops.first[h]), int(hops.first[h + 1]))
        start = max([here[j, int(hops.src[h])], *(free[int(hops.resource[i])] for i in held)])
        for i in held:
            free[int(hops.resource[i])] = start + int(hops.hold[i])
        done = start + int(hops.arrives[h])
        here[j, int(hops.dst[h])] = done
        n = int(placed.length[j])
        placed.hop[j, n], placed.start[j, n], placed.length[j] = h, start, n + 1
        if jobs.wants[j, hops.dst[h]]:
            placed.end[j] = max(int(placed.end[j]), done)
    return placed


def _useful(field: SearchInstance, chosen: Sequence[Key]) -> list[Key]:
    """Return the transfers on a path of a chunk to a rank that wants it."""
    hops, needed, kept = field.hops, field.jobs.wants.copy(), []
    for key in sorted(chosen, key=lambda key: -key[2]):
        j, h, _ = key
        if needed[j, hops.dst[h]]:
            needed[j, hops.src[h]] = True
            kept.append(key)
    return kept


def _behind(field: SearchInstance, kept: Sequence[Key]) -> dict[Key, int]:
    """Ticks from the start of each until all that it leads to has arrived, if nothing waits."""
    hops = field.hops
    after: dict[tuple[int, int], int] = defaultdict(int)
    found = {}
    for key in sorted(kept, key=lambda key: -key[2]):
        j, h, _ = key
        found[key] = int(hops.arrives[h]) + after[j, int(hops.dst[h])]
        place = j, int(hops.src[h])
        after[place] = max(after[place], found[key])
    return found

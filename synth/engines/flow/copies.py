"""Copies of whole chunks: the better of a heuristic and the time-expanded program (TE-CCL's).

Time is cut into epochs of τ. ``go[j, h, k]`` says that chunk j starts over hop h in epoch k, and
``has[j, v, k]`` that it has reached v by the start of k. TE-CCL rounds every duration *up* to
epochs, so that its answer is a schedule, of lost time. Here durations are rounded *down*, so that
every schedule of these whole chunks is a solution of the program: what the solver proves holds for
all of them, and the order of its answer gives a schedule in time (:func:`placements_of`).

* a hop that takes d is over floor(d/τ) epochs later, at least one;
* of starts that hold a resource for p each, ceil(w·τ/p) fit into w epochs;
* T is at least any arrival k·τ + d, and at least the whole load of any resource and what comes
  after.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
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

EASE = 1e-5
"""The part by which an answer of the program must be quicker than the known one: more than the
tolerances of the solvers."""


@dataclass(frozen=True, eq=False)
class Copied:
    """A schedule, its time in µs, and the proof, in words."""

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
    """Return the statement that the program proves about all schedules of these chunks."""
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
    nowhere. Inside an epoch the chunk with most behind it goes first."""
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


# --- epochs --------------------------------------------------------------------------------------


Key = tuple[int, int, int]  # job, hop, epoch


@dataclass(frozen=True, eq=False)
class Epochs:
    """A field in epochs; times in ticks."""

    field: SearchInstance  # the demands to move
    tau: int  # ticks of an epoch
    limit: int  # ticks of a known schedule; later ones are of no interest
    first: Ints  # the least epoch in which each job can be at each rank, shape (jobs, ranks)
    starts: tuple[Key, ...]  # (job, hop, epoch) that may be part of a quicker schedule

    @staticmethod
    def of(
        field: SearchInstance, limit: int, most_epochs: int, parts: int = FLOW_EFFORT.epoch_parts
    ) -> Epochs | None:
        """The best epochs below some number; None where it does not suffice.

        An epoch is some duration divided by at most ``parts``.
        """
        tau = _epoch(field, limit, most_epochs, parts)
        if not tau:
            return None
        first = _arrivals(field, field.hops.arrives // tau)
        return Epochs(field, tau, limit, first, tuple(_starts(field, tau, limit, first)))

    @property
    def count(self) -> int:
        """Number of epochs."""
        return -(-self.limit // self.tau)

    def duration(self, hop: int) -> int:
        """Epochs, rounded down, until a start over a hop has arrived."""
        return int(self.field.hops.arrives[hop]) // self.tau

    def model(self, ease: float) -> Any:
        """PuLP's model: the least T, in epochs, at least a part ``ease`` below the limit."""
        import pulp

        model = pulp.LpProblem("epochs", pulp.LpMinimize)
        last = model.add_variable("T", self.least / self.tau, self.limit / self.tau * (1 - ease))
        go = {key: model.add_variable(_name(key), cat="Binary") for key in self.starts}
        model += last
        for constraint in (*self._chunks(model, go, last), *self._rows(go, last)):
            model += constraint
        return model

    def chosen(self, values: Any) -> list[Key]:
        """The starts of an answer."""
        return [key for key in self.starts if values.get(_name(key), 0) > 0.5]

    @property
    def least(self) -> int:
        """Ticks that the farthest chunk takes, alone."""
        wants = self.field.jobs.wants & ~self.field.jobs.holds
        farthest = np.where(wants, _arrivals(self.field, self.field.hops.arrives), 0)
        return int(farthest.max(initial=0))

    def _chunks(self, model: Any, go: dict[Key, Any], last: Any) -> Iterator[Any]:
        """Every chunk comes once where it is wanted, and leaves only where it is."""
        import pulp

        jobs, hops = self.field.jobs, self.field.hops
        into: dict[tuple[int, int], list[Key]] = defaultdict(list)
        out: dict[tuple[int, int], list[Key]] = defaultdict(list)
        for key in self.starts:
            into[key[0], int(hops.dst[key[1]])].append(key)
            out[key[0], int(hops.src[key[1]])].append(key)
        for j, v in np.argwhere(~jobs.holds).tolist():
            keys, wanted = into[j, v], bool(jobs.wants[j, v])
            came = pulp.lpSum(go[key] for key in keys)
            if wanted:
                yield came == 1
                yield last >= pulp.LpAffineExpression([(go[k], self._arrival(k)) for k in keys])
            elif keys:
                yield came <= 1
            arriving: dict[int, list[Any]] = defaultdict(list)
            for key in keys:
                arriving[key[2] + self.duration(key[1])].append(go[key])
            leaving: dict[int, list[Any]] = defaultdict(list)
            for key in out[j, v]:
                leaving[key[2]].append(go[key])
            before: Any = 0
            for k in range(self.count + 1):
                if arriving[k]:
                    has = model.add_variable(f"has_{j}_{v}_{k}", 0, 1)
                    yield has == before + pulp.lpSum(arriving[k])
                    before = has
                for one in leaving[k]:
                    yield one <= before

    def _arrival(self, key: Key) -> float:
        return key[2] + int(self.field.hops.arrives[key[1]]) / self.tau

    def _rows(self, go: dict[Key, Any], last: Any) -> Iterator[Any]:
        """Yield the capacity constraints of every resource, per window of epochs and in total."""
        import pulp

        hops = self.field.hops
        held: dict[int, dict[int, list[tuple[Any, int]]]] = defaultdict(lambda: defaultdict(list))
        ahead: dict[int, int] = {}
        behind: dict[int, int] = {}
        for key in self.starts:
            j, h, k = key
            for i in range(int(hops.first[h]), int(hops.first[h + 1])):
                resource, hold = int(hops.resource[i]), int(hops.hold[i])
                held[resource][k].append((go[key], hold))
                rest, begin = int(hops.arrives[h]) - hold, int(self.first[j, hops.src[h]])
                behind[resource] = min(behind.get(resource, rest), rest)
                ahead[resource] = min(ahead.get(resource, begin), begin)
        for resource, by_epoch in held.items():
            everything = [x for part in by_epoch.values() for x in part]
            wait = min(ahead[resource] * self.tau + behind[resource], self.least)
            yield last >= wait / self.tau + pulp.LpAffineExpression(
                [(one, hold / self.tau) for one, hold in everything]
            )
            most = max(hold for _, hold in everything)
            least = min(hold for _, hold in everything)
            for width in _windows(most, self.tau, self.count):
                # All but the last one that starts in the window are over when it ends.
                room = -(-width * self.tau // most) if most == least else None
                for k in range(self.count):
                    inside = [x for i in range(k, k + width) for x in by_epoch.get(i, ())]
                    if room is not None and len(inside) > room:
                        yield pulp.lpSum(one for one, _ in inside) <= room
                    elif room is None and len(inside) > 1:
                        yield (
                            pulp.LpAffineExpression(
                                [(one, hold / self.tau) for one, hold in inside]
                            )
                            <= width + most / self.tau
                        )


def _name(key: Key) -> str:
    return "go_" + "_".join(map(str, key))


def _windows(hold: int, tau: int, count: int) -> list[int]:
    """Widths in epochs that say something about starts which hold a resource for so long: the
    tightest, and those that hold one start."""
    fit = {w: hold * -(-w * tau // hold) / (w * tau) for w in range(1, min(count, 8) + 1)}
    best = min(fit.values(), default=1.0)
    tight = next(w for w, x in fit.items() if x <= best + 1e-9)
    return sorted({min(count, max(1, hold // tau)), tight})


def _epoch(field: SearchInstance, limit: int, most: int, parts: int) -> int:
    """The epoch whose rounding loses least, in ticks; 0 where all would be too many."""
    arrives, hold = field.hops.arrives, field.hops.hold
    longest = int(arrives.min())
    shortest = max(1, -(-limit // most))
    kinds = {int(x) for x in (*distinct_values(arrives), *distinct_values(hold), longest)}
    tries = {max(1, x // p) for x in kinds for p in range(1, parts + 1)}
    fits = sorted((t for t in tries if shortest <= t <= longest), reverse=True)

    def kept(tau: int) -> float:
        times = float(np.mean((arrives // tau) * tau / arrives))
        rows = float(np.mean(np.minimum(1.0, np.maximum(1, hold // tau) * tau / hold)))
        room = float(np.mean(np.minimum(1.0, tau / (hold * np.maximum(1, np.ceil(tau / hold))))))
        return times + min(rows, 1.0) + (room if tau > hold.min() else 1.0)

    return max(fits, key=lambda t: round(kept(t), 6), default=0)


def _arrivals(field: SearchInstance, length: Ints) -> Ints:
    """The least sums of lengths after which each job can be at each rank; 2^50 where never."""
    ends = field.hops.src, field.hops.dst
    found = [_least_lengths(field, row, *ends, length, j) for j, row in enumerate(field.jobs.holds)]
    return np.array(found, np.int64)


def _least_lengths(
    field: SearchInstance, begin: Bools, tail: Ints, head: Ints, length: Ints, job: int
) -> Ints:
    """Least lengths from where it begins, over the hops that a job may take."""
    usable = np.flatnonzero(field.jobs.allowed[field.jobs.kind[job]])
    found = np.where(begin, 0, 1 << 50).astype(np.int64)
    for _ in range(len(found)):
        before = found.copy()
        np.minimum.at(found, head[usable], before[tail[usable]] + length[usable])
        if np.array_equal(found, before):
            break
    return found


def _starts(field: SearchInstance, tau: int, limit: int, first: Ints) -> Iterator[Key]:
    """Yield the starts from which the chunk can still reach a rank that wants it in time."""
    hops, jobs = field.hops, field.jobs
    for j in range(len(jobs.root)):
        wants = jobs.wants[j] & ~jobs.holds[j]
        onward = _least_lengths(field, wants, hops.dst, hops.src, hops.arrives, j)
        for h in np.flatnonzero(jobs.allowed[jobs.kind[j]]).tolist():
            src, dst = int(hops.src[h]), int(hops.dst[h])
            if jobs.holds[j, dst] or first[j, src] >= 1 << 50:
                continue
            room = limit - int(hops.arrives[h]) - int(onward[dst])
            last = math.floor(room / tau) if room >= 0 else -1
            for k in range(int(first[j, src]), last + 1):
                yield j, h, k

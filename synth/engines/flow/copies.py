"""Copies of whole chunks: the better of a heuristic and the time-expanded program (TE-CCL's).

Time is cut into epochs of τ. ``go[j, h, k]`` says that chunk j starts over hop h in epoch k, and
``has[j, v, k]`` that it has reached v by the start of k. TE-CCL rounds every duration *up* to
epochs, so that its answer is a schedule, of lost time. Here durations are rounded *down*, so that
every schedule of these whole chunks is a solution of the program: what the solver proves holds for
all of them, and the order of its answer gives a schedule in time (:func:`placements_of`).

* a hop that takes d is over floor(d/τ) epochs later, which may be the same one: then the real time
  of arrival, a variable for each chunk and rank, grows along it, so no chunk comes from itself;
* of starts that hold a resource for p each, ceil(w·τ/p) fit into w epochs;
* T is at least any arrival k·τ + d, and at least the whole load of any resource and what comes
  after.
"""

from __future__ import annotations

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
from ...bounds.whole_chunks import WholeChunks, left_out, not_counted, whole_chunk_bound
from ...lp.highs import SolverAnswer, solve
from ...solvers.pool import Listener
from ...time.schedule_time import simulate
from ..sketched.effort import SKETCHED_EFFORT
from ..sketched.field import SearchInstance
from ..sketched.place_kernel import NEVER
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
        return Copied(
            schedule, us, made + _words(field, us, float(known.us), known.certificate.text)
        )
    limit = int(us * field.machine.unit)
    size = EpochSize.chosen(field, limit, most_epochs, effort)
    if size.starts > effort.most_starts:
        why = f"{size.too_many(effort.most_starts)}; {known.certificate.text}"
        return Copied(schedule, us, made + _words(field, us, float(known.us), why))
    if meter.left < size.steps:
        meter.cut_short()
        why = f"the work does not suffice for {size.starts:,} starts; {known.certificate.text}"
        return Copied(schedule, us, made + _words(field, us, float(known.us), why))
    meter.spend(size.steps)
    epochs = Epochs.of(field, limit, size.tau)
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
        return _words(field, us, float(known.us), known.certificate.text)
    return _words(field, us, min(proved, us), f"{size}, by {solver} in floats")


def _words(field: SearchInstance, us: float, least: float, why: str) -> str:
    gap = us / least - 1 if least else 0.0
    above = f"at most {gap:.3%} above" if gap > 1e-9 else "which is"
    these = "of whole chunks of this size"
    if len(field.moved) > 1:
        these += f" that is alike under {len(field.moved)} moves"
    these += not_counted(left_out(field.topology))
    return f"{us:,.3f} µs, {above} the least of any schedule {these}: {why}"


# --- epochs made real time ------------------------------------------------------------------------


def placements_of(field: SearchInstance, chosen: Sequence[Key]) -> Placements:
    """The transfers of an answer in ticks, in the order of their epochs, without those that lead
    nowhere. Inside an epoch the chunk with most behind it goes first."""
    kept = _useful(field, _outward(field, chosen))
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


def _outward(field: SearchInstance, chosen: Sequence[Key]) -> list[Key]:
    """The starts that lead on from where the chunks are, each after the one that brings it."""
    hops, there = field.hops, field.jobs.holds.copy()
    left, found = sorted(chosen, key=lambda key: key[2]), list[Key]()
    while left:
        ready = next((key for key in left if there[key[0], hops.src[key[1]]]), None)
        if ready is None:
            break
        left.remove(ready)
        if not there[ready[0], hops.dst[ready[1]]]:
            there[ready[0], hops.dst[ready[1]]] = True
            found.append(ready)
    return found


def _useful(field: SearchInstance, ordered: Sequence[Key]) -> list[Key]:
    """Those that lead to a rank that wants the chunk, the last first."""
    hops, needed, kept = field.hops, field.jobs.wants.copy(), []
    for key in reversed(ordered):
        j, h, _ = key
        if needed[j, hops.dst[h]]:
            needed[j, hops.src[h]] = True
            kept.append(key)
    return kept


def _behind(field: SearchInstance, kept: Sequence[Key]) -> dict[Key, int]:
    """Ticks from the start of each until all that it leads to has arrived, if nothing waits;
    ``kept``: the last first."""
    hops = field.hops
    after: dict[tuple[int, int], int] = defaultdict(int)
    found = {}
    for key in kept:
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
    def of(field: SearchInstance, limit: int, tau: int) -> Epochs:
        """The epochs of ``tau`` ticks up to a limit."""
        window = EpochWindows.of(field, limit, _onward(field), tau)
        return Epochs(field, tau, limit, window.arrivals, tuple(window.keys()))

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
        for constraint in (
            *self._chunks(model, go, last),
            *self._rows(go, last),
            *self._real_times(model, go, last),
        ):
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

    def _real_times(self, model: Any, go: dict[Key, Any], last: Any) -> Iterator[Any]:
        """Yield that a chunk arrives later than it was at the source by what its hop takes, for
        hops that may be over in the epoch of their start: epochs alone do not tell."""
        import pulp

        over: dict[tuple[int, int], list[Key]] = defaultdict(list)
        for key in self.starts:
            if not self.duration(key[1]):
                over[key[0], key[1]].append(key)
        jobs, hops, most = self.field.jobs, self.field.hops, self.limit / self.tau
        at: dict[tuple[int, int], Any] = {}

        def time(j: int, v: int) -> Any:
            if jobs.holds[j, v]:
                return 0
            if (j, v) not in at:
                at[j, v] = model.add_variable(f"at_{j}_{v}", 0, most)
            return at[j, v]

        for (j, h), keys in over.items():
            takes = int(hops.arrives[h]) / self.tau
            unused = (most + takes) * (1 - pulp.lpSum(go[key] for key in keys))
            src, dst = int(hops.src[h]), int(hops.dst[h])
            yield time(j, dst) >= time(j, src) + takes - unused
        for (j, v), when in at.items():
            if jobs.wants[j, v]:
                yield last >= when

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


# --- the size of an epoch -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EpochSize:
    """An epoch of ``tau`` ticks, how many there are, and the starts of the program with them.

    ``steps``: work to build that program and hand it over.
    """

    tau: int
    epochs: int
    starts: int
    steps: int

    @staticmethod
    def chosen(
        field: SearchInstance, limit: int, most_epochs: int, effort: FlowEffort
    ) -> EpochSize:
        """The epoch whose rounding loses least, of those with few starts; else the one with the
        fewest. ``most_epochs``: their most; 0: as many as the starts allow.
        """
        onward, best = _onward(field), None
        for tau in _tries(field, limit, most_epochs, effort.epoch_parts):
            starts = EpochWindows.of(field, limit, onward, tau).starts
            size = EpochSize(tau, -(-limit // tau), starts, effort.start_steps * starts)
            if starts <= effort.good_starts:
                return size
            best = size if best is None or starts < best.starts else best
        assert best is not None, "the whole horizon is an epoch"
        return best

    def too_many(self, most: int) -> str:
        """Return why the program is not built."""
        return (
            f"the program was not built: at least {self.starts:,} starts, in {self.epochs} epochs, "
            f"where {most:,} are tried"
        )


def _tries(field: SearchInstance, limit: int, most: int, parts: int) -> list[int]:
    """Epochs in ticks: durations over at most ``parts``, and the horizon over powers of two. Those
    come first whose rounding loses least, of equal ones the longest."""
    arrives, hold = field.hops.arrives, field.hops.hold
    shortest = max(1, -(-limit // most)) if most else 1
    kinds = {int(x) for x in (*distinct_values(arrives), *distinct_values(hold))}
    tries = {max(1, x // p) for x in kinds for p in range(1, parts + 1)}
    tries |= {-(-limit >> halvings) for halvings in range(6)} | {limit}
    fits = sorted((t for t in tries if shortest <= t <= limit), reverse=True)

    def kept(tau: int) -> float:
        times = float(np.mean((arrives // tau) * tau / arrives))
        rows = float(np.mean(np.minimum(1.0, np.maximum(1, hold // tau) * tau / hold)))
        room = float(np.mean(np.minimum(1.0, tau / (hold * np.maximum(1, np.ceil(tau / hold))))))
        return times + min(rows, 1.0) + (room if tau > hold.min() else 1.0)

    return sorted(fits, key=lambda t: -round(kept(t), 6))


@dataclass(frozen=True, eq=False)
class EpochWindows:
    """The epochs in which each hop may be part of a quicker schedule, shape (jobs, hops)."""

    arrivals: Ints  # the least epoch in which each job can be at each rank
    first: Ints
    last: Ints  # before first: never

    @staticmethod
    def of(field: SearchInstance, limit: int, onward: Ints, tau: int) -> EpochWindows:
        """The windows of epochs of ``tau`` ticks; ``onward``: :func:`_onward`."""
        hops, jobs = field.hops, field.jobs
        arrivals = _arrivals(field, hops.arrives // tau)
        first = arrivals[:, hops.src]
        room = limit - hops.arrives - onward[:, hops.dst]
        never = ~jobs.allowed[jobs.kind] | jobs.holds[:, hops.dst] | (room < 0)
        never |= first >= NEVER
        return EpochWindows(arrivals, first, np.where(never, first - 1, room // tau))

    @property
    def starts(self) -> int:
        """Their number in all."""
        return int(np.maximum(0, self.last - self.first + 1).sum())

    def keys(self) -> Iterator[Key]:
        """Yield the starts."""
        for j, h in np.argwhere(self.last >= self.first).tolist():
            for k in range(int(self.first[j, h]), int(self.last[j, h]) + 1):
                yield j, h, k


def _onward(field: SearchInstance) -> Ints:
    """The least ticks from each rank to one that wants the chunk, shape (jobs, ranks)."""
    hops, jobs = field.hops, field.jobs
    wants = jobs.wants & ~jobs.holds
    ends = hops.dst, hops.src
    found = [_least_lengths(field, row, *ends, hops.arrives, j) for j, row in enumerate(wants)]
    return np.array(found, np.int64)


def _arrivals(field: SearchInstance, length: Ints) -> Ints:
    """The least sums of lengths after which each job can be at each rank; NEVER where it cannot."""
    ends = field.hops.src, field.hops.dst
    found = [_least_lengths(field, row, *ends, length, j) for j, row in enumerate(field.jobs.holds)]
    return np.array(found, np.int64)


def _least_lengths(
    field: SearchInstance, begin: Bools, tail: Ints, head: Ints, length: Ints, job: int
) -> Ints:
    """Least lengths from where it begins, over the hops that a job may take."""
    usable = np.flatnonzero(field.jobs.allowed[field.jobs.kind[job]])
    found = np.where(begin, 0, NEVER).astype(np.int64)
    for _ in range(len(found)):
        before = found.copy()
        np.minimum.at(found, head[usable], before[tail[usable]] + length[usable])
        if np.array_equal(found, before):
            break
    return found

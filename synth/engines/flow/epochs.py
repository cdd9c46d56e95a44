"""The time-expanded program with copies (TE-CCL's problem) as a relaxation: epochs round down.

Time is cut into epochs of τ. ``go[j, h, k]`` says that chunk j starts over hop h in epoch k, and
``has[j, v, k]`` that it has reached v by the start of k. TE-CCL rounds every duration *up* to
epochs, so that its answer is a schedule, of lost time. Here durations are rounded *down*, so that
every schedule of these whole chunks is a solution of the program: what the solver proves holds for
all of them, and the order of its answer gives a schedule in time (:func:`.copies.placements_of`).

* a hop that takes d is over floor(d/τ) epochs later, at least one;
* of starts that hold a resource for p each, ceil(w·τ/p) fit into w epochs;
* T is no sooner than any arrival k·τ + d, nor than the whole load of any resource and what comes
  after.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Bools, Ints, distinct_values
from weft.dsl.base.lazy_dataclass import dataclass

from ..sketched.field import SearchInstance
from .effort import FLOW_EFFORT

Key = tuple[int, int, int]  # job, hop, epoch


@dataclass(frozen=True, eq=False)
class Epochs:
    """A field in epochs; times in ticks.

    Attributes:
        field: what is to be moved where.
        tau: ticks of an epoch.
        limit: a schedule of so many ticks is known; later ones are of no interest.
        first: the least epoch in which each job can be at each rank, shape (jobs, ranks).
        starts: (job, hop, epoch) that may be part of a quicker schedule.
    """

    field: SearchInstance
    tau: int
    limit: int
    first: Ints
    starts: tuple[Key, ...]

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
        first = np.array([_reach(field, j, tau) for j in range(len(field.jobs.root))])
        return Epochs(field, tau, limit, first, tuple(_starts(field, tau, limit, first)))

    @property
    def count(self) -> int:
        """Number of epochs."""
        return -(-self.limit // self.tau)

    def duration(self, hop: int) -> int:
        """Epochs, rounded down, until what starts over a hop has arrived."""
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
        return max(
            (int(_ticks(self.field, j)[wants[j]].max(initial=0)) for j in range(len(wants))),
            default=0,
        )

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


def _reach(field: SearchInstance, job: int, tau: int) -> Ints:
    """The least epoch in which a job can be at each rank; a large number where never."""
    return _distances(field, job, field.hops.arrives // tau)


def _ticks(field: SearchInstance, job: int) -> Ints:
    """The least ticks after which a job can be at each rank."""
    return _distances(field, job, field.hops.arrives)


def _distances(field: SearchInstance, job: int, length: Ints) -> Ints:
    return _least_lengths(field, field.jobs.holds[job], field.hops.src, field.hops.dst, length, job)


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

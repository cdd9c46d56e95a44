"""The model: each chunk takes each hop at most once, in an interval that holds its resources.

For every chunk j and hop h that can still be part of a quicker schedule: ``go[j, h]``, and
``start[j, h]`` in its window: not before the chunk can be at the hop's source, not after the last
moment from which a rank that wants it is reached in time. ``at[j, v]`` is when rank v has it.

    Σ go into v = 1 where it is wanted, at most 1 elsewhere; none out of v without one into v
    go[j, h]  =>  at[j, src] <= start[j, h],  at[j, dst] = start[j, h] + arrives
    the intervals [start, start + hold) of a resource do not overlap
    T >= at[j, v] where it is wanted;  T >= ahead + Σ hold · go + behind  of every resource

α is in ``arrives`` alone, so it separates nothing. Durations are rounded down to ticks, so every
schedule in these chunks is a solution, and a bound on T is one on all of them. (Interval
scheduling with alternatives: Laborie & Rogerie, AAAI FLAIRS 2008.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.lazy_dataclass import dataclass

from ...solvers.cp_sat import CpModel
from ..flow.copies import placements_of
from ..sketched.field import SearchInstance
from ..sketched.search_kernel import Placements
from .effort import IntervalsEffort

Key = tuple[int, int]
"""Job and hop."""

SUBSOLVERS = ("fj*", "no_lp", "fs_random*", "quick_restart", "default_lp")
"""Subsolvers of CP-SAT that take turns: together they prove what none of them proves alone."""


@dataclass(frozen=True, eq=False)
class StartWindows:
    """The hops that may be part of a schedule that ends in time; ticks are the model's own."""

    field: SearchInstance
    tick: int  # ticks of the field in one of the model
    limit: int  # the last tick at which all must have arrived
    first: Floats  # (jobs, ranks): when a chunk can be there; infinite where it cannot
    rest: Floats  # (jobs, ranks): from there until a rank that wants it has it
    spans: dict[Key, tuple[int, int]]  # first and last start

    @staticmethod
    def of(field: SearchInstance, beat: int, effort: IntervalsEffort) -> StartWindows:
        """The windows of schedules that end before ``beat``, in ticks of the field."""
        tick = _tick(field, beat, effort)
        limit, arrives, jobs = (beat - 1) // tick, field.hops.arrives // tick, field.jobs
        first = np.empty(jobs.holds.shape)
        rest = np.empty(jobs.holds.shape)
        for k, usable in enumerate(jobs.allowed):
            between = _between(field, np.flatnonzero(usable), arrives)
            for j in np.flatnonzero(jobs.kind == k).tolist():
                first[j] = between[jobs.holds[j]].min(axis=0)
                wants = jobs.wants[j] & ~jobs.holds[j]
                rest[j] = between[:, wants].min(axis=1, initial=np.inf)
        spans = {}
        for j, kind in enumerate(jobs.kind.tolist()):
            for h in np.flatnonzero(jobs.allowed[kind]).tolist():
                u, v = field.hops.src[h], field.hops.dst[h]
                last = limit - int(arrives[h]) - rest[j, v]
                if not jobs.holds[j, v] and first[j, u] <= last:
                    spans[j, h] = int(first[j, u]), int(last)
        return StartWindows(field, tick, limit, first, rest, spans)

    def arrives(self, hop: int) -> int:
        """Ticks from the start of a hop to its arrival."""
        return int(self.field.hops.arrives[hop]) // self.tick

    def holds(self, hop: int) -> Iterator[tuple[int, int]]:
        """Yield the resources of a hop and for how many ticks it holds each."""
        hops = self.field.hops
        for i in range(int(hops.first[hop]), int(hops.first[hop + 1])):
            yield int(hops.resource[i]), int(hops.hold[i]) // self.tick


def _tick(field: SearchInstance, beat: int, effort: IntervalsEffort) -> int:
    """A tick that divides all durations, if it is not too fine; else one of ``effort.ticks``."""
    exact = math.gcd(*field.hops.arrives.tolist(), *field.hops.hold.tolist())
    if beat <= effort.exact_ticks * exact:
        return exact
    shortest = int(field.hops.arrives.min())
    return max(1, min(beat // effort.ticks, shortest))


def _between(field: SearchInstance, usable: Ints, arrives: Ints) -> Floats:
    """Least ticks from rank to rank, shape (ranks, ranks)."""
    least = np.full((field.machine.ranks,) * 2, np.inf)
    np.fill_diagonal(least, 0)
    np.minimum.at(least, (field.hops.src[usable], field.hops.dst[usable]), arrives[usable])
    for via in range(len(least)):
        least = np.minimum(least, least[:, via, None] + least[via])
    return least


class IntervalModel:
    """The model of some windows, for CP-SAT; ``known``: a placement whose hops are hints."""

    def __init__(self, windows: StartWindows, least: int, known: Placements | None = None) -> None:
        self.windows, self.model = windows, CpModel()
        self.end = self.model.integer(min(least, windows.limit), windows.limit)
        self.go = {key: self.model.boolean() for key in windows.spans}
        self.start = {key: self.model.integer(*span) for key, span in windows.spans.items()}
        self.into: dict[tuple[int, int], list[Key]] = defaultdict(list)
        for j, h in self.go:
            self.into[j, int(windows.field.hops.dst[h])].append((j, h))
        self._chunks()
        self._transfers()
        self._lengths()
        self._resources()
        self.model.minimize([(self.end, 1)])
        if known is not None:
            used = {(j, h) for j, n in enumerate(known.length) for h in known.hop[j, :n].tolist()}
            self.model.hint({x: int(key in used) for key, x in self.go.items()})

    def placements(self, values: Sequence[int]) -> Placements:
        """The transfers of a solution, in the order of their starts, each as early as it can be."""
        chosen = [(*key, values[self.start[key]]) for key, x in self.go.items() if values[x]]
        return placements_of(self.windows.field, chosen)

    @cached_property
    def at(self) -> dict[tuple[int, int], int]:
        """Variables of the moments at which chunks reach ranks."""
        w = self.windows
        return {
            (j, v): self.model.integer(int(w.first[j, v]), w.limit - int(w.rest[j, v]))
            for j, v in self.into
        }

    def _chunks(self) -> None:
        jobs, hops, model = self.windows.field.jobs, self.windows.field.hops, self.model
        for j, v in np.argwhere(jobs.wants & ~jobs.holds).tolist():
            model.one_of([self.go[key] for key in self.into.get((j, v), ())])
            if (j, v) in self.into:
                model.linear([(self.end, 1), (self.at[j, v], -1)], least=0)
        for (j, v), keys in self.into.items():
            if not jobs.wants[j, v]:
                model.at_most_one([self.go[key] for key in keys])
        for (j, h), x in self.go.items():
            u = int(hops.src[h])
            if not (jobs.holds[j, u] or jobs.wants[j, u]):
                model.any_of([~x, *(self.go[key] for key in self.into.get((j, u), ()))])

    def _transfers(self) -> None:
        w, hops = self.windows, self.windows.field.hops
        for (j, h), x in self.go.items():
            start, here, there = self.start[j, h], int(hops.src[h]), int(hops.dst[h])
            took = w.arrives(h)
            self.model.linear(
                [(self.at[j, there], 1), (start, -1)], least=took, most=took, only_if=x
            )
            if (j, here) in self.at:
                self.model.linear([(start, 1), (self.at[j, here], -1)], least=0, only_if=x)

    def _lengths(self) -> None:
        """Limits on paths: each rank is as far as the path to it is long, in every measure."""
        jobs, hops = self.windows.field.jobs, self.windows.field.hops
        for length, most in zip(jobs.length, jobs.most, strict=True):
            far = {(j, v): self.model.integer(0, int(most[j, v])) for j, v in self.into}
            for (j, h), x in self.go.items():
                terms = [(far[j, int(hops.dst[h])], 1)]
                if (j, int(hops.src[h])) in far:
                    terms.append((far[j, int(hops.src[h])], -1))
                self.model.linear(terms, least=int(length[h]), only_if=x)

    def _resources(self) -> None:
        w, hops = self.windows, self.windows.field.hops
        users: dict[int, list[tuple[Key, int]]] = defaultdict(list)
        for key in self.go:
            for resource, hold in w.holds(key[1]):
                users[resource].append((key, hold))
        for mine in users.values():
            held = [(key, hold) for key, hold in mine if hold]
            if len(held) > 1:
                self.model.no_overlap(
                    [self.model.optional(self.start[k], hold, self.go[k]) for k, hold in held]
                )
            ahead = min(w.spans[key][0] for key, _ in mine)
            behind = min(w.arrives(h) - hold + int(w.rest[j, hops.dst[h]]) for (j, h), hold in mine)
            loads = [(self.go[key], -hold) for key, hold in mine]
            self.model.linear([(self.end, 1), *loads], least=ahead + behind)

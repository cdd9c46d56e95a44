"""The first rounds of a race: schedules compiled in many forms, timed at few sizes.

What cannot win is not tried. No program of a schedule is quicker than its longest chain of α or
the load of its busiest resource at the bandwidth that the runtime reaches, so it is not compiled
for a size at which another program is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import protocol_of
from weft.dsl.nouns.schedule import Schedule, dump
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.time.calibrated import named_model
from weft.synth.time.latency import latency_us
from weft.synth.time.program_tables import reached_bandwidth

from .timing import WORK, MapJobs, RaceEntry, Runner, Track
from .variants import Variant
from .work import GAIN

REACH = 1.5
"""Largest ratio to the best time of a schedule in its usual forms for which other forms are tried;
these gained up to a third in experiments."""

LEADERS = 2
"""Schedules of one size that are explored first: what others must beat is known then."""

Forms = Mapping[tuple[int, int], Sequence[Variant]]
"""Variants by schedule and size."""

FLAT = 1.15
"""Largest ratio of the best time per byte to that of the largest size, from which on bytes alone
decide: what is good at both ends of such sizes is good between them."""

CLOSE = 1.05
"""Largest ratio to the best time at one end of such sizes with which a form is timed between."""


@dataclass(slots=True)
class Times:
    """Known µs by size of every form of every schedule."""

    of: dict[tuple[int, Variant], dict[int, float]] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)
    best_baseline: dict[int, float] = field(default_factory=dict)

    def add(
        self,
        place: int,
        sizes: Sequence[int],
        answer: Sequence[Mapping[str, Any]] | None,
        *,
        baseline: bool = False,
    ) -> None:
        """Add an answer of a job for one schedule; None if it was interrupted."""
        for row in answer or ():
            mine = self.of.setdefault((place, Variant.of(row)), {})
            for size, us in zip(sizes, row["us"], strict=True):
                if us is None:
                    continue
                mine[size] = us
                for best in (self.best, self.best_baseline) if baseline else (self.best,):
                    best[size] = min(us, best.get(size, us))

    def note(self, place: int, sizes: Sequence[int], entry: RaceEntry) -> None:
        """Add the known times of one form."""
        self.add(place, sizes, [{**entry.variant.to_json(), "us": entry.us}])


@dataclass(slots=True)
class Exploration:
    """Rounds in which schedules are compiled in many forms, at sizes far from each other.

    ``floor``: µs by schedule and size below which no program can be: α of the longest chain of
    transfers, and the load of the busiest resource, at the bandwidth that the model of time gives
    programs. A schedule is not compiled for sizes at which that is more than the best program
    takes. ``families``: numbers of schedules, the same for those that differ in the order of their
    transfers alone.
    """

    runners: Sequence[Runner]
    sizes: Sequence[int]
    track: Track
    jobs: MapJobs
    times: Times
    texts: list[Any]
    floor: list[list[float]]
    families: list[int]
    stopped: bool = False

    @staticmethod
    def of(
        runners: Sequence[Runner], sizes: Sequence[int], track: Track, jobs: MapJobs
    ) -> Exploration:
        """Return the exploration before its first round."""
        floor = []
        reached = _reached(runners[0].schedule.topology, track)
        for runner in runners:
            alpha, rate = latency_us(runner.schedule), float(us_per_byte(runner.schedule, reached))
            floor.append([max(alpha, rate * size) for size in sizes])
        texts = [dump(r.schedule) for r in runners]
        families = families_of([r.schedule for r in runners])
        return Exploration(runners, sizes, track, jobs, Times(), texts, floor, families)

    def usual(self, places: Sequence[int]) -> None:
        """Time schedules in their usual form, where they may be the best."""
        asked = {place: self._open(place) for place in places}
        self._round(asked, deep=False)

    def deep(self, places: Mapping[int, Sequence[int]], count: int = 0) -> None:
        """Time schedules in all forms at some sizes, where they may be the best.

        ``count``: in so many of the best forms of a size first, and in the others only near the
        best.
        """
        asked = {
            place: [n for n in self._open(place) if n in sizes] for place, sizes in places.items()
        }
        best = {n: self._forms(n)[:count] for n in self.sizes}
        forms = {(place, n): best[n] for place, sizes in asked.items() for n in sizes}
        self._round(asked, deep=True, forms=forms)

    def flat(self) -> list[int]:
        """Return the sizes between the largest and the least from which on bytes alone decide."""
        rate = [self.times.best.get(n, math.inf) / n for n in self.sizes]
        steep = [i for i, us in enumerate(rate) if not us <= FLAT * rate[-1]]
        return list(self.sizes[max(steep, default=-1) + 2 : -1])

    def between(self, sizes: Sequence[int]) -> None:
        """Time at neighbouring sizes the forms that are near the best at either end of these."""
        if not sizes:
            return
        first, last = self.sizes.index(sizes[0]) - 1, self.sizes.index(sizes[-1]) + 1
        near: dict[int, dict[Variant, None]] = {}
        for end in (self.sizes[first], self.sizes[last]):
            for place, variant in ranked(self.times, end, self.runners):
                if self.times.of[place, variant][end] <= CLOSE * self._best(place, end):
                    near.setdefault(place, {})[variant] = None
        asked = {place: [n for n in self._open(place) if n in sizes] for place in sorted(near)}
        forms = {(place, n): list(near[place]) for place in asked for n in asked[place]}
        self._round(asked, deep=True, forms=forms, wide=False)

    def _forms(self, size: int) -> list[Variant]:
        """Return the forms timed at a size, of all schedules, the best first."""
        return list(dict.fromkeys(v for _, v in ranked(self.times, size, self.runners)))

    def leaders(self) -> list[int]:
        """Return the schedules that promise most at some size, and the most promising baselines."""
        chosen: set[int] = set()
        for at in range(len(self.sizes)):
            order = sorted(range(len(self.runners)), key=lambda p: (self.floor[p][at], p))
            baselines = [p for p in order if self.runners[p].baseline]
            chosen |= {*order[:LEADERS], *baselines[:1]}
        return sorted(chosen)

    def ahead(self, count: int, *, baseline: bool = False) -> dict[int, list[int]]:
        """Return the best schedules of each size, of each family one, or the best baselines, each
        with its sizes."""
        found: dict[int, list[int]] = {}
        for size in self.sizes:
            order = ranked(self.times, size, self.runners, baseline=baseline)
            places = list(dict.fromkeys(place for place, _ in order))
            if not baseline:
                places = [place for place in places if self._first(place, size)]
            for place in places[:count]:
                found.setdefault(place, []).append(size)
        return found

    def within_reach(self) -> dict[int, list[int]]:
        """Return the sizes at which a schedule may still be the quickest in another form, and those
        at which it is the best baseline."""
        found = self.ahead(1, baseline=True)
        for place in range(len(self.runners)):
            mine = found.get(place, [])
            sizes = [
                n
                for n in self.sizes
                if n in mine or (self._reaches(place, n) and self._first(place, n))
            ]
            if sizes:
                found[place] = sizes
        return found

    def _first(self, place: int, size: int) -> bool:
        """Return True if no schedule of the family is quicker at a size; of equal ones, one with
        priorities, whose order can be another, is the first."""
        family = [p for p, other in enumerate(self.families) if other == self.families[place]]
        return place == min(
            family,
            key=lambda p: (self._mine(p, size), self.runners[p].schedule.priority is None, p),
        )

    def _mine(self, place: int, size: int) -> float:
        """Return the best time of a schedule at a size; infinite where it has none."""
        rows = (row for (owner, _), row in self.times.of.items() if owner == place)
        return min((row[size] for row in rows if size in row), default=math.inf)

    def _reaches(self, place: int, size: int) -> bool:
        """Return True if a schedule may still be the quickest at a size in another form."""
        return self._mine(place, size) <= REACH * self.times.best.get(size, 0.0)

    def _open(self, place: int) -> list[int]:
        """Return the sizes at which a schedule can be better than what it must beat."""
        return [
            size
            for size, floor in zip(self.sizes, self.floor[place], strict=True)
            if GAIN * floor < self._best(place, size)
        ]

    def _best(self, place: int, size: int) -> float:
        """Return the time to beat: a baseline must be the best of the baselines."""
        if not self.runners[place].baseline:
            return self.times.best.get(size, math.inf)
        return self.times.best_baseline.get(size, math.inf)

    def _round(
        self,
        asked: Mapping[int, Sequence[int]],
        *,
        deep: bool,
        forms: Forms | None = None,
        wide: bool = True,
    ) -> None:
        forms = forms or {}
        places = [place for place, sizes in asked.items() if sizes]
        given = [
            {
                **self._given(place, asked[place], deep=deep),
                "forms": [[v.to_json() for v in forms.get((place, n), ())] for n in asked[place]],
                "wide": [wide and self._reaches(place, n) for n in asked[place]],
            }
            for place in places
        ]
        answers = self.jobs("timing", f"{WORK}:explore", given)
        for place, answer in zip(places, answers, strict=True):
            self.times.add(place, asked[place], answer, baseline=self.runners[place].baseline)
        self.stopped = self.stopped or None in answers

    def _given(self, place: int, sizes: Sequence[int], *, deep: bool) -> dict[str, Any]:
        floor = dict(zip(self.sizes, self.floor[place], strict=True))
        best = [self._best(place, n) for n in sizes]
        known = [
            {**variant.to_json(), "us": [row.get(n) for n in sizes]}
            for (owner, variant), row in self.times.of.items()
            if owner == place
        ]
        return {
            "schedule": self.texts[place],
            "runtime": self.track.runtime,
            "model": self.track.model,
            "protocols": list(self.track.protocols if deep else self.track.protocols[:1]),
            "sizes": list(sizes),
            "best": [None if us == math.inf else us for us in best],
            "floor": [floor[n] for n in sizes],
            "known": known,
            "deep": deep,
        }


def _reached(topology: Topology, track: Track) -> tuple[Fraction, ...]:
    """Return the GB/s that programs reach at most on each link and shared resource."""
    model = named_model(topology, track.runtime, track.model)
    return reached_bandwidth(topology, model, map(protocol_of, track.protocols))


def families_of(schedules: Sequence[Schedule]) -> list[int]:
    """Return the same number for schedules that move the same chunks in the same steps by the same
    ways, in whatever order."""
    seen: dict[bytes, int] = {}
    return [seen.setdefault(_transfers(s), len(seen)) for s in schedules]


def _transfers(schedule: Schedule) -> bytes:
    """Return the transfers in an order of their own, and the casts."""
    columns = (schedule.chunk, schedule.src, schedule.dst, schedule.step, schedule.reduce)
    rows = np.array([np.asarray(c, np.int64) for c in columns])
    order = np.lexsort(rows)
    start = schedule.route_start
    routes = [tuple(schedule.route_links[start[i] : start[i + 1]].tolist()) for i in order.tolist()]
    of = schedule.collective
    casts = sorted(map(repr, schedule.casts))
    return repr((rows[:, order].tolist(), routes, of.factor, of.sizes, casts)).encode()


def ranked(
    times: Times, size: int, runners: Sequence[Runner], *, baseline: bool = False
) -> list[tuple[int, Variant]]:
    """Return the forms timed at a size, of all schedules or of the baselines, the quickest
    first."""
    found = sorted(
        (known[size], place, variant)
        for (place, variant), known in times.of.items()
        if size in known and (runners[place].baseline or not baseline)
    )
    return [(place, variant) for _, place, variant in found]

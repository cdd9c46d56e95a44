"""The race: all schedules are compiled and timed, in rounds that drop losing candidates.

1. schedules in their usual form, at sizes a factor four apart, those that promise most first;
2. the best few there in all forms, then those within reach and the best of the baselines: in the
   forms that are best, and in all if they come near; of those that differ in order alone, the best;
   where bytes alone decide, only at the ends of such sizes, and between them what is good there;
3. the forms that are best or nearly so anywhere, compiled for their own protocol, on a grid of
   sizes that is fine where the best one changes.

Rounds do not depend on the executor of the jobs or on the order in which they end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import protocol_of
from weft.dsl.nouns.schedule import Schedule, dump
from weft.dsl.nouns.topology import Topology
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.time.calibrated import named_model
from weft.synth.time.latency import latency_us
from weft.synth.time.program_tables import reached_bandwidth

from ..compile.variants import PLAIN, Variant
from .cast_plans import form_of
from .effort import EFFORT
from .timing import WORK, Interrupted, MapJobs, RaceEntry, Runner, Track, clocked, spaced, times_of


def run_race(
    runners: Sequence[Runner], sizes: SizeRange, track: Track, jobs: MapJobs
) -> tuple[list[int], list[RaceEntry]]:
    """Return a grid that is fine where the best program changes, and the finalists' times on it."""
    coarse = spaced(sizes, EFFORT.coarse_per_octave)
    exploration = Exploration.of(runners, coarse, track, jobs)
    leaders = exploration.leaders()
    exploration.usual(leaders)
    exploration.usual([place for place in range(len(runners)) if place not in leaders])
    flat = exploration.flat()
    first = exploration.ahead(EFFORT.leaders)
    exploration.deep(_without(flat, first))
    others = {
        place: [n for n in sizes if n not in first.get(place, ())]
        for place, sizes in exploration.within_reach().items()
    }
    exploration.deep(_without(flat, others), EFFORT.leading_forms)
    exploration.between(flat)
    times = exploration.times
    if not times.best and exploration.stopped:
        raise Interrupted
    chosen = _finalists(runners, times, coarse)
    forms = [(runners[place], variant) for place, variant in chosen]
    known = [{n: us for n in coarse if (us := times.of[one].get(n))} for one in chosen]
    try:
        return refined(forms, known, sizes, track, jobs)
    except Interrupted:
        return coarse, [
            RaceEntry(runner, variant, tuple(row.get(n) for n in coarse))
            for (runner, variant), row in zip(forms, known, strict=True)
        ]


def _without(left_out: Sequence[int], places: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return the sizes of schedules but for some."""
    return {place: [n for n in sizes if n not in left_out] for place, sizes in places.items()}


def short_race(
    runners: Sequence[Runner],
    forms: Sequence[Variant],
    sizes: SizeRange,
    track: Track,
    jobs: MapJobs,
) -> tuple[list[int], list[RaceEntry]]:
    """Three rounds: every schedule in one plain form at few sizes; those among the best of one of
    these in the given forms that are not plain (or the first), and all that have a form of their
    own in this, on a grid of powers of two; what leads then in plain forms.

    A machine that is no longer regular may lack room for the forms of the old one, or another
    suits it better. Baselines that are beaten are timed for the table only.
    """
    protocol = protocol_of(track.protocols[0])
    simple = [replace(form, protocol=protocol) for form in PLAIN]
    grid = list(sizes.powers())
    few = sorted({*grid[:: EFFORT.short_stride], grid[-1]})
    times, known = Times(), Times()

    def fit(pairs: Iterable[tuple[int, Variant]]) -> list[tuple[int, Variant]]:
        return list(dict.fromkeys((p, form_of(runners[p].schedule, form)) for p, form in pairs))

    def run(pairs: Sequence[tuple[int, Variant]], at: Sequence[int]) -> list[RaceEntry]:
        ran = clocked([(runners[place], form) for place, form in pairs], at, track, jobs)
        for (place, _), entry in zip(pairs, ran, strict=True):
            times.note(place, at, entry)
        return ran

    def leading(count: int, *, baseline: bool = False) -> list[int]:
        return sorted(
            {
                place
                for n in few
                for place, _ in ranked(times, n, runners, baseline=baseline)[:count]
            }
        )

    everyone = range(len(runners))
    run(fit((place, simple[0]) for place in everyone), few)
    own = ((place, form) for place in everyone if (form := runners[place].form) is not None)
    theirs = [form for form in forms if form not in simple] or forms[:1]
    pairs = fit((*product(leading(EFFORT.short_finalists) or everyone, theirs), *own))
    ran = run(pairs, grid)
    ahead = {ranked(times, n, runners)[0] for n in few if n in times.best}
    plain = fit(
        (
            *sorted(ahead),
            *product(leading(1) or everyone, simple[1:]),
            *product(leading(1, baseline=True), simple[:1]),
        )
    )
    more = [pair for pair in plain if pair not in pairs]
    with suppress(Interrupted):  # the times of the second round suffice
        pairs, ran = pairs + more, ran + run(more, grid)
    for (place, _), entry in zip(pairs, ran, strict=True):
        known.note(place, grid, entry)
    chosen = set(_finalists(runners, known, grid))
    return grid, [e for pair, e in zip(pairs, ran, strict=True) if pair in chosen]


def _finalists(
    runners: Sequence[Runner], times: Times, sizes: Sequence[int]
) -> list[tuple[int, Variant]]:
    """Return the forms among the best few of some size, and the best baseline of every size."""
    chosen: dict[tuple[int, Variant], None] = {}
    for size in sizes:
        best = [
            one
            for one in ranked(times, size, runners)[: EFFORT.finalists]
            if times.of[one][size] <= EFFORT.finalist_ratio * times.best[size]
        ]
        chosen |= dict.fromkeys((*best, *ranked(times, size, runners, baseline=True)[:1]))
    return list(chosen)


# The first rounds of a race: schedules compiled in many forms, timed at few sizes.
#
# Entries that cannot win are not tried. No program of a schedule is quicker than its longest chain
# of α or the load of its busiest resource at the bandwidth that the runtime reaches, so it is not
# compiled for a size at which another program is.

Forms = Mapping[tuple[int, int], Sequence[Variant]]
"""Variants by schedule and size."""


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

        ``count``: in that number of the best forms of a size first, and in the others only near the
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
        steep = [i for i, us in enumerate(rate) if not us <= EFFORT.flat_ratio * rate[-1]]
        return list(self.sizes[max(steep, default=-1) + 2 : -1])

    def between(self, sizes: Sequence[int]) -> None:
        """Time at neighbouring sizes the forms that are near the best at either end of these."""
        if not sizes:
            return
        first, last = self.sizes.index(sizes[0]) - 1, self.sizes.index(sizes[-1]) + 1
        near: dict[int, dict[Variant, None]] = {}
        for end in (self.sizes[first], self.sizes[last]):
            for place, variant in ranked(self.times, end, self.runners):
                us = self.times.of[place, variant][end]
                if us <= EFFORT.flat_form_ratio * self._best(place, end):
                    near.setdefault(place, {})[variant] = None
        asked = {place: [n for n in self._open(place) if n in sizes] for place in sorted(near)}
        forms = {(place, n): list(near[place]) for place in asked for n in asked[place]}
        self._round(asked, deep=True, forms=forms, wide=False)

    def _forms(self, size: int) -> list[Variant]:
        return list(dict.fromkeys(v for _, v in ranked(self.times, size, self.runners)))

    def leaders(self) -> list[int]:
        """Return the schedules that promise most at some size, and the most promising baselines."""
        chosen: set[int] = set()
        for at in range(len(self.sizes)):
            order = sorted(range(len(self.runners)), key=lambda p: (self.floor[p][at], p))
            baselines = [p for p in order if self.runners[p].baseline]
            chosen |= {*order[: EFFORT.leaders], *baselines[:1]}
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
        return self._mine(place, size) <= EFFORT.reach_ratio * self.times.best.get(size, 0.0)

    def _open(self, place: int) -> list[int]:
        """Return the sizes at which a schedule can be better than its rivals."""
        return [
            size
            for size, floor in zip(self.sizes, self.floor[place], strict=True)
            if EFFORT.plan_gain * floor < self._best(place, size)
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
            "in_place": list(self.track.in_place),
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


# The last round of a race: finalists on a grid of sizes that is fine where the best one changes.
#
# Between two sizes at which the same program is best, by the same lead over the baseline, there is
# nothing to find out. So intervals are halved only where that differs, and at a new size only those
# are timed that are near the best beside it.

NONE: Mapping[int, Sequence[int]] = {}


def refined(
    forms: Sequence[tuple[Runner, Variant]],
    known: Sequence[Mapping[int, float]],
    sizes: SizeRange,
    track: Track,
    jobs: MapJobs,
) -> tuple[list[int], list[RaceEntry]]:
    """Return the grid, and the times of finalists on it: None where they are far from the best.

    ``known``: µs of each at the sizes of the first rounds, as explored: the finalist itself is
    compiled for its own protocol.

    Raises:
        Interrupted: before one of them was known.
    """
    explored = _Table(forms, [dict(row) for row in known])
    grid = spaced(sizes, EFFORT.coarse_per_octave)
    table = _Table(forms, [{} for _ in forms])
    table.time({n: (n,) for n in grid}, explored, track, jobs, explored.leaders_beside(grid))
    # That there are files for all placements is known from now on.
    track = replace(track, in_place=(False,))
    per_octave = EFFORT.coarse_per_octave
    while per_octave < EFFORT.fine_per_octave:
        everywhere = per_octave < EFFORT.grid_per_octave
        middle = {
            round(math.sqrt(low * high)): (low, high)
            for low, high in pairwise(grid)
            if high > low + 1 and (everywhere or table.differ(low, high))
        }
        table.time(middle, table, track, jobs)
        grid = sorted({*grid, *middle})
        per_octave *= 2
    return grid, [
        RaceEntry(runner, variant, tuple(row.get(n) for n in grid))
        for (runner, variant), row in zip(forms, table.us, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Table:
    """Known µs of each finalist by size."""

    forms: Sequence[tuple[Runner, Variant]]
    us: list[dict[int, float]]

    def time(
        self,
        sizes: Mapping[int, Sequence[int]],
        before: _Table,
        track: Track,
        jobs: MapJobs,
        more: Mapping[int, Sequence[int]] = NONE,
    ) -> None:
        """Time finalists at new sizes, if ``before`` says that they are near the best beside.

        ``sizes``: for each the sizes beside it; ``more``: finalists that are timed as well.
        Interruptions leave out what was not timed.

        Raises:
            Interrupted: before any of them was known.
        """
        wanted: list[dict[int, float]] = [{} for _ in self.forms]
        limit: dict[int, float] = {}
        for size, beside in sizes.items():
            limit[size] = EFFORT.beside_ratio * max(before.best(n) for n in beside)
            for place in sorted(
                {*more.get(size, ()), *(p for n in beside for p in before.near(n))}
            ):
                baseline = self.forms[place][0].baseline
                wanted[place][size] = math.inf if baseline else limit[size]
        self._ask(wanted, track, jobs)
        # Where all of these take longer than beside it, or lack a file, others may be better.
        if ragged := [n for n in sizes if self.best(n) > limit[n]]:
            self._ask([dict.fromkeys(ragged, math.inf) for _ in self.forms], track, jobs)

    def _ask(self, wanted: Sequence[Mapping[int, float]], track: Track, jobs: MapJobs) -> None:
        some = [place for place, limits in enumerate(wanted) if limits]
        forms, limits = [self.forms[p] for p in some], [wanted[p] for p in some]
        for place, found in zip(some, times_of(forms, limits, track, jobs), strict=True):
            self.us[place] |= found or {}

    def best(self, size: int) -> float:
        """Return the least time at a size."""
        return min((row[size] for row in self.us if size in row), default=math.inf)

    def leader(self, size: int, *, baseline: bool = False) -> int | None:
        """Return the quickest at a size, of all or of the baselines; None if none was timed."""
        found = [
            (row[size], place)
            for place, row in enumerate(self.us)
            if size in row and (self.forms[place][0].baseline or not baseline)
        ]
        return min(found)[1] if found else None

    def leaders_beside(self, grid: Sequence[int]) -> dict[int, list[int]]:
        """Return the quickest at the neighbours of each size that lack a time at the size itself:
        they may be the best there too."""
        found: dict[int, list[int]] = {}
        for low, high in pairwise(grid):
            for size, other in ((low, high), (high, low)):
                leader = self.leader(other)
                if leader is not None and size not in self.us[leader]:
                    found.setdefault(size, []).append(leader)
        return found

    def near(self, size: int) -> list[int]:
        """Return those that are near the best at a size, and the quickest baseline."""
        most = EFFORT.beside_ratio * self.best(size)
        found = [place for place, row in enumerate(self.us) if row.get(size, math.inf) <= most]
        baseline = self.leader(size, baseline=True)
        return found if baseline is None or baseline in found else [*found, baseline]

    def differ(self, low: int, high: int) -> bool:
        """Return True if the best differs at two sizes, or its lead over the baseline."""
        if self.leader(low) != self.leader(high):
            return True
        one, other = self._lead(low), self._lead(high)
        return max(one, other) > EFFORT.lead_ratio * min(one, other)

    def _lead(self, size: int) -> float:
        place = self.leader(size, baseline=True)
        best = self.best(size)
        return self.us[place][size] / best if place is not None and best > 0 else 1.0

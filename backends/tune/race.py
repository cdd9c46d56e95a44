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

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import protocol_of

from .cast_plans import form_of
from .exploration import LEADERS, Exploration, Times, ranked
from .refine import refined
from .timing import COARSE, Interrupted, MapJobs, RaceEntry, Runner, Track, clocked, spaced
from .variants import PLAIN, Variant

NEAR = 1.06
"""Largest ratio to the best time at some size with which an entry reaches the last round."""

FORMS = 2
"""The best forms of a size, in which schedules within reach are timed before any others."""

FEW = 4
"""Stride of the sizes in the first round of a short race."""

PER_SIZE, PER_SIZE_SHORT = 3, 2
"""Finalists of one size; schedules of one size that come to the second round of a short race."""


def run_race(
    runners: Sequence[Runner], sizes: SizeRange, track: Track, jobs: MapJobs
) -> tuple[list[int], list[RaceEntry]]:
    """Return a grid that is fine where the best program changes, and the finalists' times on it."""
    coarse = spaced(sizes, COARSE)
    exploration = Exploration.of(runners, coarse, track, jobs)
    leaders = exploration.leaders()
    exploration.usual(leaders)
    exploration.usual([place for place in range(len(runners)) if place not in leaders])
    flat = exploration.flat()
    first = exploration.ahead(LEADERS)
    exploration.deep(_without(flat, first))
    others = {
        place: [n for n in sizes if n not in first.get(place, ())]
        for place, sizes in exploration.within_reach().items()
    }
    exploration.deep(_without(flat, others), FORMS)
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

    A machine that is no longer regular may have no room for the forms of the old one, or another
    suits it better. Baselines that are beaten are timed for the table only.
    """
    protocol = protocol_of(track.protocols[0])
    simple = [replace(form, protocol=protocol) for form in PLAIN]
    grid = list(sizes.powers())
    few = sorted({*grid[::FEW], grid[-1]})
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
    pairs = fit((*product(leading(PER_SIZE_SHORT) or everyone, theirs), *own))
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
            for one in ranked(times, size, runners)[:PER_SIZE]
            if times.of[one][size] <= NEAR * times.best[size]
        ]
        chosen |= dict.fromkeys((*best, *ranked(times, size, runners, baseline=True)[:1]))
    return list(chosen)

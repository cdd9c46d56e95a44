"""The race: all schedules are compiled and timed, in rounds that drop losing candidates.

1. every schedule, in its usual form, at sizes a factor four apart;
2. those within reach of the best there, in all forms; baselines always;
3. the forms that are best or nearly so anywhere, compiled for their own protocol, on a fine grid.

Rounds do not depend on the executor of the jobs or on the order in which they end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import protocol_of
from weft.dsl.nouns.schedule import Schedule, dump

from .variants import PLAIN, Variant

COARSE, FINE = 0.5, 5
"""Sizes per doubling: of the first rounds, and of the last."""

NEAR = 1.06
"""Largest ratio to the best time at some size with which an entry reaches the last round."""

REACH = 1.5
"""Largest ratio to the best time of a schedule in its usual forms for which other forms are tried;
these gained up to a third in experiments."""

FEW = 4
"""Stride of the sizes in the first round of a short race."""

PER_SIZE, PER_SIZE_SHORT = 3, 2
"""Finalists of one size; schedules of one size that come to the second round of a short race."""

MapJobs = Callable[[str, str, Sequence[Any]], list[Any]]
"""Function that applies ``module:name`` to JSON values: the results, None where interrupted. The
first text is the label for progress."""

WORK = f"{__package__}.work"


class Interrupted(KeyboardInterrupt):
    """Interruption before any result was known."""


@dataclass(frozen=True, slots=True)
class Track:
    """Conditions of a race: runtime, protocols, and placements for which all finalists must have a
    file."""

    runtime: str
    protocols: tuple[str, ...]
    in_place: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Runner:
    """Schedule in the race, under its own name; and its variant on another machine, if known."""

    name: str
    schedule: Schedule
    baseline: bool = False
    form: Variant | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RaceEntry:
    """Schedule compiled in one way, and its µs by size; None: it could not be timed.

    ``rounds``: it was run as rounds of messages, which can be compiled in one way only.
    """

    runner: Runner
    variant: Variant
    us: tuple[float | None, ...]
    rounds: bool = False

    @property
    def name(self) -> str:
        """Return the name of the schedule with that of its variant."""
        return self.runner.name if self.rounds else f"{self.runner.name}, {self.variant.words}"


@dataclass(slots=True)
class _Times:
    """Known µs by size of every form of every schedule."""

    of: dict[tuple[int, Variant], dict[int, float]] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)

    def add(
        self, place: int, sizes: Sequence[int], answer: Sequence[Mapping[str, Any]] | None
    ) -> None:
        for row in answer or ():
            mine = self.of.setdefault((place, Variant.of(row)), {})
            for size, us in zip(sizes, row["us"], strict=True):
                if us is not None:
                    mine[size] = us
                    self.best[size] = min(us, self.best.get(size, us))

    def note(self, place: int, sizes: Sequence[int], entry: RaceEntry) -> None:
        """Add the known times of one form."""
        self.add(place, sizes, [{**entry.variant.to_json(), "us": entry.us}])


def spaced(sizes: SizeRange, per_octave: float) -> list[int]:
    """Return sizes from low to high, ``per_octave`` per doubling, evenly on a logarithmic scale."""
    octaves = math.log2(sizes.high / sizes.low)
    steps = max(1, math.ceil(octaves * per_octave - 1e-9))
    grid = {round(sizes.low * (sizes.high / sizes.low) ** (i / steps)) for i in range(steps + 1)}
    return sorted({*grid, sizes.low, sizes.high})


def run_race(
    runners: Sequence[Runner], sizes: SizeRange, track: Track, jobs: MapJobs
) -> tuple[list[int], list[RaceEntry]]:
    """Return the fine grid, and the finalists' times on it."""
    coarse = spaced(sizes, COARSE)
    texts = [dump(r.schedule) for r in runners]
    stand = {"runtime": track.runtime, "protocols": list(track.protocols)}
    times = _Times()
    first = {**stand, "protocols": stand["protocols"][:1]}
    usual = {**first, "sizes": coarse, "best": [None] * len(coarse), "deep": False}
    answers = jobs("timing", f"{WORK}:explore", [{**usual, "schedule": t} for t in texts])
    for place, answer in enumerate(answers):
        times.add(place, coarse, answer)
    asked = []
    for place, runner in enumerate(runners):
        near = coarse if runner.baseline else _within_reach(place, times, coarse)
        if near:
            asked.append((place, near))
    answers = jobs(
        "timing",
        f"{WORK}:explore",
        [
            {
                **stand,
                "schedule": texts[place],
                "sizes": near,
                "deep": True,
                "best": [times.best.get(n) for n in near],
            }
            for place, near in asked
        ],
    )
    for (place, near), answer in zip(asked, answers, strict=True):
        times.add(place, near, answer)
    if not times.best and None in answers:
        raise Interrupted
    chosen = _finalists(runners, times, coarse)
    fine = spaced(sizes, FINE)
    try:
        return fine, clocked([(runners[p], v) for p, v in chosen], fine, track, jobs)
    except Interrupted:
        return coarse, [
            RaceEntry(runners[p], v, tuple(times.of[p, v].get(n) for n in coarse))
            for p, v in chosen
        ]


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
    times, known = _Times(), _Times()

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
                for place, _ in _ranked(times, n, runners, baseline=baseline)[:count]
            }
        )

    everyone = range(len(runners))
    run([(place, simple[0]) for place in everyone], few)
    own = ((place, form) for place in everyone if (form := runners[place].form) is not None)
    theirs = [form for form in forms if form not in simple] or forms[:1]
    pairs = list(dict.fromkeys((*product(leading(PER_SIZE_SHORT) or everyone, theirs), *own)))
    ran = run(pairs, grid)
    ahead = {_ranked(times, n, runners)[0] for n in few if n in times.best}
    plain = dict.fromkeys(
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


def clocked(
    forms: Sequence[tuple[Runner, Variant]], sizes: Sequence[int], track: Track, jobs: MapJobs
) -> list[RaceEntry]:
    """Return the times of schedules, each compiled in one way, at some sizes.

    Raises:
        Interrupted: before one of them was known.
    """
    given = [
        {
            "schedule": dump(runner.schedule),
            "runtime": track.runtime,
            "protocols": [],
            "in_place": list(track.in_place),
            "variant": variant.to_json(),
            "sizes": list(sizes),
        }
        for runner, variant in forms
    ]
    answers = jobs("timing finalists", f"{WORK}:clock", given)
    if answers and all(answer is None for answer in answers):
        raise Interrupted
    none = (None,) * len(sizes)
    return [
        RaceEntry(r, v, none if us is None else tuple(us))
        for (r, v), us in zip(forms, answers, strict=True)
    ]


def _within_reach(place: int, times: _Times, sizes: Sequence[int]) -> list[int]:
    """Return the sizes at which a schedule may still be the quickest in another form."""
    mine: dict[int, float] = {}
    for (owner, _), known in times.of.items():
        if owner == place:
            for size, us in known.items():
                mine[size] = min(us, mine.get(size, us))
    return [n for n in sizes if n in mine and mine[n] <= REACH * times.best[n]]


def _ranked(
    times: _Times, size: int, runners: Sequence[Runner], *, baseline: bool = False
) -> list[tuple[int, Variant]]:
    """Return the forms timed at a size, of all schedules or of the baselines, the quickest
    first."""
    found = sorted(
        (known[size], place, variant)
        for (place, variant), known in times.of.items()
        if size in known and (runners[place].baseline or not baseline)
    )
    return [(place, variant) for _, place, variant in found]


def _finalists(
    runners: Sequence[Runner], times: _Times, sizes: Sequence[int]
) -> list[tuple[int, Variant]]:
    """Return the forms among the best few of some size, and the best baseline of every size."""
    chosen: dict[tuple[int, Variant], None] = {}
    for size in sizes:
        best = [
            one
            for one in _ranked(times, size, runners)[:PER_SIZE]
            if times.of[one][size] <= NEAR * times.best[size]
        ]
        chosen |= dict.fromkeys((*best, *_ranked(times, size, runners, baseline=True)[:1]))
    return list(chosen)

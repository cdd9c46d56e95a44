"""Finalists of a race, by simulation or by measurement, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from weft.dsl.base.arrays import Floats
from weft.dsl.base.errors import NothingFound
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.units import format_bytes
from weft.dsl.nouns.collective import Collective

from ..compile.descent import RACE
from .choose import EVEN, LEAST, few, limits
from .effort import EFFORT
from .measure import between, measured_race
from .options import TuneOptions
from .race import run_race, short_race
from .timing import Interrupted, MapJobs, RaceEntry, Runner, Track, times_of
from .work import FORMAT, Stand, Timer


@dataclass(frozen=True, slots=True)
class Finalists:
    """Finalists of a race: µs on a grid, and at any size.

    ``own``: times of the runtime's own collective. ``behind``: how many times
    longer than the best baseline an entry takes near a size, where it was looked at; shape
    (entries, sizes).
    """

    grid: list[int]
    entries: list[RaceEntry]
    us: Callable[[int, int], float]
    own: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    behind: Floats = field(default_factory=lambda: np.empty((0, 0)))


def simulated(
    runners: list[Runner], collective: Collective, options: TuneOptions, jobs: MapJobs
) -> Finalists:
    """Run the race by program simulation.

    Raises:
        NothingFound: nothing can be compiled.
    """
    wanted = options.wanted
    track = Track(
        wanted.runtime,
        options.raced_protocols,
        wanted.placements(collective.kind, FORMAT),
        options.model,
    )
    race = partial(short_race, forms=options.forms) if options.forms else run_race
    grid, entries = race(runners, sizes=options.sizes, track=track, jobs=jobs)
    entries = [e for e in entries if any(us is not None for us in e.us)]
    if not entries:
        raise NothingFound(
            f"no schedule for {collective} can be compiled for {track.runtime}",
            hint="larger --sizes, so that chunks have elements; other --protocols, or -e ENGINE",
        )
    empty = np.flatnonzero(np.isinf(_matrix(entries).min(axis=0)))
    if len(empty):
        raise NothingFound(
            f"no plan for {collective} has chunks of whole elements at "
            f"{format_bytes(grid[empty[0]])}",
            hint="larger --sizes",
        )
    if options.forms:
        return Finalists(grid, entries, between(entries, grid))
    came = Finalists(grid, entries, _EntryTimer(entries, track.runtime, track.model))
    # That there are files for all placements is known from the race.
    return _between(came, options, replace(track, in_place=(False,)), jobs)


def measured(
    runners: list[Runner],
    collective: Collective,
    options: TuneOptions,
    jobs: MapJobs,
    tell: ProgressCallback = silent,
) -> Finalists:
    """Run the race on real ranks; progress messages go to ``tell``."""
    assert options.measuring is not None
    grid, entries, own = measured_race(
        runners, options.sizes, options.measuring, options.seed, tell
    )
    return Finalists(grid, entries, between(entries, grid), own)


def path(came: Finalists, options: TuneOptions) -> list[int]:
    """Return the entry for every size of the grid.

    Times are those that count (:func:`counted`). Where nothing is worth more than the baselines,
    these are taken; and where each of them takes longer than another one somewhere near, that which
    loses least.
    """
    times, limit = allowed(came, options)
    price = np.array([EFFORT.copy_price ** e.variant.instances.bit_length() for e in came.entries])
    return few(times, limit, price)


def allowed(came: Finalists, options: TuneOptions) -> tuple[Floats, Floats]:
    """Return the times that count, infinite for excluded entries, and the limits: one shape."""
    times, baseline = counted(came), _baseline(came.entries)
    own = np.array([e.runner.baseline for e in came.entries])
    if no_gain(came, options.within):
        times[~own] = np.inf
    return times, limits(times, baseline, options.within, own)


def counted(came: Finalists) -> Floats:
    """Return the µs that count, by entry and size, infinite where unknown: where an entry takes
    longer than the best baseline somewhere near, it counts as taking longer by the same ratio."""
    times, baseline = _matrix(came.entries), _baseline(came.entries)
    behind = came.behind if len(came.behind) else np.ones_like(times)
    return np.where(behind > EVEN, np.maximum(times, baseline * behind), times)


def no_gain(came: Finalists, within: float) -> bool:
    """Return True if no entry is quicker than the best baseline by more than a share anywhere."""
    best, baseline = _matrix(came.entries).min(axis=0), _baseline(came.entries)
    return bool((baseline <= best * (1 + within) * EVEN).all())


def _baseline(entries: Sequence[RaceEntry]) -> Floats:
    """Return the µs of the best baseline at each size, infinite without one."""
    found = _matrix([e for e in entries if e.runner.baseline])
    return found.min(axis=0) if len(found) else np.full(len(entries[0].us), np.inf)


def _between(came: Finalists, options: TuneOptions, track: Track, jobs: MapJobs) -> Finalists:
    """Return the field with the loss of its plans to baselines between the sizes of the grid.

    Programs have jumps (where a chunk no longer fits into one payload, say), and where blocks wait
    for each other their times are ragged: a plan that is ahead at two sizes may be behind between.
    """
    entries, grid = came.entries, came.grid
    behind = np.ones((len(entries), len(grid)))
    seen: set[tuple[int, int]] = set()
    known: dict[int, dict[int, float]] = {}
    for _ in range(EFFORT.looks):
        taken = path(replace(came, behind=behind), options)
        pairs = {(i, e) for i in range(len(grid) - 1) for e in (taken[i], taken[i + 1])} - seen
        if not pairs:
            break
        seen |= pairs
        try:
            ratios = _ratios(came, sorted(pairs), known, track, jobs)
        except Interrupted:  # the race is over: the times known until now suffice
            break
        for (i, entry), ratio in ratios.items():
            behind[entry, i : i + 2] = np.maximum(behind[entry, i : i + 2], ratio)
    return replace(came, behind=behind)


def _ratios(
    came: Finalists,
    pairs: list[tuple[int, int]],
    known: dict[int, dict[int, float]],
    track: Track,
    jobs: MapJobs,
) -> dict[tuple[int, int], float]:
    """Return the greatest time of an entry in a gap of the grid, relative to the best baseline.

    ``known``: the times of earlier looks, to which those of this one are added.
    """
    entries, grid = came.entries, came.grid
    baselines = [i for i, e in enumerate(entries) if e.runner.baseline]
    if not baselines:
        return {}
    least, own = _baseline(entries), np.maximum(_matrix(entries), LEAST)
    told = np.isfinite(least) | np.isfinite(own)  # an entry, or all baselines, may lack a time
    lead = np.divide(least, own, out=np.ones_like(own), where=told)
    looks: dict[tuple[int, int], list[int]] = {}
    for i, entry in pairs:
        parts = EFFORT.gap_parts if lead[entry, i : i + 2].min() < EFFORT.safe_lead else 2
        turn = Stand(entries[entry].runner.schedule, track.runtime, (), track.model).turn_bytes(
            entries[entry].variant
        )
        looks[i, entry] = _inside(grid[i], grid[i + 1], parts, turn)
    wanted: dict[int, dict[int, float]] = {}
    for (i, entry), found in looks.items():
        for one in (entry, *_rivals(came, baselines, i)):
            new = [n for n in found if n not in known.get(one, {})]
            wanted.setdefault(one, {}).update(dict.fromkeys(new, math.inf))
    if asked := sorted(entry for entry, sizes in wanted.items() if sizes):
        forms = [(entries[e].runner, entries[e].variant) for e in asked]
        rows = times_of(forms, [wanted[e] for e in asked], track, jobs)
        for e, row in zip(asked, rows, strict=True):
            if row is not None:
                known.setdefault(e, {}).update(wanted[e] | row)
    ratios: dict[tuple[int, int], float] = {}
    for (i, entry), found in looks.items():
        worst = 1.0
        for size in found:
            best = min(known.get(e, {}).get(size, math.inf) for e in baselines)
            us = known.get(entry, {}).get(size, math.inf)
            if us < math.inf and best < math.inf:  # not where it was interrupted
                worst = max(worst, us / max(best, LEAST))
        ratios[i, entry] = worst
    return ratios


def _rivals(came: Finalists, baselines: Sequence[int], gap: int) -> list[int]:
    """Return the baselines that may be the best in a gap of the grid: near that at one end."""
    us = _matrix([came.entries[e] for e in baselines])[:, gap : gap + 2]
    near = (us <= EFFORT.rival_ratio * us.min(axis=0)).any(axis=1)
    return [e for e, close in zip(baselines, near.tolist(), strict=True) if close]


def _inside(low: int, high: int, parts: int, turn: int = 0) -> list[int]:
    """Return sizes that cut a gap into the given number of parts.

    ``turn``: bytes that a turn of the program's loop moves, 0 if it has none. Then the first size
    in the gap that needs one turn more, for a few bytes, is among them: a loop loses most there.
    """
    found = {low + (high - low) * i // parts for i in range(1, parts)}
    if turn:
        found.add(-(-low // turn) * turn + RACE.number_bytes)
    return sorted(n for n in found if low < n < high)


def _matrix(entries: Sequence[RaceEntry]) -> Floats:
    """Return the µs by entry and size, infinite where unknown."""
    return np.array([[math.inf if us is None else us for us in e.us] for e in entries])


@dataclass(slots=True)
class _EntryTimer:
    """Clock of entries at any size; each is compiled, and timed at a size, once."""

    entries: Sequence[RaceEntry]
    runtime: str
    model: str
    timers: dict[int, Timer | None] = field(default_factory=dict)
    known: dict[tuple[int, int], float] = field(default_factory=dict)

    def __call__(self, place: int, size: int) -> float:
        if (place, size) not in self.known:
            self.known[place, size] = self._us(place, size)
        return self.known[place, size]

    def _us(self, place: int, size: int) -> float:
        entry = self.entries[place]
        stand = Stand(entry.runner.schedule, self.runtime, (), self.model)
        if place not in self.timers:
            self.timers[place] = stand.timer(entry.variant)
        timer = self.timers[place]
        if timer is None or not stand.worthwhile(timer, entry.variant.protocol, size):
            return math.inf
        return timer.clock.time_us(size)

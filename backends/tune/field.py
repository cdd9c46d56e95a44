"""Who comes to the end of a race, by simulation or by measurement, and who is taken where."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from weft.dsl.collective import Collective
from weft.dsl.errors import NothingFound
from weft.dsl.units import format_bytes

from ..telling import Telling, silent
from .choose import few, limits
from .measure import between, measured_race
from .options import TuneOptions
from .race import Entry, MapJobs, Runner, Track, clocked, run_race, short_race
from .work import FORMAT, Stand, Timer

COPY = 1.003
"""Twice the instances, which take twice the thread blocks from whoever computes meanwhile, must
be worth so much."""


@dataclass(frozen=True, slots=True)
class Field:
    """Who came to the end of a race: µs on a grid, and at any size.

    ``own``: times of the runtime's own collective, which is no plan of ours.
    """

    grid: list[int]
    entries: list[Entry]
    us: Callable[[int, int], float]
    own: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def simulated(
    runners: list[Runner], collective: Collective, options: TuneOptions, jobs: MapJobs
) -> Field:
    """The race by program simulation.

    Raises:
        NothingFound: nothing can be compiled.
    """
    wanted = options.wanted
    track = Track(wanted.runtime, options.raced_protocols,
                  wanted.placements(collective.kind, FORMAT))  # fmt: skip
    race = partial(short_race, forms=options.forms) if options.forms else run_race
    grid, entries = race(runners, sizes=options.sizes, track=track, jobs=jobs)
    entries = [e for e in entries if any(us is not None for us in e.us)]
    if not entries:
        raise NothingFound(f"no schedule for {collective} can be compiled for {track.runtime}")
    empty = np.flatnonzero(np.isinf(_matrix(entries).min(axis=0)))
    if len(empty):
        raise NothingFound(f"no plan for {collective} has chunks of whole elements at "
                           f"{format_bytes(grid[empty[0]])}", hint="larger --sizes")  # fmt: skip
    if options.forms:
        return Field(grid, entries, between(entries, grid))
    grid, entries = _between(entries, grid, options, track, jobs)
    return Field(grid, entries, _Clock(entries, track.runtime))


def measured(
    runners: list[Runner], collective: Collective, options: TuneOptions, jobs: MapJobs,
    tell: Telling = silent,
) -> Field:  # fmt: skip
    """The race on real ranks; ``tell`` hears which one is run."""
    assert options.measuring is not None
    grid, entries, own = measured_race(
        runners, options.sizes, options.measuring, options.seed, tell
    )
    return Field(grid, entries, between(entries, grid), own)


def path(entries: Sequence[Entry], grid: Sequence[int], options: TuneOptions) -> list[int]:
    """The entry for every size of the grid."""
    times = _matrix(entries)
    base = _matrix([e for e in entries if e.runner.baseline])
    baseline = base.min(axis=0) if len(base) else np.full(len(grid), np.inf)
    price = np.array([COPY ** e.variant.instances.bit_length() for e in entries])
    return few(times, limits(times, baseline, options.within), price)


def _between(
    entries: list[Entry], grid: list[int], options: TuneOptions, track: Track, jobs: MapJobs
) -> tuple[list[int], list[Entry]]:
    """The grid with those sizes between its own at which a plan would lose to a baseline.

    Programs have jumps: where a chunk no longer fits into one payload, say.
    """
    taken = np.array(path(entries, grid, options))
    gaps = np.flatnonzero(np.diff(grid) > 1)
    middle = [(grid[i] + grid[i + 1]) // 2 for i in gaps]
    baselines = [i for i, e in enumerate(entries) if e.runner.baseline]
    if not baselines:
        return grid, entries
    looked = sorted({*taken.tolist(), *baselines})
    forms = [(entries[i].runner, entries[i].variant) for i in looked]
    times = np.full((len(entries), len(middle)), np.inf)
    times[looked] = _matrix(clocked(forms, middle, track, jobs))
    at = np.arange(len(middle))
    # Which of the neighbours' plans runs there is not settled yet: the slower one.
    mine = np.maximum(times[taken[gaps], at], times[taken[gaps + 1], at])
    lost = [middle[i] for i in np.flatnonzero(mine > times[baselines].min(axis=0))]
    if not lost:
        return grid, entries
    more = clocked([(e.runner, e.variant) for e in entries], lost, track, jobs)
    order = np.argsort([*grid, *lost], kind="stable")
    wider = [replace(e, us=tuple((*e.us, *m.us)[i] for i in order))
             for e, m in zip(entries, more, strict=True)]  # fmt: skip
    return sorted((*grid, *lost)), wider


def _matrix(entries: Sequence[Entry]) -> npt.NDArray[np.float64]:
    """µs by entry and size, infinite where unknown."""
    return np.array([[math.inf if us is None else us for us in e.us] for e in entries])


@dataclass(slots=True)
class _Clock:
    """Times entries at any size; each is compiled when it is first asked about."""

    entries: Sequence[Entry]
    runtime: str
    timers: dict[int, Timer | None] = field(default_factory=dict)

    def __call__(self, place: int, size: int) -> float:
        entry = self.entries[place]
        stand = Stand(entry.runner.schedule, self.runtime, ())
        if place not in self.timers:
            self.timers[place] = stand.timer(entry.variant)
        timer = self.timers[place]
        if timer is None or not stand.worthwhile(timer.program, entry.variant.protocol, size):
            return math.inf
        return timer.clock.time_us(size)

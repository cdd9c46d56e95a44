"""Who comes to the end of a race, by simulation or by measurement, and who is taken where."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.dsl.collective import Collective
from weft.dsl.errors import NothingFound
from weft.dsl.units import format_bytes

from ..telling import Telling, silent
from .choose import LEAST, few, limits
from .measure import between, measured_race
from .options import TuneOptions
from .race import Entry, MapJobs, Runner, Track, clocked, run_race, short_race
from .work import FORMAT, Stand, Timer

COPY = 1.003
"""Twice the instances, which take twice the thread blocks from whoever computes meanwhile, must
be worth so much."""


LOOKS = 3
"""How often sizes between those of the grid are looked at, and the grid is made finer."""

SAFE, CLOSE = 1.15, 6
"""A plan that leads baselines by so much at both ends of a gap is looked at in its middle only; any
other at the cuts between so many parts."""


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

    Programs have jumps: where a chunk no longer fits into one payload, or blocks take other turns.
    """
    seen: set[_Gap] = set()
    for _ in range(LOOKS):
        taken = path(entries, grid, options)
        steps = zip(grid, grid[1:], taken, taken[1:], strict=False)
        gaps = [g for g in starmap(_Gap, steps) if g.high - g.low > 1 and g not in seen]
        lost = _lost(entries, grid, gaps, track, jobs)
        if not lost:
            break
        seen.update(gaps)
        more = clocked([(e.runner, e.variant) for e in entries], lost, track, jobs)
        order = np.argsort([*grid, *lost], kind="stable")
        entries = [replace(e, us=tuple((*e.us, *m.us)[i] for i in order))
                   for e, m in zip(entries, more, strict=True)]  # fmt: skip
        grid = sorted((*grid, *lost))
    return grid, entries


class _Gap(NamedTuple):
    """Between two sizes of a grid, and which entries are taken at both."""

    low: int
    high: int
    before: int
    after: int

    def inside(self, parts: int) -> list[int]:
        """Sizes that cut it into so many parts."""
        cuts = (self.low + (self.high - self.low) * i // parts for i in range(1, parts))
        return sorted({n for n in cuts if self.low < n < self.high})


def _lost(
    entries: list[Entry], grid: list[int], gaps: list[_Gap], track: Track, jobs: MapJobs
) -> list[int]:
    """Sizes in gaps at which a plan takes longer than the best baseline."""
    baselines = [i for i, e in enumerate(entries) if e.runner.baseline]
    if not baselines or not gaps:
        return []
    known = dict(zip(grid, _matrix(entries).T, strict=True))

    def lead(size: int, taken: int) -> float:
        return float(known[size][baselines].min() / max(known[size][taken], LEAST))

    asked = {
        size: gap for gap in gaps
        for size in gap.inside(
            CLOSE if min(lead(gap.low, gap.before), lead(gap.high, gap.after)) < SAFE else 2
        )
    }  # fmt: skip
    looked = sorted({*baselines, *(g.before for g in gaps), *(g.after for g in gaps)})
    forms = [(entries[i].runner, entries[i].variant) for i in looked]
    rows = _matrix(clocked(forms, list(asked), track, jobs))
    times = dict(zip(looked, rows, strict=True))
    best = np.array([times[i] for i in baselines]).min(axis=0)
    # Which of the neighbours' plans runs there is not settled yet: the slower one.
    return [
        size for at, (size, gap) in enumerate(asked.items())
        if max(times[gap.before][at], times[gap.after][at]) > best[at]
    ]  # fmt: skip


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

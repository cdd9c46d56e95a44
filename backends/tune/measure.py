"""The race by measurement: schedules as point-to-point programs, run on real ranks.

Instances and protocols are not chosen here: a program has rounds, not thread blocks. All
contestants take turns, so that a disturbance affects all alike (:mod:`.bench`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from weft.dsl.base.errors import CheckFailed
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import SizeRange
from weft.synth.time.schedule_time import simulate

from ..check.findings import require_good
from ..compile.variants import Variant
from ..formats.p2p.compile import compile_script
from ..formats.p2p.data import type_named, units_of
from ..formats.p2p.emit import function_of
from ..ranks.bench.job import Bench, Contestant
from ..ranks.bench.job import entries as results
from ..ranks.launcher import run_program
from .effort import EFFORT
from .timing import RaceEntry, Runner, spaced

DTYPE = "float32"


@dataclass(frozen=True, slots=True)
class Measuring:
    """Settings of measurement: runtime, repetitions, and time limit at one size."""

    on: str
    repeat: int = 20
    seconds: float = 4.0
    timeout: float = 60.0

    @property
    def format(self) -> str:
        """Return the name of the backend whose files run there."""
        return "cupy-nccl" if self.on == "nccl" else self.on


def measured_race(
    runners: Sequence[Runner],
    sizes: SizeRange,
    how: Measuring,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[list[int], list[RaceEntry], dict[str, tuple[float, ...]]]:
    """Return the sizes, the medians of schedules in µs, and those of the runtime's own collective.

    Raises:
        Missing: the runtime is not there. CheckFailed: a rank failed, or a result was wrong.
    """
    chosen = _promising(runners, sizes)
    backend = BACKENDS.make(how.format)
    contestants = []
    for number, runner in enumerate(chosen):
        script = compile_script(runner.schedule, f"plan_{number}")
        text = backend.write(script)
        require_good(backend.findings(text, runner.name), runner.name)
        contestants.append(Contestant(str(number), text, function_of(script.collective)))
    units = units_of(chosen[0].schedule.collective)
    unit = type_named(DTYPE).itemsize * units.message_chunks
    top = min(sizes.high, EFFORT.measured_bytes)
    lengths = tuple(
        dict.fromkeys(max(1, size // unit) for size in SizeRange(min(sizes.low, top), top).powers())
    )
    bench = Bench(
        tuple(contestants), units, lengths, DTYPE, how.repeat, how.seconds, how.timeout, seed
    )
    limit = len(lengths) * (len(contestants) * how.seconds + how.timeout)
    rows = run_program(
        "weft.backends.ranks.bench.ranks", how.on, units.ranks, bench.to_json(), limit, tell
    )
    found = results(rows, units, {})
    if wrong := [one for one in found if one.wrong]:
        raise CheckFailed(f"a wrong result: {wrong[0].wrong}", where=wrong[0].name)
    measured = sorted({one.bytes for one in found})
    grid = sorted({sizes.low, *(n for n in measured if sizes.low <= n <= sizes.high), sizes.high})
    times = {(one.name, one.bytes): one.us for one in found}

    def column(name: str) -> tuple[float, ...]:
        return _column(measured, [times[name, n] for n in measured], grid)

    own = [one.name for one in found if not one.name.isdecimal()]
    entries = [RaceEntry(r, Variant(), column(str(i)), rounds=True) for i, r in enumerate(chosen)]
    return grid, entries, {name: column(name) for name in dict.fromkeys(own)}


def _column(measured: Sequence[int], us: Sequence[float], grid: Sequence[int]) -> tuple[float, ...]:
    """Return the µs at the sizes of a grid, from those at measured sizes, which are whole elements.

    Between two that were measured straight on a log scale; below the least as long as that; above
    the largest in proportion.
    """
    known = dict(zip(measured, us, strict=True))

    def at(size: int) -> float:
        if size <= measured[0]:
            return us[0]
        if size > measured[-1]:
            return us[-1] * size / measured[-1]
        middle = np.interp(math.log(size), np.log(measured), np.log(us))
        return known.get(size, float(np.exp(middle)))

    return tuple(map(at, grid))


def _promising(runners: Sequence[Runner], sizes: SizeRange) -> list[Runner]:
    """Return the contestants: baselines, then those that simulate best at some size."""
    looked = spaced(sizes, 0.5)
    kept = {i for i, r in enumerate(runners) if r.baseline}
    times = np.array([[simulate(r.schedule, n).time_us for n in looked] for r in runners])
    for rank in times.argsort(axis=0):
        for place in rank.tolist():
            if len(kept) < EFFORT.contestants:
                kept.add(place)
    return [runners[i] for i in sorted(kept)]


def between(entries: Sequence[RaceEntry], grid: Sequence[int]) -> Callable[[int, int], float]:
    """Return the µs as a function of size: linear between measured sizes on a log scale."""
    at = np.log(np.array(grid, float))
    columns = [np.log([math.inf if us is None else us for us in e.us]) for e in entries]

    def us(place: int, size: int) -> float:
        return float(np.exp(np.interp(math.log(size), at, columns[place])))

    return us

"""Schedules in a race, the jobs that time them, and their times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.schedule import Schedule, dump

from ..compile.variants import Variant

MapJobs = Callable[[str, str, Sequence[Any]], list[Any]]
"""Function that applies ``module:name`` to JSON values: the results, None where interrupted. The
first text is the label for progress."""

WORK = f"{__package__}.work"


class Interrupted(KeyboardInterrupt):
    """Interruption before any result was known."""


@dataclass(frozen=True, slots=True)
class Track:
    """Conditions of a race: runtime, protocols, and placements for which all finalists must have a
    file; the model that times programs."""

    runtime: str
    protocols: tuple[str, ...]
    in_place: tuple[bool, ...]
    model: str


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


def spaced(sizes: SizeRange, per_octave: float) -> list[int]:
    """Return sizes from low to high, ``per_octave`` per doubling, evenly on a logarithmic scale.

    Where that is not finer than powers of two they are those nearest: people measure them, and what
    the runtime has by itself is timed at them.
    """
    octaves = math.log2(sizes.high / sizes.low)
    steps = max(1, math.ceil(octaves * per_octave - 1e-9))
    even = [sizes.low * (sizes.high / sizes.low) ** (i / steps) for i in range(1, steps)]
    inner = {round(n) if per_octave > 1 else 1 << round(math.log2(n)) for n in even}
    return sorted({n for n in inner if sizes.low < n < sizes.high} | {sizes.low, sizes.high})


def clocked(
    forms: Sequence[tuple[Runner, Variant]], sizes: Sequence[int], track: Track, jobs: MapJobs
) -> list[RaceEntry]:
    """Return the times of schedules, each compiled in one way, at some sizes.

    Raises:
        Interrupted: before one of them was known.
    """
    none = (None,) * len(sizes)
    wanted = [dict.fromkeys(sizes, math.inf)] * len(forms)
    return [
        RaceEntry(r, v, none if found is None else tuple(found.get(n) for n in sizes))
        for (r, v), found in zip(forms, times_of(forms, wanted, track, jobs), strict=True)
    ]


_dumped = kept()(dump)


def times_of(
    forms: Sequence[tuple[Runner, Variant]],
    wanted: Sequence[Mapping[int, float]],
    track: Track,
    jobs: MapJobs,
) -> list[dict[int, float] | None]:
    """Return the times of schedules, each compiled in one way, at sizes of its own.

    ``wanted``: for each, the µs by size beyond which its time is not needed. Sizes at which it
    takes longer, or lacks a file, are missing; None where it was interrupted.

    Raises:
        Interrupted: before one of them was known.
    """
    given = [
        {
            "schedule": _dumped(runner.schedule),
            "runtime": track.runtime,
            "model": track.model,
            "protocols": [],
            "in_place": list(track.in_place),
            "variant": variant.to_json(),
            "sizes": list(limits),
            "limits": [None if limit == math.inf else limit for limit in limits.values()],
        }
        for (runner, variant), limits in zip(forms, wanted, strict=True)
    ]
    answers = jobs("timing finalists", f"{WORK}:clock", given)
    if answers and all(answer is None for answer in answers):
        raise Interrupted
    return [
        None
        if answer is None
        else {n: us for n, us in zip(limits, answer, strict=True) if us is not None}
        for limits, answer in zip(wanted, answers, strict=True)
    ]

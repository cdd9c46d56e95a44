"""Manifest of a library: its entries, and the files of the chosen plans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.units import format_binary
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.library import Candidate, RuntimeTimes, Tuned, TunedPlan
from weft.dsl.nouns.schedule import dump, dumps
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, lower_bound_us
from weft.synth.time.schedule_time import simulate

from ..compile.source import binary
from .artefacts import artefacts_of
from .cast_plans import limits_told
from .choose import Stretch
from .compared import least_times, plan_starts, raced_runtimes, remarks, runtime_times
from .effort import EFFORT
from .field import Finalists, counted
from .options import TuneOptions
from .timing import MapJobs, RaceEntry


@dataclass(frozen=True, slots=True)
class TuneResult:
    """Result of tuning: the manifest's entry, and the files by path in the library's folder."""

    tuned: Tuned
    files: Mapping[str, str]


def make_files(
    entries: Sequence[RaceEntry],
    found: Sequence[Stretch],
    collective: Collective,
    options: TuneOptions,
    jobs: MapJobs,
) -> list[dict[str, Any]]:
    """Return the files of every stretch; an earlier interruption of the race does not stop this.

    Stretches of one entry have one program, which is compiled and executed once.
    """
    places = list(dict.fromkeys(one.place for one in found))
    given = [
        {
            "schedule": dump(entries[place].runner.schedule),
            "variant": entries[place].variant.to_json(),
            "ranges": [
                {"name": plan_name(collective, i), "low": one.low, "high": one.high}
                for i, one in enumerate(found)
                if one.place == place
            ],
            "wanted": options.wanted.to_json(),
            "seed": options.seed,
        }
        for place in places
    ]
    make = ("writing and checking", f"{__package__}.artefacts:make")
    answers = jobs(*make, given)
    answers = answers if None not in answers else jobs(*make, given)
    made = {place: iter(answer) for place, answer in zip(places, answers, strict=True)}
    return [next(made[one.place]) for one in found]


def entry_of(
    bound: Bounds,
    topology: Topology,
    collective: Collective,
    options: TuneOptions,
    came: Finalists,
    found: Sequence[Stretch],
    made: Sequence[Mapping[str, Any]],
) -> TuneResult:
    """Return the manifest's entry of a collective, with all files."""
    grid, entries = came.grid, came.entries
    files: dict[str, str] = {}
    plans = []
    for i, (one, artefacts) in enumerate(zip(found, made, strict=True)):
        entry, name = entries[one.place], plan_name(collective, i)
        schedule = f"schedules/{name}.json"
        files |= {schedule: dumps(entry.runner.schedule), **artefacts["files"]}
        plans.append(_plan(name, one, entry, schedule, artefacts))
    chosen, ideas = _columns(grid, entries, found)
    bound_us = tuple(float(lower_bound_us(bound, n)) for n in grid)
    at = [entries[next(s.place for s in found if s.low <= n <= s.high)] for n in grid]
    own = runtime_times(topology, collective, grid, options)
    least = least_times(topology, collective, grid, options)
    starts = plan_starts(topology, [one.variant.protocol for one in at], options)
    tuned = Tuned(
        collective,
        bound.to_json(),
        tuple(grid),
        bound_us,
        chosen,
        ideas,
        (
            *_shown(came, {one.place for one in found}),
            *(Candidate(name, us, baseline=True) for name, us in came.own.items()),
        ),
        tuple(plans),
        (
            *(
                _near(grid, least, chosen, raced_runtimes(topology, collective, options))
                if least
                else _remarks(grid, bound_us, chosen, starts)
            ),
            *_worth(chosen, own, came, [entries[one.place] for one in found], options.within),
            *_own(grid, chosen, came.own),
            *remarks(grid, chosen, own),
            *_odd(collective, plans, [one["chunks"] for one in made]),
            *_limits(plans, [entries[one.place] for one in found]),
        ),
        starts,
        own,
        least,
    )
    return TuneResult(tuned, files)


def _plan(
    name: str, one: Stretch, entry: RaceEntry, schedule: str, artefacts: Mapping[str, Any]
) -> TunedPlan:
    form, files = entry.variant, artefacts_of(artefacts["artefacts"])
    copies, passes = (form.instances, form.segments), form.passes
    how = (entry.name, _engine(entry), str(form.protocol), *copies, passes)
    return TunedPlan(name, one.low, one.high, *how, schedule, files)


def _engine(entry: RaceEntry) -> str:
    known = entry.runner.schedule.provenance
    return str(known.get("found_by") or known.get("engine", "")).partition("{")[0]


def _columns(
    grid: Sequence[int], entries: Sequence[RaceEntry], found: Sequence[Stretch]
) -> tuple[tuple[float, ...], tuple[float | None, ...]]:
    """Return the µs of the library at every size of the grid; at powers of 2 those of its
    schedules, too."""
    chosen, ideas = [], []
    for at, size in enumerate(grid):
        one = next(s for s in found if s.low <= size <= s.high)
        entry = entries[one.place]
        us = entry.us[at]
        assert us is not None
        chosen.append(us)
        schedule = entry.runner.schedule
        small = (
            len(schedule) * schedule.segments <= EFFORT.timed_transfers and size & (size - 1) == 0
        )
        ideas.append(float(simulate(schedule, size).time_us) if small else None)
    return tuple(chosen), tuple(ideas)


def _shown(came: Finalists, plans: set[int]) -> tuple[Candidate, ...]:
    """Return the candidates to list: plans, baselines, then others in their order."""
    entries, times = came.entries, counted(came).tolist()
    wanted = [i for i, e in enumerate(entries) if i in plans or e.runner.baseline]
    others = [i for i in range(len(entries)) if i not in wanted]
    found = []
    for i in sorted({*wanted, *others[: max(0, EFFORT.listed_candidates - len(wanted))]}):
        e = entries[i]
        own = tuple(None if us is None else at for us, at in zip(e.us, times[i], strict=True))
        more = own if own != tuple(e.us) else ()
        found.append(Candidate(e.name, e.us, e.runner.baseline, e.runner.name, more))
    return tuple(found)


def _remarks(
    grid: Sequence[int], bound: Sequence[float], chosen: Sequence[float], starts: Sequence[float]
) -> list[str]:
    over = np.array(chosen) / np.maximum(np.array(bound), 1e-12)
    worst = int(over.argmax())
    apart = " (the bound leaves out the start of a call)" * any(starts)
    near, sizes = float((over <= 1.1).mean()), count(len(grid), "size")
    return [
        f"within 10 % of the bound at {near:.0%} of {sizes}; farthest from it at "
        f"{format_binary(grid[worst])}: {over[worst]:.2f} times{apart}"
    ]


def _near(
    grid: Sequence[int], least: Sequence[float], chosen: Sequence[float], runtimes: Sequence[str]
) -> Iterator[str]:
    """Yield how near plans are to the least time of any program of the runtime."""
    over = [us / bound if bound else 1.0 for us, bound in zip(chosen, least, strict=True)]
    worst, near = over.index(max(over)), sum(x <= EFFORT.near_program for x in over)
    yield (
        f"within {100 * (EFFORT.near_program - 1):.0f} % of the least time of any program of "
        f"{' or '.join(runtimes)} at {near} of {count(len(over), 'size')}; farthest from it at "
        f"{format_binary(grid[worst])}: {over[worst]:.2f} times"
    )
    if all(round(x, 3) <= 1 for x in over):
        yield "every plan is optimal in this runtime"


def _worth(
    chosen: Sequence[float],
    own: RuntimeTimes | None,
    came: Finalists,
    plans: Sequence[RaceEntry],
    within: float,
) -> Iterator[str]:
    """Yield one sentence on what the plans are worth: nothing beside what the runtime runs itself,
    or known algorithms in other forms than it does."""
    pairs = zip(own.us, chosen, strict=True) if own else ()
    ratios = [theirs / mine for theirs, mine in pairs if theirs is not None and mine > 0]
    if own and ratios and max(ratios) <= 1 + within:
        yield (
            f"leave it to {own.name}: at no size is a plan more than {within:.0%} quicker than "
            "what it runs itself"
        )
        return
    if not all(map(_known, plans)):
        return
    algorithms = [str(x.runner.schedule.provenance.get("algorithm", x.runner.name)) for x in plans]
    names = ", ".join(dict.fromkeys(name.replace("_", " ") for name in algorithms))
    told = f"all plans are known algorithms ({names})"
    if own and ratios:
        low, high = (f"{each:.2f}" for each in (min(ratios), max(ratios)))
        span = low if low == high else f"{low} to {high}"
        told += f", {span} times as quick, by the model, as what {own.name} runs itself"
    if not all(map(_known, came.entries)):
        told += f"; no other schedule is more than {within:.0%} quicker than they are"
    yield told


def _known(entry: RaceEntry) -> bool:
    """Return True if an entry's schedule is an algorithm of the literature."""
    return entry.runner.baseline or _engine(entry) == "classic"


def _odd(
    collective: Collective, plans: Sequence[TunedPlan], chunks: Sequence[int]
) -> Iterator[str]:
    """Yield remarks on plans that a runtime skips at powers of two."""
    for plan, number in zip(plans, chunks, strict=True):
        if number and not binary(collective.message_chunks, number):
            yield (
                f"{plan.name} is for messages that are a multiple of {number} elements; the "
                "runtime passes it over at others"
            )


def _limits(plans: Sequence[TunedPlan], entries: Sequence[RaceEntry]) -> Iterator[str]:
    """Yield remarks on the needs of plans in which switches sum or copy."""
    pairs = zip(plans, entries, strict=True)
    yield from limits_told({p.name: (e.runner.schedule, p.instances) for p, e in pairs})


def _own(
    grid: Sequence[int], chosen: Sequence[float], own: Mapping[str, Sequence[float]]
) -> Iterator[str]:
    """Yield remarks on sizes at which the runtime's own measured collective beats every plan."""
    for name, times in own.items():
        ahead = [n for n, mine, us in zip(grid, chosen, times, strict=True) if us < mine]
        if ahead:
            yield (
                f"{name} by itself is quicker than any plan at {len(ahead)} of {len(grid)} "
                f"sizes, {format_binary(ahead[0])} to {format_binary(ahead[-1])}: leave those "
                "to it"
            )


# --- names: safe in paths, in XML and in scripts --------------------------------------------------

LONGEST = 40
"""Largest number of letters of a collective's name in that of a plan; MSCCL XML holds 63 in all."""


def stem_of(collective: Collective) -> str:
    """Return the common prefix of a collective's plan names; the collective's name may be any
    text."""
    label = re.sub(r"[^\w-]+", "_", collective.name, flags=re.ASCII).strip("_-")
    return label[:LONGEST] or str(collective.kind)


def plan_name(collective: Collective, place: int) -> str:
    """Return the name of one plan and its files; plans are counted from 0."""
    return f"{stem_of(collective)}-{place + 1}"

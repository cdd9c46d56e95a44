"""Tuning of one collective on one machine: from the question to plans that are made and checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule, load
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds, bounds, lower_bound_us
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.time.calibrated import named_model
from weft.synth.time.latency import latency_us

from .asks import (
    Ask,
    Named,
    again,
    asks,
    asks_of_sketches,
    asks_of_switches,
    fitting_sketches,
    sizes_of_sketches,
)
from .cast_plans import asked_of, left_out, unsaid, why_not
from .choose import rounded, stretches
from .effort import EFFORT
from .field import allowed, measured, path, simulated
from .manifest import TuneResult, entry_of, make_files
from .options import TuneOptions
from .timing import Interrupted, MapJobs, Runner
from .work import on_binary_grid


def tune(
    topology: Topology,
    collective: Collective,
    options: TuneOptions,
    jobs: MapJobs,
    say: Callable[[str, str], None] = lambda *_: None,
    tell: ProgressCallback = silent,
) -> TuneResult:
    """Return the best plans for a collective.

    ``say`` is called with a label and a text for each finished step, ``tell`` with progress where
    schedules are measured.

    Where ``jobs`` was interrupted, the results until then are used.

    Raises:
        UserError: there is one rank only.
        NothingFound: no engine has a schedule, or none can be compiled.
        Interrupted: before anything was known.
        CheckFailed: a result is wrong (a bug in weft); nothing is written then.
    """
    if collective.ranks < 2:
        raise UserError("one rank alone: nothing has to move, so there is nothing to tune")
    bound = bounds(topology, collective)
    if why := why_not(topology, options):
        if told := left_out(topology, collective, why):
            say("Remark", told)
    gathered = gather(topology, collective, options, jobs)
    if not gathered.runners:
        raise NothingFound(f"no schedule for {collective} on {topology.name}: {gathered.why}")
    if why := unsaid(runner.schedule for runner in gathered.runners):
        if told := left_out(topology, collective, why):
            say("Remark", told)
    found = count(len(gathered.runners), "schedule")
    say("Found", f"{found} for {collective.name or collective.kind}")
    for sketch, why in gathered.barren.items():
        say("Remark", f"the sketch {sketch} gives no schedule: {why}")
    race = partial(measured, tell=tell) if options.measuring else simulated
    came = race(gathered.runners, collective, options, jobs)
    say("Timed", f"{count(len(came.entries), 'finalist')} at {count(len(came.grid), 'size')}")
    chosen = path(came, options)
    times, limit = allowed(came, options)
    plans = rounded(
        stretches(chosen, came.grid, came.us),
        came.grid,
        lambda place, at: bool(times[place, at] <= limit[place, at]),
        came.us,
    )
    made = make_files(came.entries, plans, collective, options, jobs)
    return entry_of(bound, topology, collective, options, came, plans, made)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Schedules of a race, the reasons for missing ones, and those of the user's sketches by
    sketch."""

    runners: list[Runner]
    why: str
    barren: dict[str, str]


def gather(
    topology: Topology, collective: Collective, options: TuneOptions, jobs: MapJobs
) -> Gathered:
    """Return all different schedules, on the machine as it is.

    Those of transfers are sought on a machine whose switches only forward: engines that find casts
    beyond all transfers look for no others.

    One that a runtime has without weft is a baseline, even if another engine found it first.

    Raises:
        Interrupted: before there was any.
    """
    whole, topology = topology, topology.without_capabilities()
    short = bool(options.forms)
    model = named_model(whole, options.wanted.runtime, options.model)
    questions = asks(
        topology,
        collective,
        options.sizes,
        options.sketches,
        options.engines,
        model.nic_message_us(),
    )
    if short:
        questions = again(questions, topology.ranks, options.sizes, options.engines)
        old = [warm.schedule for warm in options.warm.values()]
        questions = [q for q in questions if not _answered(q, topology, old)]
    if asked_of(whole, collective, options):
        questions += asks_of_switches(whole, collective, options.sizes, options.engines)
    machines = {False: topology.to_json(), True: whole.to_json()}
    bound = bounds(topology, collective)
    most = target_of(options.wanted.runtime).most_moves(sums=collective.combining)
    given = partial(_given, machines, collective.to_json(), options, bound, most)
    told = _told(questions, given, jobs)
    if not (short or options.engines):
        told |= _from_the_shelf(told, topology, collective, options, given, jobs)
    # In the order of the questions, which decides between equal schedules.
    order = dict.fromkeys((*questions, *told))
    answers = [(q, told[q]) for q in order if q in told]
    known = [(q, a) for q, a in answers if a is not None]
    found = _runners(whole, options, known)
    if not found and len(known) < len(answers):
        raise Interrupted
    why = _shortly([a["why"] for _, a in known if a["why"]])
    barren = {
        one.words: "; ".join({a["why"]: None for q, a in known if q.sketch == one})
        for one in options.sketches
        if not any(a["schedules"] for q, a in known if q.sketch == one)
    }
    return Gathered(list(found.values()), why, barren)


def _runners(
    whole: Topology, options: TuneOptions, known: Sequence[tuple[Ask, Any]]
) -> dict[str, Runner]:
    """Return the different schedules of old plans and of answers, in this order."""
    found: dict[str, Runner] = {}
    for name, warm in options.warm.items():
        old_plan = warm.schedule
        old_plan = old_plan if len(old_plan.casts) else on_binary_grid(old_plan)
        _join(found, Runner(name, _on(whole, old_plan), form=warm.form))
    for question, answer in known:
        for i, data in enumerate(answer["schedules"]):
            schedule = _on(whole, load(data))
            if question.switches and not len(schedule.casts):
                continue  # the others found it, or better ones
            name = question.name
            name += f" {schedule.steps} steps" if len(answer["schedules"]) > 1 else ""
            name += f" ({i + 1})" if any(r.name == name for r in found.values()) else ""
            _join(found, Runner(name, schedule, question.baseline))
    return found


def _told(
    questions: Sequence[Ask], given: Callable[[Ask], dict[str, Any]], jobs: MapJobs
) -> dict[Ask, Any]:
    """Return the answers to questions; None where interrupted."""
    work = f"{__package__}.work:solve"
    answers = jobs("searching", work, [given(q) for q in questions])
    return dict(zip(questions, answers, strict=True))


def _from_the_shelf(
    told: Mapping[Ask, Any],
    topology: Topology,
    collective: Collective,
    options: TuneOptions,
    given: Callable[[Ask], dict[str, Any]],
    jobs: MapJobs,
) -> dict[Ask, Any]:
    """Return the answers to sketches of the shelf, where the schedules found leave room for them.

    They are tried at the largest size first, and elsewhere if they are good there.
    """
    *others, largest = sizes_of_sketches(options.sizes)
    if _reached(
        told,
        largest,
        float(EFFORT.sketch_room * lower_bound_us(bounds(topology, collective), largest)),
    ):
        return {}
    shelf = [s for s in fitting_sketches(topology, collective) if s not in options.sketches]
    if not shelf:
        return {}
    found = _told(list(asks_of_sketches(shelf, (largest,))), given, jobs)
    good = _promising({**told, **found}, shelf, largest)
    more = list(asks_of_sketches([s for s in shelf if s in good], others))
    return found | (_told(more, given, jobs) if more else {})


def _reached(told: Mapping[Ask, Any], size: int, us: float) -> bool:
    """Return True if some schedule that was found may take so long at a size, or less; those of the
    last questions, for large messages, are looked at first."""
    answers = [answer for answer in reversed([*told.values()]) if answer]
    return any(_least_us(load(data), size) <= us for a in answers for data in a["schedules"])


def _promising(told: Mapping[Ask, Any], shelf: Sequence[Named], size: int) -> set[Named]:
    """Return the sketches whose schedule at a size is another than those of the engines without
    one, and near the best of them."""
    schedules: dict[Named | None, list[Schedule]] = {}
    for question, answer in told.items():
        some = [] if answer is None or question.one_shot else answer["schedules"]
        schedules.setdefault(question.sketch, []).extend(map(load, some))
    free = schedules.get(None, [])
    known = set(map(_digest, free))
    best = min((_least_us(s, size) for s in free), default=math.inf)
    return {
        sketch
        for sketch in shelf
        if any(
            _digest(s) not in known and _least_us(s, size) <= EFFORT.sketch_ratio * best
            for s in schedules.get(sketch, ())
        )
    }


def _least_us(schedule: Schedule, size: int) -> float:
    """Return a lower bound on the time of a schedule: α of its longest chain, and its load."""
    return max(latency_us(schedule), float(us_per_byte(schedule)) * size)


def _answered(question: Ask, topology: Topology, old: Sequence[Schedule]) -> bool:
    """Return True if an old schedule is near the bound at the size of a question.

    Only bandwidth is compared, so that this holds for large messages alone.
    """
    if question.baseline or question.sketch or question.size is None:
        return False
    size = question.size
    return any(
        size >= EFFORT.large_bytes
        and us_per_byte(s) * size
        <= EFFORT.repaired_ratio * lower_bound_us(bounds(topology, s.collective), size)
        for s in old
    )


def _shortly(reasons: Sequence[str]) -> str:
    different = list(dict.fromkeys(reasons))
    more = len(different) - EFFORT.reasons
    return "; ".join(different[: EFFORT.reasons]) + (f"; and {more} more" if more > 0 else "")


def _join(found: dict[str, Runner], runner: Runner) -> None:
    """Add a schedule that is not there yet; of equal ones the first keeps its name."""
    key = _digest(runner.schedule)
    first = found.setdefault(key, runner)
    found[key] = replace(first, baseline=first.baseline or runner.baseline)


def _on(topology: Topology, schedule: Schedule) -> Schedule:
    """Return a schedule of the machine without capabilities, or with them, on the latter."""
    same = schedule.topology.digest() == topology.digest()
    return schedule if same else replace(schedule, topology=topology)


def _given(
    machines: Mapping[bool, Any],
    collective: Any,
    options: TuneOptions,
    bound: Bounds,
    most: int,
    question: Ask,
) -> dict[str, Any]:
    sketch, size = question.sketch, question.size
    small = size is not None and bound.us_per_byte * size < bound.latency_us
    return {
        "topology": machines[question.switches],
        "collective": collective,
        "engine": question.engine,
        "objective": str(question.objective),
        "bytes": question.size,
        "sketch": None if sketch is None else sketch.to_json(),
        "one_shot": question.one_shot,
        "most_moves": most,
        "message_us": None if question.message_us is None else str(question.message_us),
        "effort": options.effort / (EFFORT.small_divisor if small else 1),
        "seconds": options.seconds,
        "seed": options.seed,
    }


def _digest(schedule: Schedule) -> str:
    """Return a digest of the parts a program is made from: not slices, which depend on the runtime,
    nor provenance."""
    parts = [
        schedule.chunk,
        schedule.src,
        schedule.dst,
        schedule.step,
        schedule.reduce,
        schedule.route_links,
        schedule.priority,
    ]
    text = b"|".join(b"" if p is None else np.ascontiguousarray(p).tobytes() for p in parts)
    shares = str((schedule.collective.factor, schedule.collective.sizes)).encode()
    shares += "".join(map(repr, schedule.casts)).encode()
    return hashlib.sha256(text + shares).hexdigest()

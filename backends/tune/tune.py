"""Tuning of one collective on one machine: from the question to plans that are made and checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.dsl.base.errors import NothingFound, UserError
from weft.dsl.base.progress import ProgressCallback, silent
from weft.dsl.base.tables import count
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import bounds

from .cast_plans import unsaid
from .choose import rounded, stretches
from .field import allowed, measured, path, simulated
from .gather import gather
from .manifest import TuneResult, entry_of, make_files
from .options import TuneOptions
from .switches import left_out, why_not
from .timing import MapJobs


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

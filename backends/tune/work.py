"""The jobs of tuning: pure functions over JSON (:mod:`weft.backends.jobs`).

* :func:`solve`: one question to one engine, answered with schedules.
* :func:`explore`: one schedule, compiled in many ways, each timed at the sizes where it may win.
* :func:`clock`: one schedule compiled in one way, timed at many sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from weft.dsl.base.errors import BrokenPlugin, NothingFound, PluginFault, UserError
from weft.dsl.base.kept import kept
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.plugins import warn
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import target as target_of
from weft.dsl.nouns.schedule import Schedule, dump, load
from weft.dsl.nouns.topology import Topology
from weft.synth.base.engine import Budget
from weft.synth.engines.packing.trees.quantize import halved
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import require_valid
from weft.synth.reductions.allreduce import one_shot_allreduce_from
from weft.synth.time.calibrated import named_model
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.runtime_model import RuntimeModel

from ..compile.analyses.planned import distinct_orders
from ..compile.compile import lower_schedule
from ..compile.descent import COUNTS, PARTS, RACE, FormSpace, race
from ..compile.passes.scratch import Scratch
from ..compile.passes.threadblocks import Pairing
from ..compile.replicate import has_room, repeated
from ..compile.source import MOST_GRAINS, binary, fitted
from ..compile.variants import Variant
from ..formats.msccl.emit import require_fit
from .cast_plans import CastTimer, cast_timer, fits_in_place, form_of
from .effort import EFFORT

FORMAT = "msccl-xml"
"""Format whose limits on fractions of a message all schedules of a race keep."""

PROMISING = {1: 3.0, 2: 2.2, 4: 1.8, 8: 1.5}
"""Largest ratio to the best time, by the number of instances, with which a form is tried in more
of them: each doubling gains up to a factor of two, but rarely that."""

USUAL_COPIES = (1, 4)
"""Numbers of instances tried first."""

# --- schedules ------------------------------------------------------------------------------------


def solve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schedules for one question, or the reason for their absence.

    ``given``: ``topology``, ``collective`` (JSON), ``engine``, ``objective``, ``bytes``,
    ``sketch``, ``one_shot``, ``most_moves``, ``message_us``, ``effort``, ``seconds``, ``seed``.
    """
    from weft.synth.api import synthesize

    try:
        budget = Budget(given["effort"], 1, given["seed"], given["seconds"])
        outcome = synthesize(_problem(given), given["engine"], budget)
        schedules = [p.schedule for p in outcome.points]
        if given["one_shot"]:
            schedules = list(map(_one_shot, schedules))
        # Shares as the formats can express them: the timed program equals the written one.
        schedules = [_expressible(s) for s in schedules]
    except (UserError, NothingFound) as error:
        return {"schedules": [], "why": error.message}
    except (BrokenPlugin, PluginFault) as error:
        warn(f"{error.message}; left out of the race", error.__cause__)
        return {"schedules": [], "why": error.message}
    why = "" if schedules else str(outcome.status)
    return {"schedules": [dump(s) for s in schedules], "why": why}


def _expressible(schedule: Schedule) -> Schedule:
    if len(schedule.casts):
        return schedule
    return on_binary_grid(fitted(schedule, FORMAT, 1)[0])


def _one_shot(gather: Schedule) -> Schedule:

    schedule = one_shot_allreduce_from(gather)
    require_valid(schedule)
    return schedule


def _problem(given: Mapping[str, Any]) -> Problem:
    topology = Topology.from_json(given["topology"])
    collective = Collective.from_json(given["collective"])
    size = given["bytes"]
    if given["one_shot"]:
        collective, size = make("allgather", collective.ranks), size * collective.ranks
    sketch = None
    if (named := given["sketch"]) is not None:
        from weft.dsl.language.elaborate import elaborate
        from weft.dsl.language.parse import parse

        tree = parse(named["text"], named["name"])
        sketch = elaborate(tree, topology, named["arguments"])
    objective, most = Objective(given["objective"]), given.get("most_moves")
    cost = given.get("message_us")
    return Problem(topology, collective, sketch, objective, size, most, cost)


# --- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """Program with its clock."""

    program: Program
    clock: ProgramClock


Timer: TypeAlias = TimedProgram | CastTimer
"""Something compiled, with its clock."""

LOOSE, PACKED = False, True
"""Scratch of a program as it is lowered, and with slots that are never needed at once in one
place."""


@kept()
def _loaded(text: str) -> Schedule:
    return load(json.loads(text))


@dataclass(frozen=True, slots=True)
class Stand:
    """Schedule to be compiled and timed, with the runtime and protocols; ``by``: the model;
    ``in_place``: whether there must be a file for a buffer that is input and output."""

    schedule: Schedule
    runtime: str
    protocols: tuple[Protocol, ...]
    by: str
    in_place: bool = False

    @staticmethod
    def of(given: Mapping[str, Any]) -> Stand:
        """Return the instance from the JSON of a job."""
        schedule = _loaded(json.dumps(given["schedule"]))
        protocols = tuple(map(Protocol, given["protocols"]))
        if len(schedule.casts):
            protocols = tuple(p for p in protocols if p is Protocol.SIMPLE)
        in_place = any(given.get("in_place", ()))
        return Stand(schedule, given["runtime"], protocols, given["model"], in_place)

    @property
    def model(self) -> RuntimeModel:
        """Return the cost model of the runtime."""
        return named_model(self.schedule.topology, self.runtime, self.by)

    @property
    def space(self) -> FormSpace:
        """Return the forms that are raced."""
        local = not target_of(self.runtime).fuses and self.model.local_GBps < math.inf
        return FormSpace(
            self.protocols,
            order=distinct_orders(self.schedule),
            parts=PARTS if local and self.schedule.reduce.any() else (1,),
        )

    def timer(self, variant: Variant, *, room: bool = False) -> Timer | None:
        """Return the schedule compiled in one way, with its clock.

        None where the runtime lacks room for the program, or it is too large; with ``room`` also
        where it is large and its instances would share channels or blocks.
        """
        if len(self.schedule.casts):
            return cast_timer(self.schedule, (self.runtime, self.by), variant.instances)
        instructions = len(self.schedule) * variant.instances * variant.segments
        if instructions > EFFORT.program_instructions:
            return None
        look = _large_timer if instructions > EFFORT.large_instructions else _timer
        return look(self.schedule, (self.runtime, self.by), (variant,), room=room)

    def fits_in_place(self, variant: Variant) -> bool:
        """Return True if a file can hold the program for a buffer that is input and output."""
        if len(self.schedule.casts):
            return fits_in_place(self.schedule, variant)
        try:
            _fitting(self.schedule, self.runtime, variant, in_place=True)
        except UserError:
            return False
        return True

    def worthwhile(
        self, timer: Timer, protocol: Protocol, size: int, best: float = math.inf
    ) -> bool:
        """Return True if the runner may be competitive at a size under a protocol.

        ``best``: µs that are known to be reached. Not if it cuts a small message, which need not be
        cut, into less than elements: a runtime would not take it. Nor if its bytes
        hold some link for as long as the best takes, in however many instances; nor under a
        protocol of small payloads, if it loops over a large message for so long that what it gains
        in latency is nothing beside what its flags take.
        """
        if isinstance(timer, CastTimer):
            return timer.least <= size <= timer.most
        program, collective = timer.program, self.schedule.collective
        whole = collective.message_chunks // collective.factor
        if size < RACE.number_bytes * program.message_chunks and program.message_chunks > whole:
            return False
        turns = self.model.cut(replace(program, protocol=protocol), size).iterations
        if timer.clock.least_us(size, protocol) >= best:
            return False
        return protocol is Protocol.SIMPLE or turns * program.instructions <= EFFORT.loop_operations

    def turn_bytes(self, variant: Variant) -> int:
        """Return the bytes of a message that a turn of a program's loop moves; 0: it has none."""
        if len(self.schedule.casts):
            return 0
        collective = shaped(self.schedule, variant).collective.coarsest()
        chunks = collective.message_chunks * variant.pieces
        return chunks * self.model.payloads(variant.protocol, collective)[0]


def _made_timer(
    schedule: Schedule, clock: tuple[str, str], variants: tuple[Variant], *, room: bool
) -> TimedProgram | None:
    (variant,), (runtime, by) = variants, clock  # in tuples, which are compared by value
    try:
        if room and not _has_room(schedule, runtime, variant):
            return None
        program = _fitting(schedule, runtime, variant)
    except UserError:
        return None
    if program.instructions > EFFORT.program_instructions:
        return None
    return TimedProgram(
        program,
        ProgramClock(program, schedule.topology, named_model(schedule.topology, runtime, by)),
    )


_timer = kept(most=EFFORT.kept_programs)(_made_timer)
_large_timer = kept(most=EFFORT.kept_large_programs)(_made_timer)


def _has_room(schedule: Schedule, runtime: str, variant: Variant) -> bool:
    """Return True if every instance has channels and blocks of its own, or they are small."""
    one = _program(schedule, runtime, (replace(variant, instances=1),), (False, LOOSE))
    small = one.instructions * variant.instances <= RACE.shared_instructions
    return small or has_room(one, variant.instances, target_of(runtime))


def _fitting(
    schedule: Schedule, runtime: str, variant: Variant, *, in_place: bool = False
) -> Program:
    """Return the schedule compiled in one way, as a program that takes as long as the one written.

    Its scratch is packed only if it does not fit otherwise: places in it take no time.

    Raises:
        UserError: something the target, or a file for it, cannot express.
    """
    target = target_of(runtime)
    program = _repeated(schedule, runtime, variant, (in_place, LOOSE))
    if program.chunks.max(initial=0) > target.max_offset:
        program = _repeated(schedule, runtime, variant, (in_place, PACKED))
    require_fit(program, target)
    return program


def _repeated(
    schedule: Schedule, runtime: str, variant: Variant, buffers: tuple[bool, bool]
) -> Program:
    """Return the schedule compiled in one way: the program of one instance, repeated if it can be.

    Raises:
        UserError: something the target cannot express.
    """
    return repeated(
        lambda n: _program(schedule, runtime, (replace(variant, instances=n),), buffers),
        variant.instances,
        target_of(runtime),
    )


@kept(most=EFFORT.kept_programs)
def _program(
    schedule: Schedule, runtime: str, variants: tuple[Variant], buffers: tuple[bool, bool]
) -> Program:
    """Return the schedule compiled in one way; ``buffers``: in place or not, scratch packed or not.

    Raises:
        UserError: something the target cannot express.
    """
    (variant,), (in_place, packed) = variants, buffers
    options = variant.options(target_of(runtime), in_place=in_place)
    if not packed:
        loose = tuple(one for one in options.passes if not isinstance(one, Scratch))
        options = replace(options, passes=loose)
    return lower_schedule(shaped(schedule, variant), options)


def shaped(schedule: Schedule, variant: Variant) -> Schedule:
    """Return the schedule with fractions that can be cut into the variant's segments and parts."""
    return _shaped(schedule, variant.segments * variant.parts)


@kept()
def _shaped(schedule: Schedule, segments: int) -> Schedule:
    return fitted(schedule, FORMAT, segments)[0]


@dataclass(frozen=True, slots=True)
class Prospects:
    """Limits on the time at a size, known before a schedule is compiled for it.

    ``best``: µs of the best program known, infinite where none is. ``floor``: µs below which no
    program of the schedule can be.
    """

    best: float = math.inf
    floor: float = 0.0

    @property
    def open(self) -> bool:
        """True if the schedule may have a program that is better than the best by enough."""
        return EFFORT.plan_gain * self.floor < self.best


@dataclass(slots=True)
class _VariantTimes:
    """Times of variants of one schedule, by size.

    ``known``: those of an earlier round, which are not found again.
    """

    sizes: Mapping[int, Prospects]
    known: Mapping[Variant, Mapping[int, float]] = field(default_factory=dict)
    times: dict[Variant, dict[int, float]] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.known.values():
            for size, us in row.items():
                self.best[size] = min(us, self.best.get(size, us))

    def add(self, variant: Variant, size: int, us: float) -> None:
        """Note a time; an infinite one, of a run that was given up, is not kept."""
        if us < math.inf:
            self.times.setdefault(variant, {})[size] = us
            self.best[size] = min(us, self.best.get(size, us))

    def least(self, size: int) -> float:
        """Return the best time at a size, of this schedule or of all."""
        return min(self.sizes[size].best, self.best.get(size, math.inf))

    def us(self, variant: Variant, size: int) -> float | None:
        """Return the known time of a variant; None: unknown."""
        row = self.known.get(variant) or self.times.get(variant) or {}
        return row.get(size, self.times.get(variant, {}).get(size))

    def form(self, size: int) -> Variant | None:
        """Return the best variant of this schedule at a size; None without a time there."""
        rows = (*self.known.items(), *self.times.items())
        found = [(row[size], variant) for variant, row in rows if size in row]
        return min(found)[1] if found else None

    def near(self, size: int, ratio: float) -> bool:
        """Return True if this schedule is within a ratio of the best, or lacks a time yet."""
        return self.best.get(size, 0.0) <= ratio * self.sizes[size].best

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {**variant.to_json(), "us": [times.get(n) for n in self.sizes]}
            for variant, times in sorted(self.times.items())
        ]


def explore(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return times of a schedule's variants: the fields of each, and ``us`` by size (null: not
    timed, or far behind the best).

    ``given``: ``schedule``, ``runtime``, ``protocols``, ``sizes``, ``best`` (µs of the best known
    at each size, null: none is known), ``floor`` (µs at each size below which the schedule cannot
    be), ``known`` (an earlier answer for these sizes), ``deep``: whether to try more than the usual
    variant; ``forms``: for each size variants that are tried before all others, which are then only
    if the schedule is near the best, and ``wide`` says so.
    """
    stand = Stand.of(given)
    sizes = given["sizes"]
    prospects = {
        size: Prospects(math.inf if best is None else best, floor)
        for size, best, floor in zip(sizes, given["best"], given["floor"], strict=True)
    }
    known = {
        Variant.of(row): {n: us for n, us in zip(sizes, row["us"], strict=True) if us is not None}
        for row in given["known"]
    }
    found = _VariantTimes(prospects, known)
    if given["deep"]:
        forms = {n: list(map(Variant.of, x)) for n, x in zip(sizes, given["forms"], strict=True)}
        wide = [n for n, others in zip(sizes, given["wide"], strict=True) if others]
        _deep(stand, forms, wide, found)
    else:
        cases = {n: list(stand.protocols) for n, p in prospects.items() if p.open}
        if len(stand.schedule.casts):
            # One GPU alone fills a switch with 16 only, and each takes little time to look at.
            for count in COUNTS:
                _times(stand, Variant(instances=count), cases, found, math.inf)
        else:
            _copies(stand, Variant(pairing=Pairing.NONE), cases, found, USUAL_COPIES)
    return found.to_json()


def _deep(
    stand: Stand,
    forms: Mapping[int, Sequence[Variant]],
    wide: Sequence[int],
    found: _VariantTimes,
) -> None:
    """Time a schedule in given forms by size, and where that looks good race others."""
    bases: dict[Variant, dict[int, list[Protocol]]] = {}
    for size, variants in forms.items():
        for variant in variants if found.sizes[size].open else ():
            if form_of(stand.schedule, variant) != variant:
                continue  # of programs
            cases = bases.setdefault(replace(variant, protocol=Protocol.SIMPLE), {})
            cases.setdefault(size, []).append(variant.protocol)
    for base, cases in bases.items():
        _times(stand, base, cases, found, EFFORT.form_ratio)
    sizes = [n for n in wide if found.sizes[n].open]
    sizes = [n for n in sizes if not forms[n] or found.near(n, EFFORT.wide_ratio)]
    if len(stand.schedule.casts):
        _copies(stand, Variant(), {n: list(stand.protocols) for n in sizes}, found, COUNTS)
        return
    last: list[Variant] = []
    for size in sizes:
        own = found.form(size)
        race(
            stand.space,
            size,
            partial(_raced_us, stand, found, size),
            moves=stand.schedule.moves,
            first=[*([own] if own else []), *last],
        )
        last = [best] if (best := found.form(size)) else last


def _raced_us(
    stand: Stand, found: _VariantTimes, size: int, form: Variant, _: float
) -> float | None:
    """Return the µs of a form in a race; infinite where it takes far longer than the best of all
    schedules, which is the limit in place of the race's own; None where a file is lacking: sums in
    place need more waiting."""
    if (known := found.us(form, size)) is not None:
        return known
    timer = stand.timer(replace(form, protocol=Protocol.SIMPLE), room=True)
    if timer is None:
        return None
    best, most = found.least(size), EFFORT.explored_operations
    if not stand.worthwhile(timer, form.protocol, size, best):
        return math.inf
    limit = RACE.given_up * best
    us = timer.clock.time_us(size, form.protocol, limit=limit, most_operations=most)
    if us < math.inf and stand.in_place and not stand.fits_in_place(form):
        return None
    found.add(form, size, us)
    return us


def _copies(
    stand: Stand,
    base: Variant,
    cases: dict[int, list[Protocol]],
    found: _VariantTimes,
    counts: Sequence[int],
) -> None:
    """Time more and more instances, while that helps at a size that may still be won."""
    last: dict[int, float] = {}
    for count in counts:
        if not cases:
            return
        ratio = EFFORT.kept_ratio * PROMISING.get(count, 1.0)
        now = _times(stand, replace(base, instances=count), cases, found, ratio)
        if now is None:
            return
        cases = {}
        for size, by_protocol in now.items():
            us = min(by_protocol.values(), default=math.inf)
            gains = us < EFFORT.instance_gain * last.get(size, math.inf)
            if gains and us <= PROMISING.get(count, 1.0) * found.least(size):
                cases[size] = [p for p, t in by_protocol.items() if t <= EFFORT.protocol_ratio * us]
            last[size] = us


def _times(
    stand: Stand,
    base: Variant,
    cases: Mapping[int, Sequence[Protocol]],
    found: _VariantTimes,
    ratio: float,
) -> dict[int, dict[Protocol, float]] | None:
    """Return the times of a variant under some protocols by size; None: it cannot be compiled.

    ``ratio``: to the best time known, from which a time is not needed.
    """
    timer: Timer | None = None
    now: dict[int, dict[Protocol, float]] = {size: {} for size in cases}
    for size, protocols in cases.items():
        for protocol in protocols:
            variant = replace(base, protocol=protocol)
            us = found.us(variant, size)
            if us is None:
                timer = timer or stand.timer(base, room=True)
                if timer is None:
                    return None
                best = found.least(size)
                if not stand.worthwhile(timer, protocol, size, best):
                    continue
                limit, most = ratio * best, EFFORT.explored_operations
                us = timer.clock.time_us(size, protocol, limit=limit, most_operations=most)
                found.add(variant, size, us)
            now[size][protocol] = us
    return now


def clock(given: Mapping[str, Any]) -> list[float | None]:
    """Return the µs of one variant at each of ``sizes``; compiled for its own protocol.

    ``limits``: µs by size beyond which no time is needed (null or missing: none). None at sizes
    where it takes longer, and everywhere if one of the placements ``in_place`` lacks a file: sums
    in place need more waiting.
    """
    stand = Stand.of(given)
    variant, sizes = Variant.of(given["variant"]), given["sizes"]
    timer = stand.timer(variant)
    if timer is None or (stand.in_place and not stand.fits_in_place(variant)):
        return [None] * len(sizes)
    found: list[float | None] = []
    for size, limit in zip(sizes, given.get("limits") or [None] * len(sizes), strict=True):
        us, most = math.inf, math.inf if limit is None else limit
        if stand.worthwhile(timer, variant.protocol, size, most):
            us = timer.clock.time_us(size, limit=most, most_operations=EFFORT.finalist_operations)
        found.append(us if us < math.inf else None)
    return found


# Rounding of chunk fractions to powers of two, so that common message sizes divide evenly.
#
# A file of MSCCL XML is for messages that divide into its chunks; another is passed over in
# silence. Sizes of messages are round in binary: so a third of a chunk is better off as 341 of 1024
# grains.

WORTH = (Fraction(101, 100), Fraction(21, 20))
"""A schedule is rounded to a power of two of grains a chunk: to the fewest with which its time on
the busiest resource grows at most by the first factor, else by the second."""


def on_binary_grid(schedule: Schedule) -> Schedule:
    """Return the schedule rounded to a power of two of grains per chunk, if that costs little."""
    collective = schedule.collective.coarsest()
    if binary(collective.message_chunks // collective.factor, collective.message_chunks):
        return schedule
    rate = us_per_byte(schedule)
    grids = (halved(schedule, MOST_GRAINS, rate * worth) for worth in WORTH)
    return next((rounded for rounded in grids if rounded is not None), schedule)

"""The claims of a library's manifest, each found again from its machine, schedules and files.

Times of candidates that no plan uses cannot be found again, since their schedules are not kept:
they are held to the bound, and to the plans, of which they must not be better than is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from weft.dsl.base.errors import WeftError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import microseconds
from weft.dsl.base.units import SizeRange, format_binary
from weft.dsl.nouns.library import Library, RuntimeTimes, Tuned, TunedPlan
from weft.dsl.nouns.library_fields import Times
from weft.dsl.nouns.program import protocol_of
from weft.dsl.nouns.schedule import Schedule
from weft.synth.bounds import Bounds, bounds, lower_bound_us
from weft.synth.time.program_time import ProgramClock
from weft.synth.time.schedule_time import simulate

from ..check.checks import Check
from ..compile.variants import variant_of
from .artefacts import Wanted
from .choose import EVEN
from .compared import least_times, plan_starts, runtime_times
from .folder import XML, XmlFiles
from .library_model import library_choice, library_model, library_runtime
from .options import TuneOptions
from .work import Stand

SLACK = 1.001
"""Largest ratio between a time in the manifest and the one found again, for rounding."""

LONGEST_SHOWN = 60
"""Most characters of a value of the manifest in a finding."""


@dataclass(frozen=True)
class Claims:
    """Claims of the manifest on one collective; ``schedules``: those of its plans that can be
    read, by file."""

    library: Library
    one: Tuned
    files: XmlFiles
    schedules: Mapping[str, Schedule]

    def checks(self) -> Iterator[Check]:
        """Yield a check for bounds, for every plan's times, and for those compared with them."""
        wrong = [*self._bound(), *self._least()]
        yield self._check("bound", wrong, "proved again")
        for plan in self.one.plans:
            yield from self._plan(plan)
        yield self._check("race", [*self._race()], "candidates agree with the plans")
        yield self._check("compared", [*self._starts(), *self._runtime()], "found again")

    def _check(self, name: str, wrong: Sequence[str], proved: str) -> Check:
        return Check(name, not wrong, f"{self.one.name}: {wrong[0] if wrong else proved}")

    @property
    def simulated(self) -> bool:
        """Return True if times are those of a model, which can be queried again."""
        return self.library.timing.get("by") == "simulation"

    @cached_property
    def _known(self) -> Bounds:
        return bounds(self.library.topology, self.one.collective)

    # --- bounds -----------------------------------------------------------------------------------

    def _bound(self) -> Iterator[str]:
        found = json.loads(json.dumps(self._known.to_json()))
        for key, said, right in _different({"reach": [], **self.one.bound}, found, "bound"):
            yield f"{key} is {_short(said)} in the manifest, {_short(right)} found again"

    def _least(self) -> Iterator[str]:
        one = self.one
        for size, said, us in zip(one.grid, one.bound_us, one.chosen_us, strict=True):
            least = float(lower_bound_us(self._known, size))
            if not _alike(said, least):
                yield (f"{_us(said)} µs at {format_binary(size)}, where {_us(least)} are proved")
            if self.simulated and SLACK * us < said:
                yield (f"{_us(us)} µs at {format_binary(size)} would be quicker than its bound")

        found = least_times(self.library.topology, one.collective, one.grid, self._options())
        if one.runtime_bound_us and not found:
            yield "the least time of any program is not known, and the manifest has it"
        for size, said, us in zip(one.grid, one.runtime_bound_us, found, strict=False):
            if not _alike(said, us):
                yield (
                    f"any program takes {_us(us)} µs at {format_binary(size)}, in the manifest "
                    f"{_us(said)}"
                )

    # --- plans ------------------------------------------------------------------------------------

    def _plan(self, plan: TunedPlan) -> Iterator[Check]:
        """Yield the check of a plan's times: of its program, and of its schedule by itself."""
        places = [i for i, n in enumerate(self.one.grid) if plan.low <= n <= plan.high]
        schedule = self.schedules.get(plan.schedule)
        if not places or (schedule is None and not self._file(plan)):
            return
        file = self._file(plan) or plan.schedule
        try:
            wrong = [] if schedule is None else [*self._ideas(plan, schedule, places)]
            if self.simulated and (clock := self._clock(plan, schedule)):
                wrong += self._compared(places, self.one.chosen_us, clock)
        except WeftError as error:
            wrong = [error.message]
        yield Check("time", not wrong, f"{file}: {wrong[0] if wrong else 'as quick as is said'}")

    def _file(self, plan: TunedPlan) -> str:
        """Return the plan's MSCCL XML for separate buffers, which was timed; empty if none."""
        return next((a.file for a in plan.artefacts if a.format == XML and not a.in_place), "")

    def _clock(self, plan: TunedPlan, schedule: Schedule | None) -> Callable[[int], float] | None:
        """Return the clock of a plan's program; None if it lacks a file and is not compiled."""
        if file := self._file(plan):
            program = self.files.program(file, self.one.collective)
            return ProgramClock(program, self.library.topology, library_model(self.library)).time_us
        return None if schedule is None else plan_clock(self.library, plan, schedule)

    def _ideas(self, plan: TunedPlan, schedule: Schedule, places: Sequence[int]) -> Iterator[str]:
        found_by = str(
            schedule.provenance.get("found_by") or schedule.provenance.get("engine", "")
        ).partition("{")[0]
        if plan.engine != found_by:
            yield f"it is of {plan.engine} in the manifest, of {found_by} by its schedule"
        known = [i for i in places if self.one.idea_us[i] is not None]
        yield from self._compared(
            known, self.one.idea_us, lambda size: float(simulate(schedule, size).time_us)
        )

    def _compared(
        self, places: Sequence[int], said: Times, clock: Callable[[int], float]
    ) -> Iterator[str]:
        """Yield the sizes, by their indices, at which the clock contradicts the claim."""
        for i in places:
            size, us = self.one.grid[i], clock(self.one.grid[i])
            if not _alike(us, said[i]):
                yield (f"{_us(us)} µs at {format_binary(size)}, in the manifest {_us(said[i])}")

    # --- others -----------------------------------------------------------------------------------

    def _race(self) -> Iterator[str]:
        """Yield claims of candidates that contradict the plans or the bounds."""
        one, share = self.one, float(self.library.timing.get("within", 0))
        us = {c.name: c.us for c in one.candidates}
        source = {c.name: c.source for c in one.candidates}
        for plan in one.plans:
            name = source[plan.candidate]
            if plan.candidate not in (name, made := f"{name}, {variant_of(plan).words}"):
                yield f"{plan.name} is {plan.candidate!r}, by its options {made!r}"
        raced = [c for c in one.candidates if c.source]  # the others are the runtime's own
        for i, size in enumerate(one.grid):
            plan, chosen, at = one.pick(size), one.chosen_us[i], format_binary(size)
            if not _alike(us[plan.candidate][i], chosen):
                told = _us(us[plan.candidate][i])
                yield (
                    f"{plan.candidate!r} takes {told} µs at {at}, the plan that is made of it "
                    f"{_us(chosen)}"
                )
            for name, time in ((c.name, (c.counted_us or c.us)[i]) for c in raced):
                if time is None or chosen <= SLACK * time * (1 + share) * EVEN:
                    continue
                yield (
                    f"{name!r} takes {_us(time)} µs at {at}, and yet the plan for this "
                    f"size one of {_us(chosen)}"
                )

    def _options(self) -> TuneOptions:
        runtime, wanted = library_runtime(self.library), Wanted()
        formats = {a.format for plan in self.one.plans for a in plan.artefacts}
        wanted = replace(wanted, formats=tuple(formats) or wanted.formats)
        return TuneOptions(
            SizeRange(self.library.low, self.library.high),
            wanted if runtime is None else replace(wanted, runtime=runtime),
            protocols=tuple(self.library.timing.get("protocols", ())),
            model=library_choice(self.library).name,
        )

    def _starts(self) -> Iterator[str]:
        one = self.one
        protocols = [protocol_of(one.pick(size).protocol) for size in one.grid]
        topology = self.library.topology
        found = plan_starts(topology, protocols, self._options()) if self.simulated else ()
        if len(found) != len(one.start_us):
            yield "start_us is not of the model that timed it"
            return
        for size, said, us in zip(one.grid, one.start_us, found, strict=bool(found)):
            if not _alike(said, us):
                yield (
                    f"{_us(said)} µs at {format_binary(size)} before the first operation, "
                    f"where the model has {_us(us)}"
                )

    def _runtime(self) -> Iterator[str]:
        one, own = self.one, None
        if self.simulated:
            own = runtime_times(self.library.topology, one.collective, one.grid, self._options())
        said = one.runtime
        if said is None or own is None:
            if said is not own:
                yield "runtime is not of the model that timed it"
            return
        for key in ("name", "how", "apart"):
            one_value, other = getattr(said, key), getattr(own, key)
            if one_value != other:
                yield f"runtime.{key} is {_short(one_value)}, by the model {_short(other)}"
        for key in ("us", "start_us", "apart_us"):
            yield from self._column(key, said, own)

    def _column(self, key: str, said: RuntimeTimes, own: RuntimeTimes) -> Iterator[str]:
        told, found = getattr(said, key), getattr(own, key)
        if len(told) != len(found):
            yield f"runtime.{key} has {len(told)} times, by the model {len(found)}"
            return
        for size, us, right in zip(self.one.grid, told, found, strict=bool(found)):
            if not _alike(us, right):
                yield (
                    f"runtime.{key} is {_us(us)} at {format_binary(size)}, "
                    f"by the model {_us(right)}"
                )


def plan_clock(
    library: Library, plan: TunedPlan, schedule: Schedule
) -> Callable[[int], float] | None:
    """Return the clock of a plan, from its schedule; None where the library was measured."""
    runtime = library_runtime(library)
    if runtime is None:
        return None
    variant = variant_of(plan)
    stand = Stand(schedule, runtime, (variant.protocol,), library_choice(library).name)
    timer = stand.timer(variant)
    return None if timer is None else timer.clock.time_us


def _us(time: float | None) -> str:
    return "no" if time is None else microseconds(time)


def _alike(one: float | None, other: float | None) -> bool:
    """Return True if two times are equal but for rounding."""
    if one is None or other is None:
        return one is other
    return max(one, other) <= SLACK * min(one, other)


def _different(one: Any, other: Any, key: str) -> Iterator[tuple[str, str, str]]:
    """Yield the innermost keys at which two objects differ, with the JSON of both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        for part in dict.fromkeys((*other, *one)):
            yield from _different(one.get(part), other.get(part), f"{key}.{part}")
    elif (said := _json(one)) != (right := _json(other)):
        yield key, said, right


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"

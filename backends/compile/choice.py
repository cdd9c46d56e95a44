"""Choice of a form: the settings that a user left open are raced at the sizes of the messages.

Every form is timed as the program that would be written, for the same placement. The work is
counted in simulated operations, so that the same question has the same answer on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, fields, replace
from functools import partial
from typing import Any

from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count, number
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.algorithm import Algorithm
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.schedule import Schedule
from weft.synth.time.runtime_model import RuntimeModel

from .analyses.planned import distinct_orders
from .compile import AUTO, SETTLED, CompileOptions
from .descent import PARTS, RACE, Clock, FormSpace, race
from .pipeline import DEFAULT_PASSES, SETTINGS
from .replicate import has_room, repeated
from .request import Request
from .source import CompileSource, Emitter, cut
from .timing import LIMITS, ProgramTimer
from .variants import Variant


@dataclass(frozen=True, slots=True)
class ChosenForm:
    """Form that won a race, and what was timed.

    ``ranking``: the form and the next best, with the compiler's options for each. ``us``: of the
    forms, at the largest size; without those given up. ``timed``: how many forms were raced.
    ``stopped``: why earlier than usual, or empty.
    """

    ranking: tuple[tuple[Variant, CompileOptions], ...]
    us: Mapping[Variant, float]
    timed: int
    stopped: str = ""

    @property
    def form(self) -> Variant:
        """The best form."""
        return self.ranking[0][0]

    @property
    def options(self) -> CompileOptions:
        """The compiler's options for it."""
        return self.ranking[0][1]

    def each(self) -> Iterator[ChosenForm]:
        """Yield the choice, then what it is where its first forms cannot be written."""
        for at in range(len(self.ranking)):
            yield replace(self, ranking=self.ranking[at:])

    @property
    def flags(self) -> str:
        """Flags of ``weft compile`` that make the same without a race."""
        return flags_of(self.options)

    @property
    def text(self) -> str:
        """In words: the flags, and out of how many forms."""
        told = f"{self.flags}, of {count(self.timed, 'form')}"
        return f"{told}; {self.stopped}" if self.stopped else told

    def to_json(self) -> dict[str, Any]:
        """Return the parts of the entry ``time`` of ``compile``."""
        rows = sorted(self.us.items(), key=lambda one: (one[1], one[0]))
        return {
            "tried": [{**form.to_json(), "us": number(us)} for form, us in rows],
            "fastest": self.form.instances,
            "flags": self.flags,
        }


def flags_of(o: CompileOptions) -> str:
    """Return the flags of ``weft compile`` for the settings of a form."""
    told = ["--form fixed"]
    segments = None if o.segments == 1 else o.segments
    flags = {"instances": o.instances, "segments": segments, "protocol": o.protocol}
    told += [f"--{name} {value}" for name, value in flags.items() if value is not None]
    told += [f"--lanes {o.lanes}"] if o.lanes else []
    named = {key: getattr(o, name) for key, name in SETTINGS.items() if name != "lanes"}
    passes = [
        f"{key}={value}"
        for key, value in named.items()
        if value not in (None, SETTLED[SETTINGS[key]])
    ]
    return " ".join([*told, *(["-p " + ",".join(passes)] if passes else [])])


def open_space(
    source: CompileSource, backend: Emitter, o: CompileOptions, model: RuntimeModel
) -> FormSpace | None:
    """Return the forms that may be raced: settings that are named are fixed; None: all are."""
    noun = source.noun
    named = {one: value for one in Variant().settings if (value := getattr(o, one)) is not None}
    if o.instances == AUTO:
        del named["instances"]
    if o.form == "fixed" or o.passes != DEFAULT_PASSES:  # a list of passes describes the form
        if o.instances != AUTO:
            return None
        named = {**SETTLED, "protocol": Protocol.SIMPLE, **named}
    if not backend.thread_blocks:  # rounds of messages
        named = {**SETTLED, "instances": 1, "protocol": Protocol.SIMPLE, **named}
        if o.segments is None and isinstance(noun, Schedule):
            del named["segments"]
    space = FormSpace(protocol=tuple(map(Protocol, backend.protocols)))
    if isinstance(noun, Schedule):
        cut = not o.target.fuses and noun.reduce.any() and model.local_GBps < math.inf
        space = replace(space, order=distinct_orders(noun), parts=PARTS if cut else (1,))
    else:
        own: dict[str, Any] = {"segments": 1, "lanes": 0}
        if isinstance(noun, Algorithm) and noun.instances != 1:
            own["instances"] = noun.instances
        if noun.protocol is not Protocol.SIMPLE:
            own["protocol"] = noun.protocol
        named = {**own, **named}
    space = space.fixed(**named)
    return space if any(len(getattr(space, one.name)) > 1 for one in fields(space)) else None


def chosen_form(
    source: CompileSource,
    backend: Emitter,
    clock: ProgramTimer,
    o: CompileOptions,
    sizes: SizeRange | None,
) -> ChosenForm | None:
    """Return the form that a race finds; None: no setting is open, or no form can be timed.

    The form for a range of sizes is the one that is least behind at either end. An interruption
    ends the race with what is known.

    Raises:
        KeyboardInterrupt: before any form was timed.
    """
    space = open_space(source, backend, o, clock.model)
    if space is None:
        return None
    timer = FormTimer(source, backend, clock, o)
    moves = source.noun.moves if isinstance(source.noun, Schedule) else 0
    ends = (clock.message_bytes, *([sizes.low] if sizes and sizes.low < sizes.high else []))
    tables: dict[int, dict[Variant, float]] = {}
    behind: dict[Variant, float] = {}
    stopped = ""
    try:
        for size in ends:
            clock_at = timer.at(size, space.starts(size, moves))
            race(space, size, clock_at, moves=moves, known=tables.setdefault(size, {}))
        least = {n: us for n, table in tables.items() if (us := min(table.values())) < math.inf}
        if len(least) > 1:
            first = [f for n in least for f in sorted(tables[n], key=tables[n].__getitem__)[:2]]
            worst = partial(timer.worst, least)
            race(space, ends[0], worst, moves=moves, first=first, known=behind)
    except KeyboardInterrupt:
        stopped = "interrupted"
        if min(tables[ends[0]].values(), default=math.inf) == math.inf:
            raise
    ranking = _ranking(behind) or _ranking(tables[ends[0]])
    if not ranking:
        return None
    if timer.spent > RACE.operations:
        stopped = f"{RACE.operations:,} operations were simulated"
    return ChosenForm(
        tuple((form, timer.options(form)) for form in ranking[: RACE.written]),
        {form: x for form, x in tables[ends[0]].items() if x < math.inf},
        len({form for table in (*tables.values(), behind) for form in table}),
        stopped,
    )


def _ranking(behind: Mapping[Variant, float]) -> list[Variant]:
    """Return the forms that were timed, the quickest first; before it one of fewer pieces that is
    hardly slower."""
    found = sorted((us, form) for form, us in behind.items() if us < math.inf)
    most = RACE.spared * found[0][0] if found else math.inf
    few = [(f.pieces * max(1, f.lanes), us, f) for us, f in found if us <= most]
    first = min(few, default=(0, 0.0, None))[2]
    return sorted((form for _, form in found), key=lambda form: form != first)


@dataclass(slots=True, eq=False)
class FormTimer:
    """Clock of the forms of one source, and the work that it has done."""

    source: CompileSource
    backend: Emitter
    clock: ProgramTimer
    named: CompileOptions
    made: dict[Variant, Program | None] = field(default_factory=dict)
    sources: dict[int, CompileSource] = field(default_factory=dict)
    spent: int = 0

    def options(self, form: Variant) -> CompileOptions:
        """Return the compiler's options for a form."""
        if not self.backend.thread_blocks:
            return replace(self.named, segments=form.segments)
        return replace(self.named, **form.settings)

    def at(self, size: int, starts: Collection[Variant]) -> Clock:
        """Return the clock at a size; but for starts, infinite once a race has done its work."""

        def us(form: Variant, limit: float) -> float | None:
            done = self.spent > RACE.operations and form not in starts
            return math.inf if done else self.us(form, size, limit)

        return us

    def worst(self, least: Mapping[int, float], form: Variant, limit: float) -> float | None:
        """Return the largest ratio of a form's µs to the least ones of some sizes."""
        behind = 0.0
        for size, us in least.items():
            taken = self.us(form, size, limit * us)
            if taken is None:
                return None
            behind = max(behind, taken / us)
        return behind

    def us(self, form: Variant, size: int, limit: float = math.inf) -> float | None:
        """Return the µs of a form at a size; infinite beyond a limit, None if it does not fit."""
        target, clock = self.named.target, replace(self.clock, message_bytes=size)
        if self._too_fine(form.pieces, size):
            return None
        try:
            if not self.backend.thread_blocks:
                return self._rounds_us(form, size)
            one = self._compiled(replace(form, instances=1))
            small = one.instructions * form.instances <= RACE.shared_instructions
            if not small and not has_room(one, form.instances, target):
                return None
            program = repeated(
                lambda n: self._compiled(replace(form, instances=n)), form.instances, target
            )
            self.backend.require_fit(program, target)
            if not self._divides(program, size):
                return None
            us, operations = clock.raced_us(program, limit)
        except (UserError, CheckFailed):  # no room, or it hangs at a size that it is not for
            return None
        self.spent += operations
        return us

    def _rounds_us(self, form: Variant, size: int) -> float | None:
        """Return the µs of a form without thread blocks, at a size."""
        o = self.options(form)
        noun = cut(self.source, self.backend.name, o).noun
        request = Request(noun, in_place=o.in_place, segments=form.segments)
        us = self.backend.rounds_us(request, self.clock.topology, size)
        start = float(self.clock.model.protocol(Protocol.SIMPLE).start_us)
        return None if us is None else start + us

    def _compiled(self, form: Variant) -> Program:
        """Return the program of a form.

        Raises:
            UserError: the target cannot express it, or it is too large to be raced.
        """
        if form not in self.made:
            self.made[form] = None  # if it is refused, it is also with more instances
            pieces = form.segments * form.parts
            moves = len(self.source.noun) if isinstance(self.source.noun, Schedule) else 0
            if moves * pieces * form.instances > LIMITS.operations:
                raise UserError("it is too large to be raced")
            if pieces not in self.sources:
                self.sources[pieces] = cut(self.source, self.backend.name, self.options(form))
            quiet = replace(self.options(form), verify=None, observe=None, tell=None)
            self.spent += RACE.refused
            self.made[form] = made = self.sources[pieces].compile(quiet)
            self.spent += RACE.compiled * made.instructions - RACE.refused
        if (found := self.made[form]) is None:
            raise UserError("it was refused before")
        return found

    def _too_fine(self, pieces: int, size: int) -> bool:
        """Return True if a piece of a chunk is less than a number, and need not be."""
        number = RACE.number_bytes * self.source.collective.message_chunks
        return number * pieces > size >= number * self._named_pieces()

    def _divides(self, program: Program, size: int) -> bool:
        """Return True if a message has whole numbers in each chunk, or cannot have."""
        whole = self.source.collective.message_chunks * self._named_pieces()
        return (
            size % (RACE.number_bytes * program.message_chunks) == 0
            or size % (RACE.number_bytes * whole) != 0
        )

    def _named_pieces(self) -> int:
        """Return into how many pieces the user's options cut a chunk, at least."""
        o = self.named
        copies = o.instances if isinstance(o.instances, int) else 1
        return copies * (o.segments or 1) * (o.parts or 1)

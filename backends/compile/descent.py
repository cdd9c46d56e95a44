"""The race over forms: a short descent from a few starts, for the compiler and for tuning alike.

Forms are not unimodal in any one of their settings: 4 segments can be the worst where 8 are the
best. So there are several starts, chosen by the size; from the best of them, and from the second if
it is near, a setting or two are changed at a time, and a gain is kept at once, until nothing gains.
All limits are numbers of forms; a form that takes ``given_up`` times the best is not timed to
its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.program import Protocol

from .analyses.planned import Order
from .passes.channels import Spread
from .passes.threadblocks import Pairing
from .variants import LANES, Variant


@dataclass(frozen=True, slots=True)
class RaceEffort:
    """Limits of a race, in numbers of forms and of simulated operations; ratios are of times."""

    large_bytes: int = 16 << 20  # messages from which bytes decide more than α: other starts
    forms: int = 20  # of a whole race; what its descents leave is for going on from the best
    first_forms: int = 8  # of the descent from the best start
    second_forms: int = 6
    given_up: float = 1.5  # to the best: a run ends there, and a second descent is not worth it
    # To the best, within which the form of the fewest pieces is taken: each takes thread blocks and
    # messages.
    spared: float = 1.005
    operations: int = 16_000_000  # simulated ones of a race, a second for each four million
    start_share: float = 0.5  # of these for one start, at most, where messages are small
    compiled: int = 60  # simulated operations that take as long as compiling an instruction
    refused: int = 2_000_000  # the same for the attempts to compile a form that does not fit
    # Largest program that is raced though its instances share channels or blocks, which gains 2 %
    # at most: the passes make ten times as many instructions.
    shared_instructions: int = 10_000
    # Of a number: a runtime passes a file over for messages that its chunks do not divide.
    number_bytes: int = 4
    written: int = 5  # forms that are written, one after the other, where the format refuses some


RACE = RaceEffort()

COUNTS = (1, 2, 4, 8, 16)
"""Numbers of instances and of segments."""

PARTS = (1, 8, 32)
"""Parts of a chunk, where sums are instructions of their own."""

Clock = Callable[[Variant, float], float | None]
"""µs of a form; infinite beyond a limit; None where the form cannot be compiled."""


@dataclass(frozen=True, slots=True)
class FormSpace:
    """Values that each setting of a form may have; one value: it is fixed.

    Neighbours in ``instances``, ``segments`` and ``parts`` are next to each other in a descent.
    """

    protocol: Sequence[Protocol] = tuple(Protocol)
    instances: Sequence[int] = COUNTS
    segments: Sequence[int] = COUNTS
    parts: Sequence[int] = (1,)
    order: Sequence[Order] = (Order.PRIORITY,)
    spread: Sequence[Spread] = (Spread.LANES,)
    pairing: Sequence[Pairing] = (Pairing.NONE, Pairing.AUTO)
    lanes: Sequence[int] = (0, LANES)

    def fixed(self, **named: Any) -> FormSpace:
        """Return the space in which some settings have one value."""
        return replace(self, **{key: (value,) for key, value in named.items()})

    def nearest(self, form: Variant) -> Variant:
        """Return a form with the first possible value of each setting where its own is not one."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(form, **{k: v[0] for k, v in own.items() if v and getattr(form, k) not in v})

    def starts(self, size: int, moves: int = 0) -> list[Variant]:
        """Return the forms from which a descent may start at a size, and the plain one.

        ``moves``: of the schedule. Of very many, forms of small messages start in one piece.
        """
        apart = Variant(4, pairing=Pairing.NONE)
        lines, long = replace(apart, protocol=Protocol.LL128), replace(apart, segments=8)
        if len(self.parts) > 1:
            few, many = replace(apart, segments=4, parts=8), replace(apart, parts=32)
            found = [few, replace(lines, parts=8), many]
        elif size >= RACE.large_bytes:
            wide = replace(long, instances=2, lanes=LANES)
            found = [long, wide, replace(lines, segments=2)]
        else:
            small = replace(apart, protocol=Protocol.LL, segments=4)
            found = [small, replace(lines, segments=2), long]
            each = 2 * moves * RACE.compiled
            found = [
                replace(one, instances=1, segments=1)
                if each * one.pieces > RACE.start_share * RACE.operations
                else one
                for one in found
            ]
        return list(dict.fromkeys(map(self.nearest, (*found, Variant()))))

    def probes(self, size: int) -> list[Variant]:
        """Return the forms to look at after the descents from the starts: few ways lead to them."""
        turns = Variant(
            2, pairing=Pairing.NONE, segments=COUNTS[-1], order=Order.STEPS, lanes=LANES
        )
        return [self.nearest(turns)] if size >= RACE.large_bytes else []

    def beside(self, form: Variant) -> Iterator[tuple[str, Variant]]:
        """Yield the forms next to one, each with the name of the change: one setting differs, or
        two that make up for each other."""
        for order in self.order:
            yield f"order {order}", replace(form, order=order)
        for name in ("instances", "segments", "parts"):
            yield from self._next(form, name)
        for protocol in self.protocol:
            yield f"protocol {protocol}", replace(form, protocol=protocol)
        fewer, more = max(1, form.instances // 2), form.segments * 2
        if form.lanes:
            yield "no lanes", replace(form, lanes=0)
        else:  # a lane takes a thread block, as an instance does
            cut = min(max(LANES, more), COUNTS[-1])
            yield "lanes", replace(form, instances=fewer, segments=cut, lanes=LANES)
            yield "more lanes", replace(form, lanes=LANES)
            yield "for lanes", replace(form, segments=max(1, form.segments // 2), lanes=LANES)
        yield "finer", replace(form, instances=fewer, segments=more)
        yield "wider", replace(form, instances=form.instances * 2, segments=form.segments // 2)
        for pairing in self.pairing:
            yield f"pairing {pairing}", replace(form, pairing=pairing)

    def _next(self, form: Variant, name: str) -> Iterator[tuple[str, Variant]]:
        """Yield a form with the next larger and the next smaller value of a setting."""
        values, at = getattr(self, name), getattr(self, name).index(getattr(form, name))
        for change, some in (("more", values[at + 1 : at + 2]), ("fewer", values[:at][-1:])):
            for value in some:
                changed: dict[str, Any] = {name: value}
                yield f"{change} {name}", replace(form, **changed)


def race(
    space: FormSpace,
    size: int,
    time: Clock,
    *,
    moves: int = 0,
    first: Iterable[Variant] = (),
    known: dict[Variant, float] | None = None,
) -> dict[Variant, float]:
    """Return the µs of the forms that a race has timed, the plain form's among them.

    ``moves``: of the schedule. ``first``: forms that start before the usual ones. ``known``: where
    the µs are noted, so that they survive an interruption.
    """
    run = _Descent(time, {} if known is None else known)
    starts = list(dict.fromkeys((*first, *space.starts(size, moves))))
    for form in starts:
        run.look(form)
    near = sorted(starts, key=run.us.__getitem__)[:2]
    for form, most in zip(near, (RACE.first_forms, RACE.second_forms), strict=False):
        if run.us[form] < RACE.given_up * run.best:
            run.descend(space, form, most)
    for form in space.probes(size):
        run.look(form)
    if run.best < math.inf:
        run.descend(space, min(run.us, key=run.us.__getitem__), RACE.forms)
    return run.us


@dataclass(slots=True)
class _Descent:
    """Known µs of forms, and how many of them took another time than the best."""

    time: Clock
    us: dict[Variant, float]
    best: float = math.inf
    count: int = 0

    def look(self, form: Variant) -> float:
        """Return the µs of a form, infinite where no more are to be timed."""
        if form not in self.us:
            if self.count >= RACE.forms:
                return math.inf
            us = self.time(form, RACE.given_up * self.best)
            # Of equal time it is most likely the same program.
            self.count += us is not None and us != self.best
            self.us[form] = math.inf if us is None else us
            self.best = min(self.best, self.us[form])
        return self.us[form]

    def descend(self, space: FormSpace, form: Variant, most: int) -> None:
        """Make one change after the other while that gains, in a number of new forms; those that
        gained last come first, and those that lost last come last."""
        most, turn, turns = most + self.count, dict[str, int](), 0
        gains = True
        while gains:
            gains = False
            for name, other in sorted(space.beside(form), key=lambda one: turn.get(one[0], 0)):
                if other == form or other != space.nearest(other) or self.count >= most:
                    continue
                gains, turns = self.look(other) < self.us[form], turns + 1
                turn[name] = -turns if gains else turns
                if gains:
                    form = other
                    break

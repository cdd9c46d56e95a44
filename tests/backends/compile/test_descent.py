"""The race over forms: fixed settings, starts, descents and their limits, on made-up clocks."""

import math
from dataclasses import replace
from random import Random
from zlib import crc32

import pytest

from weft.backends.compile.analyses.planned import Order
from weft.backends.compile.descent import COUNTS, PARTS, RACE, FormSpace, race
from weft.backends.compile.passes.threadblocks import Pairing
from weft.backends.compile.variants import Variant
from weft.dsl.nouns.program import Protocol

SIZES = (1 << 10, RACE.large_bytes, 1 << 30)


def bumpy(seed: int) -> dict[Variant, float | None]:
    """Remembered random times of forms."""
    rng = Random(seed)

    class Clock(dict[Variant, float | None]):
        def __missing__(self, form: Variant) -> float | None:
            self[form] = rng.choice((rng.uniform(1, 10),) * 4 + (math.inf, None))
            return self[form]

    return Clock()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("parts", [(1,), PARTS])
def test_the_plain_form_is_always_among_the_starts(size: int, parts: tuple[int, ...]) -> None:
    starts = FormSpace(parts=parts).starts(size)
    assert Variant() in starts
    assert len(starts) == 4


def test_small_messages_of_very_many_moves_start_in_one_piece() -> None:
    """On 64 ranks one start in 16 pieces is the work of a whole race."""
    space, many, few = FormSpace(), 8064, 960
    assert {one.pieces for one in space.starts(1 << 20, many)} == {1, 8}
    assert space.starts(1 << 20, few) == space.starts(1 << 20)
    assert space.starts(1 << 30, many) == space.starts(1 << 30)


def test_a_form_of_large_messages_is_looked_at_after_the_descents() -> None:
    space, (probe,) = FormSpace(order=tuple(Order)), FormSpace(order=tuple(Order)).probes(1 << 30)
    found = race(space, 1 << 30, lambda form, _: 1.0 if form == probe else 2.0)
    assert min(found, key=found.__getitem__) == probe
    assert not space.probes(1 << 20)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_found_within_the_limits_and_never_worse_than_the_plain_form(seed: int) -> None:
    times = bumpy(seed)
    found = race(FormSpace(), SIZES[seed % 3], lambda form, _: times[form])
    assert sum(times[form] is not None for form in found) <= RACE.forms
    assert min(found.values()) <= (times[Variant()] or math.inf)
    assert race(FormSpace(), SIZES[seed % 3], lambda form, _: times[form]) == found


def test_runs_are_given_up_beyond_a_ratio_of_the_best() -> None:
    limits: list[tuple[float, float]] = []
    best = math.inf
    rng = Random(3)

    def clock(form: Variant, limit: float) -> float:
        nonlocal best
        limits.append((limit, best))
        us = rng.uniform(1, 10)
        best = min(best, us)
        return us

    race(FormSpace(), 1 << 20, clock)
    assert all(limit == RACE.given_up * before for limit, before in limits)


@pytest.mark.parametrize(
    "named",
    [
        {"protocol": Protocol.LL},
        {"instances": 3, "lanes": 0},
        {"segments": 5, "pairing": Pairing.AUTO},
        {"order": Order.STEPS, "parts": 1},
    ],
)
def test_fixed_settings_stay(named: dict[str, object]) -> None:
    space = FormSpace(order=tuple(Order), parts=PARTS).fixed(**named)
    for size in SIZES:
        found = race(space, size, lambda form, _: float(crc32(form.words.encode()) % 100 + 1))
        assert len(found) > 4
        assert all(getattr(form, key) == value for form in found for key, value in named.items())


def test_neighbours_differ_in_one_setting_or_make_up_for_it() -> None:
    space = FormSpace(order=tuple(Order), parts=PARTS)
    form = Variant(4, pairing=Pairing.NONE, segments=2)
    seen = []
    for _, other in space.beside(form):
        if other == form or other != space.nearest(other):
            continue
        changed = {key for key in form.settings if getattr(form, key) != getattr(other, key)}
        pieces = form.instances * form.segments
        assert len(changed) == 1 or other.lanes or other.instances * other.segments == pieces
        seen.append(other)
    assert len(seen) == len(set(seen))
    assert form in dict(space.beside(replace(form, order=Order.STEPS))).values()


def test_a_descent_goes_on_while_it_gains() -> None:
    def clock(form: Variant, _: float) -> float:
        return 100 - 10 * math.log2(form.instances) - math.log2(form.segments)

    found = race(FormSpace(pairing=(Pairing.NONE,), protocol=(Protocol.LL,)), 1 << 20, clock)
    assert min(found, key=found.__getitem__).instances == COUNTS[-1]


def test_what_has_no_form_is_not_descended_from() -> None:
    found = race(FormSpace(), 1 << 20, lambda *_: None)
    assert set(found) == set(FormSpace().starts(1 << 20))


def test_other_forms_may_start_first() -> None:
    own = Variant(16, Protocol.LL, segments=16)
    found = race(FormSpace(), 1 << 20, lambda form, _: 1.0 if form == own else 2.0, first=[own])
    assert next(iter(found)) == own
    assert min(found, key=found.__getitem__) == own


def test_settings_that_make_no_difference_are_not_counted() -> None:
    """Programs of equal time are most likely the same."""
    space = FormSpace(order=tuple(Order))
    apart = race(space, 1 << 20, lambda form, _: 10.0 + crc32(form.words.encode()) % 997 / 997)
    alike = race(space, 1 << 20, lambda form, _: 10.0 if form != Variant() else 11.0)
    assert len(alike) > len(apart)

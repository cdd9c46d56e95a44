"""The compiled event loop against the plain one, and what it can be asked."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import planned_schedules

from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, gpu, link
from weft.synth.time import schedule_tables
from weft.synth.time.schedule_tables import CostModel, data_waits, distinct_routes, prepare
from weft.synth.time.schedule_time import simulate

MODELS = st.builds(
    CostModel,
    alpha_occupies=st.booleans(),
    store_and_forward=st.booleans(),
    overhead_us=st.sampled_from([0, Fraction(1, 4)]),
    barrier=st.booleans(),
)


@given(planned_schedules(), st.sampled_from([1, 1000, 123_457]), MODELS)
@settings(max_examples=examples(37, 300))
def test_the_compiled_loop_does_what_the_plain_one_does(
    s: Schedule, size: int, model: CostModel
) -> None:
    plain, run = simulate(s, size, model), prepare(s, model).run(size)
    assert run.time_us == pytest.approx(plain.time_us, rel=1e-15)
    assert run.start_us.tolist() == pytest.approx(plain.start_us.tolist(), rel=1e-15)
    assert run.end_us.tolist() == pytest.approx(plain.end_us.tolist(), rel=1e-15)
    assert run.busy_us.tolist() == pytest.approx(plain.busy_us.tolist(), rel=1e-15)


@given(planned_schedules(), st.integers(1, 10**6), st.integers(0, 2**16))
@settings(max_examples=examples(15, 50))
def test_prepared_once_timed_with_other_slices_and_orders(
    s: Schedule, size: int, seed: int
) -> None:
    ready = prepare(s)
    rng = np.random.default_rng(seed)
    for segments in (1, 2, 5):
        order = rng.integers(0, 9, len(s)).astype(np.int32)
        other = replace(s, segments=segments, priority=order, stride=3)
        found = ready.time(size, segments=segments, priority=order, stride=3)
        assert found == pytest.approx(simulate(other, size).time_us, rel=1e-15)


@given(planned_schedules())
@settings(max_examples=30)
def test_listing_the_places_that_occur_numbers_them_alike(s: Schedule) -> None:
    some = data_waits(s)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_tables, "SPARSE", 0)
        other = data_waits.__wrapped__(s)  # not the one that is kept
    for name in ("source", "target", "needs", "slot", "slot_start", "reader_start", "readers"):
        assert np.array_equal(getattr(some, name), getattr(other, name))


def unlike(s: Schedule) -> Schedule:
    """The schedule on links no two of which take the same time: ties do not fall by rounding."""
    parts = [Fraction(n * n, 1 << 14) for n in range(1, len(s.topology.links) + 1)]
    links = tuple(
        replace(link, bandwidth=link.bandwidth / (1 + part), latency=link.latency + part)
        for link, part in zip(s.topology.links, parts, strict=True)
    )
    return replace(s, topology=replace(s.topology, links=links))


@given(planned_schedules().map(unlike), st.integers(1, 10**6))
@settings(max_examples=examples(15, 30))
def test_a_coarse_unit_changes_next_to_nothing(s: Schedule, size: int) -> None:
    exact = simulate(s, size, CostModel(barrier=True)).time_us
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_tables._Costs, "coarse", lambda *_: 1 << 40)
        patch.setattr(schedule_tables.QueueTables, "fits", lambda _, __, unit, ___: unit == 1 << 40)
        found = prepare(s, CostModel(barrier=True)).time(size)
    # Where sums of unlike times tie all the same, which is rare, the order changes.
    assert found == pytest.approx(exact, rel=1e-5)


def test_units_too_fine_for_64_bits() -> None:
    """Ten bandwidths whose common denominator has some hundred digits, in a thousand slices."""
    primes = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149)
    links = tuple(link(i, i + 1, Fraction(p, 99991), Fraction(1, p)) for i, p in enumerate(primes))
    chain = Topology("chain", tuple(map(gpu, range(11))), links)
    sends = [Transfer(0, i, i + 1, (i,), i) for i in range(10)]
    s = replace(Schedule.of(chain, make("broadcast", 11), sends), segments=40)
    assert prepare(s).time(12_345) == pytest.approx(simulate(s, 12_345).time_us, rel=1e-12)


def test_routes_are_told_apart() -> None:
    start = np.array([0, 2, 3, 5, 7, 9, 9])
    links = np.array([4, 5, 4, 5, 4, 4, 5, 4, 5])
    grains = np.array([1, 1, 1, 1, 2, 1])
    first, which = distinct_routes(start, links, grains)
    assert which[0] == which[3]
    assert len(set(which.tolist())) == len(first) == 5
    assert (which[first] == np.arange(5)).all()


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=30))
def test_places_are_numbered_the_same_by_bits_and_by_a_table(moves: list[tuple[int, int]]) -> None:
    source, target = np.array(moves).T
    _, which = np.unique(np.concatenate([source, target]), return_inverse=True)
    found = schedule_tables._dense_by_bits(source, target, 1000)
    assert np.concatenate(found[:2]).tolist() == which.tolist()
    assert found[2] == which.max() + 1

"""Mended schedules do what the collective asks, on what is left."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from work import calls_of

from tests.support.strategies import collectives, schedules, topologies, tree_schedule
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.failures import Down, cut_off, degraded, find, rank_down
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.repair.mend import REPAIR_EFFORT, RepairEffort, balanced, even, repair, repairs
from weft.synth.time.schedule_time import simulate


def some_dead(data: st.DataObject, whole: Topology) -> tuple[int, ...]:
    """Links whose loss leaves all ranks together."""
    dead: list[int] = []
    for i in data.draw(st.lists(st.integers(0, len(whole.links) - 1), max_size=4, unique=True)):
        if not cut_off(whole.without_links([*dead, i])):
            dead.append(i)
    return tuple(dead)


def mended(schedule: Schedule, dead: tuple[int, ...]) -> Schedule:
    return repair(schedule, degraded(schedule.topology, [Down("some", dead)]))


@settings(deadline=None, max_examples=examples(25, 150))
@given(topologies(), st.data())
def test_mended_trees_are_right(whole: Topology, data: st.DataObject) -> None:
    schedule = tree_schedule(whole, data.draw(collectives(whole.ranks)))
    verdict = verify(mended(schedule, some_dead(data, whole)))
    assert verdict.ok, verdict.problems


@settings(deadline=None, max_examples=examples(20))
@given(schedules(), st.data())
def test_mended_schedules_are_right(schedule: Schedule, data: st.DataObject) -> None:
    found = None
    with suppress(UserError):  # custom collectives may ask for parts of sums
        found = mended(schedule, some_dead(data, schedule.topology))
    assert found is None or verify(found).ok
    assert found is not None or schedule.collective.kind is Kind.CUSTOM


def test_what_nothing_hits_stays() -> None:
    whole = topology("torus:4x4")
    schedule = tree_schedule(whole, make("allgather", 16))
    unused = sorted(set(range(len(whole.links))) - set(schedule.route_links.tolist()))[:3]
    same = mended(schedule, tuple(unused))
    for column in ("chunk", "src", "dst", "step"):
        assert np.array_equal(getattr(same, column), getattr(schedule, column))


def test_another_way_through_switches_is_a_new_route_and_no_more() -> None:
    whole = topology("fat-tree:k=4")
    schedule = tree_schedule(whole, make("alltoall", 16))
    left = degraded(whole, [find(whole, "e0.0-a0.0")])
    found = repair(schedule, left)
    assert verify(found).ok
    assert sorted(zip(found.chunk, found.src, found.dst, strict=True)) == sorted(
        zip(schedule.chunk, schedule.src, schedule.dst, strict=True)
    )


def test_ranks_that_are_gone_make_it_another_collective() -> None:
    whole = topology("ring:4")
    schedule = tree_schedule(whole, make("allgather", 4))
    with pytest.raises(UserError, match="another collective"):
        repair(schedule, degraded(whole, [rank_down(whole, 1)]))


@cache
def packed(kind: str, size: int) -> Schedule:
    """The best packing on four boxes of eight GPUs and eight NICs."""
    problem = Problem(topology("dgx-a100:nodes=4"), make(kind, 32), None, Objective.TIME, size)
    return synthesize(problem, "packing", Budget(20)).points[0].schedule


@pytest.mark.parametrize("kind", ["allgather", "reduce_scatter", "allreduce"])
def test_a_dead_nic_of_many_is_mended_quickly_and_well(kind: str) -> None:
    best, size = packed(kind, 1 << 30), 1 << 30
    whole, collective = best.topology, make(kind, 32)
    left = degraded(whole, [find(whole, "host0.nic0")])
    found, calls = calls_of(lambda: repair(best, left))
    assert calls < 60_000
    assert verify(found).ok
    least = float(lower_bound_us(bounds(left.topology, collective), size))
    assert simulate(found, size).time_us < 2 * least


@settings(deadline=None, max_examples=examples(30, 60))
@given(topologies(), st.data())
def test_shares_of_trees_are_right(whole: Topology, data: st.DataObject) -> None:
    tree = tree_schedule(whole, data.draw(collectives(whole.ranks)))
    schedule = replace(tree, bytes=1 << 20)
    left = degraded(whole, [Down("some", some_dead(data, whole))])
    found = None
    with suppress(UserError):  # it may be cut already
        found = balanced(schedule, left)
    if found is not None:
        verdict = verify(found)
        assert verdict.ok, verdict.problems
        # The way that a repair takes is not among those that are mixed, but nearly as good ones.
        assert us_per_byte(found) <= us_per_byte(repair(schedule, left)) * 3 / 2


@settings(deadline=None, max_examples=examples(12, 60))
@given(topologies(), st.integers(1, 9), st.data())
def test_equal_pieces_are_right(whole: Topology, pieces: int, data: st.DataObject) -> None:
    collective = make("allreduce", whole.ranks).split(pieces)
    schedule = tree_schedule(whole, collective)
    found = even(schedule, degraded(whole, [Down("some", some_dead(data, whole))]))
    verdict = verify(found)
    assert verdict.ok, verdict.problems
    assert found.collective.chunks >= 1
    assert len(set(found.collective.grains.tolist())) == 1


@settings(deadline=None, max_examples=examples(12, 40))
@given(schedules(), st.integers(1, 1 << 30), st.booleans(), st.data())
def test_all_kinds_of_repair_are_right(
    schedule: Schedule, size: int, least: bool, data: st.DataObject
) -> None:
    left = degraded(schedule.topology, [Down("some", some_dead(data, schedule.topology))])
    effort = RepairEffort(ways=1, pieces=1, regrown=1, trees=0) if least else RepairEffort()
    schedule = replace(schedule, bytes=size)
    with suppress(UserError):
        assert all(verify(found).ok for _, found in repairs(schedule, left, effort))


@pytest.mark.parametrize("name", ["ways", "grains", "pieces", "regrown"])
def test_efforts_without_a_try_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"effort.{name} is 0, it must be 1 or more"):
        RepairEffort(**{name: 0})


@pytest.mark.parametrize(("kind", "most"), [("allgather", 1.04), ("allreduce", 1.12)])
def test_a_dead_nic_of_many_costs_little_more_than_it_must(kind: str, most: float) -> None:
    best, size = packed(kind, 1 << 30), 1 << 30
    whole, collective = best.topology, make(kind, 32)
    left = degraded(whole, [find(whole, "host0.nic0")])
    found = dict(repairs(best, left, REPAIR_EFFORT)).values()
    assert all(verify(one).ok for one in found)
    least = float(lower_bound_us(bounds(left.topology, collective), size))
    times = [simulate(replace(one, segments=256), size).time_us for one in found]
    assert min(times) < most * least


def test_chunks_are_dealt_out_in_halves_where_whole_ones_load_one_nic_more() -> None:
    """24 chunks come in over seven NICs: four over one of them, 1/6 more than a seventh."""
    whole = topology("dgx-a100:nodes=4")
    problem = Problem(whole, make("allgather", 32), None, Objective.BANDWIDTH, None)
    schedule = synthesize(problem, "classic{algorithm=two_level}", Budget(5)).points[0].schedule
    left = degraded(whole, [find(whole, "host0.nic0")])
    found = dict(repairs(schedule, left, REPAIR_EFFORT))
    assert all(verify(one).ok for one in found.values())
    least = bounds(left.topology, make("allgather", 32))
    rates = {word: float(us_per_byte(one)) for word, one in found.items()}
    finest = min(rates[word] for word in rates if word.startswith("mended in"))
    assert finest < 0.95 * rates["mended"]
    assert finest * (1 << 30) < 1.06 * float(lower_bound_us(least, 1 << 30))

"""The exact engine where switches copy and sum: casts beside transfers, held against the bounds."""

from dataclasses import replace
from fractions import Fraction

import pytest
from casts import FREE, NVLS, TURNING, able_fabrics, racks, star, two_level, two_shot, up_and_down
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.dsl.nouns.capabilities import CastLimits
from weft.dsl.nouns.collective import ROOTED, make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Point
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.classic.schedule import rounds_of
from weft.synth.engines.exact import Exact
from weft.synth.engines.exact.casts import offers_of
from weft.synth.engines.exact.sums import sum_bound, sum_spaces
from weft.synth.engines.packing.engine import Packer
from weft.synth.judge.verify import verify
from weft.synth.reductions.allreduce import as_sum, takes_sum
from weft.synth.time.schedule_time import simulate


def found(machine: Topology, kind: str, objective: Objective = Objective.FRONTIER) -> list[Point]:
    """The schedules of the exact engine, verified."""
    roots = (0,) if kind in ROOTED else ()
    problem = Problem(machine, make(kind, machine.ranks, roots=roots), objective=objective)
    engine = Exact(max_chunks=4, max_steps=3)
    points = list(synthesize(problem, engine, Budget(5)).points)
    assert all(verify(p.schedule).ok for p in points)
    return points


def limited(machine: Topology, **limits: int) -> Topology:
    """The machine whose switches keep to some limits."""
    nodes = [replace(x, limits=CastLimits(**limits)) if x.computes else x for x in machine.nodes]
    return replace(machine, nodes=tuple(nodes), symmetries=())


def _one_step(machine: Topology) -> Point:
    """The broadcast of the fewest steps."""
    (point,) = found(machine, "broadcast", Objective.LATENCY)
    return point


@pytest.mark.parametrize("able", [NVLS, FREE])
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_one_cast_is_the_optimum_of_one_step(kind: str, able: str) -> None:
    """One copy leaves the root, or enters it, and every other port carries one: one round, where
    three transfers need three."""
    (point,) = found(star(4, able), kind)
    assert (point.steps, point.rounds_per_chunk, point.optimal) == (1, 1, True)
    (cast,) = point.schedule.casts
    assert not len(point.schedule)
    assert (0 in cast.sources and 0 in cast.destinations) == (able == NVLS)


def test_what_forwarding_attains_needs_no_cast() -> None:
    """Every rank receives what three others have: three rounds, with casts and without."""
    (with_casts,), (without,) = (found(star(4, able), "allgather") for able in (NVLS, "none"))
    assert with_casts.rounds_per_chunk == without.rounds_per_chunk == 3
    assert not len(with_casts.schedule.casts)
    assert list(with_casts.schedule) == list(without.schedule)


def test_casts_keep_to_groups_and_their_least_size() -> None:
    """One group has all ranks, also the issuer; three ranks are no group of five members."""
    assert all(one.whole and one.back for one in offers_of(limited(star(4, FREE), groups=1)))
    (cast,) = _one_step(limited(star(4, FREE), groups=1)).schedule.casts
    assert cast.destinations == (1, 2, 3, 0)
    small = limited(star(3, NVLS), least=4)
    assert not offers_of(small)
    first = _one_step(small)
    assert first.rounds_per_chunk == 2
    assert not len(first.schedule.casts)


def test_trees_of_several_switches_are_used_whole() -> None:
    """Four ranks on two leaves: what leaves rank 0 crosses a spine once and reaches all."""
    (point, *_) = found(racks("leaf", "spine"), "broadcast", Objective.LATENCY)
    (cast,) = point.schedule.casts
    assert (point.steps, point.rounds, sorted(cast.destinations)) == (1, 1, [1, 2, 3])


@settings(max_examples=examples(6, 60), suppress_health_check=list(HealthCheck))
@given(
    able_fabrics(max_ranks=4),
    st.sampled_from(["broadcast", "reduce", "allgather", "reduce_scatter", "allreduce"]),
)
def test_random_fabrics_stay_above_every_bound(machine: Topology, kind: str) -> None:
    problem = Problem(machine, make(kind, machine.ranks, roots=(0,) if kind in ROOTED else ()))
    points = found(machine, kind)
    least = bounds(machine, problem.collective)
    for point in points:
        assert least.rounds_per_chunk <= point.bound <= point.rounds_per_chunk
        assert point.steps >= least.steps
        for size in (10**3, 10**8):
            time = simulate(point.schedule, size).time_us
            assert time >= float(lower_bound_us(least, size)) * (1 - 1e-9)


# --- sums at all ranks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "able", "least"),
    [
        # Two steps: 2 (n - 1) / n, as without switches. Three: half of the message is exchanged in
        # the first, 3/8 of it in each direction of a port; its copies and the sums of the other
        # half fill the second with 1/2 + 1/8, the issuer's own copies counted; 3/8 in the last.
        (4, NVLS, {2: "3/2", 3: "11/8"}),
        (4, FREE, {2: "3/2", 3: "5/4"}),
        # As many bytes as without switches: 2 (n - 1) / n.
        (3, NVLS, {2: "4/3", 3: "4/3"}),
        # One pass.
        (4, TURNING, {1: "1"}),
    ],
)
def test_the_least_rounds_of_sums_with_casts(ranks: int, able: str, least: dict[int, str]) -> None:
    machine = star(ranks, able)
    points = {p.steps: p for p in found(machine, "allreduce")}
    (space, *_) = sum_spaces(machine)
    for steps, value in least.items():
        assert sum_bound(space, steps).rounds_per_chunk == Fraction(value)
        reached = min(p.rounds_per_chunk for s, p in points.items() if s <= steps)
        assert reached == Fraction(value)


@pytest.mark.parametrize(
    "schedule", [two_shot(4), two_shot(5, FREE), two_shot(3, TURNING), two_level(2), up_and_down()]
)
def test_what_others_wrote_takes_no_fewer_rounds_than_the_least(schedule: Schedule) -> None:
    """Schedules by hand: each chunk is summed at one place, each cast is over one switch or all."""
    rounds = Fraction(sum(rounds_of(schedule)), schedule.collective.factor)
    for space in sum_spaces(schedule.topology):
        assert sum_bound(space, schedule.steps).rounds_per_chunk <= rounds


def test_symmetry_changes_no_bound_of_sums() -> None:
    """The program of one rank with its images is that of all ranks."""
    under, plain = sum_spaces(star(3, FREE))
    assert (under.order, plain.order) == (3, 1)
    assert sum_bound(under, 3).rounds_per_chunk == sum_bound(plain, 3).rounds_per_chunk


def test_a_turn_is_as_good_as_what_packing_finds() -> None:
    machine = star(4, TURNING)
    size = 1 << 10
    problem = Problem(machine, make("allreduce", 4), bytes=size, objective=Objective.TIME)
    exact, packing = (
        min(
            simulate(p.schedule, size).time_us
            for p in synthesize(problem, engine, Budget(5)).points
        )
        for engine in (Exact(max_chunks=4, max_steps=3), Packer())
    )
    assert exact <= packing * (1 + 1e-9)


def test_without_capabilities_an_allreduce_is_halves_as_before() -> None:
    plain = star(3, "none")
    assert not takes_sum(Problem(plain, as_sum(3)))
    points = found(plain, "allreduce")
    assert [len(p.schedule.casts) for p in points] == [0] * len(points)

"""From packings to schedules: right on every machine, as loaded as the packing says, exactly."""

from dataclasses import replace
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from packings import COMBINING, COPYING, MACHINES, declared_group, mixed, named, quick, to_schedule
from strategies import topologies

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import lower_bound_us
from weft.synth.bounds.bounds import bounds
from weft.synth.engines.packing.order.plan import PackingPlan
from weft.synth.engines.packing.trees.model import Packing
from weft.synth.engines.packing.trees.quantize import largest_remainder
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

ROOTED = ("broadcast", "reduce", "gather", "scatter")


def proved(packing: Packing, schedule: Schedule) -> None:
    verdict = verify(schedule)
    assert verdict.ok, verdict.problems
    assert verdict.redundant == 0
    assert us_per_byte(schedule) == packing.us_per_byte
    assert len(schedule) == len(packing.images) * sum(map(len, packing.trees))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", COPYING + COMBINING)
@pytest.mark.parametrize("name", MACHINES)
def test_schedules_are_right_and_as_loaded_as_the_packing(
    name: str, kind: str, symmetric: bool
) -> None:
    packing = named(name, kind, symmetric=symmetric)
    schedule = to_schedule(packing, segments=2)
    proved(packing, schedule)
    time = simulate(schedule, 1 << 20).time_us
    known = bounds(packing.topology, packing.collective)
    assert time >= float(lower_bound_us(known, 1 << 20))


@pytest.mark.parametrize("kind", ROOTED)
@pytest.mark.parametrize("name", MACHINES)
def test_rooted_collectives(name: str, kind: str) -> None:
    packing = named(name, kind, symmetric=False)
    proved(packing, to_schedule(packing))


@settings(max_examples=examples(4, 12))
@given(data=st.data())
def test_random_machines_with_mixed_trees(data: st.DataObject) -> None:
    machine = data.draw(topologies())
    kind = data.draw(st.sampled_from(COPYING + COMBINING + ROOTED))
    collective = make(kind, machine.ranks)
    packing = quick(machine, collective)
    wider = quick(_slower_each_way(machine), collective)
    both = mixed([packing, replace(wider, topology=machine)], data.draw(st.integers(0, 99)))
    proved(both, to_schedule(both, segments=data.draw(st.integers(1, 3))))


def _slower_each_way(machine: Topology) -> Topology:
    """The same machine with other latencies, so that other routes are the quickest."""
    return replace(
        machine,
        links=tuple(replace(x, latency=Fraction(i % 5)) for i, x in enumerate(machine.links)),
    )


@pytest.mark.parametrize("kind", COPYING + COMBINING)
@pytest.mark.parametrize("name", ["ring:8", "torus:4x4", "dgx-a100:nodes=2"])
def test_images_are_what_the_group_says(name: str, kind: str) -> None:
    packing = named(name, kind)
    machine = packing.topology
    columns = to_schedule(packing)
    found = sorted(
        (_plain(columns.collective, t.chunk), t.src, t.dst, t.route, t.reduce) for t in columns
    )
    images, link_images = declared_group(machine)
    expected = []
    for node, link in zip(images.tolist(), link_images.tolist(), strict=True):
        for tree in packing.trees:
            for i in range(len(tree)):
                route = tree.route_links[tree.route_start[i] : tree.route_start[i + 1]]
                expected.append(
                    (
                        _moved(packing.collective, tree.chunk, node),
                        node[tree.src[i]],
                        node[tree.dst[i]],
                        tuple(link[k] for k in route),
                        bool(tree.reduce[i]),
                    )
                )
    assert found == sorted(expected)


def _plain(collective: Collective, piece: int) -> int:
    return int(collective.grains[:piece].sum()) // collective.factor


def _moved(collective: Collective, chunk: int, node: list[int]) -> int:
    n = collective.ranks
    match collective.kind:
        case "alltoall":
            return node[chunk // n] * n + node[chunk % n]
        case "allreduce":
            return chunk
        case _:
            return node[chunk]


def test_a_chain_of_sums_takes_as_many_steps_as_it_is_long() -> None:
    packing = named("ring:8", "allreduce", symmetric=False)
    schedule = to_schedule(packing)
    assert schedule.steps == max(packing.heights)


def test_chunks_that_stay_need_no_path() -> None:
    """Paths of alltoall need not name what a rank sends to itself."""
    packing = named("ring:8", "alltoall")
    moving = replace(packing, trees=tuple(t for t in packing.trees if len(t)))
    proved(moving, to_schedule(moving))


def test_shares_that_are_not_whole_are_refused() -> None:
    packing = named("ring:8", "allgather")
    half = tuple(replace(t, weight=t.weight / 2) for t in packing.trees)
    with pytest.raises(UserError, match="carry 1/2 of it"):
        to_schedule(replace(packing, trees=half))


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_exploding_denominators_are_rounded_and_cost_next_to_nothing(kind: str) -> None:
    one = named("torus:4x4", kind)
    odd = Fraction(10**12 + 39, 3 * 10**12)
    weights = [odd, 1 - odd]
    trees = tuple(replace(t, weight=t.weight * w) for w in weights for t in one.trees)
    plan = PackingPlan.of(replace(one, trees=trees))
    assert not plan.shares.exact
    schedule = plan.schedule()
    assert verify(schedule).ok
    assert abs(us_per_byte(schedule) / one.us_per_byte - 1) < Fraction(1, 10**5)


@given(parts=st.lists(st.integers(1, 1000), min_size=1, max_size=20), units=st.integers(1, 1000))
def test_largest_remainder(parts: list[int], units: int) -> None:
    exact = [Fraction(x, sum(parts)) for x in parts]
    whole = largest_remainder(exact, units)
    assert sum(whole) == units
    assert all(abs(w - x * units) < 1 for w, x in zip(whole, exact, strict=True))


def test_the_order_inside_a_step_is_that_of_the_priorities() -> None:
    packing = named("dgx-a100:nodes=2", "allgather")
    plan = PackingPlan.of(packing)
    priority = list(range(len(plan.hops)))[::-1]
    schedule = plan.schedule(priority, stride=len(priority), segments=4)
    assert schedule.priority is not None
    proved(packing, schedule)
    for step in range(schedule.steps):
        inside = schedule.priority[schedule.step == step].tolist()
        assert inside == sorted(inside)


def test_a_transfer_is_one_hop_over_its_route() -> None:
    machine = topology("ring:4")
    packing = quick(machine, make("broadcast", 4))
    first = to_schedule(packing)[0]
    assert first == Transfer(0, 0, first.dst, first.route, 0)
    assert machine.links[first.route[0]].dst == first.dst

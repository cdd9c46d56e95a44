"""Times of casts by the rule *legs*: by hand, and against a slow simulator."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from casts import FREE, NVLS, TURNING, racks, two_shot, up_and_down
from slow_legs import slow_time

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.casts import Casts
from weft.dsl.nouns.schedule import Schedule, dumps, load
from weft.dsl.nouns.topology import Topology
from weft.synth.engines.packing.casts.schedule import planned
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.time.cast_phases import Passage, phase_tables
from weft.synth.time.latency import latency_us
from weft.synth.time.moves import movements_of
from weft.synth.time.schedule_tables import CostModel, QueueTables, prepare
from weft.synth.time.schedule_time import simulate
from weft.synth.time.timeline import timeline

GB = 10**9
SLICED = [(2, 1), (3, 1), (3, 3), (4, 2)]
"""Numbers of ranks and of slices."""


def test_a_cast_that_turns_takes_the_buffer_once_and_two_latencies():
    one = two_shot(8, TURNING)
    assert latency_us(one) == 0.7
    assert simulate(one, GB).time_us == pytest.approx(GB / 450 / 1000 + 0.7)


def test_sums_and_copies_share_the_switch_where_their_order_is_planned():
    nvls = two_shot(8, NVLS)
    assert latency_us(nvls) == 1.4
    assert simulate(planned(replace(nvls, segments=64), 1), GB).time_us < 2560
    # Without slices all sums go before all copies.
    assert simulate(nvls, GB).time_us > 4400


def test_a_tree_up_and_down_takes_the_buffer_once_and_its_latency():
    one = up_and_down()
    assert latency_us(one) == 4
    assert simulate(one, GB).time_us == pytest.approx(GB / 50 / 1000 + 4)


@pytest.mark.parametrize(
    ("plain", "segments"),
    [
        *((two_shot(n, able), k) for able in (NVLS, FREE, TURNING) for n, k in SLICED),
        (up_and_down(), 1),
        (up_and_down(), 3),
    ],
)
def test_times_are_those_of_a_slow_simulator(plain: Schedule, segments: int):
    one = replace(plain, segments=segments)
    # Links of other widths and latencies: the slowest leg decides.
    links = tuple(
        replace(x, bandwidth=Fraction(50 + 13 * i), latency=Fraction(1 + i % 3, 4))
        for i, x in enumerate(one.topology.links)
    )
    uneven = replace(one, topology=replace(one.topology, links=links, symmetries=()))
    for size in (3000, 10**6):
        assert simulate(uneven, size).time_us == pytest.approx(float(slow_time(uneven, size)))


@pytest.mark.parametrize("segments", [1, 3])
def test_a_switch_lets_no_more_of_a_cast_through_than_its_slots(segments: int):
    """Against the slow simulator, and with one chunk of two as long as its limit says."""
    plain = replace(two_shot(3), segments=segments)
    rows = [
        replace(x, GBps=Fraction(7, 2) if x.chunk == 0 else Fraction(10**6)) for x in plain.casts
    ]
    one = replace(plain, casts=Casts.of(rows))
    for size in (3000, 10**6):
        assert simulate(one, size).time_us == pytest.approx(float(slow_time(one, size)))
        assert timeline(one, size).end_us.max() == pytest.approx(simulate(one, size).time_us)
    least = 10**6 / one.collective.message_chunks / 3.5 / 1000
    assert simulate(one, 10**6).time_us >= (2 if segments == 1 else 1) * least
    ready = prepare(one)
    assert ready.exact(12345).in_us().time_us == pytest.approx(ready.run(12345).time_us)
    read = load(json.loads(dumps(one)))
    assert list(read.casts) == rows
    assert us_per_byte(one) == Fraction(1, one.collective.message_chunks * 3500)


def test_compiled_and_plain_runs_agree():
    one = planned(replace(two_shot(4), segments=5), 1)
    ready = prepare(one)
    quick = ready.run(12345)
    with pytest.MonkeyPatch.context() as patch:  # of 64 bits
        patch.setattr(QueueTables, "fits", lambda *_: False)
        plain = ready.exact(12345).in_us()
    assert plain.time_us == pytest.approx(quick.time_us)
    assert plain.leg_end_us.tolist() == pytest.approx(quick.leg_end_us.tolist())


@pytest.mark.parametrize("plain", [two_shot(3), two_shot(3, TURNING), up_and_down()])
@pytest.mark.parametrize("segments", [1, 3])
def test_a_timeline_has_every_slice_of_every_leg(plain: Schedule, segments: int):
    one = replace(plain, segments=segments)
    run, whole = timeline(one, GB), simulate(one, GB)
    assert len(run) == one.moves * segments
    assert run.time_us == pytest.approx(whole.time_us)
    assert (run.ready_us <= run.start_us + 1e-9).all()
    assert (run.start_us <= run.left_us).all()
    moves = run.moves
    assert (moves.cast >= 0).all()
    assert run.end_us[-one.moves :][moves.leg].tolist() == pytest.approx(whole.leg_end_us.tolist())
    # No arrow leads to a leg out of a switch, which starts while others arrive there.
    assert (moves.src[run.feeds[:, 1] % one.moves] < one.topology.ranks).all()


def test_movements_tell_sums_from_copies():
    moves = movements_of(up_and_down())
    names = [node.name for node in racks().nodes]
    summed = {(names[moves.src[i]], names[moves.dst[i]]) for i in np.flatnonzero(moves.reduce)}
    assert len(summed) == 6
    assert ("leaf1", "spine0") in summed
    assert ("gpu2", "leaf1") in summed
    loads = movements_of(two_shot(3))
    assert loads.reduce[loads.cast == 0].all()
    assert not loads.reduce[loads.cast == 3].any()


def test_barriers_are_refused():
    with pytest.raises(UserError, match="steps with barriers"):
        simulate(two_shot(3), GB, CostModel(barrier=True))


# --- phases of plans ------------------------------------------------------------------------------


MB = 1_000_000


@pytest.fixture(scope="module")
def hub() -> Topology:
    """Four GPUs with 100 GB/s each way to one switch, 0.35 µs a hop."""
    return topology("hub:4,bw=100GB/s,capable=hub:multicast+reduces+issuer_in_group")


def links(hub: Topology, *ends: tuple[int, int]) -> tuple[int, ...]:
    between = {(one.src, one.dst): k for k, one in enumerate(hub.links)}
    return tuple(between[end] for end in ends)


def sum_at(hub: Topology, rank: int) -> tuple[int, ...]:
    return links(hub, *((r, 4) for r in range(4)), (4, rank))


def copy_of(hub: Topology, rank: int) -> tuple[int, ...]:
    return links(hub, (rank, 4), *((4, r) for r in range(4)))


def us(hub: Topology, *passages: Passage, slices: int = 1, grain: int = MB) -> float:
    tables = phase_tables(hub, passages)
    assert tables is not None
    return tables.time_us(hub, Fraction(grain), slices, 1)


def test_nothing_over_links_has_no_queues(hub: Topology) -> None:
    assert phase_tables(hub, [Passage(1)]) is None


def test_a_copy_passes_through(hub: Topology) -> None:
    """10 µs on each link, at once but for α; the longest way is the first hop and the second."""
    alpha = float(sum(hub.links[k].latency for k in links(hub, (0, 4), (4, 1))))
    assert us(hub, Passage(1, stores=copy_of(hub, 0))) == pytest.approx(10 + alpha)


def test_a_sum_is_stored_slice_by_slice(hub: Topology) -> None:
    """Whole it takes its two ways one after the other, in many slices little more than one: but
    for the issuer's own links, which each way has to itself in the other direction too."""
    one = Passage(1, sum_at(hub, 0), copy_of(hub, 0))
    alpha = float(sum(hub.links[k].latency for k in links(hub, (0, 4), (4, 1))))
    assert us(hub, one) == pytest.approx(20 + 2 * alpha)
    # Every byte crosses the issuer's links twice each way: 2 M/b, where four share it 5/4.
    assert us(hub, one, slices=64) == pytest.approx(20 + 10 / 64, rel=0.1)
    quarters = [Passage(1, sum_at(hub, r), copy_of(hub, r)) for r in range(4)]
    whole = us(hub, *quarters, slices=64, grain=16 * MB // 4) / 16
    assert whole == pytest.approx(1.25 * 10, rel=0.05)


def test_a_transfer_holds_its_route_beside(hub: Topology) -> None:
    route = links(hub, (0, 4), (4, 1))
    two = [Passage(1, stores=route, one_route=True)] * 2
    alpha = float(sum(hub.links[k].latency for k in route))
    assert us(hub, *two) == pytest.approx(20 + alpha)

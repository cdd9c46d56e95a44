"""What binds schedules of which it is known."""

import pytest

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Resource, Topology, gpu, link
from weft.synth.api import synthesize
from weft.synth.explain.critical import Binding, WaitReason, gap_words, what_binds

MB = 1_000_000


def line(*links: tuple[int, int], resources: tuple[Resource, ...] = ()) -> Topology:
    """GPUs joined by links of 10 GB/s and 1 µs."""
    ranks = 1 + max(max(ends) for ends in links)
    return Topology(
        "line",
        tuple(gpu(i) for i in range(ranks)),
        tuple(link(a, b, 10, 1) for a, b in links),
        resources,
    )


def follows(found: Binding) -> None:
    """The links of a chain follow each other, from the start of the clock to its end."""
    assert found.chain[0].start_us == 0
    assert found.chain[0].waits is WaitReason.START
    assert found.chain[-1].end_us == found.simulation.time_us
    for before, after in zip(found.chain, found.chain[1:], strict=False):
        assert after.freed_by == before.transfer
        assert before.start_us < after.start_us <= before.end_us


def test_chunks_over_one_link_wait_for_the_link() -> None:
    s = Schedule.of(
        line((0, 1), (1, 0)),
        make("broadcast", 2, chunks=3),
        [Transfer(c, 0, 1, (0,)) for c in range(3)],
    )
    found = what_binds(s, 3 * MB)
    follows(found)
    assert [x.waits for x in found.chain] == [
        WaitReason.START,
        WaitReason.RESOURCE,
        WaitReason.RESOURCE,
    ]
    assert [x.resource for x in found.chain] == [-1, 0, 0]
    assert found.busiest == 0
    assert found.busy_us == pytest.approx(300)
    assert found.share == pytest.approx(300 / 301)
    assert gap_words(found) == ["the time is the bound: no schedule is quicker"]


def test_a_chain_of_hops_waits_for_data() -> None:
    box = line((0, 1), (1, 2), (2, 3), (3, 0))
    s = Schedule.of(
        box, make("broadcast", 4), [Transfer(0, i, i + 1, (i,), step=i) for i in range(3)]
    )
    found = what_binds(s, MB)
    follows(found)
    assert [x.waits for x in found.chain] == [WaitReason.START, WaitReason.DATA, WaitReason.DATA]
    assert found.simulation.time_us == pytest.approx(303)
    assert found.share == pytest.approx(100 / 303)
    assert "3 hops one after the other" in gap_words(found)[-1]


def test_a_nic_that_two_share_is_what_binds() -> None:
    nic = Resource("nic", (0, 1), 5)
    box = line((0, 2), (1, 3), (2, 0), (3, 1), (0, 1), (1, 0), (2, 3), (3, 2), resources=(nic,))
    s = Schedule.of(
        box,
        make("allgather", 4),
        [
            Transfer(0, 0, 2, (0,)),
            Transfer(1, 1, 3, (1,)),
            Transfer(2, 2, 0, (2,)),
            Transfer(3, 3, 1, (3,)),
            Transfer(0, 0, 1, (4,)),
            Transfer(1, 1, 0, (5,)),
            Transfer(2, 2, 3, (6,)),
            Transfer(3, 3, 2, (7,)),
            Transfer(2, 0, 1, (4,), step=1),
            Transfer(3, 1, 0, (5,), step=1),
            Transfer(0, 2, 3, (6,), step=1),
            Transfer(1, 3, 2, (7,), step=1),
        ],
    )
    found = what_binds(s, 4 * MB)
    follows(found)
    assert found.name == "resource nic"
    assert found.busy_us == pytest.approx(400)
    # The second over the NIC waits for it, and then goes on to the other GPU.
    assert [x.waits for x in found.chain] == [
        WaitReason.START,
        WaitReason.RESOURCE,
        WaitReason.DATA,
    ]
    assert found.chain[1].resource == len(box.links)


@pytest.mark.parametrize(
    ("machine", "collective"),
    [("dgx1", "allgather"), ("ring:6", "allreduce"), ("hub:5", "alltoall"), ("dgx2", "broadcast")],
)
def test_the_chain_of_any_schedule_is_without_gaps(machine: str, collective: str) -> None:
    box = topology(machine)
    problem = Problem(box, make(collective, box.ranks), None, Objective.BANDWIDTH, 1 << 20)
    for point in synthesize(problem, "classic").points:
        for size in (1, 1 << 10, 1 << 24):
            found = what_binds(point.schedule, size)
            if point.schedule.segments == 1:
                follows(found)
            assert found.bound_us <= found.simulation.time_us * (1 + 1e-9)
            assert 0 < found.share <= 1 + 1e-9
            assert gap_words(found)


def test_nothing_binds_what_moves_nothing() -> None:
    with pytest.raises(UserError, match="moves nothing"):
        what_binds(Schedule.of(line((0, 1), (1, 0)), make("allgather", 1), ()), MB)

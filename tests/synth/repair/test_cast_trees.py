"""Schedules with casts after failures: the group shrinks, and what is mended is right."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from casts import FREE, able_machines, racks, star, up_and_down
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.failures import Degraded, Down, cut_off, degraded, find, rank_down
from weft.dsl.nouns.capabilities import CastLimits
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology, both_ways
from weft.synth.engines.classic.in_network import IN_NETWORK
from weft.synth.engines.classic.place import Site
from weft.synth.engines.packing.casts.schedule import lifted, planned, schedule_of
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import verify
from weft.synth.repair.mend import REPAIR_EFFORT, repair_casts, repairs, root_of
from weft.synth.steiner.packing import cast_packing


def named(name: str, kind: str, machine: Topology) -> Schedule:
    one = next(x for x in IN_NETWORK if (x.name, x.kind) == (name, kind))
    return one.schedule(Site(machine).switches)


def boxes() -> Topology:
    whole = topology("dgx-h100:nodes=2,nvls=on,sharp=fabric")
    return whole.restricted_to([0, 1, 2, 3, 8, 9, 10, 11])


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reduce_scatter"])
@pytest.mark.parametrize("down", ["gpu1-nvswitch0", "gpu1->nvswitch0", "nvswitch0->gpu1"])
def test_a_rank_without_its_link_is_served_from_outside_the_group(kind: str, down: str) -> None:
    whole = boxes()
    old = named("nvls_sharp", kind, whole)
    left = degraded(whole, [find(whole, down)])
    new = repair_casts(replace(old, segments=4), left)
    verdict = verify(new)
    assert verdict.ok, verdict.problems
    assert new.topology is left.topology


def spared() -> Topology:
    """A star whose ranks 0 and 1 have a cable of their own beside it."""
    hub = star(5, FREE, "100GB/s")
    return replace(hub, links=(*hub.links, *both_ways(0, 1, 100, 1)), symmetries=())


def test_the_group_shrinks_and_unhurt_chunks_stay() -> None:
    whole = spared()
    old = planned(replace(named("nvls", "allreduce", whole), segments=2), 1)
    left = degraded(whole, [find(whole, "gpu0-hub")])
    new = repair_casts(old, left)
    assert verify(new).ok
    assert new.planned
    for one in new.casts:  # rank 0 hangs on rank 1 by its cable
        assert 0 not in (*one.sources, *one.destinations)
    assert {(t.src, t.dst) for t in new} == {(0, 1), (1, 0)}
    assert len({frozenset((*c.sources, *c.destinations)) for c in new.casts}) == 1
    # What no failure hits is as it was.
    unused = degraded(whole, [Down("spare", (10, 11))])
    assert list(repair_casts(old, unused).casts) == list(old.casts)


def test_a_switch_of_one_group_takes_no_second_one() -> None:
    whole = spared()
    hub = replace(whole.nodes[5], limits=CastLimits(groups=1), issuer_in_group=True)
    whole = replace(whole, nodes=(*whole.nodes[:5], hub))
    old = named("nvls", "allreduce", whole)
    new = repair_casts(old, degraded(whole, [find(whole, "gpu0-hub")]))
    assert verify(new).ok
    with pytest.raises(UserError, match="2 groups of hub, which has 1"):  # in the sum, not a copy
        repair_casts(old, degraded(whole, [find(whole, "gpu0->hub")]))


def test_a_spine_is_lost() -> None:
    whole, old = racks("leaf", "spine"), up_and_down()
    old = replace(old, topology=whole)
    ((_, new),) = repairs(old, degraded(whole, [find(whole, "spine0")]), REPAIR_EFFORT)
    assert verify(new).ok
    assert us_per_byte(new) == us_per_byte(old)


@pytest.mark.parametrize(
    ("ranks", "ps", "casts"), [(7, "160/63", True), (3, "80/27", None), (2, "20/9", False)]
)
def test_a_gpu_leaves_the_group(ranks: int, ps: str, casts: bool | None) -> None:
    whole = topology("dgx-h100:nvls=on")
    left = degraded(whole, [rank_down(whole, r) for r in range(8 - ranks)])
    found = cast_packing(left.topology)
    assert found is not None
    assert found.us_per_byte * 10**6 == Fraction(ps)
    made = schedule_of(left.topology, make("allreduce", ranks), lifted(found))
    assert verify(made).ok
    assert casts is None or bool(len(made.casts)) == casts


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck), deadline=None)
@given(able_machines(), st.data())
def test_mended_schedules_are_right(whole: Topology, data: st.DataObject) -> None:
    found = cast_packing(whole)
    assert found is not None
    old = schedule_of(whole, make("allreduce", whole.ranks), lifted(found))
    dead: list[int] = []
    for i in data.draw(st.lists(st.integers(0, len(whole.links) - 1), max_size=3, unique=True)):
        if not cut_off(whole.without_links([*dead, i])):
            dead.append(i)
    left = degraded(whole, [Down("some", tuple(sorted(dead)))])
    if len(old.casts):
        assert verify(repair_casts(old, left)).ok


def test_what_cannot_be_mended_is_told() -> None:
    whole = star(4, FREE)
    old = named("nvls", "allreduce", whole)
    image = np.arange(len(whole.links)) - 1
    image[0] = -1
    lost = Degraded(whole, whole.without_links([0]), (), (0,), (0, 1, 2, 3), image)
    with pytest.raises(BadTopology, match="cannot reach each other"):
        repair_casts(old, lost)
    with pytest.raises(UserError, match="ranks are gone"):
        repair_casts(old, degraded(whole, [rank_down(whole, 0)]))


def test_the_root_is_the_first_rank_with_all() -> None:
    old = named("nvls", "allreduce", star(4, FREE))
    assert [root_of(old, chunk) for chunk in range(4)] == [0, 1, 2, 3]
    assert root_of(up_and_down(), 0) == 0

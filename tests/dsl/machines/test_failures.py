"""Naming what is down, and the machine that is left."""

from dataclasses import replace
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import topologies
from weft.dsl.base.errors import BadTopology, UserError
from weft.dsl.catalogue import topology
from weft.dsl.machines.failures import (
    cut_off,
    degraded,
    find,
    nic_down,
    ranges,
    rank_down,
    require_whole,
)
from weft.dsl.machines.nics import nics_of
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.topology import Link, Resource, Topology, gpu, switch
from weft.dsl.symmetry.symmetry import verified


def ends(machine: Topology, links: tuple[int, ...]) -> list[tuple[str, str]]:
    return sorted(
        (machine.nodes[machine.links[i].src].name, machine.nodes[machine.links[i].dst].name)
        for i in links
    )


@pytest.mark.parametrize(
    ("machine", "name", "links"),
    [
        ("dgx1", "gpu0-gpu3", [("gpu0", "gpu3"), ("gpu3", "gpu0")]),
        ("dgx1", "3-0", [("gpu0", "gpu3"), ("gpu3", "gpu0")]),
        ("dgx1", "gpu0->gpu3", [("gpu0", "gpu3")]),
        ("dgx-a100:nodes=2", "gpu3-rail3", [("gpu3", "rail3"), ("rail3", "gpu3")]),
        ("dgx-a100:nodes=2", "host1.nic2", [("gpu10", "rail2"), ("rail2", "gpu10")]),
        ("dgx-a100:nodes=2", "nic1.2", [("gpu10", "rail2"), ("rail2", "gpu10")]),
    ],
)
def test_names_stand_for_links(machine: str, name: str, links: list[tuple[str, str]]) -> None:
    made = topology(machine)
    assert ends(made, find(made, name).links) == links


def test_a_nic_that_is_a_node_goes_with_all_its_links() -> None:
    made = topology("ndv2:nodes=2")
    assert find(made, "nic1.0") == find(made, "host1.nic0") == nic_down(made, "nic1.0")
    assert {x for pair in ends(made, find(made, "nic1.0").links) for x in pair} == {
        "nic1.0",
        "fabric",
        *(f"gpu{r}" for r in range(8, 16)),
    }


def test_nics_of_fewer_than_slots_are_counted_and_keep_the_names_of_their_nodes() -> None:
    two = topology("dgx2:nodes=2,nics=4")
    first = [nic.names for nic in nics_of(two)[:2]]
    assert first == [("nic0.0", "host0.nic0"), ("nic0.2", "host0.nic1")]
    assert nic_down(two, "host0.nic1").name == "nic0.2"


def test_a_nic_that_is_a_shared_resource() -> None:
    nodes = (*(gpu(r, r // 2) for r in range(4)), switch("net"))
    links = tuple(Link(a, b, Fraction(25)) for r in range(4) for a, b in ((r, 4), (4, r)))
    shared = tuple(
        Resource(f"eth{h}", tuple(range(4 * h, 4 * h + 4)), Fraction(25)) for h in (0, 1)
    )
    made = Topology("two boxes", nodes, links, shared)
    assert [nic.names for nic in nics_of(made)] == [
        ("host0.nic0", "nic0.0", "gpu0", "gpu1", "eth0"),
        ("host1.nic0", "nic1.0", "gpu2", "gpu3", "eth1"),
    ]
    assert find(made, "eth1").links == (4, 5, 6, 7)
    assert nic_down(replace(made, resources=()), "gpu3").links == (6, 7)


def test_one_of_parallel_links() -> None:
    links = (*(Link(0, 1, Fraction(25)) for _ in range(3)), Link(1, 0, Fraction(25)))
    made = Topology("pair", (gpu(0), gpu(1)), links)
    assert find(made, "0-1").links == (0, 1, 2, 3)
    assert find(made, "0->1#2").links == (1,)
    assert find(made, "0-1#1").links == (0, 3)
    with pytest.raises(UserError, match="3 such links"):
        find(made, "0-1#4")


@pytest.mark.parametrize(
    ("machine", "name", "says"),
    [
        ("dgx1", "gpu0-gpu7", "expected a cable"),
        ("dgx1", "gpu0-gpu9", "gpu"),
        ("dgx1", "gpu0-", "write"),
        ("dgx1", "pgu3", "gpu3"),
        ("dgx-a100:nodes=2", "nvswich1", "nvswitch1"),
        ("dgx-a100:nodes=2", "host1.nic8", "host1.nic"),
        ("dgx-a100:nodes=2", "host2", "host0 … host1"),
        ("dgx1", "", "known"),
    ],
)
def test_names_that_are_not_there_suggest_those_that_are(
    machine: str, name: str, says: str
) -> None:
    with pytest.raises(UserError) as caught:
        find(topology(machine), name)
    assert says in caught.value.message + caught.value.hint


def test_a_switch_named_by_a_number_is_a_node() -> None:
    """As edge lists name them: 4 is no rank of four."""
    links = (Link(0, 2, 1), Link(2, 0, 1), Link(1, 2, 1), Link(2, 1, 1))
    machine = Topology("edges", (gpu(0), gpu(1), switch("2")), tuple(links))
    assert find(machine, "gpu0-2").links == (0, 1)
    assert find(machine, "1->2").links == (2,)


def test_machines_without_nics_say_so() -> None:
    with pytest.raises(UserError, match="no NICs"):
        nic_down(topology("dgx1"), "nic0")


def test_a_rank_that_is_gone_is_told_with_the_new_numbers() -> None:
    made = topology("dgx-a100:nodes=2")
    left = degraded(made, [rank_down(made, 4), find(made, "gpu9-rail1")])
    assert left.survivors == (0, 1, 2, 3, *range(5, 16))
    assert left.summary() == "without gpu4 and gpu9-rail1; ranks 5 … 15 are now 4 … 14"
    assert left.topology.nodes[4].name == "gpu5"
    assert left.dead_ranks == (4,)


def test_a_box_that_is_gone_takes_its_switches_along() -> None:
    made = topology("dgx-a100:nodes=3")
    left = degraded(made, [find(made, "host1")]).topology
    same = topology("dgx-a100:nodes=2")
    assert (left.ranks, len(left.nodes), len(left.links)) == (16, len(same.nodes), len(same.links))
    assert verified(left) == left.symmetries != ()


def test_dead_in_the_text_of_a_machine_takes_the_same_names() -> None:
    made = topology("dgx-a100:nodes=2")
    by_name = degraded(made, [find(made, "host0.nic3")]).topology
    assert topology("dgx-a100:nodes=2,dead=host0.nic3").links == by_name.links
    with pytest.raises(UserError, match="gpu3 is a rank"):
        topology("dgx1,dead=gpu3".replace(",", ":"))


def test_what_is_cut_off_is_named_as_it_was_numbered() -> None:
    made = topology("line:5")
    left = degraded(made, [rank_down(made, 0), find(made, "gpu3-gpu4")])
    assert cut_off(left.topology) == (3,)
    with pytest.raises(BadTopology, match="gpu4 is cut off") as caught:
        require_whole(left)
    assert caught.value.hint.endswith("--down-rank 4")
    assert ranges([1, 2, 3, 7]) == "1..3,7"


@pytest.mark.parametrize(
    ("down", "kind", "lost"),
    [
        ("gpu1->gpu0", "broadcast", ()),
        ("gpu0->gpu1", "broadcast", (1, 2)),
        ("gpu1->gpu0", "reduce", (1, 2)),
        ("gpu0->gpu1", "reduce", ()),
        ("gpu1->gpu2", "scatter", (2,)),
        ("gpu2->gpu1", "gather", (2,)),
        ("gpu1->gpu0", "allgather", (0,)),
        ("gpu1->gpu0", None, (0,)),
    ],
)
def test_what_needs_one_direction_loses_nothing_with_the_other(
    down: str, kind: str | None, lost: tuple[int, ...]
) -> None:
    made = topology("line:3")
    left = degraded(made, [find(made, down)])
    collective = None if kind is None else make(kind, 3)
    assert cut_off(left.topology, collective) == lost
    if lost:
        names = ", ".join(f"gpu{rank}" for rank in lost)
        with pytest.raises(BadTopology, match=f": {names} (is|are) cut off"):
            require_whole(left, collective)
    else:
        require_whole(left, collective)


@settings(deadline=None, max_examples=examples(30, 60))
@given(topologies(), st.data())
def test_what_is_left_is_the_machine_without_what_is_down(
    whole: Topology, data: st.DataObject
) -> None:
    names = [node.name for node in whole.nodes]
    names += [f"{whole.nodes[x.src].name}->{whole.nodes[x.dst].name}" for x in whole.links]
    chosen = data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    downs = [find(whole, name) for name in chosen]
    if {r for down in downs for r in down.ranks} == set(range(whole.ranks)):
        return
    left = degraded(whole, downs)
    for old, new in enumerate(left.link_image.tolist()):
        assert (new == -1) == (old in left.gone)
        if new >= 0:
            before, after = whole.links[old], left.topology.links[new]
            assert (before.bandwidth, before.latency) == (after.bandwidth, after.latency)
            assert ends(whole, (old,)) == ends(left.topology, (new,))
    assert {i for down in downs for i in down.links} <= set(left.gone)
    assert [whole.nodes[r].name for r in left.survivors] == [
        node.name for node in left.topology.nodes[: left.topology.ranks]
    ]
    assert verified(left.topology) == left.topology.symmetries

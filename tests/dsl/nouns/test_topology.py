"""The machine: what may not exist, and what its views say."""

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from strategies import topologies

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Resource, Topology, both_ways, gpu, link, switch

PAIR = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"links": (link(0, 2, 25),)}, "link"),
        ({"links": (link(0, 0, 25),)}, "itself"),
        ({"links": (link(0, 1, 0),)}, "bandwidth"),
        ({"links": (link(0, 1, 25, -1),)}, "latency"),
        ({"nodes": (gpu(0), gpu(0))}, "gpu0"),
        ({"nodes": (switch("s"), gpu(0))}, "first"),
        ({"nodes": (switch("s"), switch("t"))}, "expected GPUs"),
        ({"symmetries": ((0, 0),)}, "permutation"),
        ({"resources": (Resource("nic", (7,), F(1)),)}, "nic"),
    ],
)
def test_what_cannot_exist_is_refused_by_name(change, what):
    with pytest.raises(BadTopology, match=what):
        replace(PAIR, **change)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"links": (link(0, 1, "1e308"),)}, "link gpu0 -> gpu1 has bandwidth 1e\\+308 GB/s"),
        ({"links": (link(0, 1, "1e-308"),)}, "link gpu0 -> gpu1 has bandwidth 1e-308 GB/s"),
        ({"links": (link(0, 1, "1e999"),)}, "link gpu0 -> gpu1 has bandwidth 1e\\+999 GB/s"),
        ({"links": (link(0, 1, F(10**9 + 1)),)}, "bandwidth 1000000001 GB/s"),
        ({"links": (link(0, 1, F(1, 10**6 + 1)),)}, "bandwidth 1/1000001 GB/s"),
        ({"links": (link(0, 1, 25, "1e300"),)}, "link gpu0 -> gpu1 has latency 1e\\+300 µs"),
        ({"links": (link(0, 1, 25, F(10**9 + 1)),)}, "latency 1000000001 µs"),
        ({"resources": (Resource("nic", (0,), F(10**300)),)}, "'nic' has bandwidth 1e\\+300 GB/s"),
        ({"resources": (Resource("nic", (0,), F(1, 10**7)),)}, "'nic' has bandwidth 1/10000000"),
    ],
)
def test_numbers_that_no_machine_has_are_refused_with_the_limits(change, what):
    with pytest.raises(BadTopology, match=what) as caught:
        replace(PAIR, **change)
    assert "1e-6 … 1e9 GB/s" in caught.value.hint or "1e9 µs" in caught.value.hint


def test_the_limits_themselves_are_allowed():
    for bandwidth in (F(1, 10**6), F(10**9)):
        nic = Resource("nic", (0,), bandwidth)
        made = replace(PAIR, links=(link(0, 1, bandwidth, 10**9),), resources=(nic,))
        assert made.capacities() == (bandwidth, bandwidth)


def test_a_round_is_the_greatest_common_bandwidth():
    mixed = replace(PAIR, links=(link(0, 1, 50), link(1, 0, F(75, 2))))
    assert mixed.round_bandwidth() == F(25, 2)


@given(topologies())
def test_views_agree_with_the_links(machine):
    ends = machine.link_ends()
    assert ends.shape == (len(machine.links), 2)
    assert [(x.src, x.dst) for x in machine.links] == list(map(tuple, ends.tolist()))
    usage = machine.usage()
    assert tuple(map(machine.capacity, range(len(usage)))) == machine.capacities()
    for row, resource in enumerate(machine.resources, len(machine.links)):
        assert set(np.flatnonzero(usage[row]).tolist()) == set(resource.links)


@given(topologies())
def test_reversed_twice_is_the_machine_itself(machine):
    back = machine.reversed().reversed()
    assert (back.nodes, back.links, back.resources) == (
        machine.nodes,
        machine.links,
        machine.resources,
    )


@given(topologies())
def test_the_file_form_says_everything(machine):
    again = Topology.from_json(machine.to_json(), "text")
    assert again == machine
    assert again.digest() == machine.digest()


def test_a_group_keeps_the_links_between_its_members_and_the_ways_through_switches():
    box = topology("dgx1")
    part = box.restricted_to([0, 1, 2, 3])
    assert part.ranks == 4
    inside = [x for x in box.links if x.src < 4 and x.dst < 4]
    assert sorted((x.src, x.dst) for x in part.links) == sorted((x.src, x.dst) for x in inside)
    assert topology("hub:6").restricted_to([1, 4]).ranks == 2


def test_links_taken_away_leave_shared_resources_too():
    shared = replace(PAIR, resources=(Resource("nic", (0, 1), F(30)),))
    left = shared.without_links([0])
    assert [(x.src, x.dst) for x in left.links] == [(1, 0)]
    assert all(max(r.links, default=0) < 1 for r in left.resources)


def test_a_machine_without_capabilities_has_no_words_of_them() -> None:
    """Also where a word alone lets a switch do nothing."""
    plain = Topology(
        "star", (gpu(0), gpu(1), switch("s")), (*both_ways(0, 2, 25), *both_ways(1, 2, 25))
    )
    for words in (["issuer_in_group"], ["multicast", "reduces", "turns"]):
        able = plain.with_capabilities({2: words})
        assert able != plain
        assert able.without_capabilities() == plain

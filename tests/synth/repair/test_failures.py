"""What single failures cost: one per orbit says the same as each alone."""

from fractions import Fraction
from itertools import product

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.strategies import topologies
from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.topology import Link, Topology, gpu
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.repair.failures import WhatIf, singles, what_if


def told(found: WhatIf) -> dict[str, tuple[Fraction | None, tuple[int, ...]]]:
    """Cost and what is cut off (how many) of every failure, orbits spread out."""
    return {
        down.name: (loss.ratio, (len(loss.lost),))
        for loss in found.losses
        for down in (loss.down, *loss.others)
    }


@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        ("allgather", "torus:2x3"),
        *product(
            ["allgather", "allreduce", "broadcast", "reduce", "alltonext"],
            ["mesh:2x2", "fat-tree:k=2", "star:4"],
        ),
    ],
)
def test_orbits_change_nothing(monkeypatch: pytest.MonkeyPatch, machine: str, kind: str) -> None:
    made = topology(machine)
    collective = make(kind, made.ranks, roots=[1] if kind in ("broadcast", "reduce") else [])
    whole = what_if(made, collective)
    monkeypatch.setattr(
        "weft.synth.repair.failures._orbits", lambda _machine, _what, downs: [[x] for x in downs]
    )
    alone = what_if(made, collective)
    assert told(whole) == told(alone)
    assert len(alone.losses) == len(singles(made)) == sum(x.count for x in whole.losses)


@settings(deadline=None, max_examples=examples(5, 8))
@given(
    topologies(max_ranks=4),
    st.sampled_from([Kind.ALLGATHER, Kind.ALLREDUCE, Kind.BROADCAST]),
    st.booleans(),
    st.sampled_from([None, 1, 1 << 20]),
)
def test_costs_are_those_of_the_bounds_of_what_is_left(
    machine: Topology, kind: Kind, directions: bool, size: int | None
) -> None:
    collective = make(kind, machine.ranks)
    before = bounds(machine, collective)
    found = what_if(machine, collective, message_bytes=size, directions=directions)
    costs = {d.name: loss.ratio for loss in found.losses for d in (loss.down, *loss.others)}
    ratios = [loss.ratio for loss in found.losses if loss.ratio is not None]
    assert ratios == sorted(ratios, reverse=True)
    for down in singles(machine, directions=directions):
        left = machine.without_links(down.links)
        try:
            after = bounds(left, collective)
        except BadTopology:
            assert costs[down.name] is None
            continue
        if size is None:
            assert costs[down.name] == after.us_per_byte / before.us_per_byte
        else:
            assert costs[down.name] == lower_bound_us(after, size) / lower_bound_us(before, size)


def test_large_machines_are_looked_at_once_per_orbit() -> None:
    found = what_if(topology("dgx-a100:nodes=4"), make("allgather", 32))
    assert [(x.down.name, x.count, x.ratio) for x in found.losses] == [
        ("gpu0-nvswitch0", 32, Fraction(31 * 8 * 25, 25 * 3 * 8)),
        ("host0.nic0", 32, Fraction(8, 7)),
    ]


def test_parallel_links_fail_one_by_one_and_are_alike() -> None:
    links = [Link(a, b, Fraction(25)) for a, b in ((0, 1), (0, 1), (1, 0), (1, 0))]
    pair = Topology("pair", (gpu(0), gpu(1)), tuple(links))
    (loss,) = what_if(pair, make("allgather", 2)).losses
    assert (loss.down.name, loss.count, loss.ratio) == ("gpu0-gpu1#1", 2, 2)
    names = [down.name for down in singles(pair, directions=True)]
    assert names == ["gpu0->gpu1#1", "gpu0->gpu1#2", "gpu1->gpu0#1", "gpu1->gpu0#2"]


def test_a_bridge_cuts_off_the_smaller_part_and_comes_first() -> None:
    found = what_if(topology("line:4"), make("allreduce", 4))
    assert [(x.down.name, x.lost) for x in found.losses] == [
        ("gpu0-gpu1", (0,)),
        ("gpu1-gpu2", (2, 3)),
    ]

"""Pairs served across a cut in time: closed forms, and no schedule is quicker on any machine."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import ROOTED, make, one_shot_allreduce
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.classic.place import Site, names_for
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

KINDS = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter")
SIZES = (1 << 10, 1 << 15)
MACHINES = ("hub:6", "ring:5", "full:5", "dgx1", "mesh:2x3")


@pytest.mark.parametrize("kind", ["allreduce", "broadcast", "reduce"])
def test_a_fat_tree_of_sixteen_by_hand(kind: str) -> None:
    """Between pods α is 3, in a pod 2, at one switch 1 µs; ports are of 25 GB/s.

    Of four ports of a pod, what crosses up to x µs after the first that can, and x µs before the
    last, serves 4 of 12 pairs a byte, between them 2: 12 M = 25 (4 + 8 x), T = 5 + x.
    """
    machine = topology("fat-tree:k=4")
    roots = (0,) if kind in ROOTED else ()
    found = bounds(machine, make(kind, 16, roots=roots))
    x = (Fraction(12 * (1 << 14), 25_000) - 4) / 8
    assert lower_bound_us(found, 1 << 14) == 5 + x
    plain = lower_bound_us(replace(found, reach=()), 1 << 14)
    assert plain < Fraction(3, 4) * (5 + x)


@pytest.mark.parametrize("chunks", [1, 3])
def test_sums_after_an_allgather_need_no_more_than_an_allreduce(chunks: int) -> None:
    machine, size = topology("ring:3"), 1 << 12
    found = bounds(machine, one_shot_allreduce(3, chunks=chunks))
    assert lower_bound_us(found, size) == lower_bound_us(
        bounds(machine, make("allreduce", 3)), size
    )
    assert lower_bound_us(found, size) == Fraction("0.7") + Fraction(
        size, 25_000
    )  # to both at once


def schedules(machine: Topology, kind: str) -> list[Schedule]:
    """All classic algorithms that fit a machine."""
    site, found = Site(machine), []
    for name in names_for(kind):
        try:
            written = site.algorithm(name, kind, own_order=True)
            made = to_schedule(written, machine, 1 << 14, site.routes)
        except UserError:
            continue
        if verify(made).ok:
            found.append(made)
    return found


@settings(max_examples=examples(5, 15), deadline=None)
@given(st.sampled_from(MACHINES), st.sampled_from(KINDS), st.integers(0, 10_000))
def test_no_schedule_is_quicker(name: str, kind: str, seed: int) -> None:
    """Classic algorithms, whole and in slices, on machines with links of random α and bandwidth."""
    rng = random.Random(seed)
    machine = topology(name)
    links = tuple(
        replace(
            x,
            latency=x.latency * rng.choice((1, 1, 2, Fraction(1, 3))),
            bandwidth=x.bandwidth * rng.choice((1, 1, 2, Fraction(1, 2))),
        )
        for x in machine.links
    )
    machine = replace(machine, links=links, symmetries=())
    roots = (0,) if kind in ROOTED else ()
    found = bounds(machine, make(kind, machine.ranks, roots=roots))
    for made in schedules(machine, kind):
        for segments in (1, 8):
            for size in SIZES:
                us = simulate(replace(made, segments=segments), size).time_us
                least = float(lower_bound_us(found, size))
                assert us >= least * (1 - 1e-9), (made.provenance, segments, size)


def test_switches_that_copy_serve_several_at_once() -> None:
    """There a byte may come down on many ranks: nothing is counted."""
    machine = topology("dgx2")
    capable = replace(
        machine,
        nodes=tuple(x if x.stores else replace(x, multicast=True) for x in machine.nodes),
        symmetries=(),
    )
    broadcast = make("broadcast", 16, roots=(0,))
    assert bounds(machine, broadcast).reach
    assert not bounds(capable, broadcast).reach


def test_curves_grow_with_the_message_and_are_concave() -> None:
    found = bounds(topology("dgx2"), make("allreduce", 16)).reach
    for one in found:
        times = [one.at(n) for n in range(0, 1 << 18, 1 << 14)]
        steps = [b - a for a, b in pairwise(times)]
        assert all(a >= b > 0 for a, b in pairwise(steps))

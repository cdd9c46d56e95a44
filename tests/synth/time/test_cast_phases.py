"""Phases of plans with casts against times worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.nouns.topology import Topology
from weft.synth.time.cast_phases import Passage, phase_tables

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

"""Machines that cannot do it are told why, and no number is too odd."""

import json
from fractions import Fraction

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.dsl.base.errors import BadTopology
from weft.dsl.catalogue import topology as machine
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.topology import Link, Resource, Topology, both_ways, gpu, switch
from weft.synth.bounds import bounds, lower_bound_us

KINDS = ["allgather", "reduce_scatter", "allreduce", "alltoall", "broadcast", "gather", "scatter"]


def test_a_lost_rank_is_named_with_the_cut():
    lost = Topology(
        "lost",
        (*map(gpu, range(4)), switch("sw")),
        (*both_ways(0, 4, 25), *both_ways(1, 4, 25), *both_ways(2, 3, 25)),
    )
    for judge in (bounds, Problem):
        with pytest.raises(BadTopology) as caught:
            judge(lost, make("allgather", 4))
        assert "rank 0 cannot reach ranks 2, 3, which" in caught.value.message
        assert "no link enters {gpu2, gpu3}" in caught.value.message


def test_a_one_way_machine_is_named_from_its_smaller_side():
    links = tuple(Link(i, i + 1, Fraction(25)) for i in range(3))
    line = Topology("line", tuple(map(gpu, range(4))), links)
    with pytest.raises(BadTopology, match=r"rank 1 cannot reach rank 0.* enters \{gpu0\}"):
        bounds(line, make("allgather", 4))
    assert bounds(line, make("broadcast", 4)).latency_us == 0


def test_failures_that_cut_a_machine_in_two():
    ring = machine("ring:8")
    dead = [i for i, x in enumerate(ring.links) if {x.src, x.dst} in ({3, 4}, {7, 0})]
    with pytest.raises(BadTopology, match=r"no link leaves \{gpu0, gpu1, gpu2, gpu3\}"):
        Problem(ring.without_links(dead), make("allreduce", 8))


odd = st.builds(
    Fraction, st.integers(10**18, 10**20), st.integers(10**16, 10**19)
)  # 0.1 … 10 000 GB/s, denominators of up to 19 digits


@settings(max_examples=examples(5, 40), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.sampled_from(KINDS), st.integers(2, 4), st.booleans(), st.data())
def test_absurd_rationals_neither_overflow_nor_break_the_bound(kind, n, shared, data):
    links = []
    for i in range(n):
        links += both_ways(i, (i + 1) % n, 1)
    links = [
        Link(x.src, x.dst, data.draw(odd), Fraction(data.draw(st.integers(0, 10**20)), 10**19 + 9))
        for x in links
    ]
    ports = (Resource("port", (0, 2 * n - 1), data.draw(odd)),) if shared else ()
    where = Topology("odd", tuple(map(gpu, range(n))), tuple(links), ports)
    found = bounds(where, make(kind, n))
    json.dumps(found.to_json())
    # The same machine with floats for numbers, a little faster: nothing may be lost but digits.
    plain = [Link(x.src, x.dst, _near(x.bandwidth), _near(x.latency)) for x in links]
    near = tuple(Resource(r.name, r.links, _near(r.bandwidth)) for r in ports)
    close = Topology("close", where.nodes, tuple(plain), near)
    other = bounds(close, make(kind, n))
    assert float(found.us_per_byte) == pytest.approx(float(other.us_per_byte), rel=1e-4)
    assert float(found.latency_us) == pytest.approx(float(other.latency_us), rel=1e-4, abs=1e-6)
    for size in (1, 10**6, 10**12):
        assert lower_bound_us(found, size) >= max(found.latency_us, found.us_per_byte * size)


def _near(value: Fraction) -> Fraction:
    return Fraction(round(value * 10**6), 10**6)


def test_decimals_with_many_digits():
    third = Fraction(1, 3) + Fraction("1e-9") + Fraction("1.234567890123456789e-12")
    widths = [third + i * Fraction("1e-15") for i in range(6)]
    links = tuple(x for i in range(6) for x in both_ways(i, (i + 1) % 6, widths[i], third))
    where = Topology("digits", tuple(map(gpu, range(6))), links)
    for kind in KINDS:
        assert bounds(where, make(kind, 6)).us_per_byte > 0

"""Bounds of whole chunks: known values, and nothing that any engine finds is below them."""

from fractions import Fraction

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds.whole_chunks import whole_chunk_bound
from weft.synth.time.schedule_time import simulate


def least(machine: Topology, kind: str, size: int) -> tuple[Fraction, str]:
    collective = make(kind, machine.ranks)
    found = whole_chunk_bound(machine, collective, Fraction(size, collective.message_chunks))
    return found.us, found.certificate.text


def test_the_tail_of_a_whole_chunk_counts() -> None:
    """G08: 24 chunks through the NIC, then from the GPU it came to over three double links."""
    us, text = least(topology("ndv2:nodes=4"), "allgather", 10**9)
    assert us == Fraction("61879.0")
    assert "24 whole chunks" in text
    assert "1,876.4 µs from there" in text


def test_a_path_counts_hop_by_hop() -> None:
    us, text = least(topology("line:4,bw=50GB/s"), "broadcast", 10**6)
    assert us == 3 * (20 + Fraction("0.7"))
    assert "GPU by GPU" in text


@settings(max_examples=examples(4, 25), deadline=None)
@given(topologies(max_ranks=5), st.sampled_from(["allgather", "alltoall"]), st.integers(1, 10**7))
def test_nothing_is_below(machine: Topology, kind: str, size: int) -> None:
    bound, _ = least(machine, kind, size)
    problem = Problem(machine, make(kind, machine.ranks), None, Objective.TIME, size)
    for engine in ("sketched{chunks=1,patience=50}", "greedy{chunks=1,seeds=1}"):
        (point,) = synthesize(problem, engine, Budget(2)).points
        assert simulate(point.schedule, size).time_us >= float(bound) * (1 - 1e-9)


@pytest.mark.parametrize("size", [10**9, 10**6, 10**3])
def test_what_is_asked_for_in_one_chunk_meets_it(size: int) -> None:
    machine = topology("hub:8")
    problem = Problem(machine, make("allgather", 8), None, Objective.TIME, size)
    outcome = synthesize(problem, "sketched{chunks=1}", Budget(5))
    bound, _ = least(machine, "allgather", size)
    assert simulate(outcome.points[0].schedule, size).time_us == pytest.approx(float(bound))
    assert outcome.status == "optimal"

"""Waves of whole chunks: known optima, certificates proved anew, and never above a schedule."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from examples import examples
from wave_cases import connected, least_us
from wave_checks import proved_us

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Link, Resource, Topology, both_ways, gpu, switch
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget
from weft.synth.bounds import chunk_bound, own_chunk_bound
from weft.synth.bounds.effort import BoundEffort
from weft.synth.bounds.whole_chunks import WholeChunks, whole_chunk_bound
from weft.synth.explain.critical import gap_words, what_binds
from weft.synth.time.schedule_time import simulate

SMALL = BoundEffort(wave_receptions=0)
"""Limits without waves."""


def boxes(pairs: list[tuple[int, int]]) -> Topology:
    """Two boxes of 4 GPUs on a switch each (TACCL's ``box_1MB``), with connections from local rank
    to local rank; several from one NIC's GPUs share what it has, out and in."""
    inside, outside = Fraction(16384, 125), Fraction(131072, 13125)
    links = [x for v in range(8) for x in both_ways(v, 8 + v // 4, inside, "0.15")]
    ends = [(a + h, b + 4 - h) for h in (0, 4) for a, b in pairs]
    first = len(links)
    links += [Link(a, b, outside, Fraction("2.6")) for a, b in ends]
    shared = []
    if len(pairs) > 4:
        for nic in range(4):
            for way in (0, 1):
                mine = tuple(first + i for i, e in enumerate(ends) if e[way] // 2 == nic)
                shared.append(Resource(f"nic{nic}.{way}", mine, outside))
    nodes = (*(gpu(v, v // 4) for v in range(8)), switch("hub0", 0), switch("hub1", 1))
    return Topology("boxes", nodes, tuple(links), tuple(shared))


TWO, ONE = [(1, 0), (3, 2)], [(1, 0)]
ALL = [(a, b) for a in range(4) for b in range(4)]


@pytest.mark.parametrize(
    ("pairs", "pieces", "size", "bound", "optimum"),
    [
        (TWO, 1, 1_000, 3.2144, 3.2163),
        (TWO, 1, 64_000, 4.6853, 4.6853),
        (TWO, 1, 10**6, 30.1413, 30.1413),
        (ONE, 1, 1_000, 3.2414, 3.2414),
        (ONE, 1, 64_000, 6.2875, 6.2875),
        (ONE, 1, 10**6, 55.1753, 55.1753),
        (ALL, 1, 1_000, 2.7001, 2.7001),
        (ALL, 1, 64_000, 4.6853, 4.6853),
        (ALL, 1, 10**6, 30.1413, 30.1413),
        (TWO, 2, 1_000, 3.2135, 3.2144),
        (TWO, 2, 64_000, 4.5937, 4.5937),
        (TWO, 2, 10**6, 29.1876, 29.1876),
    ],
)
def test_small_boxes(
    pairs: list[tuple[int, int]], pieces: int, size: int, bound: float, optimum: float
) -> None:
    """The optima are CP-SAT's, over optional intervals; 10 of 12 are met."""
    found = chunk_bound(boxes(pairs), make("allgather", 8).split(pieces), size)
    assert found is not None
    assert float(found.us) == pytest.approx(bound, abs=5e-5)
    assert float(found.us) <= optimum + 5e-5


@pytest.mark.parametrize(
    ("machine", "size", "bound", "incumbent"),
    [
        ("dgx2:nodes=2", 1 << 20, 10.815744, 10.8789),
        ("dgx2:nodes=2", 1 << 16, 3.660448, 3.8869),
        ("ndv2:nodes=2", 1 << 16, 5.999162, 6.1900),
    ],
)
def test_two_boxes_of_the_catalogue(
    machine: str, size: int, bound: float, incumbent: float
) -> None:
    """Against the best known schedules in one piece per rank."""
    there = topology(machine)
    for kind in ("allgather", "reduce_scatter"):
        found = chunk_bound(there, make(kind, there.ranks), size)
        assert found is not None
        assert float(found.us) == pytest.approx(bound, abs=1e-6)
        assert float(found.us) < incumbent


def test_boxes_without_declared_hosts_are_found() -> None:
    there = topology("ndv2:nodes=2")
    plain = replace(
        there, nodes=tuple(replace(x, host=None) for x in there.nodes), host_names=(), symmetries=()
    )
    for size in (1 << 10, 1 << 16):
        one, other = (chunk_bound(x, make("allgather", 16), size) for x in (there, plain))
        assert one is not None
        assert other is not None
        assert one.us == other.us


def drawn(seed: int, most_ranks: int = 8) -> tuple[Topology, WholeChunks, WholeChunks, Fraction]:
    rng = random.Random(seed)
    machine, collective, pieces = connected(rng, most_ranks)
    grain = Fraction(rng.choice((64, 1000, 8192, 65536)))
    asked = machine, collective.split(pieces), grain
    with_waves = whole_chunk_bound(*asked)
    if with_waves.certificate.kind == "chunk waves":
        assert proved_us(*asked, with_waves.certificate.data) == with_waves.us
    best = least_us(*asked, 0.2) if most_ranks < 5 and not collective.combining else None
    without = whole_chunk_bound(*asked, None, SMALL)
    return machine, with_waves, without, best if best is not None else with_waves.us


def test_random_certificates_are_proved_anew() -> None:
    seen = [drawn(seed) for seed in range(examples(60, 300))]
    assert sum(with_waves.us > without.us for _, with_waves, without, _ in seen) > len(seen) // 10


def test_no_schedule_of_cp_sat_is_below() -> None:
    for seed in range(examples(12, 60)):
        _, with_waves, _, best = drawn(seed, 4)
        assert with_waves.us <= best


WRONG: list[Callable[[dict[str, list[int]]], object]] = [
    lambda x: x.update(times=[*x["times"][:-1], x["times"][-1] + 1]),
    lambda x: x.update(entries=[x["entries"][0] + 1, *x["entries"][1:]]),
    lambda x: x.update(far=[at + 1 for at in x["far"]]),
    lambda x: x.update(doors=x["doors"][1:]),
    lambda x: x.update(ready=[at + 1 for at in x["ready"]]),
]


@pytest.mark.parametrize("spoil", WRONG)
def test_a_certificate_that_claims_more_is_refused(
    spoil: Callable[[dict[str, list[int]]], object],
) -> None:
    machine, collective = boxes(TWO), make("allgather", 8)
    found = chunk_bound(machine, collective, 1 << 20)
    assert found is not None
    data = json.loads(json.dumps(found.certificate.data))
    grain = Fraction(1 << 20, collective.message_chunks)
    assert proved_us(machine, collective, grain, data) == found.us
    spoil(data)
    with pytest.raises(AssertionError):
        proved_us(machine, collective, grain, data)


def test_slices_are_pieces_and_casts_are_none_of_them() -> None:
    machine = topology("ndv2:nodes=2")
    problem = Problem(machine, make("allgather", 16), None, Objective.TIME, 1 << 20)
    (point,) = synthesize(problem, "sketched{chunks=1,patience=20}", Budget(1)).points
    whole, size = point.schedule, 1 << 20
    sliced = replace(whole, segments=4)
    for schedule in (whole, sliced):
        found = own_chunk_bound(schedule, size)
        assert found is not None
        assert found.pieces == schedule.segments
        assert float(found.us) <= simulate(schedule, size).time_us
    words = gap_words(what_binds(whole, size))
    assert any("forward 1 equal piece of each unit whole" in x for x in words)
    assert chunk_bound(machine, make("allreduce", 16), size) is None
    with pytest.raises(UserError, match="one rank per chunk"):
        whole_chunk_bound(machine, make("allreduce", 16), Fraction(1))

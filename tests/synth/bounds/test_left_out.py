"""Proofs about whole chunks, where a machine has ways that their hops leave out: casts, routes."""

from dataclasses import replace
from fractions import Fraction

import pytest

from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.topology import Topology, both_ways, gpu, switch
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Status
from weft.synth.bounds.in_chunks import chunk_bound
from weft.synth.engines.intervals.frontier import time_frontier
from weft.synth.explain.within import Possibility, explain_within
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

SIZE = 6 << 20
"""Bytes of a message."""
EFFORT = Budget(2)
ROUNDED = 1 + 1e-6
"""Ratio of times that rounding explains."""


def rails() -> Topology:
    """Return two GPUs over six switches: two more routes than are looked at."""
    nodes = (gpu(0), gpu(1), *(switch(f"rail{i}") for i in range(6)))
    ways = [both_ways(v, 2 + i, 25, Fraction(1)) for i in range(6) for v in (0, 1)]
    return Topology("rails", nodes, tuple(link for pair in ways for link in pair))


def casting() -> Topology:
    """Return a hub that copies."""
    hub = topology("hub:4")
    nodes = (*hub.nodes[:-1], replace(hub.nodes[-1], multicast=True))
    return replace(hub, nodes=nodes)


CASES = [(rails(), 6, "slower routes"), (casting(), 1, "casts of switches")]


@pytest.mark.parametrize(("machine", "chunks", "beyond"), CASES, ids=["routes", "casts"])
def test_no_proof_excludes_the_time_of_a_verified_schedule(
    machine: Topology, chunks: int, beyond: str
) -> None:
    collective = make("broadcast", machine.ranks)
    sketch = elaborate(parse(f"sketch cut\nchunks {chunks}\n", "cut"), machine)
    plain = Problem(machine, collective, None, Objective.TIME, SIZE)
    schedule = synthesize(replace(plain, sketch=sketch), budget=EFFORT).points[0].schedule
    us = simulate(schedule, SIZE).time_us
    assert verify(schedule, sketch).ok

    for engine in ("intervals", "sketched"):
        found = synthesize(plain, f"{engine}{{chunks={chunks}}}", EFFORT)
        assert simulate(found.points[0].schedule, SIZE).time_us > 1.5 * us
        assert found.status is Status.FEASIBLE
        assert (found.points[0].least_us or 0.0) <= us * ROUNDED
        assert beyond in " ".join(found.statements)
    (size,) = time_frontier(plain, [SIZE], budget=EFFORT)
    assert not size.proved
    assert all(cut.least_us <= us * ROUNDED for cut in size.cuts)

    within = explain_within(machine, collective, sketch, SIZE, Fraction(us) * 11 / 10, EFFORT)
    assert within.answer.verdict is Possibility.POSSIBLE


def test_a_bound_of_whole_chunks_names_the_schedules_that_it_holds_for() -> None:
    rooted = make("broadcast", 4)
    with_casts, without = (chunk_bound(x, rooted, SIZE) for x in (casting(), topology("hub:4")))
    assert with_casts is not None
    assert without is not None
    assert with_casts.us == without.us
    assert "schedules of transfers" in with_casts.holds_for
    assert "of transfers" not in without.holds_for
    assert chunk_bound(rails(), make("broadcast", 2), SIZE) is None

"""The engine ``sketched``: right on random machines, under rules, as good as what is published."""

import pytest
from enough import Enough
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import topologies

from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate
from weft.dsl.language.parse import parse
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import Sketch
from weft.dsl.nouns.topology import Topology
from weft.synth.api import synthesize
from weft.synth.base.engine import Budget, Outcome, Status
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.judge.verify import verify
from weft.synth.time.schedule_time import simulate

GATES = "between nodes: relay any through 0 -> 1\n"
NODES = "symmetry: rotate nodes\n"


def ruled(machine: Topology, *rules: str) -> Sketch:
    return elaborate(parse("sketch test\n" + "".join(rules), "test"), machine)


def solved(
    machine: Topology,
    kind: str,
    size: int,
    sketch: Sketch | None = None,
    engine: str = "sketched{patience=500}",
    effort: float = 3,
    enough: float = 0,
) -> Outcome:
    """Outcome of an engine, which may stop at a schedule of at most ``enough`` µs."""
    roots = (0,) if kind in ("broadcast", "scatter", "gather", "reduce") else ()
    collective = make(kind, machine.ranks, roots=roots)
    problem = Problem(machine, collective, sketch, Objective.TIME, size)
    return synthesize(problem, engine, Budget(effort), Enough(problem, enough))


def best(outcome: Outcome) -> Schedule:
    return outcome.points[0].schedule


@settings(max_examples=examples(4, 25), deadline=None)
@given(
    topologies(max_ranks=5),
    st.sampled_from(
        ["allgather", "alltoall", "allreduce", "broadcast", "reduce_scatter", "gather"]
    ),
    st.integers(1, 10**8),
)
def test_random_machines(machine: Topology, kind: str, size: int) -> None:
    schedule = best(solved(machine, kind, size, engine="sketched{patience=50}", effort=0.5))
    assert verify(schedule).ok
    least = lower_bound_us(bounds(machine, schedule.collective.plain()), size)
    assert simulate(schedule, size).time_us >= float(least) * (1 - 1e-9)


def test_one_chunk_per_gpu_through_one_gate_is_proved_best() -> None:
    """G08 unsplit: 60 ms for 24 chunks on the NIC, then three double links, 1,875 µs."""
    machine = topology("ndv2:nodes=4")
    sketch = ruled(machine, "chunks 1\n", GATES, NODES)
    outcome = solved(machine, "allgather", 10**9, sketch)
    assert outcome.status is Status.OPTIMAL
    assert simulate(best(outcome), 10**9).time_us == pytest.approx(61_879.0)
    assert "24 whole chunks" in outcome.statements[0]


@pytest.mark.parametrize(
    ("nodes", "kind", "size", "limit"),
    [
        (2, "allgather", 10**9, 40_800),  # TACCL: 53,767 µs, TE-CCL 43,750 µs
        (2, "alltoall", 10**9, 321_000),
        (4, "allgather", 10**6, 67),  # TE-CCL: 69.4 µs
    ],
)
def test_published_times_are_met(nodes: int, kind: str, size: int, limit: float) -> None:
    machine = topology(f"ndv2:nodes={nodes}")
    sketch = ruled(machine, GATES, NODES)
    schedule = best(solved(machine, kind, size, sketch, "sketched", 40, limit))
    assert simulate(schedule, size).time_us <= limit


@pytest.mark.parametrize("kind", ["allgather", "allreduce"])
def test_trees_keep_to_a_sketch_too(kind: str) -> None:
    machine = topology("ndv2:nodes=2")
    sketch = ruled(machine, GATES, NODES)
    most_us = 1.02 * (80_000 if kind == "allreduce" else 40_000)
    schedule = best(solved(machine, kind, 10**9, sketch, "packing", 10, most_us))
    assert verify(schedule, sketch).ok
    hosts = machine.host_of
    crossing = {
        (int(u), int(v))
        for u, v in zip(schedule.src, schedule.dst, strict=True)
        if hosts[u] != hosts[v]
    }
    assert crossing == {(0, 9), (8, 1)}
    assert simulate(schedule, 10**9).time_us <= most_us


def test_rules_of_hops_and_symmetry_hold() -> None:
    machine = topology("torus:3x3")
    sketch = ruled(machine, "max hops 2\n", "symmetry: rotate 3\n")
    outcome = solved(machine, "allgather", 10**6, sketch)
    assert verify(best(outcome), sketch).ok
    assert max(best(outcome).step) == 1


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("ndv2:nodes=2,fabric=direct", (GATES, NODES)),
        ("dgx2", ("symmetry: rotate 2 within node\n",)),
        ("ring:4", ("symmetry: reflect along x\n",)),
    ],
)
def test_sums_are_moved_with_the_ranks_that_gather_them(text: str, rules: tuple[str, ...]) -> None:
    machine = topology(text)
    sketch = ruled(machine, *rules)
    least = lower_bound_us(bounds(machine, make("allreduce", machine.ranks)), 10**9)
    most_us = 1.05 * float(least)
    schedule = best(solved(machine, "allreduce", 10**9, sketch, enough=most_us))
    assert verify(schedule, sketch).ok
    assert simulate(schedule, 10**9).time_us <= most_us


def test_a_sum_has_a_piece_for_each_rank_or_no_symmetry() -> None:
    machine = topology("ring:4")
    sketch = ruled(machine, "chunks 1\n", "symmetry: rotate 1\n")
    with pytest.raises(UserError, match=r"takes one piece for each of .* not 1"):
        solved(machine, "allreduce", 1000, sketch)


def test_what_it_cannot_do_is_said() -> None:
    machine = topology("ring:4")
    with pytest.raises(UserError, match="no way was found"):
        solved(machine, "allgather", 1000, ruled(machine, "max steps 1\n"))
    cut = ruled(machine, "forbid links 0 <-> 1, 0 <-> 3\n")
    with pytest.raises(UserError, match="cannot reach"):
        solved(machine, "allgather", 1000, cut)
    with pytest.raises(UserError, match="chunks is 0 or more"):
        solved(machine, "allgather", 1000, engine="sketched{chunks=-1}")


def test_the_seed_decides_and_not_the_clock() -> None:
    machine = topology("mesh:3x3")
    first, second = (
        best(solved(machine, "allgather", 10**6, engine="sketched{chunks=2,patience=100}"))
        for _ in range(2)
    )
    for name, column in first.columns().items():
        assert (column == second.columns()[name]).all(), name


@pytest.mark.parametrize("hops", [1, 2])
def test_a_sum_there_and_back_takes_hops_both_ways(hops: int) -> None:
    machine = topology("full:8")
    sketch = ruled(machine, f"max hops {hops}\n", "symmetry: rotate 1\n")
    for engine in ("sketched{patience=500}", "portfolio"):
        assert verify(best(solved(machine, "allreduce", 1 << 20, sketch, engine)), sketch).ok
